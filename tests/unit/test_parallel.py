"""Parallel work with results in order, and with a bound on what runs ahead."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from aegish_dist.errors import ConfigError
from aegish_dist.parallel import in_order, map_in_processes


def test_results_are_in_order_and_few_are_ahead() -> None:
    """A slow user of the results holds up the taking of arguments."""
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


def test_an_exception_comes_in_the_place_of_its_result() -> None:
    """After the results before it."""
    with ThreadPoolExecutor(4) as threads:
        results = in_order(threads, int, ["1", "two", "3"], ahead=3)
        assert next(results) == 1
        with pytest.raises(ValueError, match="two"):
            next(results)


def test_results_of_processes_are_in_the_order_of_the_arguments() -> None:
    """Whichever process was first."""
    assert list(map_in_processes(str, range(20))) == [str(number) for number in range(20)]


def test_a_process_that_ends_early_gives_an_error_of_one_line() -> None:
    """As when the system ended it because memory ran out."""
    with pytest.raises(ConfigError, match="has ended: is there too little memory"):
        list(map_in_processes(os._exit, [1]))
