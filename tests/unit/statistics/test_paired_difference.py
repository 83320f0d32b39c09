"""Paired comparisons: differences, their uncertainty, adjusted p, gate."""

from collections import Counter
from collections.abc import Callable
from itertools import permutations
from random import Random

import pytest
from msgspec.structs import replace
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar
from statsmodels.stats.multitest import multipletests

from aegish_dist.core.metric import Comparison, Difference
from aegish_dist.core.outcome import OutcomeDetail
from aegish_dist.core.sample import TrueLabel
from aegish_dist.findings.comparison import GateVerdict, commands_needed, commands_to_decide, gate
from aegish_dist.opinions.scoring import DEFAULT_RULE, RULES, ScoringRule
from aegish_dist.statistics.inference import holm, mcnemar
from aegish_dist.statistics.paired_difference import (
    UNIT,
    PairedAnswers,
    PairedSamples,
    PairedStratum,
    SampleKind,
    ScoredColumns,
    adjusted,
    compare_samples,
)
from tests.defined import defined
from tests.unit.statistics.paired_values import cells, compare, table

DETECTION = "malicious_detection_rate"
SCORE = "aegish_score"


def _detection(both: int, a_only: int, b_only: int, neither: int = 0) -> Difference:
    return compare(table(both, a_only, b_only, neither), DEFAULT_RULE).metrics[DETECTION]


@pytest.mark.parametrize(("a_only", "b_only"), [(86, 150), (4, 0), (0, 0), (5, 12), (7, 7)])
def test_mcnemar_is_exact(a_only: int, b_only: int) -> None:
    """Against statsmodels and scipy; 86 and 150 are of Agresti 2002, table 10.1."""
    oracle = statsmodels_mcnemar([[794, a_only], [b_only, 570]], exact=True).pvalue
    assert mcnemar(a_only, b_only) == pytest.approx(oracle, abs=1e-9)
    if a_only + b_only:
        binomial = stats.binomtest(a_only, a_only + b_only).pvalue
        assert mcnemar(a_only, b_only) == pytest.approx(binomial, abs=1e-9)


@pytest.mark.parametrize(("of_tar", "named"), [(4, {"tar": 0.4}), (2, {})])
def test_a_cluster_with_more_than_a_quarter_of_the_samples_is_named(
    of_tar: int, named: dict[str, float]
) -> None:
    stratum = PairedStratum(
        kinds=Counter({(UNIT, UNIT): 10}),
        unclustered=Counter({(UNIT, UNIT): 10 - of_tar}),
        clusters={"tar": (of_tar, of_tar * UNIT, of_tar * UNIT)},
    )
    alone = PairedStratum(kinds=Counter({(0, 0): 1}), clusters={"awk": (1, 0, 0)})
    scored: PairedSamples = {
        (TrueLabel.MALICIOUS, None): stratum,
        (TrueLabel.HARMLESS, None): alone,
    }
    assert compare_samples(scored, DEFAULT_RULE.composite).large_clusters == named


def test_holm_is_that_of_statsmodels() -> None:
    raw = [0.01, 0.04, 0.03, 0.005]
    adjusted = list(holm(dict(enumerate(raw))).values())
    assert adjusted == pytest.approx([0.03, 0.06, 0.06, 0.02], abs=1e-9)
    assert adjusted == pytest.approx(list(multipletests(raw, method="holm")[1]), abs=1e-9)
    assert holm({"a": 0.04, "b": None, "c": 0.01}) == {"a": 0.04, "b": None, "c": 0.02}


@pytest.mark.parametrize(
    ("n", "lost"), [(100, 4), (676, 4), (30, 4), (7, 3), (1000, 1), (1000, 0), (1000, 5)]
)
def test_few_discordant_samples_tell_nothing_apart(n: int, lost: int) -> None:
    """Up to five samples, all on one side, have an exact McNemar p above 0.06."""
    found = _detection(both=n - lost, a_only=lost, b_only=0)
    assert defined(found.p_value) > 0.05
    low, high = defined(found.ci_low), defined(found.ci_high)
    assert low <= 0 <= high
    assert high - low > 2 / n


