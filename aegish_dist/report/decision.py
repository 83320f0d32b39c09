"""The decision in words: who qualifies, who is tied, what goes wrong, and what would settle it.

The terminal, Markdown and the page say the same. Names are short ones of foreign text.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC
from itertools import chain

from msgspec import Struct

from aegish_dist.core.policy import POLICY_PREFIX
from aegish_dist.core.text import counted
from aegish_dist.report.data import ReportData
from aegish_dist.report.layout import HEADLINES, Fact, RankedModel, ranked_entries
from aegish_dist.report.names import short_names
from aegish_dist.report.numbers import format_count, format_ms, format_rate, format_usd
from aegish_dist.report.operations import NO_SCORE, failed_calls, reasons
from aegish_dist.report.provenance import source
from aegish_dist.report.quality import metric_title, target_words, with_interval
from aegish_dist.statistics.gate import OUT_OF_REACH, commands_to_judge, in_reach
from aegish_dist.statistics.metrics import ERROR_LABELS, RULE_ERROR_LABELS
from aegish_dist.statistics.rates import Judgement

NAME_WIDTH = 36
"""Columns of a name in a sentence."""
MOST_NAMES = 3
BASELINE = "baseline/"
PILOT = 200
"""Commands below which intervals have ten points and more."""
MANY_FAILED = 0.05
"""Share of a model's calls from which on a decision has to know of them."""
_BEST_FIRST = (Judgement.PASS, Judgement.UNDECIDED, Judgement.FAIL)


class Standing(Struct, frozen=True):
    """The models of a report by what is known of them."""

    data: ReportData
    names: Mapping[str, str]
    """Of all models, by id."""
    scored: Sequence[RankedModel]
    """Best first, without baselines: those are what a model has to beat. All, if none is else."""
    floor: RankedModel | None
    """The best baseline, if models are known too."""
    total: int
    """Models that were asked, without baselines as in `scored`."""

    @property
    def kind(self) -> str:
        """The word for one of those in `names`; policies are no models."""
        return "guard" if any(each.startswith(POLICY_PREFIX) for each in self.names) else "model"

    def judged(self, entry: RankedModel) -> Judgement:
        """Judge a model by all targets together."""
        found = entry.judgements(self.data.targets)
        all_found = [found.get(name, Judgement.UNDECIDED) for name in self.data.targets.least]
        return max(all_found, key=_BEST_FIRST.index, default=Judgement.PASS)

    @property
    def nearest(self) -> RankedModel:
        """The model that is judged best, of equal ones that with the least shortfall."""
        least = self.data.targets.least

        def distance(entry: RankedModel) -> tuple[int, float]:
            short = (aim - (entry.metric(name).value or 0) for name, aim in least.items())
            return _BEST_FIRST.index(self.judged(entry)), max((0.0, *short))

        return min(self.scored, key=distance)

    def listed(self, entries: Sequence[RankedModel]) -> str:
        return listed([self.names[entry.model] for entry in entries])


def listed(names: Sequence[str]) -> str:
    """Return names for a sentence, the first ones of many."""
    if len(names) > MOST_NAMES + 1:
        names = [*names[:MOST_NAMES], f"{len(names) - MOST_NAMES} others"]
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def standing(data: ReportData) -> Standing:
    entries = ranked_entries(data.snapshot.document)
    scored = [entry for entry in entries if entry.metric("aegish_score").value is not None]
    names = short_names([entry.model for entry in entries], NAME_WIDTH)
    floor, total = None, sum(not model.startswith(BASELINE) for model in names)
    if total:
        floor = next((entry for entry in scored if entry.model.startswith(BASELINE)), None)
        scored = [entry for entry in scored if not entry.model.startswith(BASELINE)]
    return Standing(data, names, scored, floor, total or len(names))


def decision(data: ReportData) -> tuple[Fact, ...]:
    """Return what has to be known for a decision, a sentence or two under each label."""
    known = standing(data)
    said: dict[str, Iterable[str]] = {"Decision": ["No model has a score."]}
    if known.scored:
        nearest = known.nearest
        said = {
            "Decision": chain(_against_floor(known), _decision(known, nearest)),
            "As it stands": _score(known),
            **{fact.label: [fact.text] for fact in data.advice},
            "In use": _in_use(known, nearest),
        }
    said |= {
        "Policies": of_policies(known.names),
        "Answers": _answers(known),
        "No score": _unscored(known),
        "Failed": _failed(known),
    }
    if known.scored:
        said["To settle"] = _to_settle(known, nearest)
    facts = (Fact(label, " ".join(sentences)) for label, sentences in said.items())
    return tuple(fact for fact in facts if fact.text)


