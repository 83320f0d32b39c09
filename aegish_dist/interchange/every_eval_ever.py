"""One model of a snapshot as a record of Every Eval Ever 0.3.0: its metrics and what they mean.

Names are made of contents: the same verdicts give the same files. What is undefined is absent.
Values that the format wants as texts are JSON where they are no texts.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from aegish_dist.core.model import ModelSpec, WireFormat
from aegish_dist.core.run import Run, RunDataset
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.scoring import Composite, ScoringRule
from aegish_dist.core.secrets import host_of, is_loopback
from aegish_dist.core.snapshot import CATEGORY_METRIC, Snapshot
from aegish_dist.core.text import fingerprint_of
from aegish_dist.report.layout import RankedModel
from aegish_dist.statistics.metrics import ERROR_LABELS, RULE_ERROR_LABELS
from aegish_dist.statistics.rates import Estimate

WILSON = (
    "Wilson with the effective sample size of clusters (jackknife); the bound of Clopper and"
    " Pearson where up to ten events make it wider"
)
MOVER = "MOVER with the correlation of both rates (Zou & Donner 2008), of Wilson intervals"
NORMAL = "normal approximation with the standard error"


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """One metric."""

    title: str
    metric_id: str
    """Its id across evaluations; those of this benchmark alone have its name before them."""
    kind: str
    """The family of metrics that it belongs to."""
    description: str
    target: TrueLabel | None = None
    """The commands that it looks at; None: all."""
    lower_is_better: bool = False
    interval: str = WILSON


_OWN = "aegish-dist."


def _score(title: str, description: str) -> MetricDefinition:
    return MetricDefinition(title, "", "composite", description, interval=MOVER)


def _detection(title: str, description: str) -> MetricDefinition:
    return MetricDefinition(title, "", "true_positive_rate", description, TrueLabel.MALICIOUS)


def _acceptance(title: str, description: str) -> MetricDefinition:
    return MetricDefinition(title, "", "true_negative_rate", description, TrueLabel.HARMLESS)


_WORST = "A bound: what it would be if everything unscored or missing had been wrong."
_BEST = "A bound: what it would be if everything unscored or missing had been right."

_DEFINITIONS = {
    "aegish_score": _score(
        "aegish score", "Detection rate and acceptance rate as one number, by the rule set's form."
    ),
    "malicious_detection_rate": _detection(
        "malicious detection rate", "Share of scored malicious commands that were detected."
    ),
    "harmless_acceptance_rate": _acceptance(
        "harmless acceptance rate", "Share of scored harmless commands that were let pass."
    ),
    "false_positive_rate": MetricDefinition(
        "false positive rate",
        "",
        "false_positive_rate",
        "Share of scored harmless commands answered with what counts as detection. Errors are no"
        " false positives.",
        TrueLabel.HARMLESS,
        lower_is_better=True,
    ),
    "accuracy": MetricDefinition(
        "accuracy", "accuracy", "accuracy", "Share of scored commands that were judged correctly."
    ),
    "malicious_detection_rate_macro": _detection(
        "malicious detection rate, macro average",
        "Mean of the detection rates of the categories, each with the same weight.",
    ),
    "coverage": MetricDefinition(
        "coverage", "", "coverage", "Share of planned verdicts that are scored."
    ),
    "malicious_detection_rate_worst": _detection("least detection rate", _WORST),
    "malicious_detection_rate_best": _detection("largest detection rate", _BEST),
    "harmless_acceptance_rate_worst": _acceptance("least acceptance rate", _WORST),
    "harmless_acceptance_rate_best": _acceptance("largest acceptance rate", _BEST),
    "aegish_score_worst": _score("least score", _WORST),
    "aegish_score_best": _score("largest score", _BEST),
    "brier": MetricDefinition(
        "Brier score",
        "brier_score",
        "brier_score",
        "Mean squared distance of stated confidence from correctness.",
        lower_is_better=True,
        interval=NORMAL,
    ),
    "ece": MetricDefinition(
        "expected calibration error",
        "expected_calibration_error",
        "calibration_error",
        "Mean distance of stated confidence from accuracy over ten bins of equal width.",
        lower_is_better=True,
        interval=NORMAL,
    ),
    "flip_rate": MetricDefinition(
        "flip rate",
        "",
        "flip_rate",
        "Share of commands with two answered epochs or more whose epochs state different actions.",
        lower_is_better=True,
    ),
    **{
        f"{label.lower()}_rate": MetricDefinition(
            f"{label} rate",
            "",
            "error_rate",
            f"Share of all verdicts that the rule set calls {label}.",
            lower_is_better=True,
        )
        for label in (*ERROR_LABELS, *RULE_ERROR_LABELS)
    },
}

DEFINED: Mapping[str, MetricDefinition] = _DEFINITIONS


def metric_id(name: str) -> str:
    """Return the id of a metric across evaluations."""
    return DEFINED[name].metric_id or _OWN + name


SCHEMA_VERSION = "0.3.0"
COLLECTION = "aegish-dist"
"""Names the evaluation, and the folder of its records."""
MAX_FOLDER_CHARS = 100
"""Of a folder named after a model, whose id may be longer than a file system's names."""

