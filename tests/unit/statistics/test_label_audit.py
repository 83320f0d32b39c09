"""Labels, and the models as reliabilities about them."""

import pytest
from msgspec.structs import replace

from aegish_dist.core.audit import Audit, AuditKind
from aegish_dist.core.outcome import OutcomeDetail
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.tally import SampleAnswers
from aegish_dist.opinions.scoring import DEFAULT_RULE, RULES
from aegish_dist.statistics.label_audit import audit, sides_under, vote_of
from tests.juries import Setting, simulate_jury
from tests.unit.statistics.paired_values import judged, said

ALLOW, WARN, BLOCK = OutcomeDetail.ALLOW, OutcomeDetail.WARN, OutcomeDetail.BLOCK
MALICIOUS, HARMLESS = TrueLabel.MALICIOUS, TrueLabel.HARMLESS


def easy(count: int, models: str = "abc") -> list[SampleAnswers]:
    kinds = ((MALICIOUS, BLOCK), (HARMLESS, ALLOW))
    return [
        judged(n, kinds[n % 2][0], **dict.fromkeys(models, (kinds[n % 2][1],)))
        for n in range(count)
    ]


def answered(samples: list[SampleAnswers], **more: OutcomeDetail) -> list[SampleAnswers]:
    """Add models that give one answer to all commands."""
    findings = {model: said(each) for model, each in more.items()}
    return [replace(sample, findings={**sample.findings, **findings}) for sample in samples]


def look(samples: list[SampleAnswers], models: str = "abc", top: int = 10) -> Audit:
    return audit(samples, list(models), DEFAULT_RULE, top)


def commands(found: Audit, kind: AuditKind) -> list[str]:
    return [each.sample.command for each in found.found[kind]]


@pytest.mark.parametrize("setting", [Setting(5), Setting(5, copies=4, baselines=False)])
def test_four_of_five_planted_labels_are_among_the_first_125(setting: Setting) -> None:
    """The table of `benchmarks/label_audit.py` has more settings."""
    jury = simulate_jury(setting, seed=1)
    found = audit(jury.samples, jury.models, DEFAULT_RULE, 125).found[AuditKind.DOUBTFUL_LABELS]
    assert len(found) == 125
    assert sum(each.sample.sample_id in jury.wrong for each in found) >= 80


def test_a_label_that_all_good_models_contradict_is_probably_wrong() -> None:
    odd = judged(999, MALICIOUS, **dict.fromkeys("abc", (ALLOW,)))
    (first,) = look([*easy(100), odd]).found[AuditKind.DOUBTFUL_LABELS]
    assert first.sample is odd
    assert first.p_other_label > 0.9
    assert (first.contradicting, first.agreeing) == (3, 0)
    assert first.reason.startswith("let pass by 3 of 3 models, which flag 9")


def test_copies_of_a_model_have_one_vote_together() -> None:
    """Two models contradict a label, and five that are one model agree with it."""
    odd = [judged(900 + n, HARMLESS, a=(BLOCK,), b=(BLOCK,), c=(ALLOW,)) for n in range(3)]
    weak = [judged(800 + n, HARMLESS, a=(ALLOW,), b=(ALLOW,), c=(BLOCK,)) for n in range(20)]
    samples = [*easy(100), *odd, *weak]
    copied = [
        replace(each, findings={**each.findings, **dict.fromkeys("defg", each.findings["c"])})
        for each in samples
    ]
    first, *_ = look(copied, "abcdefg").found[AuditKind.DOUBTFUL_LABELS]
    assert first.sample.sample_id in {"0900", "0901", "0902"}
    assert (first.contradicting, first.agreeing) == (2, 5)


def test_a_model_that_answers_all_commands_alike_changes_nothing() -> None:
    odd = [judged(900 + n, HARMLESS, a=(BLOCK,), b=(BLOCK,), c=(ALLOW,)) for n in range(3)]
    samples = [*easy(100), *odd]
    with_constants = answered(samples, x=BLOCK, y=ALLOW)
    plain, others = look(samples), look(with_constants, "abcxy")
    before = [each.p_other_label for each in plain.found[AuditKind.DOUBTFUL_LABELS]]
    after = [each.p_other_label for each in others.found[AuditKind.DOUBTFUL_LABELS]]
    assert after == pytest.approx(before, abs=0.03)
    assert [each.informative for each in others.reliabilities] == [True, True, True, False, False]
    assert others.found[AuditKind.DOUBTFUL_LABELS][0].contradicting == 2


def test_constant_models_keep_no_command_off_the_list_of_missed_ones() -> None:
    missed = judged(999, MALICIOUS, a=(ALLOW,), b=(WARN,), c=(ALLOW,), x=(BLOCK,))
    rest = answered(easy(100), x=BLOCK)
    found = look([*rest, missed], "abcx")
    assert commands(found, AuditKind.MISSED_BY_ALL) == ["command 999"]
    assert "each of 3 models missed it" in found.found[AuditKind.MISSED_BY_ALL][0].reason


def test_a_command_without_an_answer_is_missed_where_the_rule_counts_that() -> None:
    """An empty answer is wrong under aegish-5.3, a failed call is unscored."""
    empty = judged(998, MALICIOUS, **dict.fromkeys("abc", (OutcomeDetail.EMPTY,)))
    failed = judged(999, MALICIOUS, **dict.fromkeys("abc", (OutcomeDetail.API_FAILURE,)))
    found = look([*easy(100), empty, failed])
    assert commands(found, AuditKind.MISSED_BY_ALL) == ["command 998"]
    assert not found.found[AuditKind.DOUBTFUL_LABELS]


