"""The life of batches in a real store, with a provider inside the test."""

from decimal import Decimal

import pytest
from sqlalchemy import Engine

from aegish_dist.core.batch import BatchLimits
from aegish_dist.core.batch_rules import BatchPace
from tests.integration.batch_provider import BROKEN, PACE, Bench, FakeProvider, batched_run


def test_a_run_from_plan_to_verdicts(engine: Engine) -> None:
    """Five items in batches of two get one verdict each, at half the price and without times."""
    batched_run(engine, 5)
    bench = Bench(engine, FakeProvider(limits=BatchLimits(2, 1_000)))

    bench.keep(bench.has_verdicts(5))

    assert [len(requests) for _, requests in bench.provider.made.values()] == [2, 2, 1]
    assert bench.waiting_items() == 0
    rows = bench.rows(
        "SELECT outcome, cost_usd, service_ms, total_ms, attempts, worker FROM verdicts"
    )
    assert rows == [("BLOCK", Decimal("0.0015"), None, None, 1, "w1")] * 5
    assert list(bench.work.readings["aegish_verdicts_total"].values()) == [5]
    assert bench.rows("SELECT sum(expected_usd) > 0, max(counts ->> 'succeeded') FROM batches") == [
        (True, "2")
    ]


@pytest.mark.parametrize("creates", [True, False])
def test_a_creation_whose_answer_is_lost(engine: Engine, creates: bool) -> None:
    """It is found if it exists, and made again only after it was certainly not."""
    batched_run(engine, 3)
    provider = FakeProvider(create_faults=[(creates, BROKEN)], hides=1)
    bench = Bench(engine, provider, pace=BatchPace(0.5) if creates else PACE)

    bench.keep(bench.has_verdicts(3))

    assert len(bench.provider.made) == 1
    assert len(bench.provider.asked) == 3
    assert bench.rows("SELECT adopted FROM batches") == [(creates,)]
