"""Systems of guards in words, tables and JSON: the winner, single guards beside it, the line."""

import math
from collections.abc import Iterator, Mapping
from statistics import median

from msgspec import to_builtins
from msgspec.structs import asdict

from aegish_dist.core.metric import Difference, FittedGuard
from aegish_dist.core.text import JsonObject, counted
from aegish_dist.findings.fitted import MOST_STOPPED, SystemsData
from aegish_dist.opinions.opinion import run_and_opinion
from aegish_dist.opinions.policy import Candidate, Policy, Stage, When, explain
from aegish_dist.opinions.scoring import Composite
from aegish_dist.report.layout import (
    INTERVAL,
    Fact,
    Report,
    Row,
    Section,
    difference_in_words,
    number_cell,
    with_interval,
)
from aegish_dist.report.thresholds import threshold_notation
from aegish_dist.report.writing import (
    NAME_WIDTH,
    format_count,
    format_ms,
    format_rate,
    format_usd,
    listed,
    short_names,
)

_IN_TABLE = 22  # columns of a name in the table, where a system has up to two
_LABELS = {
    "system": "Any system",
    "with_threshold": "One threshold",
    "as_it_stands": "As it stands",
}
_SCORES = {Composite.BALANCED: "(DR + HA) / 2", Composite.PRODUCT: "DR x HA"}


def system_in_short(data: SystemsData, policy: Policy, names: Mapping[str, str]) -> str:
    """Write a policy as a formula: `a (BLOCK ≥ 0.71) or b; on WARN: c`."""
    first, *others = policy.stages
    parts = [_asked(data, first, names)]
    if not others and len(first.guards) == 1 and not first.thresholds:
        parts = [f"{parts[0]} as it stands"]
    for stage in others:
        on = "WARN" if stage.when is When.WARN else str(stage.when)
        if isinstance(stage.when, tuple):
            on = threshold_notation(data.rule_of(first.guards[0]), stage.when[0])
        parts.append(f"on {on}: {_asked(data, stage, names)}")
    return "; ".join(parts)


def _asked(data: SystemsData, stage: Stage, names: Mapping[str, str]) -> str:
    parts = []
    for guard, threshold in stage.parts:
        name = names[guard]
        if threshold is not None:
            name = f"{name} ({threshold_notation(data.rule_of(guard), threshold)})"
        parts.append(name)
    any_stops = stage.at_least == 1
    return " or ".join(parts) if any_stops else " and ".join(parts)


def build_systems(data: SystemsData, limit: int) -> Report:
    """Return what the best system is and does, and so many systems of the Pareto line."""
    line = _line(data, limit)
    return Report(
        title=f"Systems of guards for run {data.run.titled}",
        facts=tuple(_facts(data)),
        sections=(line,) if line.rows else (),
        legend=_legend(data),
    )


def systems_fact(data: SystemsData, names: Mapping[str, str]) -> Fact:
    """Say which system is best within the bounds, and what it gains over a single guard."""
    sentences = [_choice(data, "system", names)]
    if data.found.gain:
        sentences.append(_gain(data, data.found.gain))
    return Fact("With a system", " ".join(sentences))


def _facts(data: SystemsData) -> Iterator[Fact]:
    found = data.found
    short = short_names(data.models, NAME_WIDTH)
    if data.winning and found.winner_estimate:
        winner = system_in_short(data, data.winning.best.policy, short)
        score = with_interval(found.winner_estimate.score)
        yield Fact(
            "Winner",
            f"{winner}. Score {score}, with the choice of its kind out of fold, too.",
        )
    elif any(data.choices.values()):
        yield Fact("Winner", "None: no guard is surely better than chance.")
    for kind, label in _LABELS.items():
        yield Fact(label, _choice(data, kind, short))
    if found.gain is not None:
        yield Fact("Gain", _gain(data, found.gain))
    if any(overlap.expected for overlap in found.overlaps):
        yield Fact("Misses", _overlap(data, short))
    yield from _left_out(data, short)


def _left_out(data: SystemsData, short: Mapping[str, str]) -> Iterator[Fact]:
    """Yield what the search does not compare, and what is known of less than all."""
    found = data.found
    if found.left_out:
        unscored = f"{counted(found.left_out, 'question')} that not all of these have answered"
        yield Fact("Not compared", f"{unscored}; {format_count(found.decisions)} are compared.")
    if any(spec.simulated for spec in data.run.models):
        yield Fact("Simulated", "Answers made up by the simulator; no evidence about real models.")
    unpriced = [
        f"{short[name]} in {n}" for name, n in found.unpriced.items() if n < found.decisions
    ]
    if unpriced:
        yield Fact("No cost", f"{listed(unpriced)}: its mean, or unknown if over half lack a cost.")
    left_out = data.models_left_out
    if left_out:
        total = found.decisions + found.left_out
        names = short_names(list(left_out), NAME_WIDTH)
        scored = [f"{names[guard]} with {n:,} of {total:,} scored" for guard, n in left_out.items()]
        why = "baselines, or under half of the malicious or of the harmless commands"
        yield Fact("Left out", f"{listed(scored)}: {why}; include with --models.")


