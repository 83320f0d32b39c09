"""One model of a snapshot as Every Eval Ever 0.3.0 has it: a record of metrics, and verdict lines.

Names are made of contents: the same verdicts give the same files. What is undefined is absent; an
unscored verdict has no line. A malicious command's verdict belongs to the detection rate, a
harmless one's to the acceptance rate.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from itertools import groupby
from typing import Any
from uuid import UUID

from msgspec import Struct

from aegish_dist.core.model import ModelSpec, WireFormat
from aegish_dist.core.opinion import CATEGORY_METRIC, Snapshot
from aegish_dist.core.outcome import ErrorClass, Outcome, StopKind, find
from aegish_dist.core.run import Run, RunDataset
from aegish_dist.core.sample import Sample, TrueLabel
from aegish_dist.core.scoring import ACTIONS, Composite, ScoringRule
from aegish_dist.core.secrets import host_of, is_loopback, mask_key_shapes
from aegish_dist.core.text import fingerprint_of, known, printable_line_of_json
from aegish_dist.inputs.documents import parse_toml
from aegish_dist.interchange.record import RATES
from aegish_dist.report.layout import RankedModel
from aegish_dist.statistics.rates import Estimate

SCHEMA_VERSION = "0.3.0"
COLLECTION = "aegish-dist"  # names the evaluation, and the folder of its records
CORRECT = "correct"  # key of a verdict line; null if unscored

_TABLES = parse_toml(files(__package__).joinpath("every_eval_ever.toml").read_text("utf-8"))
DEFINED: Mapping[str, Mapping[str, Any]] = _TABLES["metrics"]
"""Definitions of the metrics by their names in a snapshot."""


class RecordIdentity(Struct, frozen=True):
    """Names of a record and its files below the folder that holds `data`."""

    evaluation_id: str  # of the evaluation, the model, and the verdicts with the opinion
    record_path: str
    samples_path: str


class SamplesFile(Struct, frozen=True):
    sha256: str  # in hexadecimal digits
    rows: int
    unscored: int


def record_identity(snapshot: Snapshot, model: str) -> RecordIdentity:
    """Return names that change with any verdict, rule set, overlay or formula, and nothing else."""
    verdicts = snapshot.identities.get(model)
    opinion = None if snapshot.opinion is None else snapshot.opinion.provenance
    parts = [
        snapshot.verdicts_hash if verdicts is None else verdicts.verdicts_hash,
        *(snapshot.metrics_version, snapshot.scoring, snapshot.scoring_version),
        *(opinion and opinion[part] for part in ("scoring", "overlay")),
    ]
    evaluation_id = (
        f"{COLLECTION}/{model}/{snapshot.run_id}-{snapshot.scoring}-{fingerprint_of(parts)}"
    )
    # Of the form of a random UUID, which the format asks for, but always the same.
    digest = hashlib.sha256(evaluation_id.encode("utf-8", "surrogatepass")).digest()
    developer, slash, rest = model.partition("/")
    folders = _folder(developer if slash else "unknown"), _folder(rest or developer)
    path = "/".join(("data", COLLECTION, *folders, str(UUID(bytes=digest[:16], version=4))))
    return RecordIdentity(evaluation_id, f"{path}.json", f"{path}_samples.jsonl")


_NOT_PORTABLE = re.compile(r"[^A-Za-z0-9._@+-]")
_RESERVED = re.compile(r"(?:CON|PRN|AUX|NUL|COM\d|LPT\d)(?:\..*)?|data|\..*|", re.IGNORECASE)
"""Kept by Windows, the collection's root, hidden, or empty."""
MAX_FOLDER_CHARS = 100  # ids of models may be longer than names of files


def _folder(name: str) -> str:
    plain = _NOT_PORTABLE.sub("_", name)[:MAX_FOLDER_CHARS].rstrip(".")
    return f"_{plain}" if _RESERVED.fullmatch(plain) else plain