def _against_floor(known: Standing) -> Iterator[str]:
    """Say which models are better than the best baseline, if any is."""
    if known.floor is None:
        return
    floor, best = known.names[known.floor.model], known.scored[0]
    ranks = {each.place: int(each.place.rstrip("=")) for each in (known.floor, *known.scored)}
    if above := [each for each in known.scored if ranks[each.place] < ranks[known.floor.place]]:
        yield f"Ranked above {floor}: {known.listed(above)}."
    else:
        surely = "surely " * (best.place == known.floor.place)
        yield f"No {known.kind} is {surely}better than {floor}."


def _decision(known: Standing, nearest: RankedModel) -> Iterator[str]:
    targets, total = known.data.targets, known.total
    if not targets.least:
        return
    judgement, every = known.judged(nearest), f"every target ({target_words(targets)})"
    alike = [entry for entry in known.scored if known.judged(entry) is judgement]
    missed = ", ".join(
        f"{metric_title(name)} {with_interval(nearest.metric(name))}"
        for name, found in nearest.judgements(targets).items()
        if found is judgement
    )
    numbers = f": {missed}" if missed and judgement is not Judgement.PASS else ""
    if total == 1:
        verb = ("reaches", "may or may not reach", "does not reach")[_BEST_FIRST.index(judgement)]
        yield f"{known.listed(alike)} {verb} {every}{numbers}."
    elif judgement is Judgement.PASS:
        reach = "reaches" if len(alike) == 1 else "reach"
        yield f"{len(alike)} of {total} {known.kind}s {reach} {every}: {known.listed(alike)}."
    else:
        undecided = judgement is Judgement.UNDECIDED
        who = f"{'Undecided whether a' if undecided else 'No'} {known.kind}"
        yield f"{who} reaches {every}. {known.listed([nearest])} falls least short{numbers}."
    if judgement is Judgement.UNDECIDED and len(alike) > 1:
        yield f"Likewise: {known.listed([entry for entry in alike if entry != nearest])}."


def _score(known: Standing) -> Iterator[str]:
    first, *others = known.scored
    said = f"an aegish score of {with_interval(first.metric('aegish_score'))} out of 100"
    if known.total == 1:
        yield f"{known.listed([first])} has {said}."
        return
    yield f"Of {known.total} {known.kind}s, {known.listed([first])} is first with {said}."
    if tied := [entry for entry in others if entry.place == first.place]:
        yield f"It is tied with {known.listed(tied)}: their order may be chance."
    elif others:
        yield f"No other {known.kind} is tied with it."


def _in_use(known: Standing, entry: RankedModel) -> Iterator[str]:
    """Say what a model does wrong, what it costs and how fast it is."""
    missed, lost = (entry.metric(name) for name in _RATES)
    through, wrong = 1 - (missed.value or 0), 1 - (lost.value or 0)
    stopped = entry.metric("false_positive_rate").value
    stops = wrong if stopped is None else stopped
    usd, p50 = entry.cost("per_1000_usd"), entry.latency("service", "p50")
    price = "has no known price" if usd is None else f"costs {format_usd(usd)} per 1,000 commands"
    time = "has no known latency" if p50 is None else f"answers in {format_ms(p50)} (median)"
    yield f"{known.listed([entry])} misses {_part(through, missed.n)} attacks, stops"
    yield f"{_part(stops, lost.n)} harmless commands, {price} and {time}."
    if wrong - stops > 1e-9:
        rest = _part(wrong - stops, lost.n)
        counts = ((label, entry.count(f"{label.lower()}_count")) for label in _NO_DECISION)
        errors = ", ".join(f"{label} {count:,}" for label, count in counts if count)
        of_all = f" (of all its answers: {errors})" if errors else ""
        yield f"A further {rest} harmless commands it neither accepts nor stops{of_all}."
    prices = {each.cost("per_1000_usd"): each for each in known.scored if each.place == entry.place}
    least = min((price for price in prices if price is not None), default=usd)
    if usd is not None and least is not None and least < usd:
        yield f"{known.listed([prices[least]])}, tied with it, costs {format_usd(least)}."


