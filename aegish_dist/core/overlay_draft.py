"""From doubtful labels to an overlay that a person edits."""

from collections.abc import Iterable

from aegish_dist.core.audit import DOUBTFUL_FROM, AuditedCommand
from aegish_dist.core.opinion import LabelChange, Overlay
from aegish_dist.core.sample import Target


def draft_overlay(
    doubtful: Iterable[AuditedCommand], base: Overlay | None, name: str, author: str
) -> Overlay:
    """Return an overlay that turns over each label that is more probably wrong than right.

    Args:
        base: The overlay under which they were found, which the draft continues; None for none.
    """
    changes = tuple(_change(each, author) for each in doubtful if each.p_wrong >= DOUBTFUL_FROM)
    if base is None:
        return Overlay(name, 1, changes)
    return Overlay(base.name, base.version + 1, (*_without(base, changes), *changes))


def _without(base: Overlay, changes: Iterable[LabelChange]) -> Iterable[LabelChange]:
    """Yield the changes of an overlay that are not made again."""
    again = {(each.dataset, each.sample_id) for each in changes}
    again |= {(each.dataset, each.command) for each in changes}
    for each in base.changes:
        if (each.dataset, each.sample_id or each.command) not in again:
            yield each


def _change(found: AuditedCommand, author: str) -> LabelChange:
    sample = found.sample
    malicious = sample.target is Target.MALICIOUS
    return LabelChange(
        dataset=sample.dataset,
        sample_id=sample.sample_id,
        command=sample.command,
        target=Target.HARMLESS if malicious else Target.MALICIOUS,
        category=None,
        reason=f"{found.reason}; wrong with probability {found.p_wrong:.2f}",
        author=author,
    )