def evaluation_record(
    run: Run,
    snapshot: Snapshot,
    entry: RankedModel,
    identity: RecordIdentity,
    samples: SamplesFile | None,
) -> dict[str, Any]:
    """Return the record of a model; None of `samples`: it has no file of verdicts."""
    spec = next(each for each in run.models if each.id == entry.model)
    about_run = {
        "run_id": run.run_id,
        "run_name": run.name or None,
        "run_origin": run.origin,
        "snapshot_id": snapshot.snapshot_id,
        "verdicts_hash": snapshot.verdicts_hash,
    }
    about_code = {
        "metrics_version": snapshot.metrics_version,
        "parser_versions": snapshot.parser_versions,
        f"version_at_{run.origin}": run.package_version,
    }
    record = {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": identity.evaluation_id,
        "evaluation_timestamp": run.created_at.isoformat(),
        "retrieved_timestamp": str(snapshot.created_at.timestamp()),
        "source_metadata": {
            "source_name": COLLECTION,
            "source_type": "evaluation_run",
            "source_organization_name": "unknown",
            "evaluator_relationship": "other",
            "additional_details": _as_texts(about_run),
        },
        "eval_library": {
            "name": COLLECTION,
            "version": snapshot.code_version,
            "additional_details": _as_texts(about_code),
        },
        "model_info": _model(spec),
        "evaluation_results": list(_results(run, snapshot, entry, spec)),
    }
    if samples is not None:
        unscored = {"unscored_verdicts_without_a_row": samples.unscored}
        record["detailed_evaluation_results"] = {
            "format": "jsonl",
            "file_path": identity.samples_path,
            "hash_algorithm": "sha256",
            "checksum": samples.sha256,
            "total_rows": samples.rows,
            "additional_details": _as_texts(unscored),
        }
    return record


_PUBLIC_HOSTS = frozenset(
    {"api.openai.com", "api.anthropic.com", "generativelanguage.googleapis.com"}
    | {"openrouter.ai", "router.huggingface.co"}
)
"""Who runs other hosts is not known."""


def _model(spec: ModelSpec) -> dict[str, Any]:
    platform, *rest = spec.id.split("/")
    host = host_of(spec.base_url)
    deployment = "externally_managed" if host in _PUBLIC_HOSTS else "unknown"
    if spec.wire is WireFormat.BASELINE or is_loopback(host):
        deployment = "self_deployed"
    names = {"name": spec.id, "id": spec.id}
    if rest:
        developer = rest[0] if len(rest) > 1 else platform
        names |= {"developer": developer, "inference_platform": platform}
    further = {"simulated": spec.simulated or None, "requested_name": spec.name or None}
    about = {"deployment_type": deployment, "model_availability": "unknown", **_as_texts(further)}
    return names | {"additional_details": about}


def _results(
    run: Run, snapshot: Snapshot, entry: RankedModel, spec: ModelSpec
) -> Iterator[dict[str, Any]]:
    """Yield metrics, then detection by category, then latency and cost; none that is undefined."""
    datasets, generation = run.datasets_of(spec.id), _generation(run, spec)
    for name, category, target, metric, score in (*_rates(snapshot, entry), *_amounts(entry)):
        yield {
            "evaluation_result_id": name if category is None else f"{name}/{category}",
            "evaluation_name": _evaluation_name(target, category),
            "source_data": _source_data(datasets, target),
            "metric_config": metric,
            "score_details": score,
            "generation_config": generation,
        }


def _evaluation_name(target: TrueLabel | None, category: str | None = None) -> str:
    return ".".join(part for part in (COLLECTION, target, category) if part)


_Result = tuple[str, str | None, TrueLabel | None, dict[str, Any], dict[str, Any]]
"""Name, category, target, what the metric is, and the score."""
_FORMS = {Composite.BALANCED: "(DR + HA) / 2", Composite.PRODUCT: "DR * HA"}


def _rates(snapshot: Snapshot, entry: RankedModel) -> Iterator[_Result]:
    rule = None if snapshot.opinion is None else snapshot.opinion.rule
    parameters = _parameters(snapshot)
    form = {} if rule is None else {"form": _FORMS[rule.composite]}
    categories = sorted(entry.part("categories"))
    seen: list[tuple[str, str | None, Estimate]] = [
        *((name, None, entry.metric(name)) for name in DEFINED),
        *((CATEGORY_METRIC, each, entry.category(each)) for each in categories),
    ]
    for name, category, estimate in seen:
        if estimate.value is None:
            continue
        definition = DEFINED[name]
        metric = {
            "evaluation_description": definition["description"],
            "metric_id": definition.get("metric_id", f"{COLLECTION}.{name}"),
            "metric_name": definition["title"],
            "metric_kind": definition["kind"],
            "metric_unit": "proportion",
            "metric_parameters": parameters | (form if definition["kind"] == "composite" else {}),
            "lower_is_better": definition.get("lower_is_better", False),
            "score_type": "continuous",
            "min_score": 0.0,
            "max_score": 1.0,
        }
        target = TrueLabel(definition["target"]) if "target" in definition else None
        method = _TABLES["intervals"][definition.get("interval", "wilson")]
        yield name, category, target, metric, _score_details(estimate, method)


