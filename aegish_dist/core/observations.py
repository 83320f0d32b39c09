"""From counted verdicts to one value per sample: epochs are averaged before anything else.

Epochs of one sample depend on each other, so the sample is the unit of every rate.
"""

from collections.abc import Callable, Iterable

from aegish_dist.core.sample import Target
from aegish_dist.core.scoring import ACTIONS, Label, ScoringRule
from aegish_dist.core.statistics import Observation
from aegish_dist.core.tally import Cell, Finding

Judgement = Callable[[Target, Finding], bool]
"""A question about one verdict, such as `ScoringRule.is_correct`."""


def scored_shares(cells: Iterable[Cell], rule: ScoringRule, holds: Judgement) -> list[Observation]:
    """Return the share of each sample's scored epochs for which something holds.

    Samples without a scored epoch have no share and are left out.
    """
    shares = []
    for cell in cells:
        scored = {found: epochs for found, epochs in cell.findings if rule.is_scored(found)}
        if scored:
            hits = sum(epochs for found, epochs in scored.items() if holds(cell.target, found))
            shares.append(_observation(cell, hits / sum(scored.values())))
    return shares


def label_shares(cells: Iterable[Cell], rule: ScoringRule, label: Label) -> list[Observation]:
    """Return the share of each sample's verdicts that carry a label, whether scored or not.

    Weighted by verdicts, so that their rate is the count of the label over all verdicts.
    """
    shares = []
    for cell in cells:
        done = sum(epochs for _, epochs in cell.findings)
        labelled = sum(epochs for found, epochs in cell.findings if rule.labels[found] is label)
        shares.append(_observation(cell, labelled / done, weight=done))
    return shares


def flips(cells: Iterable[Cell]) -> list[Observation]:
    """Return 1 for samples whose epochs state different actions, 0 where they agree.

    Samples with fewer than two answered epochs cannot show a flip and are left out.
    """
    seen = []
    for cell in cells:
        stated = {found: epochs for found, epochs in cell.findings if found in ACTIONS}
        if sum(stated.values()) >= 2:
            seen.append(_observation(cell, float(len(stated) > 1)))
    return seen


def _observation(cell: Cell, value: float, weight: int = 1) -> Observation:
    return Observation(cell.category, cell.cluster, value, cell.samples, weight)
