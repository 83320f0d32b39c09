"""The catalogue of measures: every name that a worker or the exporter gives Prometheus.

`deploy/` uses these names and no others; a test compares them. Base units, `_total` for counters,
one meaning per label. Labels are bounded: models of the catalog and of open runs, and enumerations;
never a command, a message or an address.
"""

from enum import StrEnum

from msgspec import Struct


class MeasureKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class FleetMeasure(Struct, frozen=True):
    kind: MeasureKind
    name: str  # as it is exposed; a histogram's without `_bucket`, `_sum` and `_count`
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()  # upper bounds of a histogram, without infinity


def _counter(name: str, text: str, *labels: str) -> FleetMeasure:
    return FleetMeasure(MeasureKind.COUNTER, name, text, labels)


def _gauge(name: str, text: str, *labels: str) -> FleetMeasure:
    return FleetMeasure(MeasureKind.GAUGE, name, text, labels)


def _histogram(name: str, text: str, *labels: str, buckets: tuple[float, ...]) -> FleetMeasure:
    return FleetMeasure(MeasureKind.HISTOGRAM, name, text, labels, buckets)


_SECONDS = (0.005, 0.02, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 60, 180, 600)
_GROUP_SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
_GROUP_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500)

WORKER = (
    _gauge("aegish_worker_info", "1; version and name of the worker.", "version", "worker"),
    _gauge("aegish_worker_ready", "1 while the worker takes items, else 0."),
    _counter("aegish_verdicts_total", "Verdicts stored, by outcome.", "model", "outcome"),
    _counter(
        "aegish_calls_total",
        "Calls that ended: answered, or the class of their error; rate_limit is a 429.",
        "model",
        "result",
    ),
    _counter("aegish_retries_total", "Calls that followed a failed one of the same item.", "model"),
    _counter(
        "aegish_tokens_total",
        "Tokens of stored verdicts, by kind: input, output, reasoning, cache_read, cache_write.",
        "model",
        "kind",
    ),
    _counter(
        "aegish_cost_usd_total",
        "Cost of stored verdicts in US dollars, where the price is known.",
        "model",
    ),
    _histogram(
        "aegish_wait_seconds",
        "Time of an item by part: queue, limiter, backoff, service.",
        "model",
        "part",
        buckets=_SECONDS,
    ),
    _gauge("aegish_items_in_flight", "Items that the worker holds.", "model"),
    _gauge("aegish_calls_in_flight", "Calls under way.", "model"),
    _gauge(
        "aegish_items_waiting",
        "Items held and not called now, by reason: rate, slots, share, circuit, backoff.",
        "model",
        "reason",
    ),
    _gauge(
        "aegish_limiter_permits",
        "Permits to begin a call that the worker's lease still holds.",
        "model",
    ),
    _gauge(
        "aegish_model_parked",
        "1 while this worker's circuit of the model is open and the first probes have failed.",
        "model",
    ),
    _gauge("aegish_message_leases", "Messages of the broker that the worker holds."),
    _gauge("aegish_store_healthy", "1 while the database takes verdicts, else 0."),
    _histogram(
        "aegish_store_write_seconds",
        "Duration of one insert of a group of verdicts.",
        buckets=_GROUP_SECONDS,
    ),
    _histogram("aegish_store_group_verdicts", "Verdicts per insert.", buckets=_GROUP_SIZES),
    _gauge("aegish_store_waiting_verdicts", "Verdicts that wait to be inserted."),
    _gauge(
        "aegish_store_lag_seconds",
        "Age of the oldest verdict that waits to be inserted; 0 when none does.",
    ),
    _counter(
        "aegish_verdicts_spooled_total",
        "Verdicts left in a file because the database refused them or was away at the end.",
    ),
)
"""Given by every worker that has a port for metrics."""

EXPORTER = (
    _gauge("aegish_up", "1 while the source answers: database, broker, limiter.", "source"),
    _gauge(
        "aegish_exporter_refresh_seconds", "Duration of the last reading of a source.", "source"
    ),
    _gauge("aegish_queue_messages", "Messages that wait in the queues of a model.", "model"),
    _gauge("aegish_queue_unacknowledged", "Messages that workers hold.", "model"),
    _gauge(
        "aegish_queue_oldest_seconds", "Age of the oldest message that waits for a model.", "model"
    ),
    _gauge(
        "aegish_scaling_items",
        "Items that workers are wanted for: queued and in flight, of runs that are not held.",
    ),
    _gauge("aegish_workers", "Living workers by version.", "version"),
    _gauge(
        "aegish_fleet_items_in_flight",
        "Items that living workers hold, by their heartbeats.",
        "model",
    ),
    _gauge(
        "aegish_fleet_models_parked",
        "1 for a model of an open run that a worker reports as parked.",
        "model",
    ),
    _gauge("aegish_heartbeat_age_seconds", "Age of the oldest heartbeat of a living worker."),
    _gauge("aegish_open_runs", "Runs with an open model, by state: asked, held.", "state"),
    _gauge("aegish_run_items_planned", "Items of an open run; of the newest fifty.", "run"),
    _gauge(
        "aegish_run_items_done",
        "First tries of an open run that have a verdict; of the newest fifty.",
        "run",
    ),
    _gauge(
        "aegish_run_cost_usd",
        "Cost of an open run so far in US dollars; of the newest fifty.",
        "run",
    ),
    _gauge(
        "aegish_run_cost_cap_usd",
        "Cap on the cost of an open run that is not held; absent without one.",
        "run",
    ),
    _gauge(
        "aegish_last_verdict_age_seconds",
        "Time since the newest verdict of any open run that is not held; absent without one.",
    ),
    _gauge("aegish_aggregations_due", "Aggregations that are asked for and not finished."),
    _gauge("aegish_aggregation_oldest_seconds", "Age of the oldest of them; 0 when there is none."),
    _gauge("aegish_batches", "Batches that are not ended, by state.", "state"),
    _gauge("aegish_batch_items", "Items in batches that are not ended.", "model"),
    _gauge(
        "aegish_batch_oldest_seconds",
        "Age of the oldest batch that is not ended; 0 when there is none.",
    ),
    _gauge(
        "aegish_batch_creating_seconds",
        "Longest time for which a batch has been handed over without an answer; 0 when none is.",
    ),
    _gauge("aegish_table_bytes", "Size of a table with its indexes.", "table"),
    _gauge(
        "aegish_table_dead_rows", "Rows of a table that wait for vacuum, as estimated.", "table"
    ),
    _gauge("aegish_database_connections", "Connections to the database server that are in use."),
    _gauge("aegish_database_connections_max", "Connections that the database server takes."),
    _gauge("aegish_redis_memory_bytes", "Memory that the Redis of a source uses.", "source"),
    _gauge(
        "aegish_redis_memory_max_bytes",
        "Memory that the Redis of a source may use; 0: unbounded.",
        "source",
    ),
)
"""Measures of the fleet, read from the database, the broker and the limiter."""
