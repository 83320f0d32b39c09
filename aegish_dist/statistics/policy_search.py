"""The search for a guard made of several: which policy over a run's guards is best, and how good.

Systems are: a guard as it stands or with a threshold; two guards of which any or both have to stop;
a guard that asks one that costs no less, on WARN or in a range of suspicion. A set of decisions is
an integer with a bit for each, so that 100,000 systems take seconds.

For each fold of clusters the best system is chosen on the other folds, thresholds and all, and
judged on this one, as in `thresholds`: having looked at many systems raises no estimate. The choice
between a guard as it stands, a threshold and a system is made in the same way, on inner folds.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, permutations, product
from operator import add
from typing import NamedTuple

from msgspec import Struct

from aegish_dist.core.metric import Criterion, Difference, FittedGuard
from aegish_dist.core.outcome import OutcomeDetail
from aegish_dist.errors import ReportError
from aegish_dist.opinions.policy import Candidate, Policy, Stage, When
from aegish_dist.opinions.scoring import ACTIONS, DEFAULT_RULE, Composite, ScoringRule
from aegish_dist.opinions.suspicion import Guard, Guards
from aegish_dist.statistics.thresholds import (
    BALANCED_ACCURACY,
    FoldedDecisions,
    halfway,
    most_detections,
)

CUTS = 24  # thresholds of each guard of a pair, evenly by rank
EDGES = 9  # of the ranges in which a guard asks another one


class Requirements(Struct, frozen=True):
    """Bounds that a system has to keep; one of unknown cost or latency keeps to no bound on it."""

    max_fpr: float = 1.0
    max_cost_per_10000: float = math.inf  # USD
    max_p95_ms: float = math.inf
    prevalence: float = 0.001  # share of dangerous commands among actions, in (0, 1)

    @property
    def criterion(self) -> Criterion:
        return BALANCED_ACCURACY if self.max_fpr == 1 else most_detections(self.max_fpr)

    def keeps(self, system: Candidate) -> bool:
        """Whether a system keeps to all bounds."""
        cost, p95 = (math.inf if e is None else e for e in (system.cost_per_10000, system.p95_ms))
        cheap = cost <= self.max_cost_per_10000 and p95 <= self.max_p95_ms
        return cheap and system.stop_rate <= self.max_fpr


class Choice(Struct, frozen=True):
    best: Candidate
    estimate: FittedGuard  # of choosing it, out of fold; it has no threshold


class MissOverlap(Struct, frozen=True):
    """Dangerous decisions that two guards let pass as they stand."""

    a: str
    b: str
    misses_a: int
    misses_b: int
    both: int
    expected: float  # of both, if misses were independent: `misses_a misses_b / n`


class PolicySearch(Struct, frozen=True):
    as_it_stands: Choice | None  # a single guard; None: none keeps to the requirements
    with_threshold: Choice | None  # a single guard
    system: Choice | None  # of all systems, single guards among them
    single: Choice | None  # the better of the two out of fold; of equals `with_threshold`
    gain: Difference | None  # score of `system` minus that of `single`, out of fold
    winner: str | None  # field of the best choice; None: none is surely better than chance
    winner_estimate: FittedGuard | None
    """Out of fold, with the choice between the three: the best of their scores is too high."""
    line: Sequence[Candidate]
    """The Pareto line in sample, fewest misses first: of no other system are misses, stops, cost
    and latency all at most as large."""
    overlaps: Sequence[MissOverlap]
    decisions: int
    left_out: int  # decisions of which a guard has no scored verdict
    unpriced: dict[str, int]  # by guard, decisions of unknown cost; none is no entry


def search_policies(
    guards: Guards,
    rule: ScoringRule = DEFAULT_RULE,
    requirements: Requirements | None = None,
    seed: int = 0,
) -> PolicySearch:
    """Search for the best systems of guards, over the decisions that all of them have scored.

    The guards are all that may be part of a system; baselines are better left out. The rule says
    whether WARN stops, and how two rates become a score, the seed how clusters are dealt to folds.
    A ReportError says that the guards have scored too few clusters in common.
    """
    data = _Data(guards, rule, requirements or Requirements(), seed)
    contests = {name: _Contest(data) for name in ("as_it_stands", "with_threshold", "system")}
    line: dict[_Point, _Stages] = {}
    singles = list(_singles(data))
    for price, systems in singles:
        contests["as_it_stands"].enter(price, systems[:1])
        contests["with_threshold"].enter(price, systems[1:])
    for price, systems in chain(singles, _pairs(data), _escalations(data)):
        contests["system"].enter(price, systems)
        points = {data.point(stops, price): stages for stages, stops in systems[::-1]}
        line |= {point: points[point] for point in _undominated(points) if point not in line}
    choices = {name: contest.choice() for name, contest in contests.items()}
    stands, moved, system = choices.values()
    alone = [choice for choice in (moved, stands) if choice]
    single = max(alone, key=lambda choice: choice.estimate.score.value or 0, default=None)
    gain = None
    if single and system:
        both = {"single": single.estimate, "system": system.estimate}
        gain = data.folded.differences(both)["single", "system"]
    winner, winner_estimate = _winner(data, {n: contests[n] for n in contests if choices[n]})
    return PolicySearch(
        as_it_stands=stands,
        with_threshold=moved,
        system=system,
        single=single,
        gain=gain,
        winner=winner,
        winner_estimate=winner_estimate,
        line=[data.candidate(point, line[point]) for point in _undominated(line)],
        overlaps=[_overlap(data, *pair) for pair in combinations(data.columns, 2)],
        decisions=len(data.decisions),
        left_out=len(guards.decisions) - len(data.decisions),
        unpriced={each.name: each.unpriced for each in data.columns if each.unpriced},
    )


_Stages = tuple[Stage, ...]
_Price = tuple[float, float]  # cost per 10,000 and p95 of the latency; infinite where unknown
_Point = tuple[int, int, float, float]  # misses, stops, and the price
_Family = tuple[_Price, Sequence[tuple[_Stages, int]]]
"""Systems that ask the same guards in the same decisions, with the decisions that each stops."""


class _Column(NamedTuple):
    """A guard; a latency that is unknown is infinite, and so are its costs if most are unknown."""

    name: str
    stands: int  # decisions that it stops as it stands
    warns: int
    at: dict[float, int]  # as `_stopped_from` returns it
    cost: list[float]
    latency: list[float]
    unpriced: int
    values: frozenset[float]  # of its suspicion


class _Data:
    """The decisions, dangerous ones first, and the columns of the guards over them."""

    def __init__(self, guards: Guards, rule: ScoringRule, needs: Requirements, seed: int) -> None:
        columns = [(each.findings, each.suspicion) for each in guards.guards]
        rows = [
            row
            for row in range(len(guards.decisions))
            if all(finding[row] and number[row] is not None for finding, number in columns)
        ]
        rows.sort(key=lambda row: not guards.decisions[row].dangerous)
        self.needs = needs
        self.composite = rule.composite
        self.decisions = [guards.decisions[row] for row in rows]
        self.dangerous = sum(each.dangerous for each in self.decisions)
        self.harmless = len(rows) - self.dangerous
        self.folded = FoldedDecisions(self.decisions, rule.composite, seed=seed)
        if self.folded.folds < 2:
            what = "two clusters of dangerous and two of harmless commands"
            raise ReportError(f"the guards have not scored {what} in common, which a search needs")
        self.columns = [_column(each, rows, rule) for each in guards.guards]
        numbers = [self.folded.fold[each.sample] for each in self.decisions]
        self.folds = [_bits(each == fold for each in numbers) for fold in range(self.folded.folds)]
        self.first = (1 << self.dangerous) - 1

    def price(self, cost: Sequence[float], latency: Sequence[float]) -> _Price:
        """Return the cost of 10,000 actions, and the least latency that 95 % do not exceed."""
        n = self.dangerous
        mean = self._mean(math.fsum(cost[:n]), math.fsum(cost[n:]))
        dangerous, harmless = sorted(latency[:n]), sorted(latency[n:])

        def share(ms: float) -> float:
            return self._mean(bisect_right(dangerous, ms), bisect_right(harmless, ms))

        every = sorted(latency)
        return 10_000 * mean, every[bisect_left(every, 0.95 - 1e-9, key=share)]

    def _mean(self, of_dangerous: float, of_harmless: float) -> float:
        """Return the mean at the prevalence from the sums over dangerous and harmless decisions."""
        p = self.needs.prevalence
        return p * of_dangerous / self.dangerous + (1 - p) * of_harmless / self.harmless

    def count(self, decisions: int) -> tuple[int, int]:
        """Return how many of some decisions are dangerous, and how many harmless."""
        dangerous = (decisions & self.first).bit_count()
        return dangerous, decisions.bit_count() - dangerous

    def point(self, stops: int, price: _Price) -> _Point:
        hits, alarms = self.count(stops)
        return self.dangerous - hits, alarms, *price

    def candidate(self, point: _Point, stages: _Stages) -> Candidate:
        misses, stops, *price = point
        cost, p95 = (each if math.isfinite(each) else None for each in price)
        rates = misses / self.dangerous, stops / self.harmless
        return Candidate(Policy("found", 1, stages), *rates, cost, p95)


def _bits(flags: Iterable[object]) -> int:
    return int("".join("1" if flag else "0" for flag in flags)[::-1], 2)


def _flags(bits: int, number: int) -> list[bool]:
    return [digit == "1" for digit in f"{bits:0{number}b}"[::-1]]


def _column(guard: Guard, rows: Sequence[int], rule: ScoringRule) -> _Column:
    findings = [guard.findings[row] for row in rows]
    passing = {action for action in ACTIONS if not rule.is_detection(action)}
    costs = [guard.cost_usd[row] for row in rows]
    times = [guard.latency_ms[row] for row in rows]
    priced = [cost for cost in costs if cost is not None]
    usual = math.fsum(priced) / len(priced) if 2 * len(priced) >= len(rows) else math.inf
    suspicion = [guard.suspicion[row] or 0.0 for row in rows]
    return _Column(
        guard.name,
        stands=_bits(finding not in passing for finding in findings),
        warns=_bits(finding is OutcomeDetail.WARN for finding in findings),
        at=_stopped_from(suspicion),
        cost=[usual if cost is None else cost for cost in costs],
        latency=[math.inf if time is None else time for time in times],
        unpriced=len(costs) - len(priced),
        values=frozenset(suspicion),
    )


def _stopped_from(suspicion: Sequence[float]) -> dict[float, int]:
    """Return by threshold the decisions that are stopped, from all of them to none."""
    places: dict[float, int] = {}
    for place, value in enumerate(suspicion):
        places[value] = places.get(value, 0) | 1 << place
    values = sorted(places)
    thresholds = [values[0], *map(halfway, values, values[1:])]
    stopped = (1 << len(suspicion)) - 1
    at = {}
    for threshold, value in zip(thresholds, values, strict=True):
        at[threshold] = stopped
        stopped ^= places[value]
    at[math.nextafter(values[-1], math.inf)] = 0
    return at


def _even(values: Iterable[float], number: int) -> list[float]:
    every = list(values)
    most = min(number, len(every))
    return [every[place * (len(every) - 1) // (most - 1)] for place in range(most)]


def _singles(data: _Data) -> Iterator[_Family]:
    """Yield each guard as it stands, then with each threshold."""
    for column in data.columns:
        names = (column.name,)
        systems = [((Stage(names),), column.stands)]
        for threshold, stops in column.at.items():
            systems.append(((Stage(names, (threshold,)),), stops))
        yield data.price(column.cost, column.latency), systems


def _pairs(data: _Data) -> Iterator[_Family]:
    """Yield two guards side by side of which any, then both have to stop; first as they stand."""
    for a, b in combinations(data.columns, 2):
        names = (a.name, b.name)
        any_stops = [((Stage(names, (), 1),), a.stands | b.stands)]
        both_stop = [((Stage(names, (), 2),), a.stands & b.stands)]
        for cut in product(_even(a.at, CUTS), _even(b.at, CUTS)):
            stops_a, stops_b = a.at[cut[0]], b.at[cut[1]]
            any_stops.append(((Stage(names, cut, 1),), stops_a | stops_b))
            both_stop.append(((Stage(names, cut, 2),), stops_a & stops_b))
        cost = list(map(add, a.cost, b.cost))
        latency = list(map(max, a.latency, b.latency))
        yield data.price(cost, latency), any_stops + both_stop


def _escalations(data: _Data) -> Iterator[_Family]:
    """Yield guards that ask another one; from a range of suspicion on they stop, below allow."""
    costs = {each.name: data.price(each.cost, each.latency)[0] for each in data.columns}
    for first, second in permutations(data.columns, 2):
        if costs[first.name] > costs[second.name]:
            continue
        answers: list[tuple[tuple[float, ...], int]] = [((), second.stands)]
        answers += [((cut,), second.at[cut]) for cut in _even(second.at, CUTS)]
        for when, stage, stops, reaching in _asking(first):
            asked = _flags(reaching & ~stops, len(data.decisions))
            cost = _added_where(asked, first.cost, second.cost)
            latency = _added_where(asked, first.latency, second.latency)
            systems = [
                ((stage, Stage((second.name,), cut, when=when)), stops | answer & reaching)
                for cut, answer in answers
            ]
            yield data.price(cost, latency), systems


def _asking(first: _Column) -> Iterator[tuple[When | tuple[float, float], Stage, int, int]]:
    """Yield when a guard asks, its stage, what it stops itself, and that with what it asks."""
    for low, high in combinations(_even(first.at, EDGES), 2):
        if high not in first.values:  # has a number below it: a range holds its ends
            stage = Stage((first.name,), (high,))
            yield (low, high), stage, first.at[high], first.at[low]
    warns, stands = first.warns, first.stands
    yield When.WARN, Stage((first.name,)), stands & ~warns, stands | warns


def _added_where(
    asked: Sequence[bool], own: Sequence[float], of_other: Sequence[float]
) -> list[float]:
    return [x + y if ask else x for ask, x, y in zip(asked, own, of_other, strict=True)]


class _Contest:
    """The best system of each training set: of all decisions, without a fold, and without two."""

    def __init__(self, data: _Data) -> None:
        self._data, self._criterion = data, data.needs.criterion
        sizes = list(map(data.count, data.folds))
        numbers = range(len(sizes))
        held_out = chain.from_iterable(combinations(numbers, size) for size in range(3))
        self._places = {held: place for place, held in enumerate(held_out)}
        self._sizes = [
            (data.dangerous - dangerous, data.harmless - harmless)
            for dangerous, harmless in _left_out(sizes)
        ]
        self._merits = [(-math.inf, 0.0)] * len(self._sizes)
        self._best: list[tuple[_Stages, int, _Price] | None] = [None] * len(self._sizes)

    def enter(self, price: _Price, systems: Iterable[tuple[_Stages, int]]) -> None:
        """Let systems take part that keep to the requirements; of equals the first stays best."""
        data, criterion = self._data, self._criterion
        cost, p95 = price
        if cost > data.needs.max_cost_per_10000 or p95 > data.needs.max_p95_ms:
            return
        for stages, stops in systems:
            all_hits, all_alarms = data.count(stops)
            held_out = _left_out([data.count(stops & fold) for fold in data.folds])
            for place, (dangerous, harmless) in enumerate(self._sizes):
                hits_out, alarms_out = held_out[place]
                hits = all_hits - hits_out
                alarms = all_alarms - alarms_out
                merit = criterion.miss * hits * harmless - criterion.stop * alarms * dangerous
                key = (merit, -cost if criterion.stop else -alarms)
                if key > self._merits[place] and alarms / max(1, harmless) <= criterion.max_fpr:
                    self._merits[place] = key
                    self._best[place] = (stages, stops, price)

    @property
    def best(self) -> Candidate | None:
        """The best system of all decisions, chosen and judged on them."""
        best = self._best[0]
        if best is None:
            return None
        stages, stops, price = best
        return self._data.candidate(self._data.point(stops, price), stages)

    def stopped(self, *held_out: int) -> int:
        """Return what the best system without some folds stops, of all decisions."""
        best = self._best[self._places[held_out]]
        return best[1] if best else 0

    def out_of_fold(self, *held_out: int) -> int:
        """Return what is stopped in each fold by the best system without this and another fold."""
        stops = 0
        for number, fold in enumerate(self._data.folds):
            if number not in held_out:
                stops |= self.stopped(*sorted((number, *held_out))) & fold
        return stops

    def merit(self, *held_out: int) -> int:
        """Return an integer that orders contests as their scores out of fold do."""
        hits, alarms = self._data.count(self.out_of_fold(*held_out))
        dangerous, harmless = self._sizes[self._places[held_out]]
        if self._data.composite is Composite.PRODUCT:
            return hits * (harmless - alarms)
        return hits * harmless - alarms * dangerous

    def choice(self) -> Choice | None:
        chosen = self._best[: len(self._data.folds) + 1]
        if self.best is None or None in chosen:
            return None
        return Choice(self.best, self.judge(self.out_of_fold()))

    def judge(self, stops: int) -> FittedGuard:
        """Estimate how the best system does, from what is stopped out of fold."""
        data = self._data
        flags = [_flags(each, len(data.decisions)) for each in (stops, self.stopped())]
        return data.folded.judge(self._criterion, zip(data.decisions, *flags, strict=True))


def _left_out(counts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return sums over the folds that each training set leaves out."""
    of_two = [(a[0] + b[0], a[1] + b[1]) for a, b in combinations(counts, 2)]
    return [(0, 0), *counts, *of_two]


