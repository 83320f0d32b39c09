"""Names of the metrics that snapshots hold, in their order."""

from enum import StrEnum


class Metric(StrEnum):
    DETECTION_RATE = "malicious_detection_rate"
    ACCEPTANCE_RATE = "harmless_acceptance_rate"
    FALSE_POSITIVE_RATE = "false_positive_rate"
    SCORE = "aegish_score"
    ACCURACY = "accuracy"
    DETECTION_RATE_MACRO = "malicious_detection_rate_macro"
    TIMEOUT_ERROR_RATE = "timeout_error_rate"
    FORMAT_ERROR_RATE = "format_error_rate"
    API_ERROR_RATE = "api_error_rate"
    CONTENT_FILTER_RATE = "content_filter_rate"
    TOKEN_LIMIT_RATE = "token_limit_rate"  # noqa: S105  # nosec B105
    PARSE_ERROR_RATE = "parse_error_rate"
    COVERAGE = "coverage"
    DETECTION_RATE_WORST = "malicious_detection_rate_worst"
    DETECTION_RATE_BEST = "malicious_detection_rate_best"
    ACCEPTANCE_RATE_WORST = "harmless_acceptance_rate_worst"
    ACCEPTANCE_RATE_BEST = "harmless_acceptance_rate_best"
    SCORE_WORST = "aegish_score_worst"
    SCORE_BEST = "aegish_score_best"
    BRIER = "brier"
    ECE = "ece"
    FLIP_RATE = "flip_rate"
    AUROC = "auroc"  # of single verdicts; no snapshot holds it


COMPARED = (Metric.SCORE, Metric.DETECTION_RATE, Metric.ACCEPTANCE_RATE)
"""The story's score and its two rates, in which pairs of guards are compared."""
LESS_IS_BETTER = frozenset(
    {
        Metric.FALSE_POSITIVE_RATE,
        Metric.TIMEOUT_ERROR_RATE,
        Metric.FORMAT_ERROR_RATE,
        Metric.API_ERROR_RATE,
        Metric.CONTENT_FILTER_RATE,
        Metric.TOKEN_LIMIT_RATE,
        Metric.PARSE_ERROR_RATE,
        Metric.BRIER,
        Metric.ECE,
        Metric.FLIP_RATE,
    }
)
"""Of which no least value makes sense."""
TARGET_METRICS = tuple(
    metric for metric in Metric if metric not in LESS_IS_BETTER and metric is not Metric.AUROC
)
"""Which a target or a gate may ask a least value of."""
MAX_FPRS = (0.005, 0.01, 0.02, 0.05)
"""At which detection rates are estimated."""
DETECTION_RATES_AT_FPR = {max_fpr: f"detection_rate_at_fpr_{max_fpr:g}" for max_fpr in MAX_FPRS}
SCORES_WITH_THRESHOLD = (
    Metric.AUROC,
    "partial_auroc",
    "average_precision",
    "fitted_score",
    *DETECTION_RATES_AT_FPR.values(),
)
"""Metrics at any threshold, which no snapshot has."""
