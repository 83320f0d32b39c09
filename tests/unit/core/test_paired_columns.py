"""Pairs from columns against pairs from cells."""

from collections.abc import Callable
from itertools import permutations
from random import Random

import pytest

from aegish_dist.core.comparison import compare, compare_samples
from aegish_dist.core.paired import paired_samples
from aegish_dist.core.paired_columns import PairedAnswers, SampleKind
from aegish_dist.core.sample import Target
from aegish_dist.core.scoring import DEFAULT_RULE, RULES, ScoringRule
from aegish_dist.core.tally import Finding

KINDS = [
    SampleKind(Target.MALICIOUS, "shell", "tar"),
    SampleKind(Target.MALICIOUS, "shell", None),
    SampleKind(Target.MALICIOUS, "malicious", "tar"),
    SampleKind(Target.HARMLESS, None, "tar"),
    SampleKind(Target.HARMLESS, None, None),
    SampleKind(Target.HARMLESS, None, "ls"),
]
FINDINGS = [
    (),
    ((Finding.BLOCK, 1),),
    ((Finding.ALLOW, 1),),
    ((Finding.ALLOW, 1), (Finding.BLOCK, 2)),
    ((Finding.API_FAILURE, 1),),
    ((Finding.DEADLINE, 1), (Finding.WARN, 1)),
]


def drawn(seed: int, way: Callable[[Random], int], samples: int = 200) -> PairedAnswers[str]:
    draw = Random(seed)
    return PairedAnswers(
        kinds=KINDS,
        kind=[draw.randrange(len(KINDS)) for _ in range(samples)],
        findings=FINDINGS,
        answers={side: [way(draw) for _ in range(samples)] for side in "abc"},
    )


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.name)
@pytest.mark.parametrize("ways", [range(6), range(1, 4), (0, 4), (1, 2)], ids=str)
def test_pairs_of_columns_are_those_of_cells(rule: ScoringRule, ways: range) -> None:
    """Missing and unscored answers, epochs, samples without clusters and shared clusters."""
    answers = drawn(3, lambda draw: draw.choice(ways))
    scored = answers.scored(rule)
    for a, b in permutations("abc", 2):
        cells = answers.cells(a, b)
        expected, found = paired_samples(cells, rule), scored.pair(a, b)
        for one, other in (
            *((expected.targets[target], found.targets[target]) for target in Target),
            *((expected.categories[name], found.categories[name]) for name in expected.categories),
        ):
            assert one.clusters == other.clusters
            assert one.kinds == other.kinds
            assert one.unclustered == other.unclustered
        assert expected.categories.keys() == found.categories.keys()
        assert compare(cells, rule) == compare_samples(found, rule.composite)
        assert answers.answered(a, b) == sum(cell.samples for cell in cells)


def test_no_sample_at_all_is_nothing_to_compare() -> None:
    """A pair of empty columns has no sample and no category."""
    answers = PairedAnswers[str](KINDS, [], FINDINGS, {"a": [], "b": []})
    found = compare_samples(answers.scored(DEFAULT_RULE).pair("a", "b"), DEFAULT_RULE.composite)
    assert found.samples == 0
    assert found.categories == {}
    assert found.metrics["aegish_score"].difference is None
