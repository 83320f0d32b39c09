"""The search for a guard made of several: which policy over a run's guards is best, and how good.

Systems are: a guard as it stands or with a threshold; two guards of which any or both have to stop;
a guard that asks one that costs no less, on WARN or in a range of suspicion. What a hundred systems
stop in each fold follows from one count of decisions by what both guards say, so that 100,000
systems take seconds.

For each fold of clusters the best system is chosen on the other folds, thresholds and all, and
judged on this one, as in `thresholds`: having looked at many systems raises no estimate. The choice
between a guard as it stands, a threshold and a system is made in the same way, on inner folds.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, combinations, permutations
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from aegish_dist.core.columns import FINDINGS, Bools, Floats, Ints, by_finding
from aegish_dist.core.metric import FittedGuard
from aegish_dist.core.outcome import OutcomeDetail
from aegish_dist.errors import ReportError
from aegish_dist.opinions.guards import Guard, Guards
from aegish_dist.opinions.policy import (
    Candidate,
    Choice,
    MissOverlap,
    Policy,
    PolicySearch,
    Requirements,
    Stage,
    When,
)
from aegish_dist.opinions.scoring import ACTIONS, DEFAULT_RULE, Composite, ScoringRule
from aegish_dist.statistics.inference import fsum_rows
from aegish_dist.statistics.thresholds import Fit, FoldedDecisions, halfway

CUTS = 24  # thresholds of each guard of a pair, evenly by rank
EDGES = 9  # of the ranges in which a guard asks another one


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
    for column in data.columns:
        contests["as_it_stands"].enter(_as_it_stands(data, column))
        contests["with_threshold"].enter(_with_thresholds(data, column))

    line: dict[_Point, _Stages] = {}
    for family in chain(_singles(data), _pairs(data), _escalations(data)):
        contests["system"].enter(family)
        for point, stages in _front(data, family):
            line.setdefault(point, stages)

    choices = {name: contest.choice for name, contest in contests.items()}
    of_one_guard = [name for name in ("with_threshold", "as_it_stands") if choices[name]]
    single = max(of_one_guard, key=lambda name: contests[name].score, default=None)
    gain = None
    if single and choices["system"]:
        fits = {name: contests[name].fit for name in (single, "system")}
        gain = data.folded.differences(fits, [(single, "system")])[single, "system"]
    chosen = {name: contests[name] for name in contests if choices[name]}
    winner, winner_estimate = _winner(data, chosen)
    return PolicySearch(
        **choices,
        single=choices[single] if single else None,
        gain=gain,
        winner=winner,
        winner_estimate=winner_estimate,
        line=[data.candidate(point, line[point]) for point in _undominated(line)],
        overlaps=[_overlap(data, *pair) for pair in combinations(data.columns, 2)],
        decisions=len(data.rows),
        left_out=sum(guards.asked) - len(data.rows),
        unpriced={column.name: column.unpriced for column in data.columns if column.unpriced},
    )


_Stages = tuple[Stage, ...]
_Price = tuple[float, float]  # cost per 10,000 and p95 of the latency; infinite where unknown
_Point = tuple[int, int, float, float]  # misses, stops, and the price


class _Column(Struct, frozen=True, eq=False, dict=True):
    """A guard; a latency that is unknown is infinite, and so are its costs if most are unknown."""

    name: str
    stands: Bools  # by decision, whether the guard stops it as it stands
    warns: Bools
    suspicion: Floats  # the distinct values, ascending
    level: Ints  # by decision, the place of its suspicion among them
    cost: Floats
    latency: Floats
    unpriced: int

    @cached_property
    def thresholds(self) -> list[float]:
        """From the one that stops all decisions to one that stops none."""
        values = self.suspicion.tolist()
        between = map(halfway, values, values[1:])
        return [values[0], *between, math.nextafter(values[-1], math.inf)]

    def stopped_from(self, places: Sequence[int]) -> Bools:
        """Return for thresholds by place which decisions they stop."""
        return np.asarray(self.level >= np.array(places)[:, None])


class _Family(NamedTuple):
    """Systems that ask the same guards in the same decisions."""

    price: _Price
    counts: Ints  # how many decisions each stops: systems x labels x folds
    stages: Callable[[int], _Stages]
    stops: Callable[[int], Bools]  # which decisions


class _Data:
    """The decisions that all guards have scored, and the columns of the guards over them."""

    def __init__(self, guards: Guards, rule: ScoringRule, needs: Requirements, seed: int) -> None:
        scored = np.all([guard.scored for guard in guards.guards], axis=0)
        self.needs = needs
        self.composite = rule.composite
        self.scored = scored
        self.rows = np.flatnonzero(scored)  # places of the decisions among samples x epochs
        self.malicious = guards.malicious.ravel()[self.rows]
        self.folded = FoldedDecisions(
            guards.samples,
            rule.composite,
            epochs=guards.epochs,
            seed=seed,
            among=scored.any(axis=1),
        )
        if self.folded.folds < 2:
            what = "two clusters of dangerous and two of harmless commands"
            raise ReportError(f"the guards have not scored {what} in common, which a search needs")
        self.folds = range(self.folded.folds)
        self.fold = self.folded.fold[self.rows // guards.epochs]
        self.labels = (self.malicious, ~self.malicious)
        self.sizes = self.count(np.ones((1, len(self.rows)), bool))[0]
        """Decisions by label and fold."""
        self.dangerous, self.harmless = self.sizes.sum(axis=1).tolist()
        self.columns = [_column(guard, self.rows, rule) for guard in guards.guards]

    def count(self, stops: Bools) -> Ints:
        """Return how many decisions are stopped: systems x labels x folds."""
        return self.count_both(stops, np.ones((1, len(self.rows)), bool))[:, 0]

    def count_both(self, a: Bools, b: Bools) -> Ints:
        """Return how many decisions two stop both: systems of a x systems of b x labels x folds."""
        counts = np.empty((len(a), len(b), 2, len(self.folds)), np.int64)
        for place, label in enumerate(self.labels):
            for fold in self.folds:
                own = label & (self.fold == fold)
                # Of ones and zeros every sum is exact, in whatever order.
                counts[:, :, place, fold] = a[:, own].astype(float) @ b[:, own].astype(float).T
        return counts

    def price(self, cost: Floats, latency: Floats) -> _Price:
        """Return the cost of 10,000 actions, and the least latency that 95 % do not exceed."""
        prevalence = self.needs.prevalence
        # Of a decision by label: the two labels together weigh as at the prevalence.
        weights = prevalence / self.dangerous, (1 - prevalence) / self.harmless
        mean = 0.0
        latencies = []
        for own, weight in zip(self.labels, weights, strict=True):
            [sum_of_label] = fsum_rows(cost[None, own])
            mean += weight * float(sum_of_label)
            latencies.append(latency[own])

        def share_within(limit: float) -> float:
            dangerous, harmless = (np.count_nonzero(label <= limit) for label in latencies)
            return float(weights[0] * dangerous + weights[1] * harmless)

        limits = np.sort(latency)
        enough = bisect_left(limits, 0.95 - 1e-9, key=share_within)  # shares are rounded
        return 10_000 * mean, float(limits[enough])

    def candidate(self, point: _Point, stages: _Stages) -> Candidate:
        misses, stops, cost, p95 = point
        return Candidate(
            policy=Policy("found", 1, stages),
            miss_rate=misses / self.dangerous,
            stop_rate=stops / self.harmless,
            cost_per_10000=cost if math.isfinite(cost) else None,
            p95_ms=p95 if math.isfinite(p95) else None,
        )

    def by_sample(self, decisions: Bools) -> Bools:
        """Return decisions as an array of samples x epochs."""
        by_sample = np.zeros(self.scored.shape, bool)
        by_sample.flat[self.rows] = decisions
        return by_sample


def _column(guard: Guard, rows: Ints, rule: ScoringRule) -> _Column:
    finding = guard.finding.ravel()[rows]
    # Only an action that the rule does not see as detection lets a command pass.
    passes = by_finding(lambda answer: answer in ACTIONS and not rule.is_detection(answer))

    cost = guard.cost_usd.ravel()[rows]
    latency = guard.latency_ms.ravel()[rows]
    unknown = np.isnan(cost)
    priced = cost[~unknown]
    usual = math.inf
    if 2 * len(priced) >= len(rows):
        usual = math.fsum(priced) / len(priced)
    suspicion, level = np.unique(guard.suspicion.ravel()[rows], return_inverse=True)
    return _Column(
        guard.name,
        stands=~passes[finding],
        warns=finding == FINDINGS.index(OutcomeDetail.WARN),
        suspicion=suspicion,
        level=level,
        cost=np.where(unknown, usual, cost),
        latency=np.where(np.isnan(latency), math.inf, latency),
        unpriced=int(unknown.sum()),
    )


def _even(number: int, most: int) -> list[int]:
    """Return places, evenly from the first to the last."""
    chosen = min(number, most)
    return [place * (number - 1) // (chosen - 1) for place in range(chosen)]


def _as_it_stands(data: _Data, column: _Column) -> _Family:
    price = data.price(column.cost, column.latency)
    stages = (Stage((column.name,)),)
    stops = column.stands
    return _Family(price, data.count(stops[None]), lambda _: stages, lambda _: stops)


def _with_thresholds(data: _Data, column: _Column) -> _Family:
    at_level = np.zeros((len(column.thresholds), 2, len(data.folds)), np.int64)
    label = np.where(data.malicious, 0, 1)
    np.add.at(at_level, (column.level, label, data.fold), 1)
    # A threshold stops its own level and all above.
    from_each_on = np.cumsum(at_level[::-1], axis=0)[::-1]
    return _Family(
        data.price(column.cost, column.latency),
        from_each_on,
        lambda place: (Stage((column.name,), (column.thresholds[place],)),),
        lambda place: column.stopped_from([place])[0],
    )


def _singles(data: _Data) -> Iterator[_Family]:
    """Yield each guard as it stands, then with each threshold."""
    for column in data.columns:
        yield _as_it_stands(data, column)
        yield _with_thresholds(data, column)


def _pairs(data: _Data) -> Iterator[_Family]:
    """Yield two guards side by side of which any, then both have to stop; first as they stand."""
    for a, b in combinations(data.columns, 2):
        # Side by side: both are paid, and the slower one is waited for.
        price = data.price(a.cost + b.cost, np.maximum(a.latency, b.latency))
        for at_least in (1, 2):
            yield _pair_as_it_stands(data, price, a, b, at_least)
            yield _pair_with_thresholds(data, price, a, b, at_least)


def _pair_as_it_stands(
    data: _Data, price: _Price, a: _Column, b: _Column, at_least: int
) -> _Family:
    stages = (Stage((a.name, b.name), (), at_least),)
    stops = _stopped_by(a.stands, b.stands, at_least)
    return _Family(price, data.count(stops[None]), lambda _: stages, lambda _: stops)


def _pair_with_thresholds(
    data: _Data, price: _Price, a: _Column, b: _Column, at_least: int
) -> _Family:
    cuts_a, cuts_b = (_even(len(column.thresholds), CUTS) for column in (a, b))
    stops_a = a.stopped_from(cuts_a)
    stops_b = b.stopped_from(cuts_b)
    counts = data.count_both(stops_a, stops_b)
    if at_least == 1:
        # What either stops: the sum counts twice what both stop.
        counts = data.count(stops_a)[:, None] + data.count(stops_b)[None] - counts

    # Systems are numbered row by row: each cut of a with every cut of b.
    def stages(place: int) -> _Stages:
        of_a, of_b = divmod(place, len(cuts_b))
        cut = (a.thresholds[cuts_a[of_a]], b.thresholds[cuts_b[of_b]])
        return (Stage((a.name, b.name), cut, at_least),)

    def stops(place: int) -> Bools:
        of_a, of_b = divmod(place, len(cuts_b))
        return _stopped_by(stops_a[of_a], stops_b[of_b], at_least)

    return _Family(price, counts.reshape(-1, *counts.shape[2:]), stages, stops)


def _stopped_by(a: Bools, b: Bools, at_least: int) -> Bools:
    return a | b if at_least == 1 else a & b


class _Asking(NamedTuple):
    """When a guard asks another one."""

    when: When | tuple[float, float]
    stage: Stage
    stops: Bools  # by decision, whether the guard stops it itself
    asks: Bools


def _escalations(data: _Data) -> Iterator[_Family]:
    """Yield guards that ask another one; from a range of suspicion on they stop, below allow."""
    costs = {}
    for column in data.columns:
        costs[column.name], _ = data.price(column.cost, column.latency)
    for first, second in permutations(data.columns, 2):
        if costs[first.name] <= costs[second.name]:
            yield from _escalations_of(data, first, second)


def _escalations_of(data: _Data, first: _Column, second: _Column) -> Iterator[_Family]:
    # What the second guard answers: as it stands, then with each threshold.
    places = _even(len(second.thresholds), CUTS)
    cuts: list[tuple[float, ...]] = [()]
    cuts += [(second.thresholds[place],) for place in places]
    answers = np.concatenate([second.stands[None], second.stopped_from(places)])

    # No decision is stopped by both: the first guard asks where it does not stop itself.
    ways = list(_asking(first))
    by_first = data.count(np.stack([asking.stops for asking in ways]))
    by_second = data.count_both(np.stack([asking.asks for asking in ways]), answers)
    for asking, of_first, of_second in zip(ways, by_first, by_second, strict=True):
        cost = first.cost + np.where(asking.asks, second.cost, 0.0)
        latency = first.latency + np.where(asking.asks, second.latency, 0.0)

        # `asking` as a default is that of this round; the name itself moves on.
        def stages(place: int, asking: _Asking = asking) -> _Stages:
            return (asking.stage, Stage((second.name,), cuts[place], when=asking.when))

        def stops(place: int, asking: _Asking = asking) -> Bools:
            return np.asarray(asking.stops | answers[place] & asking.asks)

        yield _Family(data.price(cost, latency), of_first + of_second, stages, stops)


def _asking(first: _Column) -> Iterator[_Asking]:
    """Yield when a guard may ask: in each range between two edges, then on WARN."""
    places = _even(len(first.thresholds), EDGES)
    for low, high in combinations(places, 2):
        lower = first.thresholds[low]
        upper = first.thresholds[high]
        if upper not in first.suspicion:  # has a number below it: a range holds its ends
            stops, reaches = first.stopped_from([high, low])
            stage = Stage((first.name,), (upper,))
            yield _Asking((lower, upper), stage, stops, reaches & ~stops)
    stops = first.stands & ~first.warns
    yield _Asking(When.WARN, Stage((first.name,)), stops, first.warns)


class _Contest:
    """The best system of each training set: of all decisions, without a fold, and without two."""

    def __init__(self, data: _Data) -> None:
        self._data = data
        self._criterion = data.needs.criterion

        held_out: list[tuple[int, ...]] = []
        for size in range(3):
            held_out += combinations(data.folds, size)
        self._places = {held: place for place, held in enumerate(held_out)}
        # Folds x training sets: whether a fold is in a set.
        self._kept = np.ones((len(data.folds), len(held_out)), np.int64)
        for place, held in enumerate(held_out):
            self._kept[list(held), place] = 0
        self._dangerous, self._harmless = data.sizes @ self._kept

        self._keys = [(-math.inf, 0.0)] * len(held_out)
        self._best: list[tuple[_Stages, Bools, _Price] | None] = [None] * len(held_out)

    def enter(self, family: _Family) -> None:
        """Let systems take part that keep to the requirements; of equals the first stays best."""
        criterion = self._criterion
        needs = self._data.needs
        cost, p95 = family.price
        if cost > needs.max_cost_per_10000 or p95 > needs.max_p95_ms:
            return

        # Systems x training sets. Rates have a common denominator, so all numbers are whole.
        hits = family.counts[:, 0] @ self._kept
        alarms = family.counts[:, 1] @ self._kept
        of_hits = criterion.miss * hits * self._harmless
        of_alarms = criterion.stop * alarms * self._dangerous
        merits = of_hits - of_alarms
        order = merits
        if not criterion.stop:
            # Stops cost nothing, yet fewer are better; within a family the cost is the same.
            order = merits * (len(self._data.rows) + 1) - alarms

        allowed = alarms / np.maximum(1, self._harmless) <= criterion.max_fpr
        lowest = np.iinfo(np.int64).min
        best = np.where(allowed, order, lowest).argmax(axis=0)
        for place, system in enumerate(best.tolist()):
            # Of equal merits the lower cost is better, or where stops cost nothing fewer stops.
            tie_break = -cost if criterion.stop else -int(alarms[system, place])
            key = (int(merits[system, place]), tie_break)
            if allowed[system, place] and key > self._keys[place]:
                stages = family.stages(system)
                self._keys[place] = key
                self._best[place] = (stages, family.stops(system), family.price)

    @property
    def best(self) -> Candidate | None:
        """The best system of all decisions, chosen and judged on them."""
        best = self._best[0]
        if best is None:
            return None
        stages, stops, price = best
        hits, alarms = self._data.count(stops[None])[0].sum(axis=1).tolist()
        misses = self._data.dangerous - hits
        return self._data.candidate((misses, alarms, *price), stages)

    def stopped(self, *held_out: int) -> Bools:
        """Return what the best system without some folds stops, of all decisions."""
        best = self._best[self._places[held_out]]
        if best is None:
            return np.zeros(len(self._data.rows), bool)
        _, stops, _ = best
        return stops

    def out_of_fold(self, *held_out: int) -> Bools:
        """Return what is stopped in each fold by the best system without this and another fold."""
        stops = np.zeros(len(self._data.rows), bool)
        for fold in self._data.folds:
            if fold not in held_out:
                in_fold = self._data.fold == fold
                stops[in_fold] = self.stopped(*sorted((fold, *held_out)))[in_fold]
        return stops

    def merit(self, *held_out: int) -> int:
        """Return an integer that orders contests as their scores out of fold do."""
        stopped = self._data.count(self.out_of_fold(*held_out)[None])[0]
        hits, alarms = stopped.sum(axis=1).tolist()
        place = self._places[held_out]
        dangerous = int(self._dangerous[place])
        harmless = int(self._harmless[place])
        if self._data.composite is Composite.PRODUCT:
            return int(hits * (harmless - alarms))
        return int(hits * harmless - alarms * dangerous)

    @cached_property
    def fit(self) -> Fit:
        """How the best system does, out of fold."""
        return self.judge(self.out_of_fold())

    @property
    def score(self) -> float:
        return self.fit.guard.score.value or 0.0

    @cached_property
    def choice(self) -> Choice | None:
        # Of all decisions, and without each fold, which are the first training sets.
        chosen = self._best[: len(self._data.folds) + 1]
        if self.best is None or None in chosen:
            return None
        return Choice(self.best, self.fit.guard)

    def judge(self, stops: Bools) -> Fit:
        """Estimate how the best system does, from what is stopped out of fold."""
        data = self._data
        columns = data.by_sample(stops), data.by_sample(self.stopped())
        return data.folded.judge(self._criterion, data.scored, *columns)


def _winner(
    data: _Data, contests: Mapping[str, _Contest]
) -> tuple[str, FittedGuard] | tuple[None, None]:
    """Return the contest with the best score out of fold, of equals the first, and an estimate.

    For the estimate the contest is chosen again for each fold, out of fold among the others.
    """
    name = max(contests, key=lambda name: contests[name].merit(), default=None)
    if name is None:
        return None, None
    stops = np.zeros(len(data.rows), bool)
    for fold in data.folds:
        inner = max(contests.values(), key=lambda contest: contest.merit(fold))
        in_fold = data.fold == fold
        stops[in_fold] = inner.stopped(fold)[in_fold]
    estimate = contests[name].judge(stops).guard

    # A guard that stops at random has as high a detection as false positive rate.
    best = contests[name].best
    if best is None or best.stop_rate >= 1 - best.miss_rate:
        return None, None
    if (estimate.score.ci_low or 0) <= data.composite.chance:
        return None, None
    return name, estimate


def _front(data: _Data, family: _Family) -> Iterator[tuple[_Point, _Stages]]:
    """Yield the systems of a family of which no other has both fewer misses and fewer stops."""
    hits, stops = family.counts.sum(axis=2).T
    misses = data.dangerous - hits
    # In order of misses, then of stops: one with fewer stops than all before is not beaten.
    order = np.lexsort((np.arange(len(stops)), stops, misses))
    fewest = math.inf
    for system in order.tolist():
        if stops[system] < fewest:
            fewest = int(stops[system])
            point = (int(misses[system]), fewest, *family.price)
            yield point, family.stages(system)


def _undominated(points: Iterable[_Point]) -> list[_Point]:
    """Return the points of which no other is at least as good in every number."""
    kept: list[_Point] = []
    front: list[_Point] = []  # of those kept, the ones that none beats in all but misses
    for point in sorted(points):  # what dominates a point comes before it
        if not any(_beats(other, point) for other in front):
            kept.append(point)
            front = [other for other in front if not _beats(point, other)]
            front.append(point)
    return kept


def _beats(one: _Point, other: _Point) -> bool:
    """Return whether stops, cost and latency are all at most those of the other."""
    _, stops, cost, p95 = one
    _, other_stops, other_cost, other_p95 = other
    return stops <= other_stops and cost <= other_cost and p95 <= other_p95


def _overlap(data: _Data, a: _Column, b: _Column) -> MissOverlap:
    missed_by_a = ~a.stands & data.malicious
    missed_by_b = ~b.stands & data.malicious
    misses_a = int(missed_by_a.sum())
    misses_b = int(missed_by_b.sum())
    return MissOverlap(
        a=a.name,
        b=b.name,
        misses_a=misses_a,
        misses_b=misses_b,
        both=int((missed_by_a & missed_by_b).sum()),
        expected=misses_a * misses_b / data.dangerous,
    )
