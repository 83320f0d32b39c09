"""Systems of guards: the best one, what a single guard does beside it, and the Pareto line."""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import asdict

from aegish_dist.core.opinion import Opinion
from aegish_dist.core.policy import Policy, Stage, When, explain
from aegish_dist.core.run import Run
from aegish_dist.core.scoring import Composite
from aegish_dist.core.suspicion import SuspicionRule
from aegish_dist.core.text import counted, printable_json
from aegish_dist.report.decision import NAME_WIDTH, listed
from aegish_dist.report.layout import INTERVAL, Fact, Report, Section
from aegish_dist.report.names import short_names
from aegish_dist.report.numbers import (
    format_count,
    format_difference,
    format_interval,
    format_ms,
    format_rate,
    format_usd,
)
from aegish_dist.report.quality import with_interval
from aegish_dist.report.table import draw_table
from aegish_dist.statistics.paired_difference import Difference
from aegish_dist.statistics.policy_search import Candidate, Choice, PolicySearch, Requirements

IN_TABLE = 22  # columns of a name in the table, where a system has up to three
_LABELS = {
    "system": "Systems searched",
    "with_threshold": "One threshold",
    "as_it_stands": "As it stands",
}
_CHANCE = "None: no model is surely better than chance."
_SCORES = {Composite.BALANCED: "(DR + HA) / 2", Composite.PRODUCT: "DR x HA"}


class SystemsData(Struct, frozen=True):
    """Result of a search over the guards of a run."""

    run: Run
    opinion: Opinion
    rule: SuspicionRule
    requirements: Requirements
    models: Sequence[str]
    models_left_out: Mapping[str, int]  # how much each has scored: too little, or a baseline
    found: PolicySearch

    @property
    def choices(self) -> dict[str, Choice | None]:
        return {name: getattr(self.found, name) for name in _LABELS}

    @property
    def advice(self) -> Fact:
        """Which system is best within the bounds, and what it gains over a single guard."""
        gain = f" {_gain(self, self.found.gain)}" if self.found.gain else ""
        return Fact("With a system", f"{_choice(self, self.found.system)}{gain}")

    @property
    def winner(self) -> str | None:
        """Which choice has the best score out of fold; None: none is surely better than chance."""
        chance = self.opinion.rule.composite.chance
        scores = {
            name: round(choice.estimate.score.value or 0, 12)
            for name, choice in reversed(self.choices.items())  # of equals the simplest is first
            if choice and (choice.estimate.score.ci_low or 0) > chance
            if choice.best.stop_rate < 1 - choice.best.miss_rate
        }
        return max(scores, key=scores.__getitem__, default=None)


def system_in_short(policy: Policy, names: Mapping[str, str]) -> str:
    """Write a policy as a formula: `2 of a ≥ 1.5, b, c; in [-0.6, 1.5]: d ≥ 2`."""
    first, *others = policy.stages
    alone = not others and len(first.guards) == 1 and not first.thresholds
    parts = [_asked(first, names) + " as it stands" * alone]
    for stage in others:
        where = f"on {'WARN' if stage.when is When.WARN else stage.when}"
        if isinstance(stage.when, tuple):
            where = "in [{:.4g}, {:.4g}]".format(*stage.when)
        parts.append(f"{where}: {_asked(stage, names)}")
    return "; ".join(parts)


def _asked(stage: Stage, names: Mapping[str, str]) -> str:
    parts = [names[name] + ("" if t is None else f" ≥ {t:.4g}") for name, t in stage.parts]
    needed = {1: "any", len(parts): "all"}.get(stage.at_least, stage.at_least)
    return f"{needed} of {', '.join(parts)}" if len(parts) > 1 else parts[0]


