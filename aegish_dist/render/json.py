"""A report as one JSON document: the snapshot with the run it belongs to."""

import json
from typing import Any

from aegish_dist.core.model import CallParameters, ModelSpec
from aegish_dist.core.prompt import Prompt
from aegish_dist.core.run import Run
from aegish_dist.render.data import ReportData


def render_json(data: ReportData) -> str:
    """Return a report as JSON in ASCII, keys sorted.

    Texts are exact. Whatever a terminal might obey is escaped, so the document is safe to look at.
    """
    document = {
        "run": _run(data.run),
        "snapshot": {
            "id": data.snapshot_id,
            "scoring": data.scoring,
            "scoring_version": data.scoring_version,
            "verdicts": data.verdicts,
            "created_at": data.created_at.isoformat(),
        },
        "models": data.document["models"],
        "ranking": data.document["ranking"],
    }
    text = json.dumps(document, sort_keys=True, indent=2, allow_nan=False)
    # DEL is ASCII, so `dumps` lets it through; outside strings JSON has none.
    return text.replace("\x7f", "\\u007f") + "\n"


def _run(run: Run) -> dict[str, Any]:
    return {
        "id": run.run_id,
        "name": run.name,
        "created_at": run.created_at.isoformat(),
        "origin": run.origin,
        "package_version": run.package_version,
        "epochs": run.epochs,
        "prompt": _prompt(run.prompt),
        "parameters": _parameters(run.parameters),
        "datasets": [
            {
                "name": dataset.name,
                "fingerprint": dataset.fingerprint,
                "samples": dataset.samples,
                "malicious": dataset.malicious,
            }
            for dataset in run.datasets
        ],
        "models": [_model(spec) for spec in run.models],
    }


def _prompt(prompt: Prompt | None) -> dict[str, str] | None:
    return None if prompt is None else {"name": prompt.name, "fingerprint": prompt.fingerprint}


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
    }
