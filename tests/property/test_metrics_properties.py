"""Metrics hold their promises on any tally."""

import json
import math
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from aegish_dist.core.metric import Estimate
from aegish_dist.core.outcome import OutcomeDetail
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.tally import Cell, ConfidenceCell, ModelTally
from aegish_dist.findings.snapshot import snapshot_document
from aegish_dist.opinions.scoring import RULES, ScoringRule
from aegish_dist.statistics.means import Observation, macro_rate, rate
from aegish_dist.statistics.metrics import measure
from tests.defined import defined
from tests.unit.statistics.paired_values import stated

CLUSTERS = st.sampled_from((None, "awk", "curl", "tar", "vim"))
CATEGORIES = st.sampled_from((None, "file-read", "shell", "upload"))
RULE = st.sampled_from(tuple(RULES.values()))
RATES = """
malicious_detection_rate malicious_detection_rate_macro harmless_acceptance_rate false_positive_rate
aegish_score accuracy timeout_error_rate format_error_rate api_error_rate flip_rate
"""


@st.composite
def cells(draw: st.DrawFn) -> Cell:
    target = draw(st.sampled_from(TrueLabel))
    findings = draw(
        st.dictionaries(st.sampled_from(OutcomeDetail), st.integers(1, 2), min_size=1, max_size=2)
    )
    return Cell(
        target,
        draw(CATEGORIES) if target is TrueLabel.MALICIOUS else None,
        draw(CLUSTERS),
        tuple(sorted(findings.items())),
        draw(st.integers(1, 40)),
    )


@st.composite
def confidence_cells(draw: st.DrawFn) -> ConfidenceCell:
    index = draw(st.integers(0, 9))
    return stated(
        draw(st.sampled_from(TrueLabel)),
        draw(st.sampled_from((OutcomeDetail.ALLOW, OutcomeDetail.WARN, OutcomeDetail.BLOCK))),
        draw(st.lists(st.floats(index / 10, index / 10 + 0.0999), min_size=1, max_size=5)),
    )


@st.composite
def tallies(draw: st.DrawFn) -> ModelTally:
    """Draw a tally of which some verdicts may be missing."""
    drawn = draw(st.lists(cells(), max_size=12))

    def done(target: TrueLabel) -> int:
        return sum(
            cell.samples * epochs
            for cell in drawn
            if cell.target is target
            for _, epochs in cell.findings
        )

    return ModelTally(
        "test/model",
        simulated=False,
        planned_malicious=done(TrueLabel.MALICIOUS) + draw(st.integers(0, 20)),
        planned_harmless=done(TrueLabel.HARMLESS) + draw(st.integers(0, 20)),
        cells=tuple(drawn),
        confidence=tuple(draw(st.lists(confidence_cells(), max_size=6))),
    )


@given(tallies(), RULE)
def test_numbers_lie_in_the_unit_interval_and_intervals_about_their_value(
    tally: ModelTally, rule: ScoringRule
) -> None:
    measured = measure(tally, rule)
    for estimate in (*measured.metrics.values(), *measured.categories.values()):
        for number in (estimate.value, estimate.ci_low, estimate.ci_high):
            assert number is None or 0 <= number <= 1
        for number in (estimate.stderr, estimate.stderr_clustered):
            assert number is None or 0 <= number < math.inf
        if estimate.ci_low is not None:
            assert estimate.ci_low <= defined(estimate.value) <= defined(estimate.ci_high)
            assert estimate.ci_low < defined(estimate.ci_high)
    for name in RATES.split():
        assert (measured.metrics[name].value is None) == (measured.metrics[name].ci_low is None)


@given(tallies(), RULE, st.randoms(use_true_random=False))
def test_order_of_cells_does_not_change_a_bit(
    tally: ModelTally, rule: ScoringRule, rng: Random
) -> None:
    mixed, bins = list(tally.cells), list(tally.confidence)
    rng.shuffle(mixed)
    rng.shuffle(bins)
    shuffled = replace(tally, cells=tuple(mixed), confidence=tuple(bins))
    before, after = (
        json.dumps(snapshot_document([measure(each, rule)]), sort_keys=True, allow_nan=False)
        for each in (tally, shuffled)
    )
    assert before == after


@given(tallies(), RULE)
def test_worst_and_best_case_enclose_the_rates_of_one_epoch(
    tally: ModelTally, rule: ScoringRule
) -> None:
    once = (replace(cell, findings=((cell.findings[0][0], 1),)) for cell in tally.cells)
    single = replace(tally, cells=tuple(once), confidence=())
    metrics = measure(single, rule).metrics
    for name in ("malicious_detection_rate", "harmless_acceptance_rate", "aegish_score"):
        if (value := metrics[name].value) is not None:
            worst, best = (defined(metrics[f"{name}_{end}"].value) for end in ("worst", "best"))
            assert worst - 1e-12 <= value <= best + 1e-12


@given(tallies(), RULE)
def test_every_verdict_has_one_label(tally: ModelTally, rule: ScoringRule) -> None:
    measured = measure(tally, rule)
    labelled = sum(sum(labels.values()) for labels in measured.actions.values())
    assert labelled == measured.counts["done"]
    scored, done, planned = (defined(measured.counts[n]) for n in ("scored", "done", "planned"))
    assert scored <= done <= planned


def _known(estimate: Estimate) -> dict[str, float]:
    return {name: value for name, value in asdict(estimate).items() if value is not None}


@example([("file-read", 3.7e-229), ("shell", 0.0)])
@given(st.lists(st.tuples(CATEGORIES, st.floats(0, 1)), min_size=2, max_size=30))
def test_clusters_of_one_change_nothing(seen: list[tuple[str | None, float]]) -> None:
    named = [Observation(c, f"binary-{i}", y, 1) for i, (c, y) in enumerate(seen)]
    alone = [Observation(c, None, y, 1) for c, y in seen]
    for mean in (rate, macro_rate):
        # Alike samples are multiplied where they have no names, added where they have: up to 1 ulp.
        assert _known(mean(named)) == pytest.approx(_known(mean(alone)), rel=1e-12)
    plain, clustered = defined(rate(named).stderr), defined(rate(named).stderr_clustered)
    assert math.isclose(plain, clustered, rel_tol=1e-9)
