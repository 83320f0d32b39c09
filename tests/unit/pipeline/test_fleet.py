"""Measures of a fleet, from readings put together by hand."""

from collections import namedtuple
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from aegish_dist.broker.client import QueueReadings
from aegish_dist.broker.messages import queue_name
from aegish_dist.db.fleet import Fleet, FleetState, ModelBlock, OpenRun, OpenRunModel
from aegish_dist.pipeline.fleet import (
    VerdictClock,
    of_broker,
    of_counts,
    of_database,
    scaling_items,
)
from aegish_dist.telemetry.metrics import EXPORTER

OpenBatches = namedtuple("OpenBatches", "model state batches requests oldest_s creating_s")
TableState = namedtuple("TableState", "name bytes dead_rows inserted")
CountedModel = namedtuple("CountedModel", "done cost_usd")
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
A, B = (OpenRunModel(key, f"lab/{name}", queue_name(f"lab/{name}", "r1")) for key, name in ((1, "a"), (2, "b")))  # fmt: skip
RUN = OpenRun("r1", False, NOON, 100, 5.0, (1, 2, 3), (A, B))
HELD = OpenRun("r0", True, NOON, 10, 9.0, (7,), (OpenRunModel(7, "lab/c", "aegish.lab/c#r0"),))
FLEET = Fleet(
    workers=2,
    in_flight={("r1", "lab/a"): 4, ("r0", "lab/c"): 2},
    versions={"1.2.0": 1, "": 1},
    oldest_report_s=0.75,
)
STATE = FleetState(
    fleet=FLEET,
    runs=(RUN, HELD),
    aggregations_due=0,
    aggregation_oldest_s=None,
    batches=(),
    tables=(TableState("verdicts", 8192, 3, 50),),
    connections=9,
    connections_max=100,
    newest_verdict_age_s=40.0,
)
QUEUES = QueueReadings(
    waiting={A.queue: 20, B.queue: 0, "aegish.lab/c#r0": 5},
    oldest_at={A.queue: 1000.0},
    unacknowledged=6,
    unacknowledged_of={A.queue: 4.2, "aegish.lab/c#r0": 1.8},
    memory_bytes=1_000,
    memory_max_bytes=0,
)


PARKED = replace(STATE, fleet=replace(FLEET, halts={("", "lab/a"): ModelBlock.PARKED}))
IDLE = replace(STATE, runs=(HELD,))
TWO = OpenBatches("lab/c", "in_progress", 2, 900, 1.0, 1.0)
BEHIND = replace(IDLE, aggregations_due=1, batches=(TWO,))


def test_the_database_gives_its_measures() -> None:
    """Workers by version, items by model, runs by state, caps where there are any."""
    read = of_database(STATE)
    assert read["aegish_workers"] == {("1.2.0",): 1, ("unknown",): 1}
    assert read["aegish_fleet_items_in_flight"] == {("lab/a",): 4, ("lab/c",): 2}
    assert read["aegish_open_runs"] == {("asked",): 1, ("held",): 1}
    assert read["aegish_run_items_planned"] == {("r1",): 300, ("r0",): 10}
    assert read["aegish_run_cost_cap_usd"] == {("r1",): 5.0}
    assert read["aegish_heartbeat_age_seconds"] == {(): 0.75}
    assert read["aegish_aggregation_oldest_seconds"] == {(): 0.0}
    assert read["aegish_database_connections"] == {(): 9}


def test_without_workers_there_are_none() -> None:
    """The measure is there and 0, so that an alert can compare it."""
    read = of_database(replace(STATE, fleet=Fleet(0, {})))
    assert list(read["aegish_workers"].values()) == [0]


def test_batches_are_counted_by_state() -> None:
    """States without one are 0; only one that is being handed over has waited for an answer."""
    batches = (
        OpenBatches("lab/a", "creating", 1, 300, 700.0, 650.0),
        OpenBatches("lab/a", "in_progress", 2, 1_000, 9_000.0, 8_990.0),
    )
    read = of_database(replace(STATE, batches=batches))
    states = {"planned": 0, "creating": 1, "in_progress": 2, "collecting": 0}
    assert read["aegish_batches"] == {(state,): number for state, number in states.items()}
    assert read["aegish_batch_items"] == {("lab/a",): 1_300}
    assert read["aegish_batch_oldest_seconds"] == {(): 9_000.0}
    assert read["aegish_batch_creating_seconds"] == {(): 650.0}


