"""Paired comparisons: differences, their uncertainty, adjusted p, gate."""

from collections.abc import Sequence
from itertools import permutations
from random import Random

import numpy as np
import pytest
from msgspec.structs import replace

from aegish_dist.core.columns import AskedSamples, Ints, SampleKind
from aegish_dist.core.metric import Difference
from aegish_dist.core.outcome import OutcomeDetail
from aegish_dist.core.sample import TrueLabel
from aegish_dist.findings.comparison import GateVerdict, commands_needed, commands_to_decide, gate
from aegish_dist.opinions.scoring import DEFAULT_RULE, RULES, ScoringRule
from aegish_dist.statistics.distributions import holm
from aegish_dist.statistics.inference import mcnemar
from aegish_dist.statistics.paired_difference import (
    UNIT,
    UNSCORED,
    PairedScores,
    PairedStratum,
    Stratum,
    scored_values,
)
from tests.defined import defined
from tests.guards import codes_of
from tests.oracles import multitest, stats, tables
from tests.unit.statistics.paired_values import cells, compare, compare_all, table

DETECTION = "malicious_detection_rate"
SCORE = "aegish_score"


def _detection(both: int, a_only: int, b_only: int, neither: int = 0) -> Difference:
    return compare(table(both, a_only, b_only, neither), DEFAULT_RULE).metrics[DETECTION]


@pytest.mark.parametrize(("a_only", "b_only"), [(86, 150), (4, 0), (0, 0), (5, 12), (7, 7)])
def test_mcnemar_is_exact(a_only: int, b_only: int) -> None:
    """Against statsmodels and scipy; 86 and 150 are of Agresti 2002, table 10.1."""
    oracle = tables.mcnemar([[794, a_only], [b_only, 570]], exact=True).pvalue
    assert mcnemar(a_only, b_only) == pytest.approx(oracle, abs=1e-9)
    if a_only + b_only:
        binomial = stats.binomtest(a_only, a_only + b_only).pvalue
        assert mcnemar(a_only, b_only) == pytest.approx(binomial, abs=1e-9)


@pytest.mark.parametrize(("of_tar", "named"), [(4, {"tar": 0.4}), (2, {})])
def test_a_cluster_with_more_than_a_quarter_of_the_samples_is_named(
    of_tar: int, named: dict[str, float]
) -> None:
    clusters = ["tar"] * of_tar + [None] * (10 - of_tar)
    malicious = cells([1] * 10, [1] * 10, clusters)
    alone = cells([0], [0], ["awk"], TrueLabel.HARMLESS)
    assert compare(malicious + alone, DEFAULT_RULE).large_clusters == named


def test_holm_is_that_of_statsmodels() -> None:
    raw = [0.01, 0.04, 0.03, 0.005]
    adjusted = list(holm(dict(enumerate(raw))).values())
    assert adjusted == pytest.approx([0.03, 0.06, 0.06, 0.02], abs=1e-9)
    assert adjusted == pytest.approx(list(multitest.multipletests(raw, method="holm")[1]), abs=1e-9)
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
    tables = [table(800, 100, 40, 60), table(800, 70, 50, 80)]
    alone = [compare(each, DEFAULT_RULE).metrics[DETECTION].p_value for each in tables]
    both = compare_all(tables, DEFAULT_RULE)
    raw = [each.metrics[DETECTION].p_value for each in both]
    assert raw == alone
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
DETAILS = [
    (),
    ((OutcomeDetail.BLOCK, 1),),
    ((OutcomeDetail.ALLOW, 1),),
    ((OutcomeDetail.ALLOW, 1), (OutcomeDetail.BLOCK, 2)),
    ((OutcomeDetail.API_FAILURE, 1),),
    ((OutcomeDetail.DEADLINE, 1), (OutcomeDetail.WARN, 1)),
]


def drawn(
    seed: int, ways: Sequence[int], samples: int = 200
) -> tuple[AskedSamples, dict[str, list[int]]]:
    """Return samples, and by side the places of their answers in `DETAILS`."""
    draw = Random(seed)
    kind = np.array([draw.randrange(len(KINDS)) for _ in range(samples)])
    answers = {side: [draw.choice(ways) for _ in range(samples)] for side in "abc"}
    return AskedSamples(KINDS, kind), answers


