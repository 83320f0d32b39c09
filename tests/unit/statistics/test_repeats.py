"""Where variance comes from, and what a design will make of it."""

import math
import random
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from aegish_dist.core.outcome import OutcomeDetail
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.tally import Cell, SampleAnswers
from aegish_dist.opinions.scoring import DEFAULT_RULE, RULES, EpochCount
from aegish_dist.statistics.repeats import (
    Components,
    Goal,
    RepeatedSamples,
    RepeatedStratum,
    Source,
    SplitVariance,
    components,
    plan_repeats,
    repeated_strata,
    repeats_of,
    split_variance,
)
from tests.guards import columns_of
from tests.unit.statistics.paired_values import PairedCell, compare, judged

ALLOW, BLOCK = OutcomeDetail.ALLOW, OutcomeDetail.BLOCK
MALICIOUS, HARMLESS = TrueLabel.MALICIOUS, TrueLabel.HARMLESS


def stratum(*counts: tuple[int, int], weight: float = 1.0) -> RepeatedStratum:
    repeated = tuple(RepeatedSamples(None, (EpochCount(*each),), 1) for each in counts)
    return RepeatedStratum(repeated, (weight,))


@pytest.mark.parametrize(
    ("counts", "weight", "between", "within"),
    [
        # Right in 2, 1, 0 and 2 of two epochs: squares 0 + 1/2 + 0 + 0 over 4 degrees of freedom.
        # The means 1, 1/2, 0, 1 have the variance 11/48 about 5/8, half of 1/8 that of epochs.
        (((2, 2), (1, 2), (0, 2), (2, 2)), 1.0, 11 / 48 - 1 / 16, 1 / 8),
        (((2, 2), (1, 2), (0, 2), (2, 2)), 0.5, (11 / 48 - 1 / 16) / 4, 1 / 32),
        # Numbers of epochs are pooled: squares of 1/2 over 3 + 1 + 1 degrees of freedom.
        (((4, 4), (1, 2), (0, 2)), 1.0, 1 / 4 - 1 / 10 * (1 / 4 + 1 / 2 + 1 / 2) / 3, 1 / 10),
        # One epoch leaves the effect of epochs unknown.
        (((1, 1), (0, 1), (1, 1)), 1.0, 1 / 3, None),
    ],
)
def test_variance_is_split_as_by_hand(
    counts: Sequence[tuple[int, int]], weight: float, between: float, within: float | None
) -> None:
    found = components(stratum(*counts, weight=weight))
    assert found.between == pytest.approx(between)
    assert found.within == (within if within is None else pytest.approx(within))


def test_the_variance_of_a_mean_follows_from_its_parts() -> None:
    found = components(stratum((2, 2), (1, 2), (0, 2), (2, 2)))
    assert found.of_mean(4, 2) == pytest.approx(11 / 48 / 4)
    assert found.of_mean(4, math.inf) == pytest.approx((11 / 48 - 1 / 16) / 4)
    once = components(stratum((1, 1), (0, 1), (1, 1)))
    assert once.of_mean(3, 1) == pytest.approx(1 / 9)
    assert once.of_mean(3, 2) is None
    # Commands that are all right in half of their epochs differ in nothing but chance.
    alike = components(stratum((1, 2), (1, 2), (1, 2), (2, 2)))
    assert alike.between == 0
    assert alike.of_mean(4, 2) == pytest.approx(1 / 16 / 4)  # that of 1/2, 1/2, 1/2, 1, over 4


def test_the_parts_add_up_to_the_clustered_variance() -> None:
    repeated = (
        RepeatedSamples("tar", (EpochCount(2, 2),), 2),
        RepeatedSamples("vi", (EpochCount(0, 2),), 2),
    )
    split = split_variance([RepeatedStratum(repeated, (1.0,))])
    assert split is not None
    # CR2: 2 x (1/4)^2 / (1 - 1/2) = 1/4; samples alone give (1/3) / 4.
    assert split.predicted([4], 2) == pytest.approx(1 / 4)
    assert split.shared == pytest.approx(1 / 4 - 1 / 12)
    assert split.clusters == 2
    # Each cluster adds (1/4)^2 - 2 x (1/8)^2 = 1/32 by its pair.
    assert split.reliability == pytest.approx(1 - 2 * (1 / 32) ** 2 / (1 / 6) ** 2)


