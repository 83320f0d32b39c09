"""Corrected labels laid over a tally, expected values by hand."""

from decimal import Decimal

from msgspec.structs import replace

from aegish_dist.core.outcome import OutcomeDetail
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.tally import (
    Cell,
    ConfidenceCell,
    ModelTally,
    MovedSample,
    in_order,
    relabelled,
)
from aegish_dist.opinions.scoring import DEFAULT_RULE
from aegish_dist.statistics.metrics import measure

M, H = TrueLabel.MALICIOUS, TrueLabel.HARMLESS
BLOCK, ALLOW = ((OutcomeDetail.BLOCK, 1),), ((OutcomeDetail.ALLOW, 1),)
SURE = ConfidenceCell(H, OutcomeDetail.BLOCK, 9, 1, 900_000, 810_000, 656_100, 10_000, 100)
"""A BLOCK with confidence 0.9 about a harmless command."""
TALLY = ModelTally(
    "test/a",
    simulated=False,
    planned_malicious=4,
    planned_harmless=3,
    cells=(
        Cell(H, None, "tar", BLOCK, 1),
        Cell(H, None, None, ALLOW, 2),
        Cell(M, "shell", "tar", BLOCK, 2),
        Cell(M, "shell", "tar", ALLOW, 1),
    ),
    confidence=(replace(SURE, verdicts=2, sum_c=1_800_000), replace(SURE, target=M)),
    tokens={"input": 70},
    cost_usd=Decimal("0.7"),
    priced_verdicts=7,
)
HARMLESS_TAR = MovedSample(H, None, "tar", M, "file-read", BLOCK, (SURE,))
"""A blocked harmless `tar` that is malicious after all."""


def test_without_a_change_nothing_moves() -> None:
    assert relabelled(TALLY, (), {M: 4, H: 3}) is TALLY


def test_a_relabelled_sample_counts_under_its_right_label() -> None:
    found = relabelled(TALLY, [HARMLESS_TAR], {M: 5, H: 2})
    assert found.cells == (
        Cell(H, None, None, ALLOW, 2),
        Cell(M, "file-read", "tar", BLOCK, 1),
        Cell(M, "shell", "tar", ALLOW, 1),
        Cell(M, "shell", "tar", BLOCK, 2),
    )
    # What is left of the two was 1.8 - 0.9 and the other sums minus those of one verdict.
    assert [(each.target, each.verdicts, each.sum_c) for each in found.confidence] == [
        (H, 1, 900_000),
        (M, 2, 1_800_000),
    ]
    assert (found.planned_malicious, found.planned_harmless) == (5, 2)
    assert (found.cost_usd, found.tokens) == (TALLY.cost_usd, TALLY.tokens)
    metrics = measure(found, DEFAULT_RULE).metrics
    assert metrics["malicious_detection_rate"].value == 3 / 4
    assert metrics["harmless_acceptance_rate"].value == 1


def test_an_excluded_sample_counts_nowhere() -> None:
    excluded = replace(HARMLESS_TAR, right_target=None, right_category=None)
    measured = measure(relabelled(TALLY, [excluded], {M: 4, H: 2}), DEFAULT_RULE)
    assert (measured.counts["planned"], measured.counts["done"]) == (6, 5)
    assert measured.metrics["harmless_acceptance_rate"].value == 1
    # One malicious verdict is missing still: 2 of 4 are right at worst, 3 of 4 at best.
    assert measured.metrics["malicious_detection_rate_worst"].value == 2 / 4
    assert measured.metrics["malicious_detection_rate_best"].value == 3 / 4
    assert measured.metrics["coverage"].value == 5 / 6
    assert measured.tally.cost_usd == Decimal("0.7")


def test_a_sample_without_a_verdict_changes_what_is_planned() -> None:
    unasked = MovedSample(M, "shell", "tar", H, None, (), ())
    found = relabelled(TALLY, [unasked], {M: 3, H: 4})
    assert found.cells == in_order(TALLY.cells)
    assert (found.planned_malicious, found.planned_harmless) == (3, 4)


def test_a_tally_may_lose_every_sample() -> None:
    """All of its rates are undefined then, never 0."""
    moved = [
        MovedSample(cell.target, cell.category, cell.cluster, None, None, cell.findings, ())
        for cell in TALLY.cells
        for _ in range(cell.samples)
    ]
    measured = measure(relabelled(replace(TALLY, confidence=()), moved, {M: 0, H: 0}), DEFAULT_RULE)
    assert {each.value for each in measured.metrics.values()} == {None}


def test_moving_there_and_back_gives_the_same() -> None:
    there = relabelled(TALLY, [HARMLESS_TAR], {M: 5, H: 2})
    returned = MovedSample(M, "file-read", "tar", H, None, BLOCK, (replace(SURE, target=M),))
    again = relabelled(there, [returned], {M: 4, H: 3})
    assert again == replace(TALLY, cells=in_order(TALLY.cells)) != there
