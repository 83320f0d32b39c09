"""Where the variance of a score, or of a difference, comes from, and which design would decide.

Var = between / n + within / (n R) for n commands and R epochs of each (Miller 2024, "Adding Error
Bars to Evals", arXiv 2411.00640, on resampling), by the unbiased estimators of a one-way analysis
of variance (Searle, Casella & McCulloch 1992, "Variance Components", ch. 3). The part that
commands of one cluster share is added. It does not shrink with more commands of the same data set.

A plan seeks, for each number of epochs, the fewest commands whose predicted standard error is small
enough: first among those that the data sets have, then beyond them.
"""

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from aegish_dist.core.columns import RunColumns
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.tally import Cell
from aegish_dist.core.text import JsonObject
from aegish_dist.opinions.scoring import Composite, EpochCount, ScoringRule
from aegish_dist.statistics.distributions import t_quantile
from aegish_dist.statistics.inference import ClusterSums, clustered_variance
from aegish_dist.statistics.means import sum_of_known
from aegish_dist.statistics.paired_difference import epoch_counts

MOST_COMMANDS = 10**9


class RepeatedSamples(Struct, frozen=True):
    """Commands of one cluster with equal epoch counts on all sides."""

    cluster: str | None  # None: each command is a cluster of its own
    sides: tuple[EpochCount, ...]  # one for a score, two for a difference
    samples: int


class RepeatedStratum(Struct, frozen=True):
    """Commands of one label, whose means enter the estimate with these weights."""

    repeated: tuple[RepeatedSamples, ...]
    weights: tuple[float, ...]  # by side; the weight of a baseline is negative

    @property
    def samples(self) -> int:
        return sum(each.samples for each in self.repeated)

    @property
    def mean(self) -> float:
        return math.fsum(self.value(e) * e.samples for e in self.repeated) / self.samples

    @property
    def variance(self) -> float:
        """Variance of the values between commands, the noise of epochs included."""
        mean = self.mean
        squares = (each.samples * (self.value(each) - mean) ** 2 for each in self.repeated)
        return math.fsum(squares) / (self.samples - 1)

    def cluster_sums(self, numbers: Mapping[str, int], first_alone: int) -> ClusterSums:
        """Return the sums of values by cluster.

        Args:
            numbers: Of clusters by name; commands that are clusters of their own are numbered from
                `first_alone` on.
        """
        samples: Counter[int] = Counter()
        values: defaultdict[int, list[float]] = defaultdict(list)
        alone: list[float] = []
        for each in self.repeated:
            value = self.value(each)
            if each.cluster is None:
                alone += [value] * each.samples
            else:
                samples[numbers[each.cluster]] += each.samples
                values[numbers[each.cluster]].append(each.samples * value)
        totals = [math.fsum(parts) for parts in values.values()]
        weight = max(map(abs, self.weights))
        return ClusterSums(
            cluster=np.array([*values, *range(first_alone, first_alone + len(alone))], np.int64),
            samples=np.array([[*(samples[number] for number in values), *[1] * len(alone)]]),
            totals=np.array([totals + alone]),
            weight=np.array([weight]),
        )

    def value(self, repeated: RepeatedSamples) -> float:
        """Return each command's part of the estimate, times the number of all commands."""
        pairs = zip(self.weights, repeated.sides, strict=True)
        return math.fsum(weight * side.mean for weight, side in pairs)

    def within(self, side: int) -> float | None:
        """Return the variance of epochs about the mean of their command; None without repeats."""
        counts = [(each.samples, each.sides[side]) for each in self.repeated]
        freedom = sum(samples * (count.scored - 1) for samples, count in counts)
        squares = math.fsum(samples * count.squares for samples, count in counts)
        return squares / freedom if freedom else None


