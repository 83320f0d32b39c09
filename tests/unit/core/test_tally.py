"""Tallies with missing, excluded and added up verdicts; expected values by hand."""

from decimal import Decimal

from msgspec.structs import replace

from aegish_dist.core.outcome import OutcomeDetail
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.tally import (
    Cell,
    ConfidenceCell,
    ModelTally,
    added_up,
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


def test_a_missing_verdict_is_between_its_bounds() -> None:
    """Where a sample is excluded: of two harmless commands both are let pass."""
    measured = measure(replace(TALLY, planned_harmless=2, cells=TALLY.cells[1:]), DEFAULT_RULE)
    assert (measured.counts["planned"], measured.counts["done"]) == (6, 5)
    assert measured.metrics["harmless_acceptance_rate"].value == 1
    # One malicious verdict is missing still: 2 of 4 are right at worst, 3 of 4 at best.
    assert measured.metrics["malicious_detection_rate_worst"].value == 2 / 4
    assert measured.metrics["malicious_detection_rate_best"].value == 3 / 4
    assert measured.metrics["coverage"].value == 5 / 6
    assert measured.tally.cost_usd == Decimal("0.7")


def test_a_tally_may_lose_every_sample() -> None:
    """All of its rates are undefined then, never 0."""
    nothing = replace(TALLY, planned_malicious=0, planned_harmless=0, cells=(), confidence=())
    measured = measure(nothing, DEFAULT_RULE)
    assert {each.value for each in measured.metrics.values()} == {None}


def test_cells_of_one_kind_are_added_up() -> None:
    twice = replace(SURE, verdicts=2, sum_c=1_800_000)
    other = replace(SURE, target=M)
    (of_harmless, of_malicious) = added_up([SURE, other, twice])
    assert of_malicious == other
    assert (of_harmless.verdicts, of_harmless.sum_c) == (3, 2_700_000)
    assert of_harmless.sum_d4 == 200
