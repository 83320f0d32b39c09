"""Results of a record of Every Eval Ever: each metric with its uncertainty, and what it is of."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from aegish_dist.core.model import ModelSpec
from aegish_dist.core.run import Run, RunDataset
from aegish_dist.core.sample import Target
from aegish_dist.core.scoring import Composite, ScoringRule
from aegish_dist.core.snapshot import CATEGORY_METRIC, Snapshot
from aegish_dist.report.every_eval_ever.definitions import DEFINED, MetricDefinition, metric_id
from aegish_dist.report.every_eval_ever.identity import COLLECTION
from aegish_dist.report.layout import RankedModel
from aegish_dist.statistics.rates import Estimate

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


def evaluation_name(target: Target | None, category: str | None = None) -> str:
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
        target: Target | None,
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


def _data(datasets: tuple[RunDataset, ...], target: Target | None) -> dict[str, Any]:
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


def _size(dataset: RunDataset, target: Target | None) -> int:
    if target is None:
        return dataset.samples
    malicious = target is Target.MALICIOUS
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
