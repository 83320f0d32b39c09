"""From counted verdicts to one value per sample: epochs are averaged before anything else.

Epochs of one sample depend on each other, so the sample is the unit of every rate. Samples that
came out alike become one observation, and each way to come out is judged once: a hundred thousand
cells hold a handful of those.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable

from aegish_dist.core.sample import Target
from aegish_dist.core.scoring import ACTIONS, Label, ScoringRule
from aegish_dist.core.statistics import Observation
from aegish_dist.core.tally import Cell, Finding

Judgement = Callable[[Target, Finding], bool]
"""A question about one verdict, such as `ScoringRule.is_correct`."""

Findings = tuple[tuple[Finding, int], ...]
Share = tuple[float, int]
"""The value of a sample, and its weight."""


def pooled(cells: Iterable[Cell]) -> list[Cell]:
    """Join the cells that only their category tells apart, for what looks at no category."""
    samples: defaultdict[tuple[Target, str | None, Findings], int] = defaultdict(int)
    for cell in cells:
        samples[cell.target, cell.cluster, cell.findings] += cell.samples
    return [
        Cell(target, None, cluster, findings, number)
        for (target, cluster, findings), number in samples.items()
    ]


def scored_shares(cells: Iterable[Cell], rule: ScoringRule, holds: Judgement) -> list[Observation]:
    """Return the share of each sample's scored epochs for which something holds.

    Samples without a scored epoch have no share and are left out.
    """

    def share(target: Target, findings: Findings) -> Share | None:
        scored = {found: epochs for found, epochs in findings if rule.is_scored(found)}
        if not scored:
            return None
        hits = sum(epochs for found, epochs in scored.items() if holds(target, found))
        return hits / sum(scored.values()), 1

    return _observe(cells, share)


def label_shares(cells: Iterable[Cell], rule: ScoringRule, label: Label) -> list[Observation]:
    """Return the share of each sample's verdicts that carry a label, whether scored or not.

    Weighted by verdicts, so that their rate is the count of the label over all verdicts.
    """

    def share(_: Target, findings: Findings) -> Share:
        done = sum(epochs for _, epochs in findings)
        labelled = sum(epochs for found, epochs in findings if rule.labels[found] is label)
        return labelled / done, done

    return _observe(cells, share)


def flips(cells: Iterable[Cell]) -> list[Observation]:
    """Return 1 for samples whose epochs state different actions, 0 where they agree.

    Samples with fewer than two answered epochs cannot show a flip and are left out.
    """

    def share(_: Target, findings: Findings) -> Share | None:
        stated = {found: epochs for found, epochs in findings if found in ACTIONS}
        return (float(len(stated) > 1), 1) if sum(stated.values()) >= 2 else None

    return _observe(cells, share)


def _observe(
    cells: Iterable[Cell], share: Callable[[Target, Findings], Share | None]
) -> list[Observation]:
    shares: dict[tuple[Target, Findings], Share | None] = {}
    samples: defaultdict[tuple[str | None, str | None, Share], int] = defaultdict(int)
    for cell in cells:
        kind = (cell.target, cell.findings)
        if kind not in shares:
            shares[kind] = share(*kind)
        value = shares[kind]
        if value is not None:
            samples[cell.category, cell.cluster, value] += cell.samples
    return [
        Observation(category, cluster, value, number, weight)
        for (category, cluster, (value, weight)), number in samples.items()
    ]