def build_systems(data: SystemsData, limit: int) -> Report:
    """Return what the best system is and does, and so many systems of the Pareto line."""
    name = f" ({data.run.name})" if data.run.name else ""
    title = f"Systems of guards for run {data.run.run_id}{name}"
    sections = tuple(section for section in [_line(data, limit)] if section.rows)
    return Report(title, tuple(_facts(data)), sections, _legend(data))


def _facts(data: SystemsData) -> Iterator[Fact]:
    found = data.found
    for name, choice in data.choices.items():
        yield Fact(_LABELS[name], _choice(data, choice))
    if found.gain is not None:
        yield Fact("Gain", _gain(data, found.gain))
    if any(data.choices.values()):
        yield Fact("Winner", _LABELS.get(data.winner or "", _CHANCE))
    if any(each.expected for each in found.overlaps):
        yield Fact("Misses", _overlap(data))
    if found.left_out:
        without = f"{counted(found.left_out, 'decision')} that not all of these have scored"
        yield Fact("Left out", f"{without}; {format_count(found.decisions)} are compared.")
    if any(spec.simulated for spec in data.run.models):
        yield Fact("Simulated", "Answers made up by the simulator; no evidence about real models.")
    short = short_names(data.models, NAME_WIDTH)
    some = [f"{short[name]} in {n}" for name, n in found.unpriced.items() if n < found.decisions]
    if some:
        yield Fact("No cost", f"{listed(some)}: its mean, or unknown if over half lack a cost.")
    if data.models_left_out:
        total, few = found.decisions + found.left_out, data.models_left_out
        names = short_names([*few], NAME_WIDTH).items()
        said = listed([f"{name} with {few[each]:,} of {total:,} scored" for each, name in names])
        why = "baselines, or under half of the malicious or of the harmless commands"
        yield Fact("No part", f"{said}: {why}. --models takes them in.")


def _choice(data: SystemsData, choice: Choice | None) -> str:
    if choice is None:
        return (
            "None keeps to the bounds; what has no known cost or latency keeps to no bound on it."
        )
    best, judged = choice.best, choice.estimate
    known = best.cost_per_10000 is not None
    price = f"{format_usd(best.cost_per_10000)} per 10,000 actions" if known else "cost unknown"
    return (
        f"{system_in_short(best.policy, short_names(data.models, NAME_WIDTH))}."
        f" Score {with_interval(judged.score)}, DR {with_interval(judged.detection_rate)},"
        f" FPR {with_interval(judged.false_positive_rate)}; {price}, p95 {format_ms(best.p95_ms)}."
    )


def _gain(data: SystemsData, gain: Difference) -> str:
    system = data.found.system
    if data.winner != "system":
        move = ": move the threshold" * (data.winner == "with_threshold")
        several = system and data.winner and len(set(system.best.policy.guards)) > 1
        so = f" More guards do not pay{move}." if several else ""
    elif (gain.ci_low or 0) > 0:
        so = " It is better."
    else:
        so = f" That may be chance: so many commands show {format_rate(gain.mde)} points."
    interval = format_interval(gain.ci_low, gain.ci_high, format_difference)
    points = f"{format_difference(gain.difference)} points {interval}"
    how = "with a threshold" if data.found.single is data.found.with_threshold else "as it stands"
    return f"The system's score is {points} against the single guard {how}.{so}"


def _overlap(data: SystemsData) -> str:
    names = short_names(data.models, NAME_WIDTH)
    overlaps = [each for each in data.found.overlaps if each.expected]
    least = min(overlaps, key=lambda each: (each.both, each.expected))
    times = median(each.both / each.expected for each in overlaps)
    return (
        f"Two guards as they stand miss the same commands {times:.1f} times as often as"
        f" independent misses would (median of {counted(len(overlaps), 'pair')}). Fewest in"
        f" common: {names[least.a]} with {least.misses_a} and {names[least.b]} with"
        f" {least.misses_b} have {least.both}, by chance {least.expected:.1f}."
    )


