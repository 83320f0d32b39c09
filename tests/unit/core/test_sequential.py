"""Confidence sequences: the boundary against confseq, the interval by hand, and false alarms."""

import math
import random

import pytest

from aegish_dist.core.increments import Increments, SampleMeans, SampleOrder, add_up
from aegish_dist.core.sequential import Answer, Boundary, read_difference, read_score

FOUR = SampleOrder(places=(0, 0, 1, 2), malicious=(True, False, True, False))
"""Three clusters; the first has a sample of each label."""


@pytest.mark.parametrize(
    ("v", "alpha", "v_opt", "rho", "bound"),
    [
        (100.0, 0.05, 100.0, 12.60056097925634, 30.352089903762529),
        (10.0, 0.05, 20.0, 2.5201121958512682, 9.7511004590411634),
        (1e-4, 0.01, 5e-5, 4.3351067552984871e-06, 0.035956047991328746),
        (0.5, 0.05, 1.0, 0.12600560979256339, 2.1804123481845443),
        (3.7, 0.025, 12.5, 1.3153271218611131, 6.6116907543404055),
    ],
)
def test_the_boundary_is_that_of_confseq(
    v: float, alpha: float, v_opt: float, rho: float, bound: float
) -> None:
    """Equal to `normal_mixture_bound(v, alpha, v_opt, alpha, is_one_sided=False)`.

    Values by the class TwoSidedNormalMixture of confseq 0.0.11 (`src/confseq/uniform_boundaries.h`),
    compiled; the first row is the one of its own test, computed in R: 12.60056 and 30.35209. It has
    no wheel and brings pandas, matplotlib and a C++ build along, so it is no requirement here.
    """
    boundary = Boundary.narrowest_at(v_opt, alpha)

    assert boundary.rho == pytest.approx(rho, rel=1e-12)
    assert boundary.at(v) == pytest.approx(bound, rel=1e-12)


def test_a_worked_example() -> None:
    """Three clusters 1, 0, 1 of weight 1/3 each, at alpha 0.05 and rho 1: every value is possible.

    S = 2/3 - h and V = 2/9 - 4h/9 + h^2/3. At h = 0: V = 2/9, the boundary is
    sqrt(11/9 * ln(11/9 * 400)) = 2.7502, far above 2/3.
    """
    increments = Increments.of([(1 / 3, 1 / 3), (0.0, 1 / 3), (1 / 3, 1 / 3)])
    boundary = Boundary(0.05, 1.0)

    assert increments.value == pytest.approx(2 / 3)
    total, squares = increments.under(0.5)
    assert total == pytest.approx(2 / 3 - 0.5)
    assert squares == pytest.approx(3 / 36)
    assert boundary.at(increments.under(0.0)[1]) == pytest.approx(
        math.sqrt(11 / 9 * math.log(11 / 9 * 400))
    )
    assert boundary.interval(increments, -1.0, 1.0) == (-1.0, 1.0)


def test_the_ends_of_an_interval_lie_on_the_boundary() -> None:
    """There the sum equals what it reaches with probability alpha at most."""
    increments = Increments.of([(0.01, 0.01)] * 60 + [(-0.01, 0.01)] * 20 + [(0.0, 0.01)] * 20)
    boundary = Boundary.narrowest_at(0.004, 0.05)
    low, high = boundary.interval(increments, -1.0, 1.0)

    assert -1.0 < low < 0.4 < high < 1.0
    for end in (low, high):
        total, squares = increments.under(end)
        assert abs(total) == pytest.approx(boundary.at(squares), rel=1e-9)
    assert boundary.interval(Increments(), -1.0, 1.0) == (-1.0, 1.0)


def test_both_labels_count_alike() -> None:
    """Whatever their numbers; a dataset of one label is its rate alone."""
    assert FOUR.weights == (0.25, 0.25)
    assert SampleOrder((0, 1, 2), (True, False, False)).weights == (0.5, 0.25)
    assert SampleOrder((0, 1), (False, False)).weights == (0.0, 0.5)
    assert SampleOrder((), ()).weights == (0.0, 0.0)