def test_a_difference_by_hand() -> None:
    """Ten samples in four clusters: mean d = 2/10, residual sums -0.4, 0.4, -0.6, 0.6."""
    a = [1, 0, 0, 1, 1, 1, 0, 0, 0, 0]
    b = [1, 0, 1, 1, 1, 0, 1, 1, 0, 0]
    clusters = ["awk", "awk", "nc", "nc", "nc", "perl", "sed", "sed", "perl", None]
    found = compare(cells(a, b, clusters), DEFAULT_RULE).metrics[DETECTION]
    # Sums of d by cluster: awk 0 of 2, nc 1 of 3, perl -1 of 2, sed 2 of 2, alone 0 of 1.
    residuals = [0 - 0.4, 1 - 0.6, -1 - 0.4, 2 - 0.4, 0 - 0.2]
    sandwich = 5 / 4 * sum(r * r for r in residuals) / 100
    assert (found.a, found.b) == pytest.approx((0.4, 0.6))
    assert (found.n, found.clusters) == (10, 5)
    assert found.difference == pytest.approx(0.2)
    assert found.stderr == pytest.approx(((4 - 10 * 0.04) / 90) ** 0.5, abs=1e-12)
    assert found.stderr_clustered == pytest.approx(sandwich**0.5, abs=1e-12)
    assert (found.a_only, found.b_only) == (1, 3)
    assert found.mcnemar_p == pytest.approx(0.625)


def test_the_score_adds_up_a_cluster_over_both_labels() -> None:
    malicious = cells([0, 0, 1, 1], [1, 1, 1, 1], ["nc", "nc", "awk", "sed"])
    harmless = cells([1, 1, 1, 1], [0, 0, 1, 1], ["nc", "nc", "awk", "sed"], TrueLabel.HARMLESS)
    found = compare(malicious + harmless, DEFAULT_RULE).metrics[SCORE]
    assert found.difference == 0
    assert found.stderr_clustered == pytest.approx(0, abs=1e-12)
    assert defined(found.stderr) > 0.1
    assert (found.a_only, found.b_only, found.mcnemar_p) == (2, 2, None)
    assert found.clusters == 3


def test_epochs_are_averaged_first() -> None:
    """Two of three right against three of three is a third of a sample; nothing is discordant."""
    found = compare(cells([2, 3], [3, 3], [None, None], epochs=3), DEFAULT_RULE).metrics[DETECTION]
    assert found.difference == pytest.approx(1 / 6)
    assert (found.a_only, found.b_only, found.mcnemar_p) == (0, 0, None)


def test_the_product_follows_the_delta_method() -> None:
    """DR 0.8 to 0.6 with HA 0.5: slopes of 0.5 on the change of DR and of 0.6 - 0.8 on HA."""
    malicious = table(12, 4, 0, 4)
    harmless = table(10, 0, 0, 10, TrueLabel.HARMLESS)
    found = compare(malicious + harmless, RULES["aegish-legacy"]).metrics
    score, of_detection = found[SCORE], defined(found[DETECTION].stderr)
    assert score.difference == pytest.approx(-0.1)
    assert score.stderr == pytest.approx(((0.5 * of_detection) ** 2 + 0.2**2 * 0.25 / 19) ** 0.5)


def test_without_samples_nothing_is_defined() -> None:
    empty = compare([], DEFAULT_RULE)
    assert (empty.samples, empty.categories) == (0, {})
    assert empty.metrics[SCORE].difference is None
    one_label = compare(table(5, 1, 0, 0), DEFAULT_RULE).metrics
    assert one_label[SCORE].difference is None
    assert one_label[DETECTION].difference is not None
    one_cluster = compare(cells([1, 0], [0, 0], ["nc", "nc"]), DEFAULT_RULE).metrics[DETECTION]
    assert one_cluster.difference == -0.5
    assert one_cluster.p_value is one_cluster.ci_low is one_cluster.mde is None
    assert gate(one_cluster, 0.1) is GateVerdict.INCONCLUSIVE
    assert commands_needed(one_cluster, 0.1) is None


def test_the_gate_reads_the_interval() -> None:
    same = _detection(both=990, a_only=3, b_only=3, neither=4)
    assert gate(same, 0.02) is GateVerdict.SHIPS
    assert gate(same, 0.001) is GateVerdict.INCONCLUSIVE
    worse = _detection(both=800, a_only=150, b_only=10, neither=40)
    assert gate(worse, 0.02) is GateVerdict.WORSE


def test_commands_needed_follow_the_square_of_the_margin() -> None:
    """Half the margin takes four times the samples; at the mde it takes those there are."""
    found = _detection(both=800, a_only=50, b_only=50, neither=100)
    mde = defined(found.mde)
    assert commands_needed(found, mde) in {1000, 1001}
    assert commands_needed(found, mde / 2) in {4000, 4001}
    assert commands_to_decide(found, mde) in {1000, 1001}
    # One of two: ((2.2414 + 0.8416) / (1.96 + 0.8416))^2 times as many.
    assert commands_to_decide(found, mde, 2) in {1211, 1212}