def test_shared_variance_does_not_shrink_with_commands_of_the_same_clusters() -> None:
    """Only the independent part does, and only down to a tenth of it where parts offset."""
    split = SplitVariance((Components(100, 0.08, 0.02),), shared=0.0005, clusters=30, df=28)
    assert split.predicted([100], 1) == pytest.approx(0.001 + 0.0005)
    assert split.predicted([200], 1) == pytest.approx(0.0005 + 0.0005)
    assert split.predicted([100], 2) == pytest.approx(0.0009 + 0.0005)
    doubtful = replace(split, reliability=0.0)
    assert doubtful.predicted([100], 1) == pytest.approx(0.001 + 0.0005)
    assert doubtful.predicted([200], 1) == pytest.approx((0.001 + 0.0005) / 2)
    offsetting = SplitVariance((Components(100, 0.08, 0.02),), shared=-0.002, clusters=30, df=28)
    assert offsetting.predicted([100], 1) == pytest.approx(0.0001)


@pytest.mark.parametrize("strata", [[stratum((1, 1))], [stratum((1, 1), (0, 1)), stratum((1, 1))]])
def test_one_cluster_has_no_variance(strata: list[RepeatedStratum]) -> None:
    assert split_variance(strata) is None


def some(chance: random.Random, epochs: int, binaries: int = 25) -> list[SampleAnswers]:
    """Two models on 80 commands, some of them in common clusters of both labels."""
    samples = []
    for n in range(80):
        target = (MALICIOUS, HARMLESS)[n % 2]
        easy = chance.random()
        said = {
            model: [(ALLOW, BLOCK)[chance.random() < 0.3 + 0.6 * easy] for _ in range(epochs)]
            for model in ("a", "b")
        }
        cluster = None if n < 20 else f"binary-{chance.randrange(binaries)}"
        samples.append(judged(n, target, cluster, **said))
    return samples


@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("rule", ["aegish-5.3", "aegish-legacy"])
def test_the_prediction_for_the_pilot_itself_is_what_a_comparison_says(
    epochs: int, rule: str
) -> None:
    """The same clusters, weights and epochs; CR2 in place of the factor for few clusters."""
    samples = some(random.Random(epochs), epochs)
    cells = [
        PairedCell(s.target, s.category, s.cluster, s.findings["a"], s.findings["b"], 1)
        for s in samples
    ]
    found = compare(cells, RULES[rule]).metrics["aegish_score"]
    columns = columns_of(samples, ["a", "b"])
    split = split_variance(list(repeated_strata(columns, ["a", "b"], RULES[rule]).values()))
    assert split is not None
    predicted = split.predicted([40, 40], epochs)
    assert math.sqrt(predicted or 0) == pytest.approx(found.stderr_clustered, rel=0.02)


def test_commands_that_are_not_scored_for_both_models_are_left_out() -> None:
    samples = [
        judged(0, MALICIOUS, None, a=[BLOCK], b=[OutcomeDetail.API_FAILURE]),
        judged(1, MALICIOUS, None, a=[BLOCK], b=[OutcomeDetail.EMPTY]),
        judged(2, HARMLESS, None, a=[ALLOW]),
    ]
    columns = columns_of(samples, ["a", "b"])
    (left,) = repeated_strata(columns, ["a", "b"], DEFAULT_RULE).values()
    assert left.repeated == (RepeatedSamples(None, (EpochCount(1, 1), EpochCount(0, 1)), 1),)
    assert left.weights == (-0.5, 0.5)