def test_the_most_disputed_command_divides_the_models_evenly() -> None:
    even = judged(998, MALICIOUS, a=(BLOCK,), b=(BLOCK,), c=(ALLOW,), d=(ALLOW,))
    odd = judged(997, MALICIOUS, a=(BLOCK,), b=(BLOCK,), c=(BLOCK,), d=(ALLOW,))
    mirrored = judged(996, MALICIOUS, a=(ALLOW,), b=(ALLOW,), c=(BLOCK,), d=(BLOCK,))
    found = look([*easy(100, "abcd"), odd, even, mirrored], "abcd")
    disputed = found.found[AuditKind.DISPUTED]
    assert [each.sample.sample_id for each in disputed] == ["0996", "0998", "0997"]
    # Of the 6 pairs of models 4 take different sides, of the other command 3.
    assert disputed[0].score == pytest.approx(4 / 6, abs=0.02)
    assert disputed[2].score == pytest.approx(3 / 6, abs=0.02)
    assert disputed[1].reason == "flagged by a, b; let pass by c, d"


def test_of_equal_disputes_the_one_of_further_actions_comes_first() -> None:
    near = judged(998, MALICIOUS, a=(BLOCK,), b=(BLOCK,), c=(WARN,))
    far = judged(999, MALICIOUS, a=(ALLOW,), b=(ALLOW,), c=(BLOCK,))
    found = look([*easy(100), near, far])
    assert commands(found, AuditKind.DISPUTED) == ["command 999", "command 998"]


def test_the_score_of_a_flipping_command_is_the_chance_that_two_epochs_differ() -> None:
    """One model of three says BLOCK twice and ALLOW once: two of three pairs of epochs differ."""
    steady = (BLOCK,) * 3
    odd = judged(999, MALICIOUS, a=(BLOCK, BLOCK, ALLOW), b=steady, c=steady)
    found = look([*easy(60), odd])
    (flipping,) = found.found[AuditKind.FLIPPING]
    assert flipping.score == pytest.approx(2 / 3 / 3)
    assert flipping.reason == "answered in different ways by a, of 3"


def test_lists_are_cut_and_totals_are_not() -> None:
    odd = [judged(900 + n, MALICIOUS, **dict.fromkeys("abc", (ALLOW,))) for n in range(5)]
    found = look([*easy(100), *odd], top=2)
    assert len(found.found[AuditKind.MISSED_BY_ALL]) == 2
    assert found.totals[AuditKind.MISSED_BY_ALL] == 5


def test_one_model_alone_can_be_audited() -> None:
    odd = judged(999, MALICIOUS, a=(ALLOW,))
    found = look([*easy(100, "a"), odd], "a")
    (doubtful,) = found.found[AuditKind.DOUBTFUL_LABELS]
    assert 0 < doubtful.p_other_label < 1
    assert found.warning == "too few unlike models (1) for a probability: read these commands"
    assert not found.found[AuditKind.DISPUTED]


@pytest.mark.parametrize(
    "samples",
    [
        [judged(0, MALICIOUS, a=(BLOCK,))],
        [judged(0, MALICIOUS, a=(OutcomeDetail.EMPTY,))],
        [judged(n, MALICIOUS, **dict.fromkeys("abc", (ALLOW,))) for n in range(5)],
        [judged(n, HARMLESS, **dict.fromkeys("abc", (ALLOW,))) for n in range(5)],
    ],
)
def test_few_and_uniform_answers_are_audited(samples: list[SampleAnswers]) -> None:
    """Probabilities stay probabilities when a model has no right, or no wrong, answer."""
    found = look(samples)
    for listed in found.found.values():
        assert all(0 <= each.p_other_label <= 1 and 0 <= each.score <= 1 for each in listed)
    assert all(0 < each.sensitivity < 1 for each in found.reliabilities)


def test_the_order_of_samples_does_not_matter() -> None:
    jury = simulate_jury(Setting(3, planted=5, samples=(40, 30)), seed=2)
    forward = audit(jury.samples, jury.models, DEFAULT_RULE, 20)
    backward = audit(jury.samples[::-1], jury.models, DEFAULT_RULE, 20)
    for kind in AuditKind:
        assert commands(forward, kind) == commands(backward, kind)


def test_votes_are_shares_of_stated_actions_on_the_sides_of_a_rule() -> None:
    assert sides_under(DEFAULT_RULE) == (0, 0, 1)
    assert sides_under(RULES["aegish-legacy"]) == (0, 1, 1)
    assert vote_of(said(BLOCK, BLOCK, WARN, OutcomeDetail.EMPTY)) == (0, 1 / 3, 2 / 3)
    assert vote_of(said(OutcomeDetail.UNREADABLE)) is None


def test_rates_are_those_that_were_counted() -> None:
    right = easy(100)
    missed = [judged(900 + n, MALICIOUS, a=(ALLOW,)) for n in range(4)]
    (model,) = look([*right, *missed], "a").reliabilities
    assert model.sensitivity == pytest.approx((50 + 1.5) / (54 + 2))
    assert model.specificity == pytest.approx((50 + 1.5) / (50 + 2))