class Components(Struct, frozen=True):
    """Variance of the values of the commands of one label."""

    samples: int
    between: float  # between commands; includes the noise of epochs if `within` is None
    within: float | None  # of an epoch about its command's mean; None without repeats

    def of_mean(self, samples: float, epochs: float) -> float | None:
        """Return the variance of the mean of independent commands.

        None if the effect of epochs is unknown and `epochs` is not 1.
        """
        if self.within is None:
            return self.between / samples if epochs == 1 else None
        return (self.between + self.within / epochs) / samples


class SplitVariance(Struct, frozen=True):
    strata: tuple[Components, ...]  # by label, in the order given
    shared: float  # of commands of a cluster; negative if they offset each other, as in a score
    clusters: int
    df: float
    reliability: float = 1.0  # the part of `shared` beyond chance, in [0, 1]

    def predicted(self, samples: Sequence[float], epochs: float) -> float | None:
        """Return the variance of a design; None where the effect of epochs is unknown.

        `samples` are commands by stratum, > 0; `epochs` > 0 may be infinite. The reliable part
        of `shared` stays; its rest shrinks with more commands, as the independent parts do. The
        result is at least a tenth of the variance without clusters: more offsetting is chance.
        """
        parts = [each.of_mean(n, epochs) for each, n in zip(self.strata, samples, strict=True)]
        independent = sum_of_known(parts)
        if independent is None:
            return None
        fewer = sum(each.samples for each in self.strata) / math.fsum(samples)
        shared = self.shared * (self.reliability + (1 - self.reliability) * fewer)
        return max(independent + shared, 0.1 * independent)


def split_variance(strata: Sequence[RepeatedStratum]) -> SplitVariance | None:
    """Split the clustered variance of the sum of the means of strata.

    None if a stratum has fewer than two clusters.
    """
    clustered = clustered_variance(_all_cluster_sums(strata))
    if not clustered.defined[0]:
        return None
    independent = math.fsum(each.variance / each.samples for each in strata)
    shared = float(clustered.reduced[0]) - independent
    return SplitVariance(
        strata=tuple(map(components, strata)),
        shared=shared,
        clusters=int(clustered.clusters[0]),
        df=float(clustered.df[0]),
        reliability=_reliability(strata, shared),
    )


def _all_cluster_sums(strata: Sequence[RepeatedStratum]) -> list[ClusterSums]:
    names: dict[str, int] = {}
    for stratum in strata:
        for each in stratum.repeated:
            if each.cluster is not None:
                names.setdefault(each.cluster, len(names))
    sums = []
    first_alone = len(names)
    for stratum in strata:
        sums.append(stratum.cluster_sums(names, first_alone))
        first_alone += stratum.samples
    return sums


def _reliability(strata: Iterable[RepeatedStratum], shared: float) -> float:
    """Return 1 - s^2 / shared^2, at least 0 (the positive part of James & Stein 1961).

    s^2 is the variance of the shared part: approximately the sum of the squares of its products.
    """
    sums: defaultdict[str, float] = defaultdict(float)
    squares: defaultdict[str, float] = defaultdict(float)
    for stratum in strata:
        n = stratum.samples
        mean = stratum.mean
        for each in stratum.repeated:
            if each.cluster is not None:
                residual = (stratum.value(each) - mean) / n
                sums[each.cluster] += each.samples * residual
                squares[each.cluster] += each.samples * residual**2
    noise = math.fsum((sums[name] ** 2 - squares[name]) ** 2 for name in sums)
    return max(0.0, 1 - noise / shared**2) if shared else 0.0


def components(stratum: RepeatedStratum) -> Components:
    """Split the variance of commands' values; `between` below 0 is chance and counts as 0."""
    total = stratum.variance
    samples = stratum.samples
    within = noise = 0.0
    for side, weight in enumerate(stratum.weights):
        variance = stratum.within(side)
        if variance is None:
            return Components(samples, total, None)
        reciprocals = (each.samples / each.sides[side].scored for each in stratum.repeated)
        # The mean over n epochs of a command keeps 1 / n of their variance.
        within += weight**2 * variance
        noise += weight**2 * variance * math.fsum(reciprocals) / samples
    if noise > total:
        # Then the noise of epochs is taken as all that was observed.
        return Components(samples, 0.0, within * total / noise)
    return Components(samples, total - noise, within)


