"""Working side by side without running away."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from aegish_dist.in_order import in_order


def test_results_are_in_order_and_few_are_ahead() -> None:
    """Whoever is slow to use results holds up the taking of arguments."""
    taken = []

    def arguments() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    with ThreadPoolExecutor(4) as threads:
        results = in_order(threads, str, arguments(), ahead=3)
        assert taken == []
        assert [next(results), next(results)] == ["0", "1"]
        assert taken == list(range(5))
        assert list(results) == [str(number) for number in range(2, 100)]


def test_what_work_raises_comes_in_its_place() -> None:
    """After the results before it."""
    with ThreadPoolExecutor(4) as threads:
        results = in_order(threads, int, ["1", "two", "3"], ahead=3)
        assert next(results) == 1
        with pytest.raises(ValueError, match="two"):
            next(results)
