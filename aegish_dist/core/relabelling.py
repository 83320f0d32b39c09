"""A tally under corrected labels: a few samples leave their cells and enter others.

The verdicts are counted once, under the labels of the datasets. All sums of a tally are integers,
so what is taken from one cell and added to another gives exactly what counting under the corrected
labels would give.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, replace

from aegish_dist.core.sample import Target
from aegish_dist.core.tally import Cell, ConfidenceCell, Finding, Findings, ModelTally

_Kind = tuple[Target, str | None, str | None, Findings]
"""Target, category, cluster and findings of a cell."""


@dataclass(frozen=True, slots=True)
class MovedSample:
    """A sample whose label is corrected, and the verdicts of one model about it."""

    target: Target
    category: str | None
    cluster: str | None
    right_target: Target | None
    """Corrected label; None: the sample is excluded."""
    right_category: str | None
    findings: Findings
    confidence: tuple[ConfidenceCell, ...]
    """Its stated confidences, under the label in its dataset."""


def relabelled(
    tally: ModelTally, moved: Iterable[MovedSample], planned: Mapping[Target, int]
) -> ModelTally:
    """Return the tally that the corrected labels would have given.

    Times, tokens and costs stay: they are of calls that were made, whatever the sample counts for.
    """
    moved = tuple(moved)
    if not moved:
        return tally
    return replace(
        tally,
        planned_malicious=planned[Target.MALICIOUS],
        planned_harmless=planned[Target.HARMLESS],
        cells=_cells(tally.cells, moved),
        confidence=_confidence(tally.confidence, moved),
    )


def in_order(cells: Iterable[Cell]) -> tuple[Cell, ...]:
    """Return cells sorted: no category, or no cluster, comes before every word."""
    return tuple(sorted(cells, key=_place))


def _place(cell: Cell) -> tuple[object, ...]:
    category, cluster = cell.category, cell.cluster
    return (
        cell.target is Target.MALICIOUS, category is not None, category or "",
        cluster is not None, cluster or "", cell.findings,
    )  # fmt: skip


def _cells(cells: Iterable[Cell], moved: Iterable[MovedSample]) -> tuple[Cell, ...]:
    samples: defaultdict[_Kind, int] = defaultdict(int)
    for cell in cells:
        samples[cell.target, cell.category, cell.cluster, cell.findings] = cell.samples
    for each in moved:
        if each.findings:
            samples[each.target, each.category, each.cluster, each.findings] -= 1
            if each.right_target is not None:
                samples[each.right_target, each.right_category, each.cluster, each.findings] += 1
    return in_order(Cell(*kind, number) for kind, number in samples.items() if number)


def _confidence(
    cells: Iterable[ConfidenceCell], moved: Iterable[MovedSample]
) -> tuple[ConfidenceCell, ...]:
    sums: dict[tuple[Target, Finding, int], tuple[int, ...]] = {}

    def add(target: Target, cell: ConfidenceCell, sign: int) -> None:
        kind, numbers = (target, cell.finding, cell.bin), astuple(cell)[3:]
        known = sums.get(kind, (0,) * len(numbers))
        sums[kind] = tuple(old + sign * new for old, new in zip(known, numbers, strict=True))

    for cell in cells:
        add(cell.target, cell, 1)
    for each in moved:
        for cell in each.confidence:
            add(each.target, cell, -1)
            if each.right_target is not None:
                add(each.right_target, cell, 1)
    return tuple(
        sorted(ConfidenceCell(*kind, *numbers) for kind, numbers in sums.items() if numbers[0])
    )
