"""Order of the tests for parallel workers: those that wait for servers first, shared out.

Tests of some tiers take seconds, most of which they wait. pytest-xdist's `worksteal` gives each of N
workers the N-th part of the list by number, and a worker without tests half of what another one has
left, from the end. So every part begins with its share of the long ones, which are running while
others compute; what is left for the end is short.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate, islice

import pytest

SECONDS = {"chaos": 13.0, "e2e": 6.0, "howto": 5.0}
"""Seconds of a test by tier, measured; those of the other tiers take a tenth of one."""


def tier(item: pytest.Item) -> str:
    """Return the folder of a test below `tests`."""
    return item.nodeid.split("/")[1] if item.nodeid.count("/") > 1 else ""


def shared_out(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return tests in an order whose parts of equal number begin with long tests of equal length.

    Neighbours stay neighbours, so that what a module shares is made once or twice.
    """
    long = [item for item in items if tier(item) in SECONDS]
    short = iter([item for item in items if tier(item) not in SECONDS])
    ordered: list[pytest.Item] = []
    for number, first in enumerate(_parts(long, workers)):
        size = (len(items) - len(ordered)) // (workers - number)
        ordered += first
        ordered += islice(short, max(0, size - len(first)))
    return [*ordered, *short]


def _parts(items: Sequence[pytest.Item], number: int) -> Iterable[list[pytest.Item]]:
    """Cut tests into so many runs of about equal length."""
    ends = list(accumulate(SECONDS[tier(item)] for item in items))
    parts: list[list[pytest.Item]] = [[] for _ in range(number)]
    for item, end in zip(items, ends, strict=True):
        parts[min(number - 1, int((end - 0.01) * number / ends[-1]))].append(item)
    return parts