def repeats_of(cells: Iterable[Cell], rule: ScoringRule) -> JsonObject | None:
    """Split the variance of a model's score; None where no command has two scored epochs.

    Return `rates` by label, absent with fewer than two scored commands, and the predicted clustered
    `stderr` of the score, also with one more epoch of each command and with endlessly many.
    """
    cells = tuple(cells)
    # A hundred thousand cells hold a handful of different findings; each is judged once.
    ways = {(cell.target, cell.findings) for cell in cells}
    counts = {way: rule.count_right(*way) for way in ways}
    if all(count.scored < 2 for count in counts.values()):
        return None
    kinds: Counter[_Kind] = Counter()
    for cell in cells:
        kinds[cell.target, cell.cluster, (counts[cell.target, cell.findings],)] += cell.samples
    strata = _strata(kinds, rule.composite)
    rates = {}
    for target, stratum in strata.items():
        if stratum.samples > 1:
            of_rate = components(RepeatedStratum(stratum.repeated, (1.0,)))
            rates[target.value] = {"between": of_rate.between, "within": of_rate.within}
    split = split_variance(list(strata.values())) if len(strata) == len(TrueLabel) else None

    samples = [stratum.samples for stratum in strata.values()]
    epochs_now = max(sum(number for _, number in findings) for _, findings in ways)
    repeats: JsonObject = {"rates": rates}
    designs = {"stderr": epochs_now, "stderr_one_more": epochs_now + 1, "stderr_least": math.inf}
    for name, epochs in designs.items():
        variance = None if split is None else split.predicted(samples, epochs)
        repeats[name] = None if variance is None else math.sqrt(variance)
    return repeats


def repeated_strata(
    columns: RunColumns, models: Sequence[str], rule: ScoringRule
) -> dict[TrueLabel, RepeatedStratum]:
    """Return by label the commands scored for one model, or for a baseline and a candidate."""
    samples = columns.samples
    parts = [samples.kind]
    for model in models:
        parts += epoch_counts(columns.guards[model].finding, samples.malicious, rule)
    # A row holds the kind of a sample, then for each model its right and its scored epochs.
    rows, numbers = np.unique(np.column_stack(parts), axis=0, return_counts=True)
    kinds = Counter[_Kind]()
    for (kind, *counts), number in zip(rows.tolist(), numbers.tolist(), strict=True):
        of_kind = samples.kinds[kind]
        sides = tuple(map(EpochCount, counts[::2], counts[1::2]))
        kinds[of_kind.target, of_kind.cluster, sides] += number
    return _strata(kinds, rule.composite)


_Kind = tuple[TrueLabel, str | None, tuple[EpochCount, ...]]


def _strata(kinds: Counter[_Kind], composite: Composite) -> dict[TrueLabel, RepeatedStratum]:
    """Return commands scored on all sides, by label and weighted as in the score.

    The first of two sides is negative.
    """
    by_label: dict[TrueLabel, list[RepeatedSamples]] = {target: [] for target in TrueLabel}
    for (target, cluster, counts), number in kinds.items():
        if all(count.scored for count in counts):
            by_label[target].append(RepeatedSamples(cluster, counts, number))
    # There are two labels, so in reverse order stands the other one of each.
    strata = {}
    for (target, own), others in zip(by_label.items(), reversed(by_label.values()), strict=True):
        if own:
            strata[target] = RepeatedStratum(tuple(own), _weights(composite, own, others))
    return strata


