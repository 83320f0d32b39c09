"""Reports on many models, for plots."""

import random
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from aegish_dist.core.outcome import OutcomeDetail
from aegish_dist.opinions.guards import Guard, Guards
from aegish_dist.report.data import ReportData
from tests.guards import Asked, a_guard, samples_of
from tests.unit.report.reports import (
    Entry,
    a_difference,
    a_model,
    a_report,
    compared,
    numbers,
)

PROVIDERS = [
    "openai",
    "anthropic",
    "google",
    "openrouter",
    "hf-inference-providers",
    "vllm",
    "zeta",
]


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
    return entry | changes


def a_spread_report(models: int, *, equal: bool = False, **changes: Any) -> ReportData:
    """A report on some models with everything that plots show."""
    entries = [a_spread_model(n, random.Random(0 if equal else n)) for n in range(models)]
    entries.sort(key=lambda entry: -entry["metrics"]["aegish_score"]["value"])
    data = a_report(*entries, **changes)
    scores = {each["model"]: each["metrics"]["aegish_score"]["value"] for each in entries}
    data = compared(data, lambda a, b: a_difference(scores[b] - scores[a], 0.5))
    return replace(data, guards=guards_of(scores))


def guards_of(names: Iterable[str], decisions: int = 60) -> Guards:
    """Each guard with suspicions and actions of its own; two of three commands are dangerous."""
    asked = [Asked(n % 3 > 0) for n in range(decisions)]

    def guard(name: str) -> Guard:
        draw = random.Random(name)
        seen = [round(draw.gauss(1.2 * each.malicious, 1), 1) for each in asked]
        actions = (
            OutcomeDetail.BLOCK if s > 2 else OutcomeDetail.WARN if s > 1 else OutcomeDetail.ALLOW
            for s in seen
        )
        return a_guard(name, list(actions), seen, [0.001] * decisions, [900.0] * decisions)

    return Guards(samples_of(asked), 1, [guard(name) for name in names])
