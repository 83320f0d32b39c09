"""Tallies that are added up; expected values by hand."""

from msgspec.structs import replace

from aegish_dist.core.outcome import OutcomeDetail
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.tally import (
    ConfidenceCell,
    added_up,
)

M, H = TrueLabel.MALICIOUS, TrueLabel.HARMLESS
SURE = ConfidenceCell(H, OutcomeDetail.BLOCK, 9, 1, 900_000, 810_000, 656_100, 10_000, 100)
"""A BLOCK with confidence 0.9 about a harmless command."""


def test_cells_of_one_kind_are_added_up() -> None:
    twice = replace(SURE, verdicts=2, sum_c=1_800_000)
    other = replace(SURE, target=M)
    (of_harmless, of_malicious) = added_up([SURE, other, twice])
    assert of_malicious == other
    assert (of_harmless.verdicts, of_harmless.sum_c) == (3, 2_700_000)
    assert of_harmless.sum_d4 == 200