def test_the_broker_gives_its_measures() -> None:
    """Queues of a model add up over runs; a model without a waiting message has the age 0."""
    read = of_broker(QUEUES, STATE, 1_012.5)
    assert read["aegish_queue_messages"] == {("lab/a",): 20, ("lab/b",): 0, ("lab/c",): 5}
    assert read["aegish_queue_oldest_seconds"] == {("lab/a",): 12.5, ("lab/b",): 0, ("lab/c",): 0}
    assert read["aegish_queue_unacknowledged"] == {("lab/a",): 4, ("lab/c",): 2}
    assert read["aegish_redis_memory_bytes"] == {("broker",): 1_000}


def test_without_the_database_nothing_is_scaled() -> None:
    """No number is better than one that knows neither held runs nor batches."""
    assert "aegish_scaling_items" not in of_broker(QUEUES, None, 1_012.5)


@pytest.mark.parametrize(
    ("what", "state", "queues", "items"),
    [
        # 20 of a, one for the open model b, nothing queued of the held run, 6 that workers hold.
        ("ordinary", STATE, QUEUES, 20 + 1 + 6),
        ("parked: a worker has to probe it", PARKED, QUEUES, 1 + 1 + 6),
        ("rabbitmq: by heartbeats", STATE, replace(QUEUES, unacknowledged=None), 20 + 1 + 4 + 2),
        ("an aggregation and two batches", BEHIND, replace(QUEUES, unacknowledged=0), 3),
        ("nothing", IDLE, replace(QUEUES, unacknowledged=0), 0),
    ],
)
def test_scaling_follows_all_that_needs_a_worker(
    what: str, state: FleetState, queues: QueueReadings, items: int
) -> None:
    """All that waits or is held; it is 0 only when no worker has anything to do."""
    assert scaling_items(queues, state) == items, what


def test_a_run_is_counted_when_all_of_its_models_are() -> None:
    """A part of a run would look like a run that goes backwards."""
    counted = {1: CountedModel(90, 0.5), 2: CountedModel(10, None)}
    assert of_counts([RUN], counted)["aegish_run_items_done"] == {}
    read = of_counts([RUN], counted | {3: CountedModel(100, 0.25)})
    assert read["aegish_run_items_done"] == {("r1",): 200}
    assert read["aegish_run_cost_usd"] == {("r1",): 0.75}


def test_the_age_of_the_newest_verdict() -> None:
    """A verdict, a run that is submitted and one that is resumed begin it again."""
    clock = VerdictClock()
    later = NOON + timedelta(hours=1)
    assert clock.last_verdict_age_s(STATE, later) == 40.0
    old = replace(STATE, newest_verdict_age_s=3_000.0)
    assert clock.last_verdict_age_s(old, later) == 3_000.0
    # Its rows went where deleted ones had been: only the number of inserted rows has changed.
    more = replace(old, tables=(TableState("verdicts", 8192, 3, 51),))
    assert clock.last_verdict_age_s(more, later) == 0.0
    assert clock.last_verdict_age_s(more, later + timedelta(seconds=7)) == 7.0

    paused = replace(more, runs=(HELD,))
    assert clock.last_verdict_age_s(paused, later + timedelta(minutes=50)) is None
    resumed = later + timedelta(minutes=55)
    assert clock.last_verdict_age_s(more, resumed) == 0.0
    fresh = replace(RUN, created_at=NOON + timedelta(hours=1, minutes=59))
    age = VerdictClock().last_verdict_age_s(replace(old, runs=(fresh,)), NOON + timedelta(hours=2))
    assert age == 60.0


def test_every_reading_is_in_the_catalogue() -> None:
    """With as many labels; a reading that is not would be left out of the page."""
    labels = {measure.name: len(measure.labels) for measure in EXPORTER}
    for readings in (of_database(STATE), of_broker(QUEUES, STATE, 0.0), of_counts([RUN], {})):
        for name, series in readings.items():
            assert {len(values) for values in series} <= {labels[name]}, name
