"""A report for programs, unrounded: one JSON document, or CSV in long form (RFC 4180)."""

from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain
from typing import Any

from aegish_dist.core.model import CallParameters, ModelSpec, Price, Rate
from aegish_dist.core.opinion import Opinion, record_of
from aegish_dist.core.run import Prompt, Run
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
    document = {
        "run": _run(data.run),
        "snapshot": {
            "id": data.snapshot.snapshot_id,
            "scoring": data.snapshot.scoring,
            "scoring_version": data.snapshot.scoring_version,
            "opinion": None if opinion is None else record_of(opinion),
            "metrics_version": data.snapshot.metrics_version,
            "parser_versions": data.snapshot.parser_versions,
            "code_version": data.snapshot.code_version,
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
    return {
        "id": run.run_id,
        "name": run.name,
        "created_at": run.created_at.isoformat(),
        "origin": run.origin,
        "package_version": run.package_version,
        "epochs": run.epochs,
        "pruned_completions": 0 if run.pruned is None else run.pruned.completions,
        "prompt": _prompt(run.prompt),
        "parameters": _parameters(run.parameters),
        "datasets": [asdict(dataset) for dataset in run.datasets],
        "models": [_model(spec) for spec in run.models],
        "batched": sorted(run.batched),
    }


def _prompt(prompt: Prompt | None) -> dict[str, str] | None:
    if prompt is None:
        return None
    return {
        "name": prompt.name,
        "fingerprint": prompt.fingerprint,
        "system": prompt.system,
        "template": prompt.template,
    }


def _parameters(parameters: CallParameters | None) -> dict[str, float | None] | None:
    if parameters is None:
        return None
    return {
        "seed": parameters.seed,
        "temperature": parameters.temperature,
        "max_output_tokens": parameters.max_output_tokens,
        "time_limit_s": parameters.time_limit_s,
    }


def _model(spec: ModelSpec) -> dict[str, Any]:
    """Return what tells two set-ups of a model apart, but no endpoint: reports are shared."""
    return {
        "id": spec.id,
        "name": spec.name,
        "wire": spec.wire.value,
        "simulated": spec.simulated,
        "parameters": dict(spec.parameters),
        "price": _price(spec.price),
        "batch_share": None if spec.batch_share is None else float(spec.batch_share),
    }


def _price(price: Price | None) -> dict[str, Any] | None:
    """Return prices in USD as of submit, tokens per million."""
    if price is None:
        return None
    return {
        "per_call_usd": None if price.per_call is None else float(price.per_call),
        "input": _rate(price.input),
        "output": _rate(price.output),
        "cache_read": _rate(price.cache_read),
        "cache_write": _rate(price.cache_write),
        "cache_write_1h": _rate(price.cache_write_1h),
    }


def _rate(rate: Rate | None) -> dict[str, Any] | None:
    if rate is None:
        return None
    return {
        "usd_per_million": float(rate.base),
        "above_input_tokens": {str(tokens): float(usd) for tokens, usd in rate.tiers},
    }


def _failure(failure: FailureCount) -> dict[str, Any]:
    last_at = failure.last_at
    return {**asdict(failure), "last_at": None if last_at is None else last_at.isoformat()}


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
    for entry in ranked_entries(data.snapshot.document):
        source = _source(data) | {"model": entry.model}
        for row in chain(
            _estimates(entry, why.get(entry.model, "")),
            _effect_rows(data, entry),
            _number_rows(entry),
            _failure_rows(data, entry),
        ):
            yield source | row


def _source(data: ReportData) -> dict[str, Any]:
    return {
        "run_id": data.run.run_id,
        "run_name": data.run.name,
        "snapshot_id": data.snapshot.snapshot_id,
        "scoring": data.snapshot.scoring,
        "scoring_version": data.snapshot.scoring_version,
        **_fingerprints(data.snapshot.opinion),
    }


def _fingerprints(opinion: Opinion | None) -> dict[str, str]:
    parts = {} if opinion is None else opinion.provenance
    return {f"{name}_fingerprint": part["fingerprint"] for name, part in parts.items() if part}


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


def _number_rows(entry: RankedModel) -> Iterator[dict[str, Any]]:
    for metric, value in _single_numbers(entry):
        yield {"metric": metric, "value": value}


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
