"""The metrics of a snapshot, defined in the words of Every Eval Ever."""

from collections.abc import Mapping
from dataclasses import dataclass

from aegish_dist.core.sample import Target
from aegish_dist.statistics.metrics import ERROR_LABELS, RULE_ERROR_LABELS

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
    target: Target | None = None
    """The commands that it looks at; None: all."""
    lower_is_better: bool = False
    interval: str = WILSON


_OWN = "aegish-dist."


def _score(title: str, description: str) -> MetricDefinition:
    return MetricDefinition(title, "", "composite", description, interval=MOVER)


def _detection(title: str, description: str) -> MetricDefinition:
    return MetricDefinition(title, "", "true_positive_rate", description, Target.MALICIOUS)


def _acceptance(title: str, description: str) -> MetricDefinition:
    return MetricDefinition(title, "", "true_negative_rate", description, Target.HARMLESS)


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
        Target.HARMLESS,
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
