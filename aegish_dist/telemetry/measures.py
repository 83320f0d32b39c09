"""The catalogue of measures: every name that a worker or the exporter gives Prometheus.

Alerts, the dashboard and the scaling rule of `deploy/` use these names and no others; a test
compares them. Names follow Prometheus' conventions: base units, `_total` for counters, one meaning
per label. Labels are bounded: models of the catalog and of open runs, and enumerations; never a
command, a message, an address, or a run where not said.
"""

from dataclasses import dataclass
from enum import StrEnum


class MeasureKind(StrEnum):
    """Prometheus' kinds of measures."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class FleetMeasure:
    """One measure."""

    name: str
    """As it is exposed; a histogram's without `_bucket`, `_sum` and `_count`."""
    kind: MeasureKind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, without infinity."""


SECONDS = (0.005, 0.02, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 60, 180, 600)
"""Buckets of waits: from an answer at once to the longest deadlines."""
GROUP_SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
GROUP_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500)
"""Buckets of verdicts per insert."""

WORKER = (
    FleetMeasure(
        "aegish_worker_info",
        MeasureKind.GAUGE,
        "1; version and name of the worker.",
        ("version", "worker"),
    ),
    FleetMeasure(
        "aegish_worker_ready", MeasureKind.GAUGE, "1 while the worker takes items, else 0."
    ),
    FleetMeasure(
        "aegish_verdicts_total",
        MeasureKind.COUNTER,
        "Verdicts stored, by outcome.",
        ("model", "outcome"),
    ),
    FleetMeasure(
        "aegish_calls_total",
        MeasureKind.COUNTER,
        "Calls that ended: answered, or the class of their error, of which rate_limit is a 429.",
        ("model", "result"),
    ),
    FleetMeasure(
        "aegish_retries_total",
        MeasureKind.COUNTER,
        "Calls that followed a failed one of the same item.",
        ("model",),
    ),
    FleetMeasure(
        "aegish_tokens_total",
        MeasureKind.COUNTER,
        "Tokens of stored verdicts, by kind: input, output, reasoning, cache_read, cache_write.",
        ("model", "kind"),
    ),
    FleetMeasure(
        "aegish_cost_usd_total",
        MeasureKind.COUNTER,
        "Cost of stored verdicts in US dollars, where the price is known.",
        ("model",),
    ),
    FleetMeasure(
        "aegish_wait_seconds",
        MeasureKind.HISTOGRAM,
        "Time of an item by part: queue, limiter, backoff, service.",
        ("model", "part"),
        SECONDS,
    ),
    FleetMeasure(
        "aegish_items_in_flight", MeasureKind.GAUGE, "Items that the worker holds.", ("model",)
    ),
    FleetMeasure("aegish_calls_in_flight", MeasureKind.GAUGE, "Calls under way.", ("model",)),
    FleetMeasure(
        "aegish_items_waiting",
        MeasureKind.GAUGE,
        "Items held and not called now, by reason: rate, slots, circuit, backoff.",
        ("model", "reason"),
    ),
    FleetMeasure(
        "aegish_limiter_permits",
        MeasureKind.GAUGE,
        "Permits to begin a call that the worker's lease still holds.",
        ("model",),
    ),
    FleetMeasure(
        "aegish_model_parked",
        MeasureKind.GAUGE,
        "1 while this worker's circuit of the model is open and the first probes have failed.",
        ("model",),
    ),
    FleetMeasure(
        "aegish_message_leases", MeasureKind.GAUGE, "Messages of the broker that the worker holds."
    ),
    FleetMeasure(
        "aegish_store_healthy", MeasureKind.GAUGE, "1 while the database takes verdicts, else 0."
    ),
    FleetMeasure(
        "aegish_store_write_seconds",
        MeasureKind.HISTOGRAM,
        "Duration of one insert of a group of verdicts.",
        (),
        GROUP_SECONDS,
    ),
    FleetMeasure(
        "aegish_store_group_verdicts",
        MeasureKind.HISTOGRAM,
        "Verdicts per insert.",
        (),
        GROUP_SIZES,
    ),
    FleetMeasure(
        "aegish_store_waiting_verdicts", MeasureKind.GAUGE, "Verdicts that wait to be inserted."
    ),
    FleetMeasure(
        "aegish_store_lag_seconds",
        MeasureKind.GAUGE,
        "Age of the oldest verdict that waits to be inserted; 0 when none does.",
    ),
    FleetMeasure(
        "aegish_verdicts_spooled_total",
        MeasureKind.COUNTER,
        "Verdicts left in a file because the database refused them or was away at the end.",
    ),
)
"""Given by every worker that has a port for metrics."""

EXPORTER = (
    FleetMeasure(
        "aegish_up",
        MeasureKind.GAUGE,
        "1 while the source answers: database, broker, limiter.",
        ("source",),
    ),
    FleetMeasure(
        "aegish_exporter_refresh_seconds",
        MeasureKind.GAUGE,
        "Duration of the last reading of a source.",
        ("source",),
    ),
    FleetMeasure(
        "aegish_queue_messages",
        MeasureKind.GAUGE,
        "Messages that wait in the queues of a model.",
        ("model",),
    ),
    FleetMeasure(
        "aegish_queue_unacknowledged", MeasureKind.GAUGE, "Messages that workers hold.", ("model",)
    ),
    FleetMeasure(
        "aegish_queue_oldest_seconds",
        MeasureKind.GAUGE,
        "Age of the oldest message that waits for a model.",
        ("model",),
    ),
    FleetMeasure(
        "aegish_scaling_items",
        MeasureKind.GAUGE,
        "Items that workers are wanted for: queued and in flight, of runs that are not held.",
    ),
    FleetMeasure("aegish_workers", MeasureKind.GAUGE, "Living workers by version.", ("version",)),
    FleetMeasure(
        "aegish_fleet_items_in_flight",
        MeasureKind.GAUGE,
        "Items that living workers hold, by their heartbeats.",
        ("model",),
    ),
    FleetMeasure(
        "aegish_fleet_models_parked",
        MeasureKind.GAUGE,
        "1 for a model of an open run that a worker reports as parked.",
        ("model",),
    ),
    FleetMeasure(
        "aegish_heartbeat_age_seconds",
        MeasureKind.GAUGE,
        "Age of the oldest heartbeat of a living worker.",
    ),
    FleetMeasure(
        "aegish_open_runs",
        MeasureKind.GAUGE,
        "Runs with an open model, by state: asked, held.",
        ("state",),
    ),
    FleetMeasure(
        "aegish_run_items_planned",
        MeasureKind.GAUGE,
        "Items of an open run; of the newest fifty.",
        ("run",),
    ),
    FleetMeasure(
        "aegish_run_items_done",
        MeasureKind.GAUGE,
        "First tries of an open run that have a verdict; of the newest fifty.",
        ("run",),
    ),
    FleetMeasure(
        "aegish_run_cost_usd",
        MeasureKind.GAUGE,
        "Cost of an open run so far in US dollars; of the newest fifty.",
        ("run",),
    ),
    FleetMeasure(
        "aegish_run_cost_cap_usd",
        MeasureKind.GAUGE,
        "Cap on the cost of an open run that is not held; absent without one.",
        ("run",),
    ),
    FleetMeasure(
        "aegish_last_verdict_age_seconds",
        MeasureKind.GAUGE,
        "Time since the newest verdict of any open run that is not held; absent without one.",
    ),
    FleetMeasure(
        "aegish_aggregations_due",
        MeasureKind.GAUGE,
        "Aggregations that are asked for and not finished.",
    ),
    FleetMeasure(
        "aegish_aggregation_oldest_seconds",
        MeasureKind.GAUGE,
        "Age of the oldest of them; 0 when there is none.",
    ),
    FleetMeasure(
        "aegish_batches", MeasureKind.GAUGE, "Batches that are not ended, by state.", ("state",)
    ),
    FleetMeasure(
        "aegish_batch_items", MeasureKind.GAUGE, "Items in batches that are not ended.", ("model",)
    ),
    FleetMeasure(
        "aegish_batch_oldest_seconds",
        MeasureKind.GAUGE,
        "Age of the oldest batch that is not ended; 0 when there is none.",
    ),
    FleetMeasure(
        "aegish_batch_creating_seconds",
        MeasureKind.GAUGE,
        "Longest time for which a batch has been handed over without an answer; 0 when none is.",
    ),
    FleetMeasure(
        "aegish_table_bytes", MeasureKind.GAUGE, "Size of a table with its indexes.", ("table",)
    ),
    FleetMeasure(
        "aegish_table_dead_rows",
        MeasureKind.GAUGE,
        "Rows of a table that wait for vacuum, as estimated.",
        ("table",),
    ),
    FleetMeasure(
        "aegish_database_connections",
        MeasureKind.GAUGE,
        "Connections to the database server that are in use.",
    ),
    FleetMeasure(
        "aegish_database_connections_max",
        MeasureKind.GAUGE,
        "Connections that the database server takes.",
    ),
    FleetMeasure(
        "aegish_redis_memory_bytes",
        MeasureKind.GAUGE,
        "Memory that the Redis of a source uses.",
        ("source",),
    ),
    FleetMeasure(
        "aegish_redis_memory_max_bytes",
        MeasureKind.GAUGE,
        "Memory that the Redis of a source may use; 0: unbounded.",
        ("source",),
    ),
)
"""Given by the exporter: what only the database, the broker and the limiter know."""