def _line(data: SystemsData, limit: int) -> Section:
    front, names = _front(data), short_names(data.models, IN_TABLE)
    most = min(limit, len(front))
    shown = [front[place * (len(front) - 1) // max(most - 1, 1)] for place in range(most)]
    return Section.of(
        "Pareto line",
        ("system", "misses, %", "stops, %", "$ per 10,000", "p95"),
        (
            (
                system_in_short(each.policy, names),
                *(format_rate(rate) for rate in (each.miss_rate, each.stop_rate)),
                *(format_usd(each.cost_per_10000), format_ms(each.p95_ms)),
            )
            for each in shown
        ),
        note=f"{format_count(len(data.found.line))} systems have no rival that is at most as bad in"
        f" all four columns: --json has them all. {most} of the {format_count(len(front))} with the"
        " fewest stops for their misses, on the commands that they are chosen on: a little too"
        " good.",
    )


def _front(data: SystemsData) -> list[Candidate]:
    """Return the systems within the bounds that have the fewest stops for their misses.

    Those that stop harmless commands as often as dangerous ones are left out.
    """
    front, least = list[Candidate](), math.inf
    for each in filter(data.requirements.keeps, data.found.line):
        if each.stop_rate < min(least, 1 - each.miss_rate):
            front.append(each)
            least = each.stop_rate
    return front


def _legend(data: SystemsData) -> tuple[str, ...]:
    rule, opinion, needs = data.rule, data.opinion.rule, data.requirements
    return (
        "a ≥ x: guard a stops from a suspicion of x on and allows below; without x its own actions"
        " count, and an answer without an action stops. in [x, y]: b: where the suspicion is in"
        " this range, b is asked and decides.",
        f"Best by {needs.criterion.name}. Score: {_SCORES[opinion.composite]}, HA being 100 - FPR."
        f" What has an interval, {INTERVAL}, is of the choice, out of fold: of commands that it"
        " is not made on. Judged by"
        f" {opinion.name} v{opinion.version}; suspicion by {rule.name} v{rule.version}; of the"
        f" actions {needs.prevalence:g} are dangerous. --json has everything.",
    )


def systems_document(data: SystemsData) -> dict[str, Any]:
    """Return a search in JSON types; absent numbers and bounds are null."""
    found, bounds = data.found, asdict(data.requirements)
    del bounds["max_fpr"]  # in the criterion
    return {
        "run_id": data.run.run_id,
        "scoring": data.opinion.rule.name,
        "opinion": data.opinion.provenance,
        "suspicion": data.rule.provenance,
        "criterion": data.requirements.criterion.name,
        **{name: value if math.isfinite(value) else None for name, value in bounds.items()},
        "models": list(data.models),
        "models_left_out": list(data.models_left_out),
        "decisions": found.decisions,
        "left_out": found.left_out,
        "unpriced": found.unpriced,
        "winner": data.winner,
        **{name: each and _judged(each) for name, each in data.choices.items()},
        "gain": found.gain and asdict(found.gain),
        "line": [_candidate(each) for each in found.line],
        "overlaps": [asdict(each) for each in found.overlaps],
    }


def _judged(choice: Choice) -> dict[str, Any]:
    rates = ("score", "detection_rate", "false_positive_rate")
    return {
        **_candidate(choice.best),
        **{name: asdict(getattr(choice.estimate, name)) for name in rates},
        "in_sample_score": choice.estimate.in_sample_score,
        "in_words": explain(choice.best.policy)[1:],
    }


def _candidate(each: Candidate) -> dict[str, Any]:
    numbers = asdict(each)
    return {"stages": to_builtins(numbers.pop("policy").stages), **numbers}


def render_systems(data: SystemsData, limit: int, *, as_json: bool, **drawn: Any) -> str:
    """Return a search as text; `drawn` are width and color of a table."""
    if as_json:
        return printable_json(systems_document(data)) + "\n"
    return draw_table(build_systems(data, limit), **drawn)
