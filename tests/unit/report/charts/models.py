"""Reports on many models, for plots."""

import random
from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import Any

from aegish_dist.core.failures import TimedFailures
from aegish_dist.core.opinion import Opinion
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.run import ModelOfRun
from aegish_dist.report.data import ComparedPair, ComparisonData, ReportData
from aegish_dist.statistics.paired_difference import Comparison, Difference
from tests.unit.report.reports import Entry, a_model, a_report, numbers

START = datetime(2026, 11, 20, 22, 17, tzinfo=UTC)
PROVIDERS = (
    "openai",
    "anthropic",
    "google",
    "openrouter",
    "hf-inference-providers",
    "vllm",
    "zeta",
)


def a_spread_model(number: int, draw: random.Random, **changes: Any) -> Entry:
    """A model with numbers of its own and a long name."""
    provider = PROVIDERS[number % len(PROVIDERS)]
    entry = a_model(f"{provider}/organisation/Guard-{number}B-Instruct-2507:featherless")
    score, half = draw.uniform(0.6, 1.0), draw.uniform(0.005, 0.05)
    rate = numbers(score, half, half, score - half, min(1.0, score + half), 431, 100)
    entry["metrics"] = {**entry["metrics"], **dict.fromkeys(
        ("aegish_score", "malicious_detection_rate", "malicious_detection_rate_macro"), rate
    )}  # fmt: skip
    cost, p50 = 10 ** draw.uniform(-2, 1.3), 10 ** draw.uniform(2.5, 4.3)
    entry["cost"] = {"total_usd": cost, "per_1000_usd": cost, "per_command_usd": cost / 1000}
    spread = {"mean": p50 * 1.3, "p50": p50, "p90": p50 * 2, "p99": p50 * 4, "max": p50 * 9}
    entry["latency_parts_ms"] = dict.fromkeys(("service", "queue", "limiter", "backoff"), spread)
    entry["reliability"] = [reliability_bin(0.9, 700, 0.8), reliability_bin(0.4, 3, 0.0)]
    return entry | changes


def reliability_bin(low: float, n: int, accuracy: float) -> dict[str, float]:
    """Verdicts of alike confidence."""
    return {
        "low": low, "high": low + 0.1, "n": n, "confidence": low + 0.06, "accuracy": accuracy,
        "ci_low": max(0.0, accuracy - 0.1), "ci_high": min(1.0, accuracy + 0.1),
    }  # fmt: skip


def a_difference(value: float, p_adjusted: float) -> Difference:
    """A difference of the score with an interval of two points around it."""
    return Difference(
        a=0.9, b=0.9 + value, difference=value, stderr=0.01, stderr_clustered=0.01,
        ci_low=value - 0.02, ci_high=value + 0.02, p_value=p_adjusted, p_adjusted=p_adjusted,
        n=741, clusters=500, mde=0.03, a_only=1, b_only=2, mcnemar_p=None,
    )  # fmt: skip


def all_pairs(entries: list[Entry]) -> ComparisonData:
    """Every pair of some models, as `compare_models` gives them."""
    pairs = []
    for a, b in combinations(entries, 2):
        value = b["metrics"]["aegish_score"]["value"] - a["metrics"]["aegish_score"]["value"]
        found = Comparison(741, {"aegish_score": a_difference(value, 0.5)}, {})
        sides = ModelOfRun("0a1b2c3d4", a["model"]), ModelOfRun("0a1b2c3d4", b["model"])
        pairs.append(ComparedPair(*sides, found, 741))
    return ComparisonData((), Opinion(), pairs, ())


def failed(minute: int, error_class: ErrorClass, attempts: int) -> TimedFailures:
    """Attempts that failed within a minute."""
    time = START + timedelta(minutes=minute)
    return TimedFailures(time, "acme/guard-1", error_class, attempts, 0, (429,), "", None, None)


def a_spread_report(models: int, *, equal: bool = False, **changes: Any) -> ReportData:
    """A report on some models with everything that plots show."""
    entries = [a_spread_model(n, random.Random(0 if equal else n)) for n in range(models)]
    entries.sort(key=lambda entry: -entry["metrics"]["aegish_score"]["value"])
    failures = [failed(m, ErrorClass.RATE_LIMIT, m + 1) for m in range(0, 90, 3)]
    content: dict[str, Any] = {
        "comparison": all_pairs(entries),
        "failure_times": failures,
        "failure_stretch_s": 60,
    }
    return a_report(*entries, **(content | changes))
