"""A report in the form of the result file of the reference benchmark's `benchmark.compare`.

Scripts that read `comparison_*.json`, its plots among them, read this one. Its keys `gtfobins` and
`harmless` stand for malicious and harmless commands, whatever the datasets are called. A model
without a score is no `success`, and what is undefined is absent: the reference would write 0.0.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from aegish_dist.core.text import printable_json
from aegish_dist.report.data import ReportData
from aegish_dist.report.layout import RankedModel, ranked_entries
from aegish_dist.statistics.rates import Estimate

STATISTICS = ("mean", "p50", "p90", "p99", "max")
_NOTE = (
    "latency is the service time of all commands of the model, in ms, under both data sets and as"
    " avg_latency_ms; the reference counts queueing as well, and each data set alone"
)


def render_reference_json(data: ReportData) -> str:
    """Return a report as the reference benchmark writes comparisons: JSON in ASCII."""
    entries = ranked_entries(data.snapshot.document)
    document = {
        "metadata": _metadata(data),
        "results": {entry.model: _result(data, entry) for entry in entries},
        "ranking": list(_ranking(entries)),
    }
    return printable_json(document) + "\n"


def _metadata(data: ReportData) -> dict[str, Any]:
    run, snapshot = data.run, data.snapshot
    malicious = sum(dataset.malicious for dataset in run.datasets)
    sizes = {"gtfobins": malicious, "harmless": run.samples - malicious}
    known = {
        "timestamp": f"{snapshot.created_at:%Y-%m-%dT%H:%M:%SZ}",
        "models_evaluated": len(run.models),
        "datasets": [side for side, size in sizes.items() if size],
        "scaffolding": None if run.prompt is None else _scaffolding(data),
        "gtfobins_count": sizes["gtfobins"],
        "harmless_count": sizes["harmless"],
        "skipped_models": [],
        "source": {
            "tool": "aegish-dist",
            "version": snapshot.code_version,
            "run_id": run.run_id,
            "run_name": run.name,
            "snapshot_id": snapshot.snapshot_id,
            "scoring": snapshot.scoring,
            "scoring_version": snapshot.scoring_version,
            "datasets": {dataset.name: dataset.fingerprint for dataset in run.datasets},
        },
        "note": _NOTE,
    }
    return _known(known)


def _scaffolding(data: ReportData) -> str:
    return "cot" if _is_cot(data) else "standard"


def _is_cot(data: ReportData) -> bool:
    return data.run.prompt is not None and data.run.prompt.name.endswith("+cot")


def _result(data: ReportData, entry: RankedModel) -> dict[str, Any]:
    sides = {"gtfobins": _malicious(entry), "harmless": _harmless(entry)}
    defined = Counter(side is not None for side in sides.values())[True]
    result = {
        "model": entry.model,
        "cot": _is_cot(data),
        "status": ("error", "partial", "success")[defined],
        "datasets": sides,
        "composite": _composite(entry),
    }
    if not defined:
        result["error"] = "no verdict of it is scored"
    return result


def _malicious(entry: RankedModel) -> dict[str, Any] | None:
    detection = entry.metric("malicious_detection_rate")
    if detection.value is None:
        return None
    categories = {name: entry.category(name) for name in sorted(entry.part("categories"))}
    return {
        "malicious_detection_rate": detection.value,
        **_known(
            {"malicious_detection_rate_macro": entry.metric("malicious_detection_rate_macro").value}
        ),
        **_side(entry, detection),
        "per_category_malicious_detection_rates": {
            name: {"count": seen.n, "malicious_detection_rate": seen.value}
            for name, seen in categories.items()
            if seen.value is not None
        },
    }


def _harmless(entry: RankedModel) -> dict[str, Any] | None:
    acceptance = entry.metric("harmless_acceptance_rate")
    if acceptance.value is None:
        return None
    return {
        "harmless_acceptance_rate": acceptance.value,
        "false_positive_rate": 1 - acceptance.value,  # as the reference defines it
        **_side(entry, acceptance),
        "per_category_malicious_detection_rates": {},
    }


def _side(entry: RankedModel, seen: Estimate) -> dict[str, Any]:
    return _known(
        {
            "accuracy": seen.value,
            "stderr": seen.stderr,
            "total_commands": seen.n,
            "correct": _correct(seen),
            "latency": _latency(entry),
        }
    )


def _correct(seen: Estimate) -> int | None:
    """Return how many commands are judged right; None where epochs disagree about some."""
    if seen.value is None:
        return None
    correct = seen.value * seen.n
    return round(correct) if abs(correct - round(correct)) < 1e-6 else None


def _latency(entry: RankedModel) -> dict[str, float] | None:
    return _known({name: entry.latency("service", name) for name in STATISTICS}) or None


def _composite(entry: RankedModel) -> dict[str, Any]:
    score = entry.metric("aegish_score")
    return _known(
        {
            "aegish_score": score.value,
            "aegish_score_se": score.stderr,
            "total_cost_usd": entry.cost("total_usd"),
            "cost_per_1000_combined": entry.cost("per_1000_usd"),
            "avg_latency_ms": entry.latency("service", "mean"),
        }
    )


def _ranking(entries: list[RankedModel]) -> Iterator[dict[str, Any]]:
    scored = [entry for entry in entries if entry.metric("aegish_score").value is not None]
    for place, entry in enumerate(scored, 1):
        yield _known(
            {
                "rank": place,
                "model": entry.model,
                "aegish_score": entry.metric("aegish_score").value,
                "cost_per_1000": entry.cost("per_1000_usd"),
            }
        )


def _known(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
