"""What a grant lets begin, without a loop or a limiter."""

from dataclasses import replace

import pytest

from aegish_dist.ratelimit.fair_queue import ExpectedUsage, Permit, RunQueue
from aegish_dist.ratelimit.local_lease import (
    ANY_NUMBER,
    FIRST_ITEMS,
    LEASE_S,
    PROBERS,
    LocalLease,
    ProcessSemaphore,
)
from aegish_dist.ratelimit.protocol import Lease

FREE = Lease(0, slots=None, permits=0, metered=False, limited=False, wait_s=1.0)
METERED = replace(FREE, metered=True, permits=3)
PARKED = replace(FREE, metered=True, limited=True, parked=True)
PROBE = replace(PARKED, permits=1, probe=True)


class Clock:
    """Tells the time it is set to, in seconds."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def begin(ration: LocalLease, number: int = 10) -> list[Permit]:
    """Begin as many of so many calls as may begin."""
    line = RunQueue("run", None)
    return [permit for _ in range(number) if (permit := ration.begin(line, ExpectedUsage()))]


@pytest.mark.parametrize(
    ("grant", "begun"),
    [
        (FREE, 10),
        (METERED, 3),
        (replace(FREE, slots=4), 4),
        (replace(METERED, slots=2), 2),
        (PARKED, 0),
        (PROBE, 1),
    ],
)
def test_what_may_begin(grant: Lease, begun: int) -> None:
    """Slots bound the calls in flight, permits those that begin; without either all begin."""
    ration = LocalLease(ProcessSemaphore(100), Clock())
    assert begin(ration) == []
    ration.take(grant, asked_at=0.0)
    assert len(begin(ration)) == ration.held == begun
    assert ration.probing is grant.probe


def test_a_lease_ends() -> None:
    """Nothing begins when a grant is too old, or given back."""
    clock = Clock()
    ration = LocalLease(ProcessSemaphore(100), clock)
    ration.take(FREE, asked_at=1.0)
    clock.now_s = 1.0 + LEASE_S
    assert len(begin(ration, 1)) == 1
    clock.now_s += 0.1
    assert begin(ration) == []
    ration.take(FREE, asked_at=clock.now_s)
    ration.lapse()
    assert begin(ration) == []


def test_places_are_shared() -> None:
    """Two models together begin no more calls than the process has places."""
    places, clock = ProcessSemaphore(3), Clock()
    first, second = LocalLease(places, clock), LocalLease(places, clock)
    for ration in (first, second):
        ration.take(FREE, asked_at=0.0)
    (permit, _) = begin(first, 2)
    assert len(begin(second)) == 1
    first.end(permit)
    assert len(begin(second)) == 1


def test_asking_before_the_time() -> None:
    """It helps when a permit may be had: something was freed, or nobody waited at the last ask."""
    ration = LocalLease(ProcessSemaphore(100), Clock())
    assert not ration.worth_asking
    ration.take(replace(FREE, slots=1), asked_at=0.0)
    (permit,) = begin(ration)
    ration.settle(waiting=0)
    assert ration.worth_asking
    ration.settle(waiting=1)
    assert not ration.worth_asking
    ration.end(permit)
    assert ration.worth_asking
    ration.ask()
    assert not ration.worth_asking
    ration.take(replace(METERED, limited=True), asked_at=0.0)
    ration.settle(waiting=0)
    assert not ration.worth_asking


def test_an_unused_probe_is_given_back() -> None:
    """Once the limiter is asked again, it may have gone to another worker."""
    ration = LocalLease(ProcessSemaphore(100), Clock())
    ration.take(PROBE, asked_at=0.0)
    ration.ask()
    assert begin(ration) == []


@pytest.mark.parametrize(
    ("grant", "prefetch_target"),
    [
        (FREE, 2 * ANY_NUMBER),
        (replace(FREE, slots=7), 14),
        (replace(METERED, rate=10.0), 3 + 10),
        (replace(METERED, rate=0.1), 3 + PROBERS),
        (PARKED, PROBERS),
    ],
)
def test_supply(grant: Lease, prefetch_target: int) -> None:
    """A worker holds what is in flight and a second's worth of a throttled model, two at least."""
    ration = LocalLease(ProcessSemaphore(100), Clock())
    assert ration.prefetch_target == FIRST_ITEMS
    ration.take(METERED, asked_at=0.0)
    begin(ration, 3)
    ration.take(grant, asked_at=0.0)
    assert ration.prefetch_target == prefetch_target
