"""The catalogue of measures, and the page that lists it."""

import re
from pathlib import Path

from aegish_dist.telemetry.metrics import EXPORTER, WORKER, FleetMeasure

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"


def row(measure: FleetMeasure) -> str:
    labels = ", ".join(f"`{label}`" for label in measure.labels) or "-"
    return f"| `{measure.name}` | {measure.kind} | {labels} | {measure.help} |"


def test_the_page_lists_the_catalogue() -> None:
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `aegish_")]
    assert rows == [row(measure) for measure in (*WORKER, *EXPORTER)]


def test_names_follow_the_conventions() -> None:
    """Counters end in `_total`, nothing else does; base units; no name and no label is twice."""
    names = [measure.name for measure in (*WORKER, *EXPORTER)]
    assert len(set(names)) == len(names)
    for measure in (*WORKER, *EXPORTER):
        assert re.fullmatch(r"aegish_[a-z_]+", measure.name)
        assert (measure.kind == "counter") == measure.name.endswith("_total")
        assert not re.search(r"_(ms|milliseconds|minutes|kb|mb|percent)(_|$)", measure.name)
        assert len(set(measure.labels)) == len(measure.labels)
        assert list(measure.buckets) == sorted(set(measure.buckets))
        assert bool(measure.buckets) == (measure.kind == "histogram")
        assert measure.help.endswith(".")
        assert not set(measure.help) & {"\n", "\\"}
