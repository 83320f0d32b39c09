"""Prometheus' text format, read again by Prometheus' own library."""

from prometheus_client.parser import text_string_to_metric_families

from aegish_dist.telemetry.exposition import Buckets, exposition
from aegish_dist.telemetry.measures import FleetMeasure, MeasureKind

ITEMS = FleetMeasure("aegish_items", MeasureKind.GAUGE, "Items.", ("model",))
CALLS = FleetMeasure("aegish_calls_total", MeasureKind.COUNTER, "Calls.")
WAITS = FleetMeasure("aegish_wait_seconds", MeasureKind.HISTOGRAM, "Waits.", ("model",), (0.5, 2.0))


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Return the values of a page by name and labels."""
    return {
        (sample.name, *map(str, sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_kind_is_read_again() -> None:
    """Buckets are cumulated; the sum and the count follow them."""
    page = exposition(
        [ITEMS, CALLS, WAITS],
        {
            ITEMS.name: {("a/b",): 3},
            CALLS.name: {(): 7},
            WAITS.name: {("a/b",): Buckets((1, 2, 4), 20.5)},
        },
    )

    assert samples(page) == {
        ("aegish_items", "a/b"): 3,
        ("aegish_calls_total",): 7,
        ("aegish_wait_seconds_bucket", "a/b", "0.5"): 1,
        ("aegish_wait_seconds_bucket", "a/b", "2.0"): 3,
        ("aegish_wait_seconds_bucket", "a/b", "+Inf"): 7,
        ("aegish_wait_seconds_sum", "a/b"): 20.5,
        ("aegish_wait_seconds_count", "a/b"): 7,
    }
    assert page.startswith("# HELP aegish_items Items.\n# TYPE aegish_items gauge\n")


def test_a_measure_without_a_value_is_left_out() -> None:
    """No line names it."""
    assert exposition([ITEMS, CALLS], {ITEMS.name: {}}) == ""


def test_hostile_labels_stay_labels() -> None:
    """Quotes, backslashes and line breaks forge no further sample."""
    name = 'a"} 1\naegish_calls_total 9\\'
    page = exposition([ITEMS], {ITEMS.name: {(name,): 3, ("\ud800\x1b[31m",): 4}})

    read = samples(page)
    assert {key[0] for key in read} == {"aegish_items"}
    assert sorted(read.values()) == [3, 4]
    assert page.isascii()