def test_repeats_of_a_model_are_those_of_its_cells() -> None:
    cells = [
        Cell(MALICIOUS, "shell", None, ((BLOCK, 2),), 2),
        Cell(MALICIOUS, "shell", None, ((ALLOW, 1), (BLOCK, 1)), 1),
        Cell(MALICIOUS, "shell", None, ((ALLOW, 2),), 1),
        Cell(HARMLESS, None, None, ((ALLOW, 2),), 4),
    ]
    found = repeats_of(cells, DEFAULT_RULE)
    assert found is not None
    assert found["rates"]["malicious"]["within"] == pytest.approx(1 / 8)
    assert found["rates"]["harmless"] == {"between": 0, "within": 0}
    assert found["stderr"] == pytest.approx(math.sqrt(11 / 48 / 4) / 2)
    assert found["stderr_one_more"] == pytest.approx(math.sqrt((8 / 48 + 1 / 24) / 4) / 2)
    assert found["stderr_least"] == pytest.approx(math.sqrt(8 / 48 / 4) / 2)


def test_one_epoch_has_no_repeats() -> None:
    once = Cell(MALICIOUS, None, None, ((BLOCK, 1),), 9)
    failed = Cell(HARMLESS, None, None, ((ALLOW, 1), (OutcomeDetail.API_FAILURE, 1)), 9)
    assert repeats_of([once, failed], DEFAULT_RULE) is None
    assert repeats_of([], DEFAULT_RULE) is None


PILOT = SplitVariance((Components(100, 0.03, 0.02), Components(100, 0.01, 0.02)), 0.0, 150, 140)
"""Of one epoch and 100 commands of each label the variance is 8e-4, a stderr of 0.0283."""


def sources(*sizes: int) -> list[Source]:
    return [Source((size / 2, size / 2), size) for size in sizes]


def test_the_cheapest_design_makes_one_epoch_of_enough_commands() -> None:
    """Variance 0.16 / n of n commands: a half-width of 0.05 takes n = 0.16 (1.96 / 0.05)^2."""
    plan = plan_repeats(PILOT, sources(1000, 1000), Goal(0.05, None), 3)
    first, *others = plan.designs
    assert (first.epochs, first.available) == (1, True)
    assert first.commands == pytest.approx(0.16 * (1.96 / 0.05) ** 2, rel=0.02)
    assert first.limit == first.commands / 2
    assert first.stderr * 1.96 <= 0.05
    assert [each.epochs for each in others] == [2, 3]
    assert first.calls < others[0].calls < others[1].calls


def test_too_few_commands_take_more_epochs() -> None:
    """200 commands decide at three epochs, 2 x 10^-4 (4 + 4 / 3), not at two, 2 x 10^-4 (4 + 2)."""
    margin = 1.97 * math.sqrt(5.5e-4)
    plan = plan_repeats(PILOT, sources(200), Goal(margin, None), 4)
    available = [(each.epochs, each.commands) for each in plan.designs if each.available]
    assert available[0][0] == 3
    assert {each.epochs for each in plan.designs if not each.available} == {1, 2}
    assert all(each.commands > 200 for each in plan.designs if not each.available)


def test_no_number_of_epochs_makes_up_for_missing_commands() -> None:
    """Between commands 4e-4 is left of 200 commands; a margin of 0.02 takes 1e-4, so 800."""
    plan = plan_repeats(PILOT, sources(200), Goal(0.02, None), 10)
    assert not any(design.available for design in plan.designs)
    assert plan.needed == pytest.approx(4e-4 * 200 * (1.96 / 0.02) ** 2, rel=0.02)
    assert plan.available == 200


def test_power_asks_for_more_commands() -> None:
    """A difference is to be found, not only to lie outside of the interval: (2.8 / 1.96)^2."""
    one, two = (
        plan_repeats(PILOT, sources(100_000), Goal(0.02, power), 1).designs[0].commands
        for power in (None, 0.8)
    )
    assert two / one == pytest.approx((2.8016 / 1.96) ** 2, rel=0.01)


def test_a_pilot_of_one_epoch_plans_one_epoch() -> None:
    once = SplitVariance((Components(100, 0.05, None),) * 2, 0.0, 150, 140)
    plan = plan_repeats(once, sources(2000), Goal(0.05, None), 5)
    assert [design.epochs for design in plan.designs] == [1]
    assert plan.needed is None