def _choice(data: SystemsData, kind: str, names: Mapping[str, str]) -> str:
    choice = data.choices[kind]
    if choice is None:
        return (
            "None keeps to the bounds; what has no known cost or latency keeps to no bound on it."
        )
    best = choice.best
    estimate = choice.estimate  # out of fold, unlike the numbers of the best
    price = "cost unknown"
    if best.cost_per_1000 is not None:
        price = f"{format_usd(best.cost_per_1000)} per 1,000 commands"
    return (
        f"{system_in_short(data, best.policy, names)}."
        f" Score {with_interval(estimate.score)}, DR {with_interval(estimate.detection_rate)},"
        f" FPR {with_interval(estimate.false_positive_rate)};"
        f" {price}, p95 {format_ms(best.p95_ms)}."
    )


def _gain(data: SystemsData, gain: Difference) -> str:
    """Say what the best system gains over the best single guard, and what follows from it."""
    found = data.found
    how = "with a threshold" if found.single is found.with_threshold else "as it stands"
    about = f"The system's score is {difference_in_words(gain)} against the single guard {how}."
    if found.winner == "system":
        if (gain.ci_low or 0) > 0:
            return f"{about} It is better."
        return f"{about} That may be chance: so many commands show {format_rate(gain.mde)} points."
    guards = set(found.system.best.policy.guards) if found.system else set()
    # The best system may be a single guard, with which nothing was gained or lost.
    if found.winner is None or len(guards) < 2:
        return about
    return f"{about} More guards do not pay."


def _overlap(data: SystemsData, names: Mapping[str, str]) -> str:
    # Misses can coincide by chance only where both guards miss something.
    overlaps = [overlap for overlap in data.found.overlaps if overlap.expected]
    least = min(overlaps, key=lambda overlap: (overlap.both, overlap.expected))
    times = median(overlap.both / overlap.expected for overlap in overlaps)
    return (
        f"Two guards as they stand miss the same commands {times:.1f} times as often as"
        f" independent misses would (median of {counted(len(overlaps), 'pair')}). Fewest in"
        f" common: {names[least.a]} with {least.misses_a} and {names[least.b]} with"
        f" {least.misses_b} have {least.both}, by chance {least.expected:.1f}."
    )


def _line(data: SystemsData, limit: int) -> Section:
    front = data.front
    names = short_names(data.models, _IN_TABLE)
    most = min(limit, len(front))
    rows: list[Row] = []
    for number in range(most):
        # Evenly over the line, its two ends included.
        system = front[number * (len(front) - 1) // max(most - 1, 1)]
        rows.append(
            (
                system_in_short(data, system.policy, names),
                number_cell(system.miss_rate, format_rate),
                number_cell(system.stop_rate, format_rate),
                number_cell(system.cost_per_1000, format_usd),
                number_cell(system.p95_ms, format_ms),
            )
        )
    return Section.of(
        "Pareto line",
        ("system", "misses, %", "stops, %", "$/1,000", "p95"),
        rows,
        note=f"{most} of the {format_count(len(front))} systems with the fewest stops for their"
        f" misses that stop at most {100 * MOST_STOPPED:g} % of the harmless commands, on the"
        " commands that they are chosen on: a little too good. --json has all"
        f" {format_count(len(data.found.line))} that no other one equals in all four columns.",
    )


def _legend(data: SystemsData) -> tuple[str, ...]:
    rule = data.rule
    opinion = data.opinion.rule
    needs = data.requirements
    return (
        "a (BLOCK ≥ 0.71): what is less suspicious than BLOCK with confidence 0.71 is let pass;"
        " without a threshold a's own actions count, and an answer without an action stops. a; on"
        " WARN: b: where a does not stop the command, but says WARN or what is more suspicious, b"
        " is asked and decides.",
        f"Best by {needs.criterion.name}. Score: {_SCORES[opinion.composite]}, HA being 100 - FPR."
        f" What has an interval, {INTERVAL}, is of the choice, out of fold: of commands that it"
        " is not made on. Judged by"
        f" {opinion.name} v{opinion.version}; suspicion by {rule.name} v{rule.version}; of the"
        f" commands {needs.prevalence:g} are dangerous. --json has everything.",
    )


def systems_document(data: SystemsData) -> JsonObject:
    """Return a search in JSON types; absent numbers and bounds are null."""
    found = data.found
    bounds = asdict(data.requirements)
    del bounds["max_fpr"]  # in the criterion
    return {
        **run_and_opinion(data.run.run_id, data.opinion),
        "suspicion": data.rule.provenance,
        "criterion": data.requirements.criterion.name,
        **{name: value if math.isfinite(value) else None for name, value in bounds.items()},
        "models": list(data.models),
        "models_left_out": list(data.models_left_out),
        "decisions": found.decisions,
        "left_out": found.left_out,
        "unpriced": found.unpriced,
        "winner": found.winner,
        "winner_estimate": found.winner_estimate and _estimates(found.winner_estimate),
        **{kind: _judged(data, kind) for kind in data.choices},
        "gain": found.gain and asdict(found.gain),
        "line": [_candidate(system) for system in found.line],
        "overlaps": [asdict(overlap) for overlap in found.overlaps],
    }


def _judged(data: SystemsData, kind: str) -> JsonObject | None:
    choice = data.choices[kind]
    if choice is None:
        return None
    return {
        **_candidate(choice.best),
        **_estimates(choice.estimate),
        "in_sample_score": choice.estimate.in_sample_score,
        "in_words": explain(choice.best.policy)[1:],
    }


def _estimates(fitted: FittedGuard) -> JsonObject:
    rates = ("score", "detection_rate", "false_positive_rate")
    return {name: asdict(getattr(fitted, name)) for name in rates}


def _candidate(system: Candidate) -> JsonObject:
    numbers = asdict(system)
    return {"stages": to_builtins(numbers.pop("policy").stages), **numbers}