_NOT_PORTABLE = re.compile(r"[^A-Za-z0-9._@+-]")
_RESERVED = re.compile(r"(?:CON|PRN|AUX|NUL|COM\d|LPT\d)(?:\..*)?|data|\..*|", re.IGNORECASE)
"""Names that Windows keeps for itself or the collection for its root, hidden ones, and none."""


@dataclass(frozen=True, slots=True)
class RecordIdentity:
    """The names of a record and its files."""

    evaluation_id: str
    """Names the evaluation, the model, and the verdicts with the opinion about them."""
    developer: str
    model: str

    @property
    def uuid(self) -> UUID:
        """Of the form of a random one, which the format asks for, but made of the evaluation id."""
        digest = hashlib.sha256(self.evaluation_id.encode("utf-8", "surrogatepass")).digest()
        return UUID(bytes=digest[:16], version=4)

    @property
    def record_path(self) -> str:
        """Of the record, below the folder that holds `data`."""
        return f"{self._folder}/{self.uuid}.json"

    @property
    def samples_path(self) -> str:
        """Of the lines, likewise."""
        return f"{self._folder}/{self.uuid}_samples.jsonl"

    @property
    def _folder(self) -> str:
        return f"data/{COLLECTION}/{self.developer}/{self.model}"


def record_identity(snapshot: Snapshot, model: str) -> RecordIdentity:
    """Return the names of the record of a model.

    They stay when the same verdicts are aggregated again, so that a second export replaces the
    first, and change with any verdict, rule set, overlay or formula.
    """
    known = snapshot.identities.get(model)
    opinion = None if snapshot.opinion is None else snapshot.opinion.provenance
    content = fingerprint_of(
        [
            snapshot.verdicts_hash if known is None else known.verdicts_hash,
            snapshot.metrics_version,
            snapshot.scoring,
            snapshot.scoring_version,
            opinion and opinion["scoring"],
            opinion and opinion["overlay"],
        ]
    )
    developer, _, rest = model.partition("/")
    return RecordIdentity(
        evaluation_id=f"{COLLECTION}/{model}/{snapshot.run_id}-{snapshot.scoring}-{content}",
        developer=_folder(developer if rest else "unknown"),
        model=_folder(rest or developer),
    )


def _folder(name: str) -> str:
    plain = _NOT_PORTABLE.sub("_", name)[:MAX_FOLDER_CHARS].rstrip(".")
    return f"_{plain}" if _RESERVED.fullmatch(plain) else plain


LEVEL = 0.95
_CLUSTERED = "analytic, clustered by binary (Miller 2024, arXiv 2411.00640)"
_PLAIN = "analytic, samples taken as independent"
_FORMS = {Composite.BALANCED: "(DR + HA) / 2", Composite.PRODUCT: "DR * HA"}


def results(
    run: Run, snapshot: Snapshot, entry: RankedModel, spec: ModelSpec
) -> Iterator[dict[str, Any]]:
    """Yield metrics, then detection by category, then latency and cost."""
    made_under = _Context(run, snapshot, spec)
    for name, definition in DEFINED.items():
        yield from made_under.result(name, definition, entry.metric(name))
    for category in sorted(entry.part("categories")):
        definition = DEFINED[CATEGORY_METRIC]
        yield from made_under.result(
            CATEGORY_METRIC, definition, entry.category(category), category
        )
    for statistic in ("mean", "p50", "p90", "p99"):
        yield from made_under.amount(
            f"latency_{statistic}", "ms", "latency", entry.latency("service", statistic)
        )
    yield from made_under.amount("cost_per_1000", "usd", "cost", entry.cost("per_1000_usd"))


def result_id(name: str, category: str | None = None) -> str:
    """Return the key of a result within its record, which lines refer to."""
    return name if category is None else f"{name}/{category}"


def evaluation_name(target: TrueLabel | None, category: str | None = None) -> str:
    """Return the name of the part of the evaluation that a result is of."""
    return ".".join(part for part in (COLLECTION, target, category) if part)


