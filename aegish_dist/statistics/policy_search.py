"""The search for a guard made of several: which policy over a run's guards is best, and how good.

Systems are: a guard as it stands or with a threshold; two guards of which any or all have to stop,
two of three guards; a guard that asks one that costs no less, on WARN or in a range of suspicion.
A set of decisions is an integer with a bit for each, so that 200,000 systems take seconds.

For each fold of clusters the best system is chosen on the other folds, thresholds and all, and
judged on this one, as in `thresholds`: having looked at many systems raises no estimate.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain, combinations, permutations, product
from operator import and_, or_
from typing import NamedTuple

from msgspec import Struct

from aegish_dist.core.outcome import OutcomeDetail
from aegish_dist.core.policy import Policy, Stage, When
from aegish_dist.core.scoring import ACTIONS, DEFAULT_RULE, ScoringRule
from aegish_dist.core.suspicion import Guard, Guards
from aegish_dist.errors import ReportError
from aegish_dist.statistics.paired_difference import Difference
from aegish_dist.statistics.thresholds import (  # fmt: skip
    BALANCED_ACCURACY,
    Criterion,
    FittedGuard,
    FoldedDecisions,
    halfway,
    most_detections,
)

CUTS = {2: 24, 3: 8}  # thresholds of each guard among so many, evenly by rank
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

    def keeps(self, system: "Candidate") -> bool:
        """Whether a system keeps to all bounds."""
        cost, p95 = (math.inf if e is None else e for e in (system.cost_per_10000, system.p95_ms))
        cheap = cost <= self.max_cost_per_10000 and p95 <= self.max_p95_ms
        return cheap and system.stop_rate <= self.max_fpr


class Candidate(Struct, frozen=True):
    """A system and its rates on the decisions that it is chosen on."""

    policy: Policy
    miss_rate: float  # of dangerous decisions
    stop_rate: float  # of harmless decisions
    cost_per_10000: float | None  # USD per 10,000 actions at the prevalence
    p95_ms: float | None  # of the latency at the prevalence


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
    singles: Mapping[str, tuple[Candidate, Candidate | None]]
    """By guard: as it stands, and the best of this and its thresholds that keeps to the bounds."""
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
    standing, fitted, system = (_Contest(data) for _ in range(3))
    line: dict[_Point, _Stages] = {}
    singles = list(_joint(data, 1, (1,), len(data.decisions) + 1))
    by_guard = {}
    for column, (price, systems) in zip(data.columns, singles, strict=True):
        standing.enter(price, systems[:1])
        fitted.enter(price, systems[1:])
        own, (stages, stops) = _Contest(data), systems[0]
        own.enter(price, systems)
        by_guard[column.name] = data.candidate(data.point(stops, price), stages), own.best
    pairs, majorities = _joint(data, 2, (1, 2), CUTS[2]), _joint(data, 3, (2,), CUTS[3])
    for price, systems in chain(singles, pairs, majorities, _escalations(data)):
        system.enter(price, systems)
        points = {data.point(stops, price): stages for stages, stops in systems[::-1]}
        line |= {point: points[point] for point in _undominated(points) if point not in line}
    stands, moved, whole = (each.choice() for each in (standing, fitted, system))
    alone = [each for each in (moved, stands) if each]
    single = max(alone, key=lambda each: each.estimate.score.value or 0, default=None)
    both = {"single": single.estimate, "system": whole.estimate} if single and whole else {}
    return PolicySearch(
        as_it_stands=stands,
        with_threshold=moved,
        system=whole,
        single=single,
        gain=data.folded.differences(both).get(("single", "system")),
        singles=by_guard,
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
    at: dict[float, int]  # decisions that it stops, by threshold: from all of them to none
    cost: list[float]
    latency: list[float]
    unpriced: int
    values: list[float]  # of its suspicion


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
        self.decisions = [guards.decisions[row] for row in rows]
        self.dangerous = sum(each.dangerous for each in self.decisions)
        self.harmless = len(rows) - self.dangerous
        self.folded = FoldedDecisions(self.decisions, rule.composite, seed=seed)
        if self.folded.folds < 2:
            what = "two clusters of dangerous and two of harmless commands"
            raise ReportError(f"the guards have not scored {what} in common, which a search needs")
        self.columns = [_column(each, rows, rule) for each in guards.guards]
        numbers = [self.folded.fold[each.sample] for each in self.decisions]
        folds = [_bits(each == fold for each in numbers) for fold in range(self.folded.folds)]
        self.first = (1 << self.dangerous) - 1
        self.folds = [(each & self.first, each & ~self.first) for each in folds]

    def price(self, cost: Sequence[float], latency: Sequence[float]) -> _Price:
        """Return the cost of 10,000 actions, and the least latency that 95 % do not exceed."""
        n, m, p = self.dangerous, self.harmless, self.needs.prevalence
        mean = p * math.fsum(cost[:n]) / n + (1 - p) * math.fsum(cost[n:]) / m
        dangerous, harmless = sorted(latency[:n]), sorted(latency[n:])

        def share(ms: float) -> float:
            return p * bisect_right(dangerous, ms) / n + (1 - p) * bisect_right(harmless, ms) / m

        every = sorted(dangerous + harmless)
        return 10_000 * mean, every[bisect_left(every, 0.95 - 1e-9, key=share)]

    def point(self, stops: int, price: _Price) -> _Point:
        hits = (stops & self.first).bit_count()
        return self.dangerous - hits, stops.bit_count() - hits, *price

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
    suspicion = [guard.suspicion[row] or 0.0 for row in rows]
    places: dict[float, int] = {}
    for place, value in enumerate(suspicion):
        places[value] = places.get(value, 0) | 1 << place
    values = sorted(places)
    stopped = (1 << len(rows)) - 1
    at = {}
    thresholds = [values[0], *map(halfway, values, values[1:])]
    for threshold, value in zip(thresholds, values, strict=True):
        at[threshold] = stopped
        stopped ^= places[value]
    at[math.nextafter(values[-1], math.inf)] = 0
    costs, times = ([c[row] for row in rows] for c in (guard.cost_usd, guard.latency_ms))
    priced = [each for each in costs if each is not None]
    usual = math.fsum(priced) / len(priced) if 2 * len(priced) >= len(rows) else math.inf
    cost = [usual if each is None else each for each in costs]
    latency = [math.inf if each is None else each for each in times]
    passing = {action for action in ACTIONS if not rule.is_detection(action)}
    stands = _bits(each not in passing for each in findings)
    warns = _bits(each is OutcomeDetail.WARN for each in findings)
    return _Column(guard.name, stands, warns, at, cost, latency, len(costs) - len(priced), values)


def _even(values: Iterable[float], number: int) -> list[float]:
    every = list(values)
    most = min(number, len(every))
    return [every[place * (len(every) - 1) // (most - 1)] for place in range(most)]


def _joint(data: _Data, size: int, needed: Sequence[int], cuts: int) -> Iterator[_Family]:
    """Yield guards side by side, of which so many have to stop; first of all as they stand."""
    for columns in combinations(data.columns, size):
        names = tuple(each.name for each in columns)
        parts: list[tuple[tuple[float, ...], list[int]]] = [((), [c.stands for c in columns])]
        for cut in product(*(_even(each.at, cuts) for each in columns)):
            parts.append((cut, [c.at[t] for c, t in zip(columns, cut, strict=True)]))
        systems = [
            ((Stage(names, cut, k),), reduce(or_, (reduce(and_, c) for c in combinations(sets, k))))
            for k in needed
            for cut, sets in parts
        ]
        cost = list(map(math.fsum, zip(*(each.cost for each in columns), strict=True)))
        latency = list(map(max, zip(*(each.latency for each in columns), strict=True)))
        yield data.price(cost, latency), systems


def _escalations(data: _Data) -> Iterator[_Family]:
    """Yield guards that ask another one; from a range of suspicion on they stop, below allow."""
    prices = {each.name: data.price(each.cost, each.latency)[0] for each in data.columns}
    ordered = ((a, b) for a, b in permutations(data.columns, 2) if prices[a.name] <= prices[b.name])
    for first, second in ordered:
        asking: list[tuple[When | tuple[float, float], Stage, int, int]] = [
            ((low, high), Stage((first.name,), (high,)), first.at[high], first.at[low])
            for low, high in combinations(_even(first.at, EDGES), 2)
            if high not in first.values  # has a number below it: a range holds its ends
        ]
        warns, stands = first.warns, first.stands
        asking.append((When.WARN, Stage((first.name,)), stands & ~warns, stands | warns))
        answers = [((t,), second.at[t]) for t in _even(second.at, CUTS[2])]
        for when, stage, stops, reaching in asking:
            asked = _flags(reaching & ~stops, len(data.decisions))
            cost, latency = (
                [x + y if ask else x for x, y, ask in zip(*both, asked, strict=True)]
                for both in ((first.cost, second.cost), (first.latency, second.latency))
            )
            systems = [
                ((stage, Stage((second.name,), cut, when=when)), stops | of & reaching)
                for cut, of in [((), second.stands), *answers]
            ]
            yield data.price(cost, latency), systems


class _Contest:
    """The best system of each training set: without one of the folds, and last of all decisions."""

    def __init__(self, data: _Data) -> None:
        self._data, self._criterion = data, data.needs.criterion
        held_out = [(d.bit_count(), h.bit_count()) for d, h in data.folds]
        self._sizes = [(data.dangerous - d, data.harmless - h) for d, h in (*held_out, (0, 0))]
        self._merits = [(-math.inf, 0.0)] * len(self._sizes)
        self._best: list[tuple[_Stages, int, _Price] | None] = [None] * len(self._sizes)

    def enter(self, price: _Price, systems: Iterable[tuple[_Stages, int]]) -> None:
        """Let systems take part that keep to the requirements; of equals the first stays best."""
        needs, criterion, folds = self._data.needs, self._criterion, self._data.folds
        if price[0] > needs.max_cost_per_10000 or price[1] > needs.max_p95_ms:
            return
        for stages, stops in systems:
            caught = [((stops & d).bit_count(), (stops & h).bit_count()) for d, h in folds]
            hits, alarms = map(sum, zip(*caught, strict=True))
            held_out = [*caught, (0, 0)]
            for place, (n, m) in enumerate(self._sizes):
                hit, alarm = hits - held_out[place][0], alarms - held_out[place][1]
                merit = criterion.miss * hit * m - criterion.stop * alarm * n
                key = (merit, -price[0] if criterion.stop else -alarm)
                if key > self._merits[place] and alarm / max(1, m) <= criterion.max_fpr:
                    self._merits[place], self._best[place] = key, (stages, stops, price)

    @property
    def best(self) -> Candidate | None:
        """The best system of all decisions, chosen and judged on them."""
        if self._best[-1] is None:
            return None
        stages, stops, price = self._best[-1]
        return self._data.candidate(self._data.point(stops, price), stages)

    def choice(self) -> Choice | None:
        data, best, chosen = self._data, self.best, [each for each in self._best if each]
        if best is None or len(chosen) < len(self._best):
            return None
        parts = (stops & (d | h) for (_, stops, _), (d, h) in zip(chosen, data.folds, strict=False))
        both = reduce(or_, parts), chosen[-1][1]
        flags = (_flags(each, len(data.decisions)) for each in both)
        return Choice(
            best, data.folded.judge(self._criterion, zip(data.decisions, *flags, strict=True))
        )


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
    of_a, of_b = (~each.stands & data.first for each in (a, b))
    n, m = of_a.bit_count(), of_b.bit_count()
    return MissOverlap(a.name, b.name, n, m, (of_a & of_b).bit_count(), n * m / data.dangerous)