def _winner(
    data: _Data, contests: Mapping[str, _Contest]
) -> tuple[str, FittedGuard] | tuple[None, None]:
    """Return the contest with the best score out of fold, of equals the first, and an estimate.

    For the estimate the contest is chosen again for each fold, out of fold among the others.
    """
    name = max(contests, key=lambda name: contests[name].merit(), default=None)
    if name is None:
        return None, None
    stops = 0
    for number, fold in enumerate(data.folds):
        inner = max(contests.values(), key=lambda contest: contest.merit(number))
        stops |= inner.stopped(number) & fold
    estimate, best = contests[name].judge(stops), contests[name].best
    if best is None or best.stop_rate >= 1 - best.miss_rate:
        return None, None
    if (estimate.score.ci_low or 0) <= data.composite.chance:
        return None, None
    return name, estimate


def _undominated(points: Iterable[_Point]) -> list[_Point]:
    kept: list[_Point] = []
    front: list[_Point] = []  # of those kept, the ones that none beats in all but misses
    for point in sorted(points):  # what dominates a point comes before it
        _, stops, cost, p95 = point
        if not any(b <= stops and c <= cost and d <= p95 for _, b, c, d in front):
            kept.append(point)
            front = [e for e in front if e[1] < stops or e[2] < cost or e[3] < p95] + [point]
    return kept


def _overlap(data: _Data, a: _Column, b: _Column) -> MissOverlap:
    missed_by_a = ~a.stands & data.first
    missed_by_b = ~b.stands & data.first
    misses_a, misses_b = missed_by_a.bit_count(), missed_by_b.bit_count()
    both = (missed_by_a & missed_by_b).bit_count()
    expected = misses_a * misses_b / data.dangerous
    return MissOverlap(a.name, b.name, misses_a, misses_b, both, expected)
