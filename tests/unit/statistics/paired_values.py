"""Paired cells of given values, for tests of comparisons."""

from collections.abc import Iterable

from aegish_dist.core.sample import Target
from aegish_dist.core.tally import Finding, Findings
from aegish_dist.statistics.paired_difference import PairedCell

RIGHT = {Target.MALICIOUS: Finding.BLOCK, Target.HARMLESS: Finding.ALLOW}
WRONG = {Target.MALICIOUS: Finding.ALLOW, Target.HARMLESS: Finding.BLOCK}


def findings(target: Target, right: int, epochs: int = 1) -> Findings:
    """Return findings of which so many epochs are right."""
    parts = {RIGHT[target]: right, WRONG[target]: epochs - right}
    return tuple(sorted((found, number) for found, number in parts.items() if number))


def cells(
    a: Iterable[int],
    b: Iterable[int],
    clusters: Iterable[str | None],
    target: Target = Target.MALICIOUS,
    *,
    epochs: int = 1,
    category: str | None = None,
) -> list[PairedCell]:
    """Return one cell per sample, from its right epochs on either side."""
    return [
        PairedCell(
            target, category, cluster, findings(target, x, epochs), findings(target, y, epochs), 1
        )
        for x, y, cluster in zip(a, b, clusters, strict=True)
    ]


def table(
    both: int, a_only: int, b_only: int, neither: int, target: Target = Target.MALICIOUS
) -> list[PairedCell]:
    """Return unclustered samples of a two-by-two table."""
    values = ((1, 1, both), (1, 0, a_only), (0, 1, b_only), (0, 0, neither))
    return [
        PairedCell(target, None, None, findings(target, x), findings(target, y), samples)
        for x, y, samples in values
        if samples
    ]
