"""The exporter's readings of a real database and of real brokers."""

import uuid
from collections.abc import Callable

import pytest
import redis
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist.broker.client import SAMPLED, publish, read_queues
from aegish_dist.broker.messages import queue_name
from aegish_dist.broker.redis_leases import LEASES, UNACKED
from aegish_dist.core.verdict import Item
from aegish_dist.db.engine import transaction
from aegish_dist.db.fleet import read_fleet, report_worker
from aegish_dist.db.missing import missing_items
from aegish_dist.pipeline.fleet import Exporter
from tests.integration.samples import BLOCKED, LS, TAR
from tests.integration.stored_runs import answer, execute, selected, stored_run
from tests.services import free_port, queue_application


def samples(page: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


@pytest.fixture
def exporter_of(engine: Engine, postgres_url: str) -> Callable[..., Exporter]:
    def make(broker_url: str, database: Engine = engine) -> Exporter:
        app = queue_application(broker_url, database_url=postgres_url)
        limiter = broker_url if broker_url.startswith("redis") else None
        return Exporter(database, engine, app, limiter)

    return make


def a_fleet(engine: Engine, broker_url: str, model: str) -> str:
    """Store a run of three items with one verdict, publish the others, report a worker."""
    with transaction(engine) as session:
        stored = stored_run(session, {TAR: BLOCKED}, models=[model])
        left = list(missing_items(session, stored.run_id))
        report_worker(session, "w", {(stored.run_id, model): 2})
    publish(queue_application(broker_url), left)
    return stored.run_id


def test_a_page_of_a_fleet(
    engine: Engine, redis_url: str, exporter_of: Callable[..., Exporter]
) -> None:
    """All that the servers hold is on the page, read by Prometheus' own library."""
    run_id = a_fleet(engine, redis_url, "test/a")
    exporter = exporter_of(redis_url)
    assert not exporter.pages["/readyz"]().good
    exporter.refresh()
    exporter.count()

    page = samples(exporter.pages["/metrics"]().text)
    assert page == page | {
        ("aegish_up", "database"): 1,
        ("aegish_up", "broker"): 1,
        ("aegish_up", "limiter"): 1,
        ("aegish_queue_messages", "test/a"): 2,
        ("aegish_scaling_items",): 2,
        ("aegish_fleet_items_in_flight", "test/a"): 2,
        ("aegish_run_items_planned", run_id): 3,
        ("aegish_run_items_done", run_id): 1,
        ("aegish_open_runs", "asked"): 1,
    }
    assert 0 <= page["aegish_queue_oldest_seconds", "test/a"] < 60
    assert 0 <= page["aegish_last_verdict_age_seconds",] < 60
    assert page["aegish_table_bytes", "verdicts"] > 0
    assert page["aegish_redis_memory_bytes", "limiter"] > 0
    assert exporter.pages["/readyz"]().good


def test_what_workers_hold_is_shared_out_by_a_sample(redis_url: str) -> None:
    """Also when there are more messages than are read; foreign entries belong to no queue."""
    app = queue_application(redis_url)
    queues = [queue_name(model, "run") for model in ("test/a", "test/b")]
    publish(app, [Item("run", model, key) for key in range(3 * SAMPLED) for model in ("test/a",)])
    with redis.Redis.from_url(redis_url) as client:
        for tag, message in enumerate(client.rpop(queues[0], 2 * SAMPLED) or []):
            entry = queues[0].encode() + b"\n" + message
            client.hset(UNACKED, str(tag), entry if tag % 4 else b"foreign")
            client.zadd(LEASES, {str(tag): 1.0})
        client.lpush(queues[1], "no JSON either")

    read = read_queues(app, queues)
    assert read.waiting == {queues[0]: SAMPLED, queues[1]: 1}
    assert set(read.oldest_at) == {queues[0]}
    assert read.unacknowledged == 2 * SAMPLED
    # Three quarters of 1,000; a sample of 500 errs by 14 (one standard deviation).
    assert 650 < read.unacknowledged_of[queues[0]] < 850


def test_rabbitmq_shows_what_waits(
    engine: Engine, rabbitmq_url: str, exporter_of: Callable[..., Exporter]
) -> None:
    """Neither ages nor what is held; scaling follows the heartbeats for those."""
    model = f"test/{uuid.uuid4().hex}"
    a_fleet(engine, rabbitmq_url, model)
    exporter = exporter_of(rabbitmq_url)
    exporter.refresh()
    page = samples(exporter.pages["/metrics"]().text)
    assert page["aegish_queue_messages", model] == 2
    assert page["aegish_scaling_items",] == 2 + 2
    assert not [key for key in page if key[0] == "aegish_queue_oldest_seconds"]


def test_a_source_that_is_away_takes_its_numbers_along(
    engine: Engine, redis_url: str, exporter_of: Callable[..., Exporter]
) -> None:
    """The page says so, and no rule follows an old number; it comes again by itself."""
    a_fleet(engine, redis_url, "test/a")
    exporter = exporter_of(f"redis://127.0.0.1:{free_port()}/0")
    exporter.refresh()
    page = samples(exporter.pages["/metrics"]().text)
    assert [page["aegish_up", each] for each in ("database", "broker", "limiter")] == [1, 0, 0]
    assert ("aegish_scaling_items",) not in page
    assert page["aegish_fleet_items_in_flight", "test/a"] == 2
    assert exporter.pages["/readyz"]().good


def test_a_database_without_tables_is_a_source_that_is_away(
    unmigrated_engine: Engine, redis_url: str, exporter_of: Callable[..., Exporter]
) -> None:
    """The exporter may start before the migration."""
    exporter = exporter_of(redis_url, unmigrated_engine)
    exporter.refresh()
    exporter.count()
    page = samples(exporter.pages["/metrics"]().text)
    assert [page["aegish_up", each] for each in ("database", "broker")] == [0, 1]


def test_readings_of_the_database_read_no_verdicts(engine: Engine) -> None:
    """Of a table of verdicts only its last pages, whatever its size."""
    with transaction(engine) as session:
        stored = stored_run(session, epochs=3_000)
        items = [stored.item(LS, epoch=epoch) for epoch in range(1, 3_001)]
        answer(session, stored, dict.fromkeys(items, BLOCKED))

    def read_rows() -> tuple[int, int, int]:
        execute(engine, "SELECT pg_stat_force_next_flush()")
        ((read, fetched, pages),) = selected(
            engine,
            "SELECT seq_tup_read, coalesce(idx_tup_fetch, 0), pg_relation_size(relid) / 8192"
            " FROM pg_stat_user_tables WHERE relname = 'verdicts'",
        )
        return read, fetched, pages

    read, fetched, pages = read_rows()
    with Session(engine) as session:
        state = read_fleet(session)
    read_after, fetched_after, _ = read_rows()

    assert state.newest_verdict_age_s is not None
    assert pages > 30
    # A page holds about 40 of these rows, and eight pages are read.
    assert read_after - read <= 9 * 136
    assert fetched_after == fetched
