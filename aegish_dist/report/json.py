"""A report as one JSON document: the snapshot with the run it belongs to."""

from dataclasses import asdict
from typing import Any

from aegish_dist.core.model import CallParameters, ModelSpec, Price, Rate
from aegish_dist.core.opinion import record_of
from aegish_dist.core.run import Prompt, Run
from aegish_dist.core.text import printable_json
from aegish_dist.report.comparison import comparison_document
from aegish_dist.report.csv import failures_document
from aegish_dist.report.data import FailureCount, ReportData
from aegish_dist.report.operations import reasons
from aegish_dist.report.provenance import commands


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
