"""Scores set against each other from sums of clusters, against the same from pairs of samples."""

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from aegish_dist.core.comparison import score_difference
from aegish_dist.core.paired_columns import PairedAnswers, SampleKind
from aegish_dist.core.sample import Target
from aegish_dist.core.scoring import DEFAULT_RULE, RULES, ScoringRule
from aegish_dist.core.summed import SummedStratum, summed_samples
from aegish_dist.core.tally import Cell, Finding

KINDS = [
    *(SampleKind(Target.MALICIOUS, f"c{n % 3}", f"bin{n % 9}") for n in range(18)),
    *(SampleKind(Target.HARMLESS, None, f"bin{n}") for n in range(5, 12)),
]
FINDINGS = [
    (),
    ((Finding.BLOCK, 2),),
    ((Finding.ALLOW, 2),),
    ((Finding.ALLOW, 1), (Finding.BLOCK, 1)),
    ((Finding.API_FAILURE, 2),),
]


def drawn(ways: Sequence[int], samples: int = 600) -> PairedAnswers[str]:
    draw = Random(5)
    kind = [draw.randrange(len(KINDS)) for _ in range(samples)]
    return PairedAnswers(
        KINDS, kind, FINDINGS, {side: [draw.choice(ways) for _ in range(samples)] for side in "ab"}
    )


def cells_of(answers: PairedAnswers[str], side: str) -> list[Cell]:
    counted = Counter(zip(answers.kind, answers.answers[side], strict=True))
    return [
        Cell(*KINDS[kind], FINDINGS[way], samples)
        for (kind, way), samples in counted.items()
        if way
    ]


def from_sums(answers: PairedAnswers[str], rule: ScoringRule) -> dict[Target, SummedStratum]:
    sums = [summed_samples(cells_of(answers, side), rule) for side in "ab"]
    a, b = (each for each in sums if each is not None)
    return {target: SummedStratum(a[target], b[target]) for target in Target}


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.name)
@pytest.mark.parametrize("ways", [(1, 2, 3), (1, 1, 1, 2), (1,), (2, 3)], ids=str)
def test_sums_give_what_pairs_give_where_both_scored_the_same(
    ways: Sequence[int], rule: ScoringRule
) -> None:
    """Difference, clustered standard error, interval and p are equal to 1e-12."""
    answers = drawn(ways)
    pairs = answers.scored(rule).pair("a", "b").targets
    one = score_difference(rule.composite, pairs[Target.MALICIOUS], pairs[Target.HARMLESS])
    sums = from_sums(answers, rule)
    other = score_difference(rule.composite, sums[Target.MALICIOUS], sums[Target.HARMLESS])
    for name in ("a", "b", "difference", "stderr_clustered", "ci_low", "ci_high", "p_value", "mde"):
        assert getattr(other, name) == pytest.approx(getattr(one, name), rel=1e-12, abs=1e-15)
    assert (other.n, other.clusters) == (one.n, one.clusters)


def test_each_side_keeps_its_own_mean_where_samples_are_missing() -> None:
    """The difference is that of the scores as published, the rest close to that of pairs."""
    answers = drawn((1, 1, 1, 2, 3, 4, 0), samples=6000)
    rule = DEFAULT_RULE
    sums = from_sums(answers, rule)
    other = score_difference(rule.composite, sums[Target.MALICIOUS], sums[Target.HARMLESS])
    scored = answers.scored(rule)
    published = [
        score_difference(rule.composite, *(alone[target] for target in Target)).a or 0
        for alone in (scored.pair(side, side).targets for side in "ab")
    ]
    assert other.difference == pytest.approx(published[1] - published[0], abs=1e-12)
    pairs = scored.pair("a", "b").targets
    one = score_difference(rule.composite, pairs[Target.MALICIOUS], pairs[Target.HARMLESS])
    assert one.stderr_clustered is not None
    assert other.stderr_clustered == pytest.approx(one.stderr_clustered, rel=0.2)


def test_samples_without_a_cluster_have_no_sums() -> None:
    """Unless the rule scores none of them."""
    alone = Cell(Target.HARMLESS, None, None, ((Finding.ALLOW, 1),), 3)
    failed = Cell(Target.HARMLESS, None, None, ((Finding.API_FAILURE, 1),), 3)
    assert summed_samples([alone], DEFAULT_RULE) is None
    sums = summed_samples([failed], DEFAULT_RULE)
    assert sums is not None
    assert [each.samples for each in sums.values()] == [0, 0]


def test_nothing_scored_on_one_side_is_undefined() -> None:
    """As where there is no pair."""
    empty, some = (
        summed_samples(cells, DEFAULT_RULE) for cells in ([], cells_of(drawn((1,)), "a"))
    )
    assert empty is not None
    assert some is not None
    strata = [SummedStratum(empty[target], some[target]) for target in Target]
    assert score_difference(DEFAULT_RULE.composite, *strata).difference is None
