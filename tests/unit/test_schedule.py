"""The order in which parallel workers run the tests."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.schedule import shared_out


def named(tier: str, number: int) -> list[Any]:
    return [SimpleNamespace(nodeid=f"tests/{tier}/test_x.py::test_{n}") for n in range(number)]


LONG = named("chaos", 3) + named("e2e", 7)
"""39 s and 42 s: four parts of 20.25 s."""


def test_each_part_begins_with_long_tests_of_equal_length() -> None:
    """Of 22 tests, parts of 5, 5, 6 and 6; a drill that ends beyond a part is of the next one."""
    ordered = shared_out(LONG + named("unit", 12), 4)
    parts = ordered[:5], ordered[5:10], ordered[10:16], ordered[16:]
    long = [[LONG.index(test) for test in part if test in LONG] for part in parts]
    assert long == [[0], [1, 2], [3, 4, 5], [6, 7, 8, 9]]
    assert all(
        part[: len(found)] == [LONG[n] for n in found]
        for part, found in zip(parts, long, strict=True)
    )


@pytest.mark.parametrize("long", [LONG, []])
@pytest.mark.parametrize("number", [0, 1, 40])
@pytest.mark.parametrize("workers", [2, 3, 4, 16])
def test_no_test_is_lost(long: list[Any], number: int, workers: int) -> None:
    """Every test once, whatever the parts; short ones keep their order."""
    short = named("integration", number)
    ordered = shared_out(long + short, workers)
    assert [test for test in ordered if test in short] == short
    assert [test for test in ordered if test in long] == long
    assert len(ordered) == len(long) + number