def test_no_number_of_commands_decides_a_difference_that_is_the_margin() -> None:
    """0.935 - 0.985 is -0.05 but for rounding, which would be divided by."""
    found = replace(_detection(both=900, a_only=85, b_only=35, neither=5), difference=0.935 - 0.985)
    assert found.difference != -0.05
    assert commands_to_decide(found, 0.05) is None


def test_adjustment_goes_metric_by_metric() -> None:
    first = compare(table(800, 100, 40, 60), DEFAULT_RULE)
    second = compare(table(800, 70, 50, 80), DEFAULT_RULE)
    both: list[Comparison] = adjusted([first, second])
    raw = [each.metrics[DETECTION].p_value for each in (first, second)]
    adjusted_p = holm(dict(enumerate(raw)))
    assert [each.metrics[DETECTION].p_adjusted for each in both] == [*adjusted_p.values()]
    assert both[0].metrics[SCORE].p_adjusted is None


KINDS = [
    SampleKind(TrueLabel.MALICIOUS, "shell", "tar"),
    SampleKind(TrueLabel.MALICIOUS, "shell", None),
    SampleKind(TrueLabel.MALICIOUS, "malicious", "tar"),
    SampleKind(TrueLabel.HARMLESS, None, "tar"),
    SampleKind(TrueLabel.HARMLESS, None, None),
    SampleKind(TrueLabel.HARMLESS, None, "ls"),
]
FINDINGS = [
    (),
    ((OutcomeDetail.BLOCK, 1),),
    ((OutcomeDetail.ALLOW, 1),),
    ((OutcomeDetail.ALLOW, 1), (OutcomeDetail.BLOCK, 2)),
    ((OutcomeDetail.API_FAILURE, 1),),
    ((OutcomeDetail.DEADLINE, 1), (OutcomeDetail.WARN, 1)),
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
def test_a_pair_is_that_of_its_samples_one_by_one(rule: ScoringRule, ways: range) -> None:
    """Missing and unscored answers, epochs, samples without clusters and shared clusters."""
    answers = drawn(3, lambda draw: draw.choice(ways))
    scored = ScoredColumns(answers, rule, by_category=True)
    for a, b in permutations("abc", 2):
        found = scored.pair(a, b)
        expected: dict[tuple[TrueLabel, str | None], list[tuple[str | None, int, int]]] = {}
        for number, way_a, way_b in zip(
            answers.kind, answers.answers[a], answers.answers[b], strict=True
        ):
            kind = KINDS[number]
            right = [rule.count_right(kind.target, FINDINGS[way]) for way in (way_a, way_b)]
            if all(of for _, of in right):
                x, y = (round(each * UNIT / of) for each, of in right)
                for group in {(kind.target, None), (kind.target, kind.category)}:
                    expected.setdefault(group, []).append((kind.cluster, x, y))
        assert {group for group, stratum in found.items() if stratum.samples} == expected.keys()
        for group, samples in expected.items():
            stratum = found[group]
            assert stratum.kinds == Counter((x, y) for _, x, y in samples)
            assert stratum.unclustered == Counter((x, y) for name, x, y in samples if not name)
            for name, (n, of_a, of_b) in stratum.clusters.items():
                of_cluster = [(x, y) for cluster, x, y in samples if cluster == name]
                assert (n, of_a, of_b) == (
                    len(of_cluster), sum(x for x, _ in of_cluster), sum(y for _, y in of_cluster)
                )  # fmt: skip
        assert answers.answered(a, b) == sum(
            1 for x, y in zip(answers.answers[a], answers.answers[b], strict=True) if x or y
        )
        without = ScoredColumns(answers, rule).pair(a, b)
        assert without == {(target, None): found[target, None] for target in TrueLabel}


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.name)
def test_a_sample_changed_if_most_of_its_scored_epochs_did(rule: ScoringRule) -> None:
    """Counted one by one; right in half of the epochs, or scored in none, is neither."""
    answers = drawn(5, lambda draw: draw.randrange(len(FINDINGS)))
    scored = ScoredColumns(answers, rule)
    some = False
    for a, b in permutations("abc", 2):
        expected = []
        columns = zip(answers.kind, answers.answers[a], answers.answers[b], strict=True)
        for place, (number, way_a, way_b) in enumerate(columns):
            target = KINDS[number].target
            balance = []
            for way in (way_a, way_b):
                right, of = rule.count_right(target, FINDINGS[way])
                balance.append(2 * right - of)
            if balance[0] * balance[1] < 0:
                expected.append((place, target, balance[1] > 0))
        assert list(scored.changed(a, b)) == expected
        some = some or bool(expected)
    assert some
