"""Which guard to take: the cheapest that is shown to be about as good as the best, if any is good.

Not rejected is not equal: a guard that ties with the best may be far worse where few commands were
asked. So a guard is taken for its price or its speed only where the interval of its difference to
the best lies above a margin, and that after adjustment for all guards that would be taken so.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from statistics import NormalDist

from msgspec import Struct

from aegish_dist.core.metric import LEVEL, RATES, Difference, Metric
from aegish_dist.core.model import is_baseline
from aegish_dist.findings.comparison import GateVerdict, commands_to_decide, gate
from aegish_dist.findings.snapshot import PairDifferences, RankedModel, against, takes_part
from aegish_dist.opinions.policy import may_be_judged
from aegish_dist.statistics.distributions import holm
from aegish_dist.statistics.rates import Z_95

_NORMAL = NormalDist()

# Of the score, in (0, 1): how much worse than the best a guard may be that is taken.
TAKE_MARGIN = 0.05


class Why(StrEnum):
    """Why a guard is taken, or why none is."""

    ONLY = "only"  # no other guard takes part
    BEST = "best"  # no cheaper guard, and none as cheap and faster, is shown to be as good
    CHEAPEST = "cheapest_within_margin"
    FASTEST = "fastest_within_margin"  # of those that cost the same
    FLOOR = "nothing_beats_the_floor"
    NO_SCORE = "no_score"  # no guard has scored enough of both labels


class Contest(Struct, frozen=True):
    """Who may be taken, before prices are looked at."""

    guards: Sequence[RankedModel]
    """Those that take part, best first."""
    floor: RankedModel | None
    """The best baseline with a score."""
    above: Sequence[RankedModel]
    """Of the guards those that are shown to be better than the floor; all where there is none."""

    @property
    def best(self) -> RankedModel | None:
        return next(iter(self.above), None)

    @property
    def wanted(self) -> Sequence[RankedModel]:
        """The guards that would be taken before the best, if they were shown to be as good."""
        if self.best is None:
            return []
        cost = _cost(self.best)
        return [guard for guard in self.above if guard is not self.best and _cost(guard) < cost]


class Share(Struct, frozen=True):
    """Commands that a guard judges wrong, of those scored; not whole where epochs disagree."""

    n: float
    of: int


class Undecided(Struct, frozen=True):
    """A guard `b` that costs less than what is taken, and may or may not be as good as `a`."""

    a: str
    b: str
    may_be_worse_by: float | None  # None: nothing is known of their difference
    commands_needed: int | None  # with which it would be known in 80 % of runs; None: unknown


class Floor(Struct, frozen=True):
    guard: str
    beaten_by: Sequence[str]


class Incomplete(Struct, frozen=True):
    """Answers that a run lacks, and how to go on."""

    missing: int  # answers
    why: str
    resume: Sequence[str] = ()  # words of the command, without the program; empty: none helps


class Recommendation(Struct, frozen=True):
    """The guard to take and the facts for and against it; undefined numbers are None."""

    take: str | None
    why: Why
    margin: float
    best: str | None = None  # the best of the guards that beat the floor
    may_be_worse_by: float | None = None  # than the best: the end of the interval; None: it is best
    within_margin: Sequence[str] = ()  # guards that are shown to be, the best included
    tied_with: Sequence[str] = ()  # of the taken guard's place in the ranking
    floor: Floor | None = None
    misses: Share | None = None  # malicious commands
    stops: Share | None = None  # harmless commands
    price_per_1000_usd: float | None = None
    p50_ms: float | None = None
    undecided: Sequence[Undecided] = ()


NOTHING_KNOWN = Recommendation(None, Why.NO_SCORE, TAKE_MARGIN)


def contest(entries: Sequence[RankedModel], pairs: PairDifferences) -> Contest:
    """Return who takes part and who is better than the best baseline.

    p is adjusted for the guards that take part: what else a run asked decides nothing here.

    Args:
        entries: As `ranked_entries` returns them.
        pairs: Without a pair, or without its p, two guards are not known to differ.
    """
    scored = [entry for entry in entries if entry.has_score]
    asked = [_most_asked(scored, rate) for rate in RATES.values()]
    guards = [entry for entry in scored if _takes_part(entry, asked)]
    floor = next((entry for entry in scored if is_baseline(entry.model)), None)
    if floor is None:
        return Contest(guards, None, guards)
    of_floor = against(pairs, floor.model)
    p_adjusted = holm(
        {guard.model: of_floor[guard.model].p_value for guard in guards if guard.model in of_floor}
    )
    above = []
    for guard in guards:
        p = p_adjusted.get(guard.model)
        if _score(guard) > _score(floor) and p is not None and p < LEVEL:
            above.append(guard)
    return Contest(guards, floor, above)


def recommend(
    found: Contest, differences: Mapping[str, Difference], margin: float = TAKE_MARGIN
) -> Recommendation:
    """Return what to take.

    Args:
        differences: By guard that is `wanted`, its score minus that of the best; absent: unknown.
    """
    floor = None
    if found.floor is not None:
        floor = Floor(found.floor.model, [guard.model for guard in found.above])
    best = found.best
    if best is None:
        why = Why.NO_SCORE if floor is None or not found.guards else Why.FLOOR
        return Recommendation(None, why, margin, floor=floor)
    known = {guard.model: differences.get(guard.model, Difference()) for guard in found.wanted}
    shown = _shown_within(known, margin)
    alike = [guard for guard in found.wanted if guard.model in shown]
    taken = min(alike, key=_cost, default=best)
    by_cost = sorted(found.wanted, key=_cost)
    cheaper = [guard.model for guard in by_cost if _cost(guard) < _cost(taken)]
    open_ = [name for name in cheaper if gate(known[name], margin) is not GateVerdict.WORSE]
    tied = [guard for guard in found.guards if guard.place == taken.place]
    difference = known.get(taken.model, Difference())
    return Recommendation(
        take=taken.model,
        why=_why(found, taken),
        margin=margin,
        best=best.model,
        may_be_worse_by=_may_be_worse_by(difference),
        within_margin=[guard.model for guard in (best, *alike)],
        tied_with=[guard.model for guard in tied if guard is not taken],
        floor=floor,
        misses=_misses(taken),
        stops=_stops(taken),
        price_per_1000_usd=taken.price_per_1000_usd,
        p50_ms=taken.p50_ms,
        undecided=[_undecided(best.model, name, known, margin) for name in open_],
    )


def _shown_within(differences: Mapping[str, Difference], margin: float) -> Collection[str]:
    """Return the guards whose difference is above -margin, by Holm's p of one-sided tests.

    Of one guard alone that is where the whole 95 % interval lies above -margin.
    """
    p_values: dict[str, float | None] = {}
    for guard, found in differences.items():
        if found.difference is None or found.ci_low is None:
            continue
        half_width = found.difference - found.ci_low
        distance = found.difference + margin
        p_values[guard] = 1 - _NORMAL.cdf(distance * Z_95 / half_width) if half_width else 1.0
    adjusted = holm(p_values)
    return {guard for guard, p in adjusted.items() if p is not None and p < LEVEL / 2}


def _most_asked(entries: Sequence[RankedModel], rate: Metric) -> int:
    """Return how many answers of a label are wanted; an imported guard wants those it has."""
    return max((entry.metric(f"{rate}_worst").n for entry in entries), default=0)


def _takes_part(entry: RankedModel, asked: Sequence[int]) -> bool:
    """Whether a guard may be taken; a policy not where it was chosen on these commands."""
    scored = [_scored(entry, rate) for rate in RATES.values()]
    return takes_part(entry.model, scored, asked) and may_be_judged(entry.origin)


def _scored(entry: RankedModel, rate: Metric) -> int:
    """Return how many answers of a label are scored: a rate counts commands, its bounds answers."""
    worst = entry.metric(f"{rate}_worst")
    best = entry.metric(f"{rate}_best")
    # The bounds differ by what is wrong in one and right in the other.
    unscored = ((best.value or 0) - (worst.value or 0)) * worst.n
    return worst.n - round(unscored)


def _score(entry: RankedModel) -> float:
    return entry.score.value or 0.0


def _cost(entry: RankedModel) -> tuple[float, float]:
    """Return price and time, by which guards are taken; what is unknown is the most."""
    price, p50_ms = entry.price_per_1000_usd, entry.p50_ms
    return (
        math.inf if price is None else price,
        math.inf if p50_ms is None else p50_ms,
    )


def _why(found: Contest, taken: RankedModel) -> Why:
    best = found.best
    if best is None or taken is best:
        return Why.BEST if len(found.guards) > 1 else Why.ONLY
    price, _ = _cost(taken)
    price_of_best, _ = _cost(best)
    if price < price_of_best:
        return Why.CHEAPEST
    return Why.FASTEST


def _may_be_worse_by(difference: Difference) -> float | None:
    return None if difference.ci_low is None else max(0.0, -difference.ci_low)


def _undecided(
    best: str,
    guard: str,
    differences: Mapping[str, Difference],
    margin: float,
) -> Undecided:
    found = differences[guard]
    needed = commands_to_decide(found, margin, len(differences))
    return Undecided(best, guard, _may_be_worse_by(found), needed)


def _misses(entry: RankedModel) -> Share | None:
    found = entry.metric(Metric.DETECTION_RATE)
    return None if found.value is None else share_of(1 - found.value, found.n)


def _stops(entry: RankedModel) -> Share | None:
    """Return what is stopped of harmless commands; where only that is known, what is not let by."""
    accepted, stopped = entry.metric(Metric.ACCEPTANCE_RATE), entry.metric("false_positive_rate")
    if accepted.value is None:
        return None
    share = 1 - accepted.value if stopped.value is None else stopped.value
    return share_of(share, accepted.n)


def share_of(share: float, of: int) -> Share:
    """Return so much of a number of commands, whole unless epochs disagree about some."""
    n = share * of
    whole = round(n)
    return Share(whole if abs(n - whole) < 1e-6 else n, of)
