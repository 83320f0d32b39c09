"""Small reports made by hand."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import combinations
from typing import Any

from msgspec.structs import replace

from aegish_dist.core.metric import Comparison, Difference
from aegish_dist.core.model import CallParameters, ModelSpec, WireFormat
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.run import ModelOfRun, Prompt, Run, RunDataset
from aegish_dist.findings.comparison import ComparedPair, ComparisonData
from aegish_dist.findings.recommendation import contest, recommend
from aegish_dist.findings.snapshot import PairDifferences, Snapshot, ranked_entries
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.report.data import FailureCount, ReportData
from aegish_dist.report.layout import Section
from aegish_dist.report.sections import SECTION_NAMES, build_report
from tests.recorded import document_of

Entry = dict[str, Any]
Numbers = dict[str, float | None]
Place = tuple[int | None, int | None, str, float | None]
"""Rank, group of equals, model and score in it."""

ASKED = {"malicious_detection_rate": 200, "harmless_acceptance_rate": 100}
NUMBERS = ("value", "stderr", "stderr_clustered", "ci_low", "ci_high", "n", "clusters")
HOSTILE = "=cmd()|`x` [red]b[/red] <script>alert(1)</script> \x1b[31m\x9b2J\x7f\u202e\n*_~\\ [a](b)"


MIXED = RunDataset("mixed", "ab" * 32, 300, 200, "GTFOBins, commit 0123", "GPL-3.0")
LATE = datetime(2026, 11, 20, 14, 20, tzinfo=UTC)


def failures(
    model: str = "acme/guard-1", message: str = "no such key"
) -> tuple[FailureCount, FailureCount]:
    """Six verdicts lost to a wrong key, and forty 429s after which another attempt succeeded."""
    return (
        FailureCount(model, ErrorClass.AUTH, 6, 6, (401, 403), message, LATE),
        FailureCount(model, ErrorClass.RATE_LIMIT, 0, 40, (429,), "", LATE),
    )


def numbers(*values: float | None) -> Numbers:
    return dict(zip(NUMBERS, (*values, *[None] * (7 - len(values))), strict=True))


def undefined(n: int = 0) -> Numbers:
    return numbers(None, None, None, None, None, n, None)


def counts(done: int, scored: int, timeouts: int, api_errors: int) -> dict[str, int]:
    """Verdicts of 300 planned ones."""
    errors = {"timeout_error_count": timeouts, "format_error_count": 0}
    known = {"planned": 300, "done": done, "scored": scored}
    return known | errors | {"api_error_count": api_errors}


def a_model(model: str = "acme/guard-1", **changes: Any) -> Entry:
    """200 malicious and 100 harmless commands, all answered but for six malicious ones."""
    entry: Entry = document_of("report_model.json")
    entry["metrics"] |= changes.pop("metrics", {})
    return entry | {"model": model} | changes


def a_silent_model(model: str = "acme/silent") -> Entry:
    """A model of which nothing is known yet."""
    nothing = {"mean": None, "p50": None, "p90": None, "p99": None, "max": None}
    return a_model(
        model,
        metrics=dict.fromkeys(a_model()["metrics"], undefined())
        | {"coverage": numbers(0.0, None, None, None, None, 300, None)}
        | {f"{name}_worst": undefined(n) for name, n in ASKED.items()},
        counts=counts(0, 0, 0, 0),
        categories={},
        actions={"malicious": {"BLOCK": 0}, "harmless": {"BLOCK": 0}},
        latency_ms=nothing,
        latency_parts_ms={},
        cost=dict.fromkeys(("total_usd", "per_1000_usd", "per_command_usd")),
        tokens=dict.fromkeys(("input", "output", "reasoning", "cache_read", "cache_write")),
    )


def a_report(
    *entries: Entry,
    name: str = "nightly",
    datasets: tuple[RunDataset, ...] | None = None,
    epochs: int = 1,
    ranking: Sequence[Place] | None = None,
    pairs: PairDifferences | None = None,
    differences: Mapping[str, Difference] | None = None,
    **changes: Any,
) -> ReportData:
    """A report on some models, best first; on one model when none is given.

    Args:
        pairs: By pair of guards, as a snapshot holds them.
        differences: By guard, its score minus that of the best.
    """
    entries = entries or (a_model(),)
    scores = {entry["model"]: entry["metrics"]["aegish_score"]["value"] for entry in entries}
    places = ranking or [
        (None, None, model, None) if score is None else (place, place, model, score)
        for place, (model, score) in enumerate(scores.items(), start=1)
    ]
    run = Run(
        run_id="0a1b2c3d4",
        created_at=datetime(2026, 11, 20, 14, 3, tzinfo=UTC),
        name=name,
        origin="submit",
        package_version="0.1.0",
        prompt=Prompt("guard", "system", "{command}"),
        parameters=CallParameters(),
        epochs=epochs,
        datasets=datasets or (MIXED,),
        models=tuple(ModelSpec(entry["model"], WireFormat.OPENAI, "guard") for entry in entries),
    )
    document = {
        "models": sorted(entries, key=lambda entry: entry["model"]),
        "ranking": [
            dict(zip(("rank", "tie_group", "model", "aegish_score"), place, strict=True))
            for place in places
        ],
    }
    snapshot = Snapshot(
        snapshot_id=12,
        run_id=run.run_id,
        scoring="aegish-5.3",
        scoring_version=1,
        metrics_version=2,
        parser_versions="2",
        verdicts=300,
        verdicts_hash="0" * 16,
        code_version="0.1.0",
        created_at=datetime(2026, 11, 20, 14, 30, tzinfo=UTC),
        document=document,
        identities={},
        opinion=Opinion(),
    )
    of_snapshot = {name: changes.pop(name) for name in list(changes) if hasattr(snapshot, name)}
    among = contest(ranked_entries(document), pairs or {})
    fields: dict[str, Any] = {
        "run": run,
        "snapshot": replace(snapshot, **of_snapshot),
        "recommendation": recommend(among, differences or {}),
    }
    return ReportData(**fields | changes)


def a_difference(
    value: float | None = -0.02, p: float | None = 0.001, **changes: Any
) -> Difference:
    """A difference whose interval reaches two points to either side."""
    low, high = (None, None) if value is None else (value - 0.02, value + 0.02)
    usual = Difference(0.9, 0.9, value, 0.01, 0.01, low, high, p, p, 300, 140, 0.02, 9, 5, p)
    return replace(usual, **changes)


def compared(
    data: ReportData, found: Callable[[str, str], Difference], samples: int = 300
) -> ReportData:
    """The same report with all pairs of its models, each with its difference in every metric."""
    names = ("aegish_score", "malicious_detection_rate", "harmless_acceptance_rate")
    pairs = []
    for a, b in combinations([spec.id for spec in data.run.models], 2):
        metrics = dict.fromkeys(names, found(a, b))
        comparison = Comparison(samples, metrics, {"shell": found(a, b)})
        sides = (ModelOfRun(data.run.run_id, a), ModelOfRun(data.run.run_id, b))
        pairs.append(ComparedPair(*sides, comparison, 300))
    return replace(data, comparison=ComparisonData([data.run], Opinion(), pairs, ()))


def section(data: ReportData, title: str) -> Section:
    """The only section whose title begins so."""
    every = build_report(data, SECTION_NAMES).sections
    (found,) = [each for each in every if each.title.startswith(title)]
    return found


def titles(data: ReportData) -> list[str]:
    return [each.title for each in build_report(data, SECTION_NAMES).sections]


def rows(found: Section) -> list[list[str]]:
    return [[f"{cell.text} {cell.detail}".strip() for cell in row] for row in found.rows]
