"""Reports on many models, for plots."""

import random
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from aegish_dist.core.opinion import Opinion
from aegish_dist.core.outcome import OutcomeDetail
from aegish_dist.core.policy import Policy, Stage
from aegish_dist.core.suspicion import STATED_CONFIDENCE, Decision, Guard, Guards
from aegish_dist.report.data import ReportData
from aegish_dist.report.systems import SystemsData
from aegish_dist.statistics.policy_search import Candidate, PolicySearch, Requirements
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
    entry["reliability"] = [reliability_bin(0.9, 700, 0.8), reliability_bin(0.4, 3, 0.0)]
    return entry | changes


def reliability_bin(low: float, n: int, accuracy: float) -> dict[str, float]:
    """Verdicts of alike confidence."""
    return {
        "low": low, "high": low + 0.1, "n": n, "confidence": low + 0.06, "accuracy": accuracy,
        "ci_low": max(0.0, accuracy - 0.1), "ci_high": min(1.0, accuracy + 0.1),
    }  # fmt: skip


def a_spread_report(models: int, *, equal: bool = False, **changes: Any) -> ReportData:
    """A report on some models with everything that plots show."""
    entries = [a_spread_model(n, random.Random(0 if equal else n)) for n in range(models)]
    entries.sort(key=lambda entry: -entry["metrics"]["aegish_score"]["value"])
    data = a_report(*entries, **changes)
    scores = {each["model"]: each["metrics"]["aegish_score"]["value"] for each in entries}
    data = compared(data, lambda a, b: a_difference(scores[b] - scores[a], 0.5))
    return replace(data, guards=guards_of(scores), systems=systems_of(data, list(scores)))


def guards_of(names: Iterable[str], decisions: int = 60) -> Guards:
    """Each guard with suspicions and actions of its own; two of three commands are dangerous."""
    asked = [Decision(n, 1, n % 3 > 0, None, None) for n in range(decisions)]

    def guard(name: str) -> Guard:
        draw = random.Random(name)
        seen = [round(draw.gauss(1.2 * each.dangerous, 1), 1) for each in asked]
        actions = (
            OutcomeDetail.BLOCK if s > 2 else OutcomeDetail.WARN if s > 1 else OutcomeDetail.ALLOW
            for s in seen
        )
        return Guard(name, list(actions), seen, [0.001] * decisions, [900.0] * decisions)

    return Guards(asked, [guard(name) for name in names])


def systems_of(
    data: ReportData, names: Sequence[str], cost: float | None = 1.0, **bounds: float
) -> SystemsData:
    """Each guard alone, with a threshold, and together with the next one."""
    needs = Requirements(**bounds)

    def system(place: int, guards: int, *thresholds: float) -> Candidate:
        policy = Policy("found", 1, (Stage(tuple(names[place : place + guards]), thresholds),))
        share, price = 0.4 / (place + 2 * guards + len(thresholds)), place + guards / 2
        return Candidate(policy, share, share / 2, cost and cost * price, 900.0 * price)

    singles = {name: (system(n, 1), system(n, 1, 1.5)) for n, name in enumerate(names)}
    kept = {
        e: (stands, best if needs.keeps(best) else None) for e, (stands, best) in singles.items()
    }
    line = [system(n, size) for size in (1, 2) for n in range(len(names) + 1 - size)]
    found = PolicySearch(None, None, None, None, None, kept, line, [], 60, 0, {})
    return SystemsData(data.run, Opinion(), STATED_CONFIDENCE, needs, names, {}, found)
