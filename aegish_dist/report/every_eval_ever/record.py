"""One model of a snapshot as a record of Every Eval Ever 0.3.0: its metrics and what they are of.

What is undefined is absent. Values that the format wants as texts are JSON where they are no texts.
"""

from dataclasses import dataclass
from typing import Any

from aegish_dist.core.model import ModelSpec, WireFormat
from aegish_dist.core.run import Run
from aegish_dist.core.secrets import host_of, is_loopback
from aegish_dist.core.snapshot import Snapshot
from aegish_dist.report.every_eval_ever.identity import COLLECTION, SCHEMA_VERSION, RecordIdentity
from aegish_dist.report.every_eval_ever.results import as_texts, results
from aegish_dist.report.layout import RankedModel

_PUBLIC_HOSTS = frozenset(
    {"api.openai.com", "api.anthropic.com", "generativelanguage.googleapis.com"}
    | {"openrouter.ai", "router.huggingface.co"}
)
"""Where providers serve their models; who runs those of other hosts is not known."""


@dataclass(frozen=True, slots=True)
class SamplesFile:
    """The lines that were written beside a record."""

    sha256: str
    """Of its bytes, in hexadecimal digits."""
    rows: int
    unscored: int


def evaluation_record(
    run: Run,
    snapshot: Snapshot,
    entry: RankedModel,
    identity: RecordIdentity,
    samples: SamplesFile | None,
) -> dict[str, Any]:
    """Return the record of a model.

    Args:
        samples: The file of its verdicts; None where there is none.
    """
    spec = next(each for each in run.models if each.id == entry.model)
    record = {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": identity.evaluation_id,
        "evaluation_timestamp": run.created_at.isoformat(),
        "retrieved_timestamp": str(snapshot.created_at.timestamp()),
        "source_metadata": _source(run, snapshot),
        "eval_library": _library(run, snapshot),
        "model_info": _model(spec),
        "evaluation_results": list(results(run, snapshot, entry, spec)),
    }
    if samples is not None:
        record["detailed_evaluation_results"] = _details(identity, samples)
    return record


def _source(run: Run, snapshot: Snapshot) -> dict[str, Any]:
    return {
        "source_name": COLLECTION,
        "source_type": "evaluation_run",
        "source_organization_name": "unknown",
        "evaluator_relationship": "other",
        "additional_details": as_texts(
            {
                "run_id": run.run_id,
                "run_name": run.name or None,
                "run_origin": run.origin,
                "snapshot_id": snapshot.snapshot_id,
                "verdicts_hash": snapshot.verdicts_hash,
            }
        ),
    }


def _library(run: Run, snapshot: Snapshot) -> dict[str, Any]:
    return {
        "name": COLLECTION,
        "version": snapshot.code_version,
        "additional_details": as_texts(
            {
                "metrics_version": snapshot.metrics_version,
                "parser_versions": snapshot.parser_versions,
                f"version_at_{run.origin}": run.package_version,
            }
        ),
    }


def _model(spec: ModelSpec) -> dict[str, Any]:
    parts = spec.id.split("/")
    known = {
        "name": spec.id,
        "id": spec.id,
        "developer": parts[1] if len(parts) > 2 else parts[0] if len(parts) > 1 else None,
        "inference_platform": parts[0] if len(parts) > 1 else None,
        "additional_details": {
            "deployment_type": _deployment(spec),
            "model_availability": "unknown",
            **as_texts({"simulated": spec.simulated or None, "requested_name": spec.name or None}),
        },
    }
    return {name: value for name, value in known.items() if value is not None}


def _deployment(spec: ModelSpec) -> str:
    host = host_of(spec.base_url)
    if spec.wire is WireFormat.BASELINE or is_loopback(host):
        return "self_deployed"
    return "externally_managed" if host in _PUBLIC_HOSTS else "unknown"


def _details(identity: RecordIdentity, samples: SamplesFile) -> dict[str, Any]:
    return {
        "format": "jsonl",
        "file_path": identity.samples_path,
        "hash_algorithm": "sha256",
        "checksum": samples.sha256,
        "total_rows": samples.rows,
        "additional_details": as_texts({"unscored_verdicts_without_a_row": samples.unscored}),
    }