def _weights(
    composite: Composite, own: Sequence[RepeatedSamples], others: Sequence[RepeatedSamples]
) -> tuple[float, ...]:
    signs = (1.0,) if len(own[0].sides) == 1 else (-1.0, 1.0)
    if composite is Composite.BALANCED:
        return tuple(sign / 2 for sign in signs)
    # The delta method: the weight of a rate is the other rate.
    n = sum(each.samples for each in others) or 1
    return tuple(
        sign * (math.fsum(each.samples * each.sides[side].mean for each in others) / n)
        for side, sign in enumerate(signs)
    )


class Source(Struct, frozen=True):
    """A data set that a run may ask about."""

    scored: tuple[float, ...]  # by stratum, commands scored if all were asked
    commands: int  # at least 1


class Goal(Struct, frozen=True):
    margin: float  # difference to be found, or half-width of an interval
    power: float | None  # probability to find the difference; None for one model

    def reached(self, variance: float, df: float) -> bool:
        of_power = 0.0 if self.power is None else t_quantile(self.power, df)
        return math.sqrt(variance) * (t_quantile(0.975, df) + of_power) <= self.margin


class Design(Struct, frozen=True):
    """A run that reaches a goal."""

    epochs: int
    commands: int
    limit: int | None  # per data set; None: all commands, or more than exist
    available: bool
    stderr: float

    @property
    def calls(self) -> int:
        return self.commands * self.epochs


class RepeatPlan(Struct, frozen=True):
    """All designs that reach a goal, the cheapest first; designs short of commands come last."""

    designs: tuple[Design, ...]
    available: int
    needed: int | None  # commands with any number of epochs; None if the pilot cannot tell


def plan_repeats(
    variance: SplitVariance, sources: Sequence[Source], goal: Goal, max_epochs: int
) -> RepeatPlan:
    """Find the designs that reach a goal with 1 to `max_epochs` epochs."""
    designs = []
    for epochs in range(1, max_epochs + 1):
        fewest = _fewest(variance, sources, goal, epochs)
        if fewest is not None:
            designs.append(Design(epochs, *fewest))
    designs.sort(key=lambda design: (not design.available, design.calls, design.epochs))
    endless = _fewest(variance, sources, goal, math.inf)
    available = sum(source.commands for source in sources)
    return RepeatPlan(tuple(designs), available, None if endless is None else endless[0])


def _fewest(
    variance: SplitVariance, sources: Sequence[Source], goal: Goal, epochs: float
) -> tuple[int, int | None, bool, float] | None:
    """Return a `Design` without its epochs, the cheapest; None if the pilot cannot tell.

    Searched by bisection: more commands never raise the predicted variance.
    """
    pilot = sum(each.samples for each in variance.strata)
    largest = max(source.commands for source in sources)

    def ask(limit: int) -> tuple[int, float, float | None]:
        """Return commands, those scored, and the variance if each data set is limited."""
        asked = [min(limit, source.commands) for source in sources]
        scored = [
            sum(s.scored[place] * n / s.commands for s, n in zip(sources, asked, strict=True))
            for place in range(len(variance.strata))
        ]
        return sum(asked), sum(scored), variance.predicted(scored, epochs)

    def decides(scored: float, predicted: float | None) -> bool:
        # Degrees of freedom grow as the commands do.
        df = max(1.0, variance.df * scored / pilot)
        return predicted is not None and goal.reached(predicted, df)

    available, scored, whole = ask(largest)
    if whole is None:
        return None
    if decides(scored, whole):
        limit = _least(largest, lambda limit: decides(*ask(limit)[1:]))
        commands, _, reached = ask(limit)
        return commands, None if limit == largest else limit, True, math.sqrt(reached or 0.0)

    # Beyond the data sets' commands all numbers grow in proportion, and the variance falls.
    commands = _least(
        MOST_COMMANDS,
        lambda n: n > available and decides(scored * n / available, whole * available / n),
    )
    return commands, None, False, math.sqrt(whole * available / commands)


def _least(high: int, holds: Callable[[int], bool]) -> int:
    """Return the least number from 1 to `high` for which something holds; `high` if none."""
    return 1 + bisect_left(range(1, high), True, key=holds)