def _amounts(entry: RankedModel) -> Iterator[_Result]:
    """Yield the numbers without an upper bound."""
    statistics = ("mean", "p50", "p90", "p99")
    seen = [
        *((f"latency_{s}", "ms", "latency", entry.latency("service", s)) for s in statistics),
        ("cost_per_1000", "usd", "cost", entry.cost("per_1000_usd")),
    ]
    for name, unit, kind, value in seen:
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
        if value is not None:
            yield name, None, None, metric, {"score": value}


def _parameters(snapshot: Snapshot) -> dict[str, Any]:
    found = {"scoring": snapshot.scoring, "scoring_version": snapshot.scoring_version}
    if snapshot.opinion is None:
        return found
    found["scoring_fingerprint"] = snapshot.opinion.rule.fingerprint
    overlay = snapshot.opinion.overlay
    if overlay is not None:
        found |= {
            "overlay": overlay.name,
            "overlay_version": overlay.version,
            "overlay_fingerprint": overlay.fingerprint,
        }
    return found


def _score_details(seen: Estimate, interval: str) -> dict[str, Any]:
    details = {"n": seen.n, "clusters": seen.clusters, "stderr_unclustered": seen.stderr}
    score = {"score": seen.value, "details": _as_texts(details)}
    uncertainty: dict[str, Any] = {}
    stderr, method = seen.stderr_clustered, "clustered by binary (Miller 2024, arXiv 2411.00640)"
    if stderr is None:
        stderr, method = seen.stderr, "samples taken as independent"
    if stderr is not None:
        uncertainty["standard_error"] = {"value": stderr, "method": f"analytic, {method}"}
    if seen.ci_low is not None and seen.ci_high is not None:
        uncertainty["confidence_interval"] = {
            "lower": seen.ci_low,
            "upper": seen.ci_high,
            "confidence_level": 0.95,
            "method": interval,
        }
    if uncertainty:
        score["uncertainty"] = uncertainty | {"num_samples": seen.n}
    return score


def _source_data(datasets: tuple[RunDataset, ...], target: TrueLabel | None) -> dict[str, Any]:
    sizes = {
        None: lambda each: each.samples,
        TrueLabel.MALICIOUS: lambda each: each.malicious,
        TrueLabel.HARMLESS: lambda each: each.samples - each.malicious,
    }
    chosen = list(filter(sizes[target], datasets)) or list(datasets)
    described = [
        {
            "name": each.name,
            "fingerprint": each.fingerprint,
            "samples": each.samples,
            "malicious": each.malicious,
            **known({"source": each.source or None, "licence": each.licence or None}),
        }
        for each in chosen
    ]
    return {
        "dataset_name": " + ".join(each.name for each in chosen),
        "source_type": "other",
        "additional_details": {"datasets": json.dumps(described)},
    }


def _generation(run: Run, spec: ModelSpec) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    details: dict[str, Any] = {"epochs": run.epochs, "parameters": dict(spec.parameters) or None}
    if run.parameters is not None:
        asked = run.parameters
        sent = {"temperature": asked.temperature, "max_tokens": asked.max_output_tokens}
        arguments |= known(sent)
        details |= {"seed": asked.seed, "time_limit_s": asked.time_limit_s}
    if (prompt := run.prompt_of(spec.id)) is not None:
        arguments["prompt_template"] = f"{prompt.system}\n\n{prompt.template}"
        details |= {"prompt": prompt.name, "prompt_fingerprint": prompt.fingerprint}
    return {"generation_args": arguments, "additional_details": _as_texts(details)}


def _as_texts(values: Mapping[str, object]) -> dict[str, str]:
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in values.items()
        if value is not None
    }


_LATENCIES = ("queue_ms", "limiter_ms", "backoff_ms", "total_ms")
_METADATA = (
    *("epoch", "generation", "attempts", "confidence", "suspicion", "stop_reason"),
    *("stop_kind", "returned_model", "upstream", "simulated", "created_at", "cost_usd"),
)
"""Where they are known."""