def _part(share: float, n: int) -> str:
    """Write such as `22 of 431`, or a share in per cent where epochs disagree about a command."""
    whole = abs(share * n - round(share * n)) < 1e-6
    return f"{format_count(round(share * n)) if whole else f'{100 * share:.1f}%'} of {n:,}"


def of_policies(by_id: Mapping[str, str]) -> Iterator[str]:
    if names := [name for each, name in by_id.items() if each.startswith(POLICY_PREFIX)]:
        yield (
            f"{listed(names)}: made of models, judged by their stored answers. If chosen on these"
            " commands, as by `policies search`, a policy's numbers here are a little too good."
        )


def _answers(known: Standing) -> Iterator[str]:
    run = known.data.run
    days = dict.fromkeys(f"{time.astimezone(UTC):%Y-%m-%d}" for time in known.data.answered)
    when = f"{'from' if len(days) > 1 else 'on'} {' to '.join(days)}"
    when = f"answered {when}" if days else "none with a dated answer"
    epochs = f", each asked {run.epochs} times" if run.epochs > 1 else ""
    rules = source(known.data)[-1].text
    yield f"{counted(run.samples, 'command')}{epochs}, {when}, judged by {rules}."
    widths = [
        50 * (score.ci_high - score.ci_low)
        for score in (entry.metric("aegish_score") for entry in known.scored)
        if score.ci_low is not None and score.ci_high is not None
    ]
    if widths:
        yield f"Every score is known to within {max(widths):.1f} points at 95% confidence."
        if run.samples < PILOT:
            yield "So few commands are a pilot: `aegish-dist plan` says how many would decide."
    if len(run.datasets) > 1:
        sets = ", ".join(f"{each.samples:,} of {each.name}" for each in run.datasets)
        yield f"Rates are of this mix, which a limit changes: {sets}."


def _unscored(known: Standing) -> Iterator[str]:
    by_reason = defaultdict[str, list[str]](list)
    for model, reason in reasons(known.data).items():
        by_reason[reason.removeprefix(NO_SCORE)].append(known.names[model])
    yield from (f"{', '.join(models)}: {reason}." for reason, models in by_reason.items())


def _failed(known: Standing) -> Iterator[str]:
    """Name models many of whose calls failed, if no reason for a missing score says so already."""
    told, data = reasons(known.data), known.data
    for entry in ranked_entries(data.snapshot.document):
        failed = failed_calls(data, entry, MANY_FAILED)
        if failed and failed not in told.get(entry.model, ""):
            yield f"{known.names[entry.model]}: {failed}."


def _to_settle(known: Standing, nearest: RankedModel) -> Iterator[str]:
    """Say how many commands would judge the model that comes nearest."""
    least, of_all = known.data.targets.least, known.judged(nearest)
    for name, judgement in nearest.judgements(known.data.targets).items():
        estimate = nearest.metric(name)
        known_spread = estimate.stderr_clustered or estimate.stderr  # none where all are alike
        if not judgement == of_all == Judgement.UNDECIDED or not known_spread:
            continue
        needed = commands_to_judge(estimate, least[name])
        aim = f"{known.listed([nearest])} reaches {metric_title(name)} {format_rate(least[name])}"
        kind = f"{name.split('_')[0]} commands" if name in _RATES else "commands"
        yield more_commands(needed, estimate.n, kind, aim)


def more_commands(needed: int | None, asked: int, kind: str, aim: str) -> str:
    """Say how many commands would show whether something is so; None: no number would."""
    if needed and in_reach(needed, asked):
        more = float(f"{max(needed - asked, 1):.2g}")
        return f"About {more:,.0f} more {kind} would show whether {aim}."
    return f"Whether {aim} is out of reach: more than {OUT_OF_REACH} times the {kind} asked."


_NO_DECISION = (*ERROR_LABELS, *RULE_ERROR_LABELS)
_RATES = tuple(HEADLINES)[1:]
"""Of malicious commands detected and of harmless ones accepted."""
