"""A report in a few sentences: which model is best, how sure that is, and what it costs."""

from collections.abc import Iterator, Sequence

from aegish_dist.core.opinion import Targets
from aegish_dist.core.printable import shortened
from aegish_dist.report.data import ReportData
from aegish_dist.report.entries import RankedModel
from aegish_dist.report.numbers import (
    format_count,
    format_interval,
    format_ms,
    format_rate,
    format_usd,
)
from aegish_dist.report.quality import HEADLINES

MOST_NAMES = 5

LONGEST_NAME = 100
"""Characters of a name in a sentence; tables have it whole."""


def summary(data: ReportData, entries: Sequence[RankedModel], targets: Targets) -> tuple[str, ...]:
    """Return what a reader has to know at least, one sentence or two in each.

    Args:
        entries: Its models, best first.
    """
    scored = [entry for entry in entries if entry.metric("aegish_score").value is not None]
    if not scored:
        return ("No model has a score yet: of malicious or of harmless commands none is scored.",)
    tied = _group(scored)
    return (
        *_best(scored, tied),
        *_targets(scored, targets),
        *_certainty(data, scored),
        *_price(tied, scored),
    )


def warnings(data: ReportData, entries: Sequence[RankedModel]) -> tuple[str, ...]:
    """Return what limits the meaning of the whole report, the gravest first."""
    found = []
    simulated = [_name(entry) for entry in entries if entry.simulated]
    if simulated:
        which = "All models" if len(simulated) == len(entries) else _names(simulated)
        found.append(
            f"Simulated: {which}. These answers were made up by the simulator and are not evidence "
            "about any real model."
        )
    missing = sum(_missing(entry) for entry in entries)
    if missing:
        found.append(f"Provisional: {_verdicts(missing)} of those planned {_are(missing)} missing.")
    if not data.is_current:
        found.append("Not the newest state: verdicts have been stored since this snapshot.")
    return tuple(found)


def _group(scored: Sequence[RankedModel]) -> list[RankedModel]:
    """Return the models that share the first place."""
    return [entry for entry in scored if entry.place == scored[0].place]


def _best(scored: Sequence[RankedModel], tied: Sequence[RankedModel]) -> Iterator[str]:
    best = scored[0]
    score = best.metric("aegish_score")
    said = f"an aegish score of {format_rate(score.value)} out of 100"
    if score.ci_low is not None:
        said += f", 95% interval {format_interval(score.ci_low, score.ci_high)}"
    if len(scored) == 1:
        yield f"{_name(best)} has {said}."
        return
    yield f"Of {format_count(len(scored))} models, {_name(best)} is first with {said}."
    if len(tied) == 1:
        yield "No other model is tied with it."
    else:
        others = _names([_name(entry) for entry in tied[1:]])
        yield f"It cannot be distinguished from {others}: the order among them may be chance."


def _targets(scored: Sequence[RankedModel], targets: Targets) -> Iterator[str]:
    if not targets.least:
        return
    reaching = [entry for entry in scored if not _missed(entry, targets)]
    if len(reaching) == len(scored):
        yield "Every target is reached." if len(scored) == 1 else "All models reach every target."
    elif reaching:
        number = f"{format_count(len(reaching))} of {format_count(len(scored))} models"
        yield f"{number} reach every target: {_names([_name(entry) for entry in reaching])}."
    else:
        missed = " and ".join(
            _shortfall(scored[0], name, targets) for name in _missed(scored[0], targets)
        )
        yield f"No model reaches every target; {_name(scored[0])} has {missed}."


def _shortfall(entry: RankedModel, name: str, targets: Targets) -> str:
    title = HEADLINES.get(name, name.replace("_", " "))
    value = format_rate(entry.metric(name).value)
    return f"{title} {value}, below {format_rate(targets.least[name])}"


def _certainty(data: ReportData, scored: Sequence[RankedModel]) -> Iterator[str]:
    widths = [
        (score.ci_high - score.ci_low) / 2
        for score in (entry.metric("aegish_score") for entry in scored)
        if score.ci_low is not None and score.ci_high is not None
    ]
    if not widths:
        return
    commands = f"{format_count(data.run.samples)} commands"
    if data.run.epochs > 1:
        commands += f", each asked {format_count(data.run.epochs)} times"
    least, most = f"{100 * min(widths):.1f}", f"{100 * max(widths):.1f}"
    points = f"{least} points" if least == most else f"{least} to {most} points"
    yield f"On {commands}, scores are known to within {points} at 95% confidence."


def _price(tied: Sequence[RankedModel], scored: Sequence[RankedModel]) -> Iterator[str]:
    total = [entry.cost("total_usd") for entry in scored]
    known = [cost for cost in total if cost is not None]
    if not known:
        return
    covered = "" if len(known) == len(total) else ", as far as prices are known"
    yield f"All answers together cost {format_usd(sum(known))}{covered}."
    priced = [entry for entry in tied if entry.cost("per_1000_usd") is not None]
    cheapest = min(priced, key=lambda entry: entry.cost("per_1000_usd") or 0, default=None)
    if cheapest is None:
        return
    name = _name(cheapest) if len(tied) == 1 else f"The cheapest of those tied, {_name(cheapest)},"
    time = cheapest.latency("service", "p50")
    answers = "" if time is None else f" and answers in {format_ms(time)} (median)"
    yield f"{name} costs {format_usd(cheapest.cost('per_1000_usd'))} per 1,000 commands{answers}."


def _missed(entry: RankedModel, targets: Targets) -> list[str]:
    return [name for name in targets.least if targets.reached(name, entry.metric(name)) is False]


def _missing(entry: RankedModel) -> int:
    return max((entry.count("planned") or 0) - (entry.count("done") or 0), 0)


def _names(models: Sequence[str]) -> str:
    if len(models) > MOST_NAMES:
        return f"{', '.join(models[:MOST_NAMES])} and {len(models) - MOST_NAMES} others"
    return " and ".join(filter(None, (", ".join(models[:-1]), models[-1])))


def _name(entry: RankedModel) -> str:
    return shortened(entry.model, LONGEST_NAME)


def _verdicts(count: int) -> str:
    return f"{format_count(count)} verdict{'' if count == 1 else 's'}"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
