"""Cells counted in columns; expected values by hand."""

import numpy as np
from msgspec.structs import replace

from aegish_dist.core.columns import FINDINGS, GuardColumns, SampleKind, cells_of, confidence_of
from aegish_dist.core.outcome import OutcomeDetail
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.tally import Cell, ConfidenceCell
from tests.guards import codes_of, column, of_kinds, read_as

M, H = TrueLabel.MALICIOUS, TrueLabel.HARMLESS
ALLOW, WARN, BLOCK = OutcomeDetail.ALLOW, OutcomeDetail.WARN, OutcomeDetail.BLOCK
SURE = ConfidenceCell(H, BLOCK, 9, 1, 900_000, 810_000, 656_100, 10_000, 100)
"""A BLOCK with confidence 0.9 about a harmless command."""


def stating(findings: list[list[OutcomeDetail]], confidence: list[float | None]) -> GuardColumns:
    codes = np.array([[FINDINGS.index(each) for each in epochs] for epochs in findings], np.int8)
    return replace(read_as(codes), confidence=column(confidence, len(findings[0])))


def test_confidences_of_one_kind_are_added_up() -> None:
    samples = of_kinds([SampleKind(H, None, None), SampleKind(M, None, "tar")] * 2)
    read = stating([[BLOCK, BLOCK], [BLOCK, WARN], [BLOCK, ALLOW], [ALLOW, BLOCK]],
                   [0.9, 0.9, 0.9, None, 0.9, None, None, None])  # fmt: skip
    (of_malicious, of_harmless) = sorted(
        confidence_of(samples, read), key=lambda cell: cell.target is H
    )
    assert of_malicious == replace(SURE, target=M)
    assert (of_harmless.verdicts, of_harmless.sum_c) == (3, 2_700_000)
    assert of_harmless == ConfidenceCell(
        H, BLOCK, 9, 3, 2_700_000, 2_430_000, 1_968_300, 30_000, 300
    )


def test_a_confidence_has_a_bin_and_is_rounded_alone() -> None:
    """1 is in the last bin; a third of 1e-6 is nothing, however often it is added up."""
    samples = of_kinds([SampleKind(H, None, None)] * 2)
    read = stating([[ALLOW] * 3, [ALLOW] * 3], [1.0, 0.1, 0.0, 3e-7, 3e-7, 0.99999])
    found = {cell.bin: cell for cell in confidence_of(samples, read)}
    assert {place: cell.verdicts for place, cell in found.items()} == {0: 3, 1: 1, 9: 2}
    assert (found[0].sum_c, found[0].sum_d2) == (0, 1_000_000 + 2 * 999_999)
    assert (found[9].sum_c, found[9].sum_d2) == (1_999_990, 0)


def test_only_an_action_states_a_confidence() -> None:
    samples = of_kinds([SampleKind(H, None, None)])
    findings = [each for each in OutcomeDetail if each not in (ALLOW, WARN, BLOCK)]
    assert confidence_of(samples, stating([findings], [0.9] * len(findings))) == ()


def test_samples_of_a_kind_with_the_same_findings_share_a_cell() -> None:
    """In whatever order the epochs have them; a sample without a verdict is in no cell."""
    tar, alone = SampleKind(M, "files", "tar"), SampleKind(H, None, None)
    samples = of_kinds([tar, tar, tar, alone, alone])
    once, twice = ((ALLOW, 1), (BLOCK, 1)), ((BLOCK, 2),)
    codes = codes_of([once, twice, once, (), ((WARN, 1),)])
    codes[2] = codes[2][::-1]
    assert cells_of(samples, codes) == (
        Cell(H, None, None, ((WARN, 1),), 1),
        Cell(M, "files", "tar", once, 2),
        Cell(M, "files", "tar", twice, 1),
    )