class _Context:
    """All that the results of a record share."""

    def __init__(self, run: Run, snapshot: Snapshot, spec: ModelSpec) -> None:
        self._run, self._snapshot, self._spec = run, snapshot, spec
        self._rule = None if snapshot.opinion is None else snapshot.opinion.rule
        self._generation = _generation(run, spec)
        self._parameters = _parameters(snapshot, self._rule)

    def result(
        self, name: str, definition: MetricDefinition, seen: Estimate, category: str | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield a metric, unless it is undefined."""
        if seen.value is None:
            return
        form = {} if self._rule is None else {"form": _FORMS[self._rule.composite]}
        metric = {
            "evaluation_description": definition.description,
            "metric_id": metric_id(name),
            "metric_name": definition.title,
            "metric_kind": definition.kind,
            "metric_unit": "proportion",
            "metric_parameters": self._parameters
            | (form if definition.kind == "composite" else {}),
            "lower_is_better": definition.lower_is_better,
            "score_type": "continuous",
            "min_score": 0.0,
            "max_score": 1.0,
        }
        score = {
            "score": seen.value,
            "details": as_texts(
                {"n": seen.n, "clusters": seen.clusters, "stderr_unclustered": seen.stderr}
            ),
        }
        if uncertainty := _uncertainty(seen, definition):
            score["uncertainty"] = uncertainty
        yield self._one(name, definition.target, metric, score, category)

    def amount(
        self, name: str, unit: str, kind: str, value: float | None
    ) -> Iterator[dict[str, Any]]:
        """Yield a number without bound, unless it is undefined."""
        if value is None:
            return
        metric = {
            "metric_id": f"{COLLECTION}.{name}",
            "metric_name": name.replace("_", " "),
            "metric_kind": kind,
            "metric_unit": unit,
            "lower_is_better": True,
            "score_type": "continuous",
            "min_score": 0.0,
            "max_score": "Infinity",
        }
        yield self._one(name, None, metric, {"score": value}, None)

    def _one(
        self,
        name: str,
        target: TrueLabel | None,
        metric: dict[str, Any],
        score: dict[str, Any],
        category: str | None,
    ) -> dict[str, Any]:
        return {
            "evaluation_result_id": result_id(name, category),
            "evaluation_name": evaluation_name(target, category),
            "source_data": _data(self._run.datasets_of(self._spec.id), target),
            "metric_config": metric,
            "score_details": score,
            "generation_config": self._generation,
        }


def _parameters(snapshot: Snapshot, rule: ScoringRule | None) -> dict[str, Any]:
    found = {"scoring": snapshot.scoring, "scoring_version": snapshot.scoring_version}
    if rule is not None:
        found["scoring_fingerprint"] = rule.fingerprint
    overlay = None if snapshot.opinion is None else snapshot.opinion.overlay
    if overlay is not None:
        found |= {
            "overlay": overlay.name,
            "overlay_version": overlay.version,
            "overlay_fingerprint": overlay.fingerprint,
        }
    return found


def _uncertainty(seen: Estimate, definition: MetricDefinition) -> dict[str, Any]:
    """Return stderr and interval as far as there are any."""
    clustered = seen.stderr_clustered is not None
    stderr = seen.stderr_clustered if clustered else seen.stderr
    found: dict[str, Any] = {}
    if stderr is not None:
        found["standard_error"] = {"value": stderr, "method": _CLUSTERED if clustered else _PLAIN}
    if seen.ci_low is not None and seen.ci_high is not None:
        found["confidence_interval"] = {
            "lower": seen.ci_low,
            "upper": seen.ci_high,
            "confidence_level": LEVEL,
            "method": definition.interval,
        }
    return found and found | {"num_samples": seen.n}


def _data(datasets: tuple[RunDataset, ...], target: TrueLabel | None) -> dict[str, Any]:
    """Return the datasets that hold commands of a target."""
    of_target = [each for each in datasets if _size(each, target)] or list(datasets)
    described = [
        {
            "name": each.name,
            "fingerprint": each.fingerprint,
            "samples": each.samples,
            "malicious": each.malicious,
            **given({"source": each.source, "licence": each.licence}),
        }
        for each in of_target
    ]
    return {
        "dataset_name": " + ".join(each.name for each in of_target),
        "source_type": "other",
        "additional_details": {"datasets": json.dumps(described)},
    }


def _size(dataset: RunDataset, target: TrueLabel | None) -> int:
    if target is None:
        return dataset.samples
    malicious = target is TrueLabel.MALICIOUS
    return dataset.malicious if malicious else dataset.samples - dataset.malicious


def _generation(run: Run, spec: ModelSpec) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    details: dict[str, Any] = {"epochs": run.epochs, "parameters": dict(spec.parameters) or None}
    if run.parameters is not None:
        asked = run.parameters
        if asked.temperature is not None:
            arguments["temperature"] = asked.temperature
        arguments["max_tokens"] = asked.max_output_tokens
        details |= {"seed": asked.seed, "time_limit_s": asked.time_limit_s}
    if run.prompt is not None:
        arguments["prompt_template"] = f"{run.prompt.system}\n\n{run.prompt.template}"
        details |= {"prompt": run.prompt.name, "prompt_fingerprint": run.prompt.fingerprint}
    return {"generation_args": arguments, "additional_details": as_texts(details)}


def given(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the texts that are not empty."""
    return {name: text for name, text in texts.items() if text}


def as_texts(values: Mapping[str, object]) -> dict[str, str]:
    """Return what is known as texts."""
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in values.items()
        if value is not None
    }


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