def test_a_beginning_is_read() -> None:
    """Clusters behind the first that lacks a verdict are left out, however many are answered."""
    a = SampleMeans((0.0, 1.0, 0.0, 0.0), complete=3)
    b = SampleMeans((1.0, 1.0, None, 1.0), complete=1)
    boundary = Boundary.of(FOUR, 0.05)

    read = read_difference(FOUR, a, b, boundary, 0.02)

    # Cluster 0: differences 1 and 0, of either label; cluster 1 lacks an answer of b.
    assert (read.clusters, read.samples) == (1, 2)
    assert read.value == pytest.approx(0.5)
    assert (read.low, read.high, read.answer) == (-1.0, 1.0, Answer.OPEN)
    assert add_up(FOUR, b.means.__getitem__, 0) == Increments()


@pytest.mark.parametrize(("malicious", "value"), [(10, 0.0), (8, 0.0), (7, None), (0, None)])
def test_a_label_keeps_its_weight_where_samples_go_unscored(
    malicious: int, value: float | None
) -> None:
    """All malicious samples 0.2 worse, all harmless ones 0.2 better: equal, however many count."""
    order = many(400)
    one = SampleMeans([0.5] * 400, 400)
    other = SampleMeans(
        [
            0.7 if sample % 2 else 0.3 if sample // 2 % 10 < malicious else None
            for sample in range(400)
        ],
        400,
    )

    read = read_difference(order, one, other, Boundary.of(order, 0.05), 0.02)

    assert read.value == (None if value is None else pytest.approx(value, abs=1e-12))
    assert read.low < 0 < read.high


def many(n: int) -> SampleOrder:
    """Return samples that are clusters of their own, of both labels in turn."""
    return SampleOrder(range(n), [sample % 2 == 0 for sample in range(n)])


@pytest.mark.parametrize(
    ("rate", "answer"), [(0.0, Answer.WITHIN), (0.2, Answer.ABOVE), (-0.2, Answer.BELOW)]
)
def test_a_difference_is_answered(rate: float, answer: Answer) -> None:
    """A model that is right about a fifth of the samples more is above, an equal one is within."""
    order = many(2000)
    one = SampleMeans([0.5] * 2000, 2000)
    other = SampleMeans([0.5 + rate] * 2000, 2000)

    read = read_difference(order, one, other, Boundary.of(order, 0.05), 0.02)

    assert read.answer is answer
    assert read.value == pytest.approx(rate)
    assert read.low < rate < read.high  # never a width of zero


@pytest.mark.parametrize(
    ("right", "answer"), [(0.85, Answer.WITHIN), (0.95, Answer.ABOVE), (0.6, Answer.BELOW)]
)
def test_a_score_is_compared_with_its_target(right: float, answer: Answer) -> None:
    """A single model lies above or below, or within the margin."""
    order = many(2000)
    model = SampleMeans([right] * 2000, 2000)

    assert read_score(order, model, Boundary.of(order, 0.05), 0.85, 0.02).answer is answer


def test_nothing_is_answered_without_answers() -> None:
    """No verdict, none that is scored, and one cluster alone say nothing."""
    boundary = Boundary.of(FOUR, 0.05)
    nothing = SampleMeans((None,) * 4, complete=3)
    early = SampleMeans((None,) * 4, complete=0)
    one = SampleOrder((0, 0), (True, False))
    right, wrong = SampleMeans((1.0, 1.0), 1), SampleMeans((0.0, 0.0), 1)

    for a, b in ((nothing, nothing), (early, nothing)):
        read = read_difference(FOUR, a, b, boundary, 0.02)
        assert (read.value, read.answer) == (None, Answer.OPEN)
    assert read_difference(one, wrong, right, Boundary.of(one, 0.05), 0.02).answer is Answer.OPEN


@pytest.mark.parametrize("p", [0.5, 0.98])
def test_false_alarms(p: float) -> None:
    """Read after every cluster of up to eight commands, equal models are rarely distinguished.

    `benchmarks/sequential.py` has the whole table. Here 5 % of 200 are 10, and 10 or fewer are seen
    with a probability of 0.6 at 5 %, of 0.999 at the 2 % that come.
    """
    chance = random.Random(f"false alarms {p}")
    sizes = [chance.choice((1, 1, 1, 2, 3, 8)) for _ in range(150)]
    samples = sum(sizes)
    order = many(samples)
    boundary = Boundary.of(order, 0.05)
    weight = order.weights[0]
    alarms = 0
    for _ in range(200):
        total = squares = 0.0
        for size in chance.sample(sizes, len(sizes)):
            of_a, of_b = (sum(chance.random() < p for _ in range(size)) for _ in "ab")
            x = weight * (of_b - of_a)
            total, squares = total + x, squares + x * x
            if abs(total) >= boundary.at(squares):
                alarms += 1
                break
    assert alarms <= 10