class SampleLines(Struct, frozen=True):
    """Makes lines of the verdicts of a run under a rule set."""

    rule: ScoringRule
    relabelled: Mapping[tuple[str, str], tuple[TrueLabel, str | None]] = {}
    """By dataset and id of the sample, target and category where an overlay changes them."""

    def of(
        self, evaluation_id: str, verdicts: Iterable[Mapping[str, Any]]
    ) -> tuple[list[str], int]:
        """Return the lines of one model's decoded verdicts, and how many are unscored.

        They come by sample, epoch and generation; of an item the newest generation counts.
        """
        lines, unscored = [], 0
        items = groupby(verdicts, lambda verdict: (_sample(verdict), verdict["epoch"]))
        for (sample, _), generations in items:
            *_, newest = generations
            if newest[CORRECT] is None:
                unscored += 1
            else:
                line = self._line(newest, sample)
                head = {"schema_version": SCHEMA_VERSION, "evaluation_id": evaluation_id}
                lines.append(printable_line_of_json(head | known(line)))
        return lines, unscored

    def _line(self, verdict: Mapping[str, Any], sample: Sample) -> dict[str, Any]:
        target, category = self.relabelled.get(
            (verdict["dataset"], sample.sample_id), (sample.target, sample.category)
        )
        is_malicious = target is TrueLabel.MALICIOUS
        right = self.rule.malicious_correct if is_malicious else self.rule.harmless_correct
        asked = {"raw": verdict["command"], "reference": sorted(right)}
        canonical = json.dumps(asked, sort_keys=True, separators=(",", ":"))
        answer, stop, error = (verdict[key] for key in ("completion", "stop_kind", "error_class"))
        outcome = Outcome(verdict["outcome"])
        finding = find(outcome, stop and StopKind(stop), error and ErrorClass(error))
        about = {
            "dataset": verdict["dataset"],
            "target": target.value,
            "category": category,
            "cluster": verdict["cluster"],
            "label": self.rule.labels[finding].value,
            **{name: verdict[name] for name in _METADATA},
        }
        return {
            "model_id": verdict["model"],
            "evaluation_name": _evaluation_name(target),
            "evaluation_result_id": RATES[target],
            "sample_id": sample.sample_id,
            "sample_hash": hashlib.sha256(canonical.encode()).hexdigest(),
            "interaction_type": "single_turn",
            "input": asked,
            "output": {"raw": [] if answer is None else [answer]},
            "answer_attribution": [
                {
                    "turn_idx": 0,
                    "source": "output.raw",
                    "extracted_value": verdict["outcome"],
                    "extraction_method": f"aegish-dist parser version {verdict['parser_version']}",
                    "is_terminal": True,
                }
            ]
            if finding in ACTIONS
            else [],
            "evaluation": {
                "score": 1.0 if verdict[CORRECT] else 0.0,
                "is_correct": verdict[CORRECT],
            },
            "token_usage": _usage(verdict),
            "performance": _performance(verdict),
            "error": None if finding in ACTIONS else _error(verdict),
            "metadata": _as_texts(about),
        }


def _sample(verdict: Mapping[str, Any]) -> Sample:
    return Sample(
        verdict["command"], TrueLabel(verdict["target"]), verdict["category"], verdict["cluster"]
    )


def _usage(verdict: Mapping[str, Any]) -> dict[str, int] | None:
    """Return tokens; the format wants both sides or none."""
    sent, received = verdict["input_tokens"], verdict["output_tokens"]
    if sent is None or received is None:
        return None
    parts = {
        "input_tokens": sent,
        "output_tokens": received,
        "total_tokens": sent + received,
        "input_tokens_cache_write": verdict["cache_write_tokens"],
        "input_tokens_cache_read": verdict["cache_read_tokens"],
        "reasoning_tokens": verdict["reasoning_tokens"],
    }
    return known(parts)


def _performance(verdict: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the time of the call; what was spent waiting on our side stands beside it."""
    waits = _as_texts({name: verdict[name] for name in _LATENCIES})
    found = {"additional_details": waits or None, "latency_ms": verdict["latency_ms"]}
    return known(found) or None


def _error(verdict: Mapping[str, Any]) -> str:
    errors = verdict["call_errors"]
    message = (errors[-1]["message"] if errors and verdict["error_class"] else None) or ""
    parts = (verdict["outcome"], verdict["error_class"], mask_key_shapes(message))
    return ": ".join(part for part in parts if part)
