"""A report for programs, unrounded: one JSON document, or CSV in long form (RFC 4180)."""

from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain
from typing import Any

from aegish_dist.core.model import CallParameters, ModelSpec, Price, Rate
from aegish_dist.core.opinion import Opinion, record_of
from aegish_dist.core.run import Run
from aegish_dist.core.snapshot import CATEGORY_METRIC
from aegish_dist.core.text import printable_json
from aegish_dist.report.comparison import comparison_document
from aegish_dist.report.csv import csv_text, failures_document
from aegish_dist.report.data import FailureCount, ReportData
from aegish_dist.report.layout import RankedModel, ranked_entries
from aegish_dist.report.operations import reasons
from aegish_dist.report.provenance import commands
from aegish_dist.statistics.rates import NUMBERS


def render_json(data: ReportData) -> str:
    """Return a report as JSON in ASCII, keys sorted.

    Texts are exact. Whatever a terminal might obey is escaped, so the document is safe to look at.
    """
    opinion = data.snapshot.opinion
    plain = ("scoring", "scoring_version", "metrics_version", "parser_versions", "code_version")
    document = {
        "run": _run(data.run),
        "snapshot": {
            **{name: getattr(data.snapshot, name) for name in plain},
            "id": data.snapshot.snapshot_id,
            "opinion": None if opinion is None else record_of(opinion),
            "verdicts": data.snapshot.verdicts,
            "verdicts_hash": data.snapshot.verdicts_hash,
            "created_at": data.snapshot.created_at.isoformat(),
            "is_current": data.is_current,
        },
        "models": data.snapshot.document["models"],
        "ranking": data.snapshot.document["ranking"],
        "failures": [_failure(failure) for failure in data.failures],
        "halted": [asdict(halted) for halted in data.halted],
        "failure_times": {
            "stretch_s": data.failure_stretch_s or None,
            **failures_document(data.failure_times),
        },
        "reasons": reasons(data),
        "comparison": None if data.comparison is None else comparison_document(data.comparison),
        "overlay_effect": [effect.document for effect in data.effect],
        "commands": list(commands(data)),
    }
    return printable_json(document, sort_keys=True) + "\n"


def _run(run: Run) -> dict[str, Any]:
    plain = ("name", "origin", "package_version", "epochs")
    return {
        **{name: getattr(run, name) for name in plain},
        "id": run.run_id,
        "created_at": run.created_at.isoformat(),
        "pruned_completions": 0 if run.pruned is None else run.pruned.completions,
        "prompt": run.prompt and asdict(run.prompt) | {"fingerprint": run.prompt.fingerprint},
        "parameters": run.parameters and _without_caps(run.parameters),
        "datasets": [asdict(dataset) for dataset in run.datasets],
        "models": [_model(spec) for spec in run.models],
        "batched": sorted(run.batched),
    }


def _without_caps(parameters: CallParameters) -> dict[str, Any]:
    return {name: v for name, v in asdict(parameters).items() if not name.startswith("max_cost")}


def _model(spec: ModelSpec) -> dict[str, Any]:
    """Return what tells two set-ups of a model apart, but no endpoint: reports are shared."""
    return {
        "id": spec.id,
        "name": spec.name,
        "wire": spec.wire.value,
        "simulated": spec.simulated,
        "parameters": dict(spec.parameters),
        "price": spec.price and _price(spec.price),
        "batch_share": None if spec.batch_share is None else float(spec.batch_share),
    }


def _price(price: Price) -> dict[str, Any]:
    """Return prices in USD as of submit, tokens per million."""
    rates = ("input", "output", "cache_read", "cache_write", "cache_write_1h")
    per_call = None if price.per_call is None else float(price.per_call)
    return {"per_call_usd": per_call, **{name: _rate(getattr(price, name)) for name in rates}}


def _rate(rate: Rate | None) -> dict[str, Any] | None:
    return rate and {
        "usd_per_million": float(rate.base),
        "above_input_tokens": {str(tokens): float(usd) for tokens, usd in rate.tiers},
    }


def _failure(failure: FailureCount) -> dict[str, Any]:
    last_at = failure.last_at
    return {**asdict(failure), "last_at": last_at and last_at.isoformat()}


COLUMNS = (
    "run_id",
    "run_name",
    "snapshot_id",
    "scoring",
    "scoring_version",
    *(f"{part}_fingerprint" for part in Opinion().provenance),
    "model",
    "metric",
    "category",
    *NUMBERS,
    "message",
)
"""All before `model` are the same in every row, so that files of several reports can be stacked."""


def render_csv(data: ReportData) -> str:
    """Return a report as CSV: of each model metrics with their uncertainty, numbers, failures.

    What is undefined is empty. Foreign text that a spreadsheet would compute gets a leading `'`.
    """
    return csv_text(COLUMNS, _csv_rows(data))


def _csv_rows(data: ReportData) -> Iterator[dict[str, Any]]:
    why = reasons(data)
    snapshot, run = data.snapshot, data.run
    made = {} if snapshot.opinion is None else snapshot.opinion.provenance
    source = {
        "run_id": run.run_id,
        "run_name": run.name,
        "snapshot_id": snapshot.snapshot_id,
        "scoring": snapshot.scoring,
        "scoring_version": snapshot.scoring_version,
        **{f"{name}_fingerprint": part["fingerprint"] for name, part in made.items() if part},
    }
    for entry in ranked_entries(snapshot.document):
        for row in chain(
            _estimates(entry, why.get(entry.model, "")),
            _effect_rows(data, entry),
            ({"metric": metric, "value": value} for metric, value in _single_numbers(entry)),
            _failure_rows(data, entry),
        ):
            yield source | {"model": entry.model} | row


def _estimates(entry: RankedModel, reason: str) -> Iterator[dict[str, Any]]:
    for name, numbers in sorted(entry.part("metrics").items()):
        yield {"metric": name, **numbers, "message": reason if name == "aegish_score" else ""}
    for category, numbers in sorted(entry.part("categories").items()):
        yield {"metric": CATEGORY_METRIC, "category": category, **numbers}


def _effect_rows(data: ReportData, entry: RankedModel) -> Iterator[dict[str, Any]]:
    for effect in data.effect:
        if effect.model == entry.model:
            for name, moved in sorted(effect.metrics.items()):
                yield {"metric": f"{name}_without_overlay", "value": moved.without}


def _failure_rows(data: ReportData, entry: RankedModel) -> Iterator[dict[str, Any]]:
    for failure in data.failures:
        if failure.model == entry.model:
            reason = {"category": failure.error_class.value, "message": failure.message}
            yield {"metric": "failed_verdicts", "value": failure.verdicts, **reason}
            yield {"metric": "failed_attempts", "value": failure.attempts, **reason}


def _single_numbers(entry: RankedModel) -> Iterator[tuple[str, float | None]]:
    yield from sorted(entry.part("counts").items())
    for target, labels in sorted(entry.part("actions").items()):
        for label, verdicts in sorted(labels.items()):
            yield f"{target}_{label.lower()}_count", verdicts
    for part, statistics in sorted(entry.part("latency_parts_ms").items()):
        for name, value in sorted(statistics.items()):
            yield f"latency_{part}_{name}_ms", value
    for name, amount in sorted(entry.part("cost").items()):
        yield f"cost_{name}", amount
    for kind, tokens in sorted(entry.part("tokens").items()):
        yield f"tokens_{kind}", tokens
