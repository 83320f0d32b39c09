"""The first screen in words: what to take, what speaks against it, what is sure, what to type next.

What is taken is decided in `findings.recommendation`. Terminal, Markdown and page say the same.
Names are short ones of foreign text.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC

from msgspec import to_builtins

from aegish_dist.core.metric import RATES, Judgement, Metric
from aegish_dist.core.model import is_baseline
from aegish_dist.core.outcome import ERROR_LABELS, RULE_ERROR_LABELS
from aegish_dist.core.text import JsonObject, counted
from aegish_dist.findings.recommendation import Share, Undecided, Why, share_of
from aegish_dist.findings.snapshot import RankedModel, commands_to_judge
from aegish_dist.report.data import ReportData
from aegish_dist.report.layout import Fact, metric_title, with_interval
from aegish_dist.report.operations import NO_SCORE, failed_calls, reasons
from aegish_dist.report.origins import origins_in_words
from aegish_dist.report.provenance import command_line, source
from aegish_dist.report.quality import more_commands, target_words, timed_calls
from aegish_dist.report.writing import (
    NAME_WIDTH,
    format_count,
    format_ms,
    format_rate,
    format_usd,
    listed,
    short_names,
)

# Commands below which intervals have ten points and more.
PILOT = 200
# Share of a guard's calls from which on a decision has to know of them.
MANY_FAILED = 0.05


class Screen:
    """A report with the short names of its guards."""

    def __init__(self, data: ReportData) -> None:
        self.data = data
        self.found = data.recommendation
        self.entries = {entry.model: entry for entry in data.ranked}
        self.names = short_names([*self.entries], NAME_WIDTH)
        self.taken = self.entries.get(self.found.take or "")
        self.margin = f"{100 * self.found.margin:g}"

        ranked = [entry for entry in self.entries.values() if entry.is_ranked]
        guards = [entry for entry in self.entries.values() if not is_baseline(entry.model)]
        self.guards = len(guards)
        """How many guards were asked that are no baselines."""
        self.scored = [entry for entry in guards if entry.is_ranked] if guards else ranked
        """The guards with a place, without baselines where there are others; best first."""

    def listed(self, guards: Iterable[str]) -> str:
        return listed([self.names[guard] for guard in guards])


def state_line(data: ReportData) -> str:
    """Return the name of the run and its state; foreign text."""
    name = data.run.name or data.run.run_id
    return f"{name} · {state(data)}"


def state(data: ReportData) -> str:
    """Say what was asked when, and whether answers are missing."""
    run, entries = data.run, data.snapshot.entries
    attacks = sum(dataset.malicious for dataset in run.datasets)
    last = data.answered[-1] if data.answered else run.created_at
    parts = [
        counted(len(entries), "guard"),
        f"{counted(run.samples, 'command')} ({counted(attacks, 'attack')})",
        f"{last.astimezone(UTC):%Y-%m-%d}",
    ]
    if any(entry.simulated for entry in entries):
        parts.append("SIMULATED answers")
    missing = data.incomplete
    if missing is not None:
        parts.append(f"INCOMPLETE: {counted(missing.missing, 'answer')} missing, {missing.why}")
    return " · ".join(parts)


def first_screen(data: ReportData) -> tuple[Fact, ...]:
    """Return what has to be known for a decision, a sentence or two under each label."""
    screen = Screen(data)
    return _facts(
        {
            "Take": _take(screen),
            "But": _but(screen),
            "Surely": _surely(screen),
            "Next": _next(screen),
        }
    )


def details(data: ReportData) -> tuple[Fact, ...]:
    """Return what stands below the table: thresholds, targets, what the numbers are of."""
    screen = Screen(data)
    sentences: dict[str, Iterable[str]] = {}
    # Without a score there is nothing that a threshold or a target could be judged by.
    if screen.scored:
        sentences = {fact.label: [fact.text] for fact in data.advice}
        sentences["Targets"] = _targets(screen)
        sentences["To settle"] = _to_settle(screen)
    sentences |= {
        "Policies": origins_in_words(screen.names, data.overlaps, out_of_fold=True),
        "Answers": _answers(screen),
        "No score": _unscored(screen),
        "Failed": _failed(screen),
    }
    return _facts(sentences)


def _facts(sentences: Mapping[str, Iterable[str]]) -> tuple[Fact, ...]:
    facts = [Fact(label, " ".join(parts)) for label, parts in sentences.items()]
    return tuple(fact for fact in facts if fact.text)


def _take(screen: Screen) -> Iterator[str]:
    taken, found = screen.taken, screen.found
    if taken is None:
        yield from _take_none(screen)
        return
    costs = "price unknown"
    if found.price_per_1000_usd is not None:
        costs = f"{format_usd(found.price_per_1000_usd)} per 1,000 commands"
    lasts = "latency unknown"
    if found.p50_ms is not None:
        timed = timed_calls(taken)
        median = f"median of {timed}" if timed else "median"
        lasts = f"{format_ms(found.p50_ms)} ({median})"
    yield f"{screen.names[taken.model]}: score {with_interval(taken.score)}, {costs}, {lasts}."
    if found.why is Why.ONLY:
        yield "No other guard takes part."
    elif found.why is not Why.BEST:
        yield _beside_the_best(screen, screen.entries[found.best or ""])
    elif found.undecided:
        within = f"within {screen.margin} points of it"
        yield f"It {_best(screen)}; no cheaper guard is shown to be {within}."
    else:
        yield f"It {_best(screen)}, and no guard that is about as good costs less."


def _best(screen: Screen) -> str:
    """Say of what guards the best one is."""
    floor = screen.found.floor
    if floor is None or screen.scored[0].model == screen.found.best:
        return "has the best score"
    above = f"that are shown to be better than {screen.names[floor.guard]}"
    return f"has the best score of those {above}"


def _take_none(screen: Screen) -> Iterator[str]:
    """Say why no guard is taken."""
    floor, scored = screen.found.floor, screen.scored
    if screen.found.why is Why.FLOOR and floor is not None:
        score = with_interval(screen.entries[floor.guard].score)
        name = screen.names[floor.guard]
        yield f"None: no guard is shown to be better than {name}, score {score}."
    elif not scored:
        yield "None: no guard has a score."
    elif not screen.guards:
        yield "None: only baselines were asked, which are what a guard has to beat."
    else:
        yield "None: no guard has answers to half of the malicious and of the harmless commands."
    if scored and screen.guards:
        name, score = screen.names[scored[0].model], with_interval(scored[0].score)
        yield f"The best of the guards is {name}, score {score}."


def _beside_the_best(screen: Screen, best: RankedModel) -> str:
    """Say how the taken guard compares with the best, which it is not."""
    found = screen.found
    worse = "no worse than"
    if found.may_be_worse_by:
        points = format_rate(found.may_be_worse_by)
        worse = f"at most {points} points worse ({screen.margin} are allowed) than"
    costs = _price_of_best(best.price_per_1000_usd, found.price_per_1000_usd)
    if found.why is Why.FASTEST:
        known = found.price_per_1000_usd is not None
        costs = "costs the same" if known else "has no known price either"
    takes = _times("takes", best.p50_ms, found.p50_ms, "long")
    merits = listed([part for part in (_best(screen), costs, takes) if part])
    return f"Shown to be {worse} {screen.names[best.model]}, which {merits}."


def _price_of_best(of_best: float | None, of_taken: float | None) -> str:
    """Say how much dearer the best is than the taken guard; empty where it is not."""
    if of_best is None:
        return "has no known price"
    if of_taken == 0 and of_best:
        return "is not free"
    return _times("costs", of_best, of_taken, "much")


def _times(
    verb: str,
    of_best: float | None,
    of_taken: float | None,
    adverb: str,
) -> str:
    """Say how many times as much the best takes; empty where it is not more, or not known."""
    if of_best is None or not of_taken or of_best <= of_taken:
        return ""
    times = float(f"{of_best / of_taken:.2g}")
    return f"{verb} {times:,g} times as {adverb}"


def _but(screen: Screen) -> Iterator[str]:
    """Say what a guard does wrong, and which targets it is not shown to reach."""
    taken, found = screen.taken, screen.found
    if taken is None or found.misses is None or found.stops is None:
        return
    misses, stops = _part(found.misses, "attack"), _part(found.stops, "harmless command")
    yield f"It misses {misses} and stops {stops}."
    accepted = taken.metric(Metric.ACCEPTANCE_RATE)
    rest = (1 - (accepted.value or 0)) * accepted.n - found.stops.n
    if rest > 1e-6:
        harmless = _part(share_of(rest / accepted.n, accepted.n), "harmless command")
        yield f"A further {harmless} it neither lets pass nor stops{_errors_of(taken)}."
    targets = screen.data.targets
    for name, judgement in taken.judgements(targets).items():
        if judgement is not Judgement.PASS:
            seen, least = with_interval(taken.metric(name)), format_rate(targets.least[name])
            title = _WRITTEN_OUT.get(name) or metric_title(name)
            yield f"{title} {seen}: {judgement} (target {least})."
    failed = failed_calls(screen.data, taken, MANY_FAILED)
    if failed:
        yield f"Of its calls, {failed}."
    asked = screen.data.run.samples
    if asked < PILOT:
        yield f"{counted(asked, 'command')} are a pilot: with more, another guard may be the best."


def _errors_of(entry: RankedModel) -> str:
    """Count the answers of a guard that are no decision, for the end of a sentence."""
    errors = []
    for label in (*ERROR_LABELS, *RULE_ERROR_LABELS):
        count = entry.counts.get(f"{label.lower()}_count")
        if count:
            errors.append(f"{label} {count:,}")
    return f" (of all its answers: {', '.join(errors)})" if errors else ""


def _part(share: Share, noun: str) -> str:
    """Write such as `22 of 431 attacks`, or a share in % where epochs disagree on a command."""
    some = f"{100 * share.n / share.of:.1f} %"
    if share.n == round(share.n):
        some = format_count(round(share.n))
    return f"{some} of {counted(share.of, noun)}"


def _surely(screen: Screen) -> Iterator[str]:
    """Say what the taken guard is shown to be better than, and what is left open."""
    found = screen.found
    if screen.taken is None:
        return
    if found.floor is not None:
        yield f"Better than {screen.names[found.floor.guard]}, the best baseline."
    if found.tied_with:
        yield f"Tied with {screen.listed(found.tied_with)}: their order may be chance."
    elif found.why is Why.BEST:
        yield "No other guard is tied with it."
    if found.undecided:
        yield _undecided(screen, found.undecided)


def _undecided(screen: Screen, undecided: Sequence[Undecided]) -> str:
    """Say which guards may be as good as the best and cheaper, and what would tell of the first."""
    first = undecided[0]
    best = screen.names[first.a]
    guards = [pair.b for pair in undecided]
    merit = f"{screen.listed(guards)} {_merit(screen, guards)}"
    worst = 0.0
    for pair in undecided:
        if pair.may_be_worse_by is None:
            return f"{merit}, but nothing is known of the difference to {best}."
        worst = max(worst, pair.may_be_worse_by)
    aim = f"{screen.names[first.b]} is within {screen.margin} points of it"
    more = more_commands(first.commands_needed, screen.data.run.samples, "commands", aim)
    return f"{merit}, but may be up to {format_rate(worst)} points worse than {best}. {more}"


def _merit(screen: Screen, guards: Sequence[str]) -> str:
    """Say what guards would be taken for, in place of the one that is."""
    of_taken = screen.found.price_per_1000_usd
    prices = [screen.entries[guard].price_per_1000_usd for guard in guards]
    # An unknown price counts as the dearest, so it can be beaten by speed alone.
    as_dear = sum(price in (None, of_taken) for price in prices)
    one = len(guards) == 1
    if 0 < as_dear < len(prices):
        return "are cheaper or faster"
    if as_dear:
        return "is faster" if one else "are faster"
    if of_taken is None:
        return "has a known price" if one else "have a known price"
    return "costs less" if one else "cost less"


def _next(screen: Screen) -> Iterator[str]:
    """Say what to type: to finish the run, to see what was wrong, to ask enough."""
    data = screen.data
    run = ("--run-id", data.run.run_id)
    if data.incomplete is not None and data.incomplete.resume:
        yield f"Finish: `{command_line(*data.incomplete.resume)}`."
    failed = any(failure.verdicts for failure in data.failures)
    # An imported run has no provider that could be asked again.
    if failed and not screen.scored and not data.run.imported:
        retry = command_line("retry", *run, "--outcome", "TIMEOUT_ERROR,API_ERROR")
        yield f"Ask once more what failed: `{retry}`."
        return
    judged = (*run, *data.opinion_words)
    mistakes = ["verdicts", "list", *judged, "--wrong"]
    whose = "All"
    if screen.found.take:
        mistakes += ["--models", screen.found.take]
        whose = "Its"
    yield f"{whose} mistakes: `{command_line(*mistakes)}`."
    if screen.found.undecided:
        first = screen.found.undecided[0]
        pair = ("--models", f"{first.a},{first.b}", "--margin", f"{screen.found.margin:g}")
        yield f"How many commands would tell: `{command_line('plan', *judged, *pair)}`."


def to_plan(data: ReportData) -> list[str]:
    """Return the guard, or the baseline and the guard, that a plan is for; empty: none is."""
    found = data.recommendation
    if found.best is not None:
        return [found.best]
    if found.why is Why.FLOOR and found.floor is not None:
        return [found.floor.guard, Screen(data).scored[0].model]
    return []


def _targets(screen: Screen) -> Iterator[str]:
    """Say who reaches every target, or who comes closest."""
    targets = screen.data.targets
    if not targets.least:
        return
    nearest = _nearest(screen)
    judgement = _judged(screen, nearest)
    every = f"every target ({target_words(targets)})"
    if judgement is Judgement.PASS:
        alike = [entry.model for entry in screen.scored if _judged(screen, entry) is judgement]
        reach = "reaches" if len(alike) == 1 else "reach"
        yield f"{screen.listed(alike)} {reach} {every}."
        return
    undecided = judgement is Judgement.UNDECIDED
    who = "Undecided whether a guard as it stands" if undecided else "No guard as it stands"
    yield f"{who} reaches {every}."
    missed = []
    for name, found in nearest.judgements(targets).items():
        if found is judgement:
            missed.append(f"{metric_title(name)} {with_interval(nearest.metric(name))}")
    numbers = f": {', '.join(missed)}" if missed else ""
    yield f"{screen.names[nearest.model]} comes closest{numbers}."


_BEST_FIRST = (Judgement.PASS, Judgement.UNDECIDED, Judgement.FAIL)


def _judged(screen: Screen, entry: RankedModel) -> Judgement:
    """Judge a guard by all targets together."""
    targets = screen.data.targets
    judgements = entry.judgements(targets)
    of_all = [judgements.get(name, Judgement.UNDECIDED) for name in targets.least]
    return max(of_all, key=_BEST_FIRST.index, default=Judgement.PASS)


def _nearest(screen: Screen) -> RankedModel:
    """Return the guard that is judged best, of equal ones the one with the least shortfall."""

    def distance(entry: RankedModel) -> tuple[int, float]:
        shortfall = 0.0
        for name, least in screen.data.targets.least.items():
            shortfall = max(shortfall, least - (entry.metric(name).value or 0))
        return _BEST_FIRST.index(_judged(screen, entry)), shortfall

    return min(screen.scored, key=distance)


def _to_settle(screen: Screen) -> Iterator[str]:
    """Say how many commands would judge the guard that comes nearest to the targets."""
    nearest, least = _nearest(screen), screen.data.targets.least
    if _judged(screen, nearest) is not Judgement.UNDECIDED:
        return
    for name, judgement in nearest.judgements(screen.data.targets).items():
        estimate = nearest.metric(name)
        known_spread = estimate.stderr_clustered or estimate.stderr  # none where all are alike
        if judgement is not Judgement.UNDECIDED or not known_spread:
            continue
        needed = commands_to_judge(estimate, least[name])
        wanted = f"{metric_title(name)} {format_rate(least[name])}"
        aim = f"{screen.names[nearest.model]} reaches {wanted}"
        kind = f"{name.split('_')[0]} commands" if name in RATES.values() else "commands"
        yield more_commands(needed, estimate.n, kind, aim)


def _answers(screen: Screen) -> Iterator[str]:
    """Say what the numbers are of, and how well they are known."""
    data, run = screen.data, screen.data.run
    days = dict.fromkeys(f"{time.astimezone(UTC):%Y-%m-%d}" for time in data.answered)
    when = "none with a dated answer"
    if days:
        from_on = "from" if len(days) > 1 else "on"
        when = f"answered {from_on} {' to '.join(days)}"
    epochs = f", each asked {run.epochs} times" if run.epochs > 1 else ""
    rules = source(data)[-1].text
    yield f"{counted(run.samples, 'command')}{epochs}, {when}, judged by {rules}."
    widest = 0.0
    for entry in screen.scored:
        widest = max(widest, (entry.score.ci_high or 0) - (entry.score.ci_low or 0))
    if widest:
        yield f"Every score is known to within {50 * widest:.1f} points at 95% confidence."
        if run.samples < PILOT:
            yield "So few commands are a pilot."
    if len(run.datasets) > 1:
        sets = ", ".join(f"{each.samples:,} of {each.name}" for each in run.datasets)
        yield f"All rates are of this mix: {sets}."


def _unscored(screen: Screen) -> Iterator[str]:
    """Say by reason which guards have no score."""
    by_reason: dict[str, list[str]] = {}
    for model, reason in reasons(screen.data).items():
        models = by_reason.setdefault(reason.removeprefix(NO_SCORE), [])
        models.append(screen.names[model])
    for reason, models in by_reason.items():
        yield f"{', '.join(models)}: {reason}."


def _failed(screen: Screen) -> Iterator[str]:
    """Name guards many of whose calls failed, if no reason for a missing score says so already."""
    known = reasons(screen.data)
    for entry in screen.entries.values():
        # What failed of the taken guard stands under `But`.
        if entry is screen.taken:
            continue
        failed = failed_calls(screen.data, entry, MANY_FAILED)
        if failed and failed not in known.get(entry.model, ""):
            yield f"{screen.names[entry.model]}: {failed}."


def recommendation_document(data: ReportData) -> JsonObject:
    """Return what to take in JSON types, without the threshold."""
    document: JsonObject = to_builtins(data.recommendation)
    missing = data.incomplete
    document["incomplete"] = None
    if missing is not None:
        resume = command_line(*missing.resume) if missing.resume else None
        document["incomplete"] = {"missing": missing.missing, "why": missing.why, "resume": resume}
    return document


_WRITTEN_OUT: Mapping[str, str] = {
    Metric.DETECTION_RATE: "Malicious detection rate (DR)",
    Metric.ACCEPTANCE_RATE: "Harmless acceptance rate (HA)",
    Metric.SCORE: "Aegish score",
}
