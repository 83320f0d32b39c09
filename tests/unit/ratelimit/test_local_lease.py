"""Calls that a lease lets begin, without a loop or a limiter."""

import pytest
from msgspec.structs import replace

from aegish_dist.ratelimit.fair_queue import ExpectedUsage, Permit, ProcessSemaphore, RunQueue
from aegish_dist.ratelimit.local_lease import LEASE_S, PREFETCH, LocalLease
from aegish_dist.ratelimit.usage_report import Lease

FREE = Lease(0, slots=None, permits=0, metered=False, limited=False, wait_s=1.0)
METERED = replace(FREE, metered=True, permits=3)
PARKED = replace(FREE, metered=True, limited=True, circuit_open=True)
PROBE = replace(PARKED, permits=1, probe=True)


def at_zero() -> float:
    """Tell the time of a clock that stands still."""
    return 0.0


def begin(local: LocalLease, number: int = 10) -> list[Permit]:
    run = RunQueue("run", None)
    return [permit for _ in range(number) if (permit := local.acquire(run, ExpectedUsage()))]


@pytest.mark.parametrize(
    ("lease", "begun"),
    [
        (FREE, 10),
        (METERED, 3),
        (replace(FREE, slots=4), 4),
        (replace(METERED, slots=2), 2),
        (PARKED, 0),
        (PROBE, 1),
    ],
)
def test_what_may_begin(lease: Lease, begun: int) -> None:
    local = LocalLease("lab/guard", ProcessSemaphore(100), at_zero)
    assert begin(local) == []
    local.renew(lease, requested_at_s=0.0)
    assert len(begin(local)) == local.held == begun
    assert local.probing is lease.probe


def test_a_lease_ends() -> None:
    now_s = 1.0 + LEASE_S
    local = LocalLease("lab/guard", ProcessSemaphore(100), lambda: now_s)
    local.renew(FREE, requested_at_s=1.0)
    assert len(begin(local, 1)) == 1
    now_s += 0.1
    assert begin(local) == []
    local.renew(FREE, requested_at_s=now_s)
    local.give_back()
    assert begin(local) == []


def test_asking_before_the_time() -> None:
    local = LocalLease("lab/guard", ProcessSemaphore(100), at_zero)
    assert not local.worth_renewing
    local.renew(replace(FREE, slots=1), requested_at_s=0.0)
    (permit,) = begin(local)
    local.note_waiting(0)
    assert local.worth_renewing
    local.note_waiting(1)
    assert not local.worth_renewing
    local.release(permit, cost=0)
    assert local.worth_renewing
    local.begin_request()
    assert not local.worth_renewing
    local.renew(replace(METERED, limited=True), requested_at_s=0.0)
    local.note_waiting(0)
    assert not local.worth_renewing


@pytest.mark.parametrize(
    ("lease", "prefetch_target"),
    [
        (FREE, 2 * PREFETCH.unlimited),
        (replace(FREE, slots=7), 14),
        (replace(METERED, rate=10.0), 3 + 10),
        (replace(METERED, rate=0.1), 3 + PREFETCH.probers),
        (PARKED, PREFETCH.probers),
    ],
)
def test_supply(lease: Lease, prefetch_target: int) -> None:
    local = LocalLease("lab/guard", ProcessSemaphore(100), at_zero)
    assert local.prefetch_target == PREFETCH.first_items
    local.renew(METERED, requested_at_s=0.0)
    begin(local, 3)
    local.renew(lease, requested_at_s=0.0)
    assert local.prefetch_target == prefetch_target
