"""The first screen in words: what to take, what speaks against it, what is sure, what to type next.

`findings.recommendation` decides which guard to take; this module only puts it in words.
Terminal, Markdown and page say the same. Guards are called by short names, which are foreign text.
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

# With fewer commands than these, intervals are ten points wide and more.
PILOT = 200
# If at least this share of a guard's calls failed, the first screen says so.
MANY_FAILED = 0.05


class Screen:
    """A report, with what every sentence of the first screen looks up in it."""

    def __init__(self, data: ReportData) -> None:
        self.data = data
        self.recommendation = data.recommendation
        self.entries = {entry.model: entry for entry in data.ranked}
        self.names = short_names([*self.entries], NAME_WIDTH)
        self.taken = self.entries.get(self.recommendation.take or "")
        self.margin = f"{100 * self.recommendation.margin:g}"

        ranked = [entry for entry in self.entries.values() if entry.is_ranked]
        guards = [entry for entry in self.entries.values() if not is_baseline(entry.model)]
        self.guards = len(guards)
        """How many guards were asked, not counting baselines."""
        self.scored = [entry for entry in guards if entry.is_ranked] if guards else ranked
        """The ranked guards, best first; baselines only where nothing else was asked."""

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
    last_answer = data.answered[-1] if data.answered else run.created_at
    parts = [
        counted(len(entries), "guard"),
        f"{counted(run.samples, 'command')} ({counted(attacks, 'attack')})",
        f"{last_answer.astimezone(UTC):%Y-%m-%d}",
    ]
    if any(entry.simulated for entry in entries):
        parts.append("SIMULATED answers")
    missing = data.incomplete
    if missing is not None:
        parts.append(f"INCOMPLETE: {counted(missing.missing, 'answer')} missing, {missing.why}")
    return " · ".join(parts)


def first_screen(data: ReportData) -> tuple[Fact, ...]:
    """Return what a decision needs: under each label a sentence or two."""
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
    """Return what stands below the table: thresholds, targets, failures, origin of the numbers."""
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
    """Return a fact for each label that has a sentence."""
    facts = [Fact(label, " ".join(parts)) for label, parts in sentences.items()]
    return tuple(fact for fact in facts if fact.text)


def _take(screen: Screen) -> Iterator[str]:
    """Say which guard to take, what it costs, and why this one."""
    taken = screen.taken
    recommendation = screen.recommendation
    if taken is None:
        yield from _take_none(screen)
        return
    price = "price unknown"
    if recommendation.price_per_1000_usd is not None:
        price = f"{format_usd(recommendation.price_per_1000_usd)} per 1,000 commands"
    latency = "latency unknown"
    if recommendation.p50_ms is not None:
        timed = timed_calls(taken)
        median = f"median of {timed}" if timed else "median"
        latency = f"{format_ms(recommendation.p50_ms)} ({median})"
    name = screen.names[taken.model]
    yield f"{name}: score {with_interval(taken.score)}, {price}, {latency}."
    if recommendation.why is Why.ONLY:
        yield "No other guard takes part."
    elif recommendation.why is not Why.BEST:
        yield _beside_the_best(screen, screen.entries[recommendation.best or ""])
    elif recommendation.undecided:
        within = f"within {screen.margin} points of it"
        yield f"It {_best(screen)}; no cheaper guard is shown to be {within}."
    else:
        yield f"It {_best(screen)}, and no guard that is about as good costs less."


def _best(screen: Screen) -> str:
    """Say that a guard is the best: of all, or only of those above the best baseline."""
    floor = screen.recommendation.floor
    best_of_all = screen.scored[0].model
    if floor is None or best_of_all == screen.recommendation.best:
        return "has the best score"
    baseline = screen.names[floor.guard]
    return f"has the best score of those that are shown to be better than {baseline}"


def _take_none(screen: Screen) -> Iterator[str]:
    """Say why no guard is taken."""
    floor = screen.recommendation.floor
    scored = screen.scored
    if screen.recommendation.why is Why.FLOOR and floor is not None:
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
        best = scored[0]
        score = with_interval(best.score)
        yield f"The best of the guards is {screen.names[best.model]}, score {score}."


def _beside_the_best(screen: Screen, best: RankedModel) -> str:
    """Compare the taken guard with the best one, which is a different guard here."""
    recommendation = screen.recommendation
    compared = "no worse than"
    if recommendation.may_be_worse_by:
        points = format_rate(recommendation.may_be_worse_by)
        compared = f"at most {points} points worse ({screen.margin} are allowed) than"
    price = recommendation.price_per_1000_usd
    costs = _price_of_best(best.price_per_1000_usd, price)
    # A guard is taken for its speed only if the best one costs the same, as far as is known.
    if recommendation.why is Why.FASTEST:
        costs = "has no known price either" if price is None else "costs the same"
    takes = _times("takes", best.p50_ms, recommendation.p50_ms, "long")
    about_best = listed([part for part in (_best(screen), costs, takes) if part])
    return f"Shown to be {compared} {screen.names[best.model]}, which {about_best}."


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
    if of_best is None or not of_taken:
        return ""
    if of_best <= of_taken:
        return ""
    times = float(f"{of_best / of_taken:.2g}")
    return f"{verb} {times:,g} times as {adverb}"


def _but(screen: Screen) -> Iterator[str]:
    """Say what the taken guard does wrong, and which targets it is not shown to reach."""
    taken = screen.taken
    recommendation = screen.recommendation
    if taken is None or recommendation.misses is None or recommendation.stops is None:
        return
    misses = _part(recommendation.misses, "attack")
    stops = _part(recommendation.stops, "harmless command")
    yield f"It misses {misses} and stops {stops}."
    accepted = taken.metric(Metric.ACCEPTANCE_RATE)
    not_accepted = (1 - (accepted.value or 0)) * accepted.n
    # Rates were divided, so what is left of them may be a rounding error and not a command.
    neither = not_accepted - recommendation.stops.n
    if neither > 1e-6:
        harmless = _part(share_of(neither / accepted.n, accepted.n), "harmless command")
        yield f"A further {harmless} it neither lets pass nor stops{_errors_of(taken)}."
    targets = screen.data.targets
    for name, judgement in taken.judgements(targets).items():
        if judgement is not Judgement.PASS:
            title = _WRITTEN_OUT.get(name) or metric_title(name)
            rate = with_interval(taken.metric(name))
            least = format_rate(targets.least[name])
            yield f"{title} {rate}: {judgement} (target {least})."
    failed = failed_calls(screen.data, taken, MANY_FAILED)
    if failed:
        yield f"Of its calls, {failed}."
    asked = screen.data.run.samples
    if asked < PILOT:
        yield f"{counted(asked, 'command')} are a pilot: with more, another guard may be the best."


def _errors_of(entry: RankedModel) -> str:
    """Count the answers of a guard that decide nothing, in brackets for the end of a sentence."""
    errors = []
    for label in (*ERROR_LABELS, *RULE_ERROR_LABELS):
        count = entry.counts.get(f"{label.lower()}_count")
        if count:
            errors.append(f"{label} {count:,}")
    return f" (of all its answers: {', '.join(errors)})" if errors else ""


def _part(share: Share, noun: str) -> str:
    """Write such as `22 of 431 attacks`, or a share in % where epochs disagree on a command."""
    part = f"{100 * share.n / share.of:.1f} %"
    if share.n == round(share.n):
        part = format_count(round(share.n))
    return f"{part} of {counted(share.of, noun)}"


def _surely(screen: Screen) -> Iterator[str]:
    """Say what the taken guard is shown to be better than, and what is left open."""
    recommendation = screen.recommendation
    if screen.taken is None:
        return
    if recommendation.floor is not None:
        yield f"Better than {screen.names[recommendation.floor.guard]}, the best baseline."
    if recommendation.tied_with:
        yield f"Tied with {screen.listed(recommendation.tied_with)}: their order may be chance."
    elif recommendation.why is Why.BEST:
        yield "No other guard is tied with it."
    if recommendation.undecided:
        yield _undecided(screen, recommendation.undecided)


def _undecided(screen: Screen, undecided: Sequence[Undecided]) -> str:
    """Say which guards would be taken if they are shown to be about as good as the best.

    In each pair `a` is the best guard and `b` is such a guard. How many commands would show it is
    said of the first of them.
    """
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
    """Say what guards have over the taken one: a lower price, more speed, or some of each."""
    of_taken = screen.recommendation.price_per_1000_usd
    prices = [screen.entries[guard].price_per_1000_usd for guard in guards]
    # A guard that is not cheaper is here for its speed. An unknown price counts as the dearest.
    only_faster = sum(price in (None, of_taken) for price in prices)
    one = len(guards) == 1
    if 0 < only_faster < len(prices):
        return "are cheaper or faster"
    if only_faster:
        return "is faster" if one else "are faster"
    if of_taken is None:
        return "has a known price" if one else "have a known price"
    return "costs less" if one else "cost less"


def _next(screen: Screen) -> Iterator[str]:
    """Say what to type: to finish the run, to see mistakes, to plan a run that settles the rest."""
    data = screen.data
    recommendation = screen.recommendation
    run = ("--run-id", data.run.run_id)
    if data.incomplete is not None and data.incomplete.resume:
        yield f"Finish: `{command_line(*data.incomplete.resume)}`."
    failed = any(failure.verdicts for failure in data.failures)
    # An imported run has no provider that could be asked again.
    can_retry = failed and not data.run.imported
    if can_retry and not screen.scored:
        retry = command_line("retry", *run, "--outcome", "TIMEOUT_ERROR,API_ERROR")
        yield f"Ask once more what failed: `{retry}`."
        return
    judged = (*run, *data.opinion_words)
    mistakes = ["verdicts", "list", *judged, "--wrong"]
    whose = "All"
    if recommendation.take:
        mistakes += ["--models", recommendation.take]
        whose = "Its"
    yield f"{whose} mistakes: `{command_line(*mistakes)}`."
    if recommendation.undecided:
        first = recommendation.undecided[0]
        pair = ("--models", f"{first.a},{first.b}", "--margin", f"{recommendation.margin:g}")
        yield f"How many commands would tell: `{command_line('plan', *judged, *pair)}`."


def to_plan(data: ReportData) -> list[str]:
    """Return the guards that a plan of more commands is for: none, one, or a pair.

    The pair is a baseline and the best guard, which is not shown to be better.
    """
    recommendation = data.recommendation
    if recommendation.best is not None:
        return [recommendation.best]
    if recommendation.why is Why.FLOOR and recommendation.floor is not None:
        return [recommendation.floor.guard, Screen(data).scored[0].model]
    return []


def _targets(screen: Screen) -> Iterator[str]:
    """Say which guards reach every target, or which one comes closest."""
    targets = screen.data.targets
    if not targets.least:
        return
    nearest = _nearest(screen)
    judgement = _judged(screen, nearest)
    every_target = f"every target ({target_words(targets)})"
    if judgement is Judgement.PASS:
        passing = [entry.model for entry in screen.scored if _judged(screen, entry) is judgement]
        reach = "reaches" if len(passing) == 1 else "reach"
        yield f"{screen.listed(passing)} {reach} {every_target}."
        return
    if judgement is Judgement.UNDECIDED:
        yield f"Undecided whether a guard as it stands reaches {every_target}."
    else:
        yield f"No guard as it stands reaches {every_target}."
    missed = []
    # Where a target failed, only the failed ones are named; otherwise the undecided ones.
    for name, of_target in nearest.judgements(targets).items():
        if of_target is judgement:
            missed.append(f"{metric_title(name)} {with_interval(nearest.metric(name))}")
    numbers = f": {', '.join(missed)}" if missed else ""
    yield f"{screen.names[nearest.model]} comes closest{numbers}."


_BEST_FIRST = (Judgement.PASS, Judgement.UNDECIDED, Judgement.FAIL)


def _judged(screen: Screen, entry: RankedModel) -> Judgement:
    """Judge a guard by all targets together: the worst judgement counts."""
    targets = screen.data.targets
    judgements = entry.judgements(targets)
    # A rate without a value is not judged.
    by_target = [judgements.get(name, Judgement.UNDECIDED) for name in targets.least]
    return max(by_target, key=_BEST_FIRST.index, default=Judgement.PASS)


def _nearest(screen: Screen) -> RankedModel:
    """Return the guard that is judged best; of equal ones the one with the least shortfall."""

    def distance(entry: RankedModel) -> tuple[int, float]:
        """Return the judgement as a number, then how far the worst rate is below its target."""
        shortfall = 0.0
        for name, least in screen.data.targets.least.items():
            shortfall = max(shortfall, least - (entry.metric(name).value or 0))
        return _BEST_FIRST.index(_judged(screen, entry)), shortfall

    return min(screen.scored, key=distance)


def _to_settle(screen: Screen) -> Iterator[str]:
    """Say how many commands would judge the guard that comes nearest to the targets."""
    nearest = _nearest(screen)
    targets = screen.data.targets
    if _judged(screen, nearest) is not Judgement.UNDECIDED:
        return
    for name, judgement in nearest.judgements(targets).items():
        if judgement is not Judgement.UNDECIDED:
            continue
        estimate = nearest.metric(name)
        # Where all answers are alike, there is no spread to plan with.
        if not (estimate.stderr_clustered or estimate.stderr):
            continue
        least = targets.least[name]
        needed = commands_to_judge(estimate, least)
        aim = f"{screen.names[nearest.model]} reaches {metric_title(name)} {format_rate(least)}"
        kind = "commands"
        if name in RATES.values():
            # `malicious_detection_rate` is of malicious commands.
            kind = f"{name.split('_')[0]} commands"
        yield more_commands(needed, estimate.n, kind, aim)


def _answers(screen: Screen) -> Iterator[str]:
    """Say what the numbers are of, and how well they are known."""
    data = screen.data
    run = data.run
    # The first and the last answer, which may be of one day.
    days = dict.fromkeys(f"{time.astimezone(UTC):%Y-%m-%d}" for time in data.answered)
    when = "none with a dated answer"
    if days:
        preposition = "from" if len(days) > 1 else "on"
        when = f"answered {preposition} {' to '.join(days)}"
    epochs = f", each asked {run.epochs} times" if run.epochs > 1 else ""
    rules = source(data)[-1].text
    yield f"{counted(run.samples, 'command')}{epochs}, {when}, judged by {rules}."
    widest = 0.0
    for entry in screen.scored:
        width = (entry.score.ci_high or 0) - (entry.score.ci_low or 0)
        widest = max(widest, width)
    if widest:
        yield f"Every score is known to within {50 * widest:.1f} points at 95% confidence."
        if run.samples < PILOT:
            yield "So few commands are a pilot."
    if len(run.datasets) > 1:
        mix = ", ".join(f"{dataset.samples:,} of {dataset.name}" for dataset in run.datasets)
        yield f"All rates are of this mix: {mix}."


def _unscored(screen: Screen) -> Iterator[str]:
    """Say for each reason which guards have no score for it."""
    by_reason: dict[str, list[str]] = {}
    for model, reason in reasons(screen.data).items():
        models = by_reason.setdefault(reason.removeprefix(NO_SCORE), [])
        models.append(screen.names[model])
    for reason, models in by_reason.items():
        yield f"{', '.join(models)}: {reason}."


def _failed(screen: Screen) -> Iterator[str]:
    """Name guards many of whose calls failed, unless this is why they have no score."""
    why_no_score = reasons(screen.data)
    for entry in screen.entries.values():
        # What failed of the taken guard stands under `But`.
        if entry is screen.taken:
            continue
        failed = failed_calls(screen.data, entry, MANY_FAILED)
        if failed and failed not in why_no_score.get(entry.model, ""):
            yield f"{screen.names[entry.model]}: {failed}."


def recommendation_document(data: ReportData) -> JsonObject:
    """Return the recommendation in JSON types; its threshold is added by the caller."""
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