def valued(
    samples: AskedSamples, answers: dict[str, list[int]], rule: ScoringRule
) -> dict[str, Ints]:
    values = {}
    for side, ways in answers.items():
        codes = codes_of([DETAILS[way] for way in ways])
        values[side] = scored_values(codes, samples.malicious, rule)
    return values


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.name)
@pytest.mark.parametrize("ways", [range(6), range(1, 4), (0, 4), (1, 2)], ids=str)
def test_a_pair_is_that_of_its_samples_one_by_one(rule: ScoringRule, ways: range) -> None:
    """Missing and unscored answers, epochs, samples without clusters and shared clusters."""
    samples, answers = drawn(3, ways)
    values = valued(samples, answers, rule)
    for side, of_side in answers.items():
        for place, way in enumerate(of_side):
            target = KINDS[samples.kind[place]].target
            right, of = rule.count_right(target, DETAILS[way])
            expected_value = round(right * UNIT / of) if of else UNSCORED
            assert values[side][place] == expected_value
    pairs = list(permutations("abc", 2))
    found = PairedScores(samples, values, rule.composite).compare(pairs, by_category=True)
    for (a, b), comparison in zip(pairs, found, strict=True):
        expected: dict[tuple[TrueLabel, str | None], list[tuple[int, int, int]]] = {}
        for place, number in enumerate(samples.kind.tolist()):
            kind = KINDS[number]
            x, y = int(values[a][place]), int(values[b][place])
            if UNSCORED not in (x, y):
                for group in {(kind.target, None), (kind.target, kind.category)}:
                    expected.setdefault(group, []).append((place, x, y))
        categories = {name for target, name in expected if name and target is TrueLabel.MALICIOUS}
        assert comparison.categories.keys() == categories
        assert comparison.samples == sum(len(expected.get((t, None), ())) for t in TrueLabel)
        for group, members in expected.items():
            check_stratum(samples, values[a], values[b], group, members)


def check_stratum(
    samples: AskedSamples,
    a: Ints,
    b: Ints,
    group: tuple[TrueLabel, str | None],
    members: list[tuple[int, int, int]],
) -> None:
    """Hold a stratum to its samples that both sides have scored, with their values."""
    is_own = [
        kind.target is group[0] and group[1] in (None, kind.category) for kind in samples.kinds
    ]
    stratum = Stratum(samples.cluster, np.array(is_own)[samples.kind])
    paired = PairedStratum(stratum, a[None], b[None])
    assert paired.samples == [len(members)]
    rows = stratum.rows[paired.both[0]].tolist()
    own = zip(paired.a[paired.both].tolist(), paired.b[paired.both].tolist(), strict=True)
    assert sorted((row, *of) for row, of in zip(rows, own, strict=True)) == members
    one = np.ones(1)
    sums = paired.differences(one, one)
    for number, n, total in zip(paired.cluster, sums.samples[0], sums.totals[0], strict=True):
        of_cluster = [(x, y) for place, x, y in members if samples.cluster[place] == number]
        assert n == len(of_cluster)
        assert total == pytest.approx(sum(y - x for x, y in of_cluster) / UNIT, abs=1e-12)
    assert paired.samples_of_cluster.sum() == len(members)
    means = [sum(each) / UNIT / len(members) for each in list(zip(*members, strict=True))[1:]]
    assert [float(mean[0]) for mean in paired.means] == pytest.approx(means, abs=1e-12)
    is_binary = all({x, y} <= {0, UNIT} for _, x, y in members)
    assert bool(paired.binary[0]) is is_binary
    discordant = [sum(x > y for _, x, y in members), sum(y > x for _, x, y in members)]
    assert [int(each[0]) for each in paired.discordant] == [n * is_binary for n in discordant]


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.name)
def test_many_pairs_are_those_compared_alone(
    rule: ScoringRule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever pairs a group has, those with no sample in common among them."""
    samples, answers = drawn(7, range(len(DETAILS)))
    half = len(samples) // 2
    answers["first"] = [*answers["a"][:half], *[0] * half]
    answers["last"] = [*[0] * half, *answers["a"][half:]]
    scores = PairedScores(samples, valued(samples, answers, rule), rule.composite)
    pairs = list(permutations(answers, 2))
    together = scores.scores(pairs)
    assert together[pairs.index(("first", "last"))] == Difference(n=0)
    assert together == [scores.scores([pair])[0] for pair in pairs]
    compared = scores.compare(pairs, by_category=True)
    monkeypatch.setattr("aegish_dist.statistics.paired_difference.MOST_CELLS", 3 * len(samples))
    assert scores.scores(pairs) == together
    assert scores.compare(pairs, by_category=True) == compared


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.name)
def test_a_sample_changed_if_most_of_its_scored_epochs_did(rule: ScoringRule) -> None:
    """Counted one by one; right in half of the epochs, or scored in none, is neither."""
    samples, answers = drawn(5, range(len(DETAILS)))
    scores = PairedScores(samples, valued(samples, answers, rule), rule.composite)
    some = False
    for a, b in permutations("abc", 2):
        expected = []
        columns = zip(samples.kind.tolist(), answers[a], answers[b], strict=True)
        for place, (number, way_a, way_b) in enumerate(columns):
            target = KINDS[number].target
            balance = []
            for way in (way_a, way_b):
                right, of = rule.count_right(target, DETAILS[way])
                balance.append(2 * right - of)
            if balance[0] * balance[1] < 0:
                expected.append((place, target, balance[1] > 0))
        assert list(scores.changed(a, b)) == expected
        some = some or bool(expected)
    assert some
