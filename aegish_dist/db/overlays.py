"""Overlays met with the datasets of a run: which stored samples change their label, and how."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct
from sqlalchemy import Row
from sqlalchemy.orm import Session

from aegish_dist.core.run import Run
from aegish_dist.core.sample import TrueLabel
from aegish_dist.db.engine import fragment, statement
from aegish_dist.errors import OpinionError
from aegish_dist.opinions.opinion import LabelChange, Overlay

# Whether a dataset of that name has the sample, although none in the store does.
Elsewhere = Callable[[LabelChange], bool]


class ChangedSample(Struct, frozen=True):
    """A sample of a run that an overlay relabels or excludes."""

    key: int
    dataset: str
    target: TrueLabel
    change: LabelChange


class OverlayInRun(Struct, frozen=True):
    """The part of an overlay that concerns a run."""

    samples: tuple[ChangedSample, ...] = ()  # each at most once
    ignored: tuple[LabelChange, ...] = ()  # corrections of samples that the run does not ask

    @property
    def values(self) -> dict[str, list[Any]]:
        """The values that the SQL fragment `effective_samples` binds."""
        return {
            "changed_keys": [each.key for each in self.samples],
            "changed_targets": [each.change.target for each in self.samples],
            "changed_categories": [each.change.category for each in self.samples],
        }

    def planned(self, run: Run, model: str) -> dict[TrueLabel, int]:
        """Return how many verdicts about samples of each label will count."""
        datasets = run.datasets_of(model)
        malicious = sum(dataset.malicious for dataset in datasets)
        samples = {
            TrueLabel.MALICIOUS: malicious,
            TrueLabel.HARMLESS: sum(dataset.samples for dataset in datasets) - malicious,
        }
        names = {dataset.name for dataset in datasets}
        for each in self.samples:
            if each.dataset in names:
                samples[each.target] -= 1
                if each.change.target is not None:
                    samples[each.change.target] += 1
        return {target: number * run.epochs for target, number in samples.items()}


def overlay_in_run(
    session: Session, run: Run, overlay: Overlay | None, elsewhere: Elsewhere
) -> OverlayInRun:
    """Find the samples of an overlay among those of a run.

    Args:
        elsewhere: Asked about samples that no stored dataset of the name has.

    Raises:
        OpinionError: A dataset of the run lacks a sample or has it with another command, several
            samples have the command, or two corrections are of one sample.
    """
    if overlay is None:
        return OverlayInRun()
    names = {dataset.name for dataset in run.datasets}
    changes = [change for change in overlay.changes if change.dataset in names]
    try:
        found = _found(session, changes, "asked_by_run", run=run.run_id)
        samples = {change: _sample(change, rows) for change, rows in found.items() if rows}
        absent = [change for change in changes if change not in samples]
        stored = _found(session, absent, "of_these_names", names=list(names))
        for change in absent:
            if not stored[change] and not elsewhere(change):
                raise OpinionError(f"{change} is not in dataset '{change.dataset}'")
        _require_distinct(samples.values())
    except OpinionError as error:
        raise OpinionError(f"overlay '{overlay.name}': {error}") from None
    ignored = tuple(change for change in overlay.changes if change not in samples)
    return OverlayInRun(tuple(samples.values()), ignored)


def _found(
    session: Session, changes: Sequence[LabelChange], within: str, **values: object
) -> dict[LabelChange, Sequence[Row[Any]]]:
    """Return the stored samples that each correction may mean."""
    if not changes:
        return {}
    values["ids"] = [change.sample_id for change in changes if change.sample_id]
    values["commands"] = [change.command for change in changes if not change.sample_id]
    by_id: defaultdict[tuple[str, str], list[Row[Any]]] = defaultdict(list)
    by_command: defaultdict[tuple[str, str], list[Row[Any]]] = defaultdict(list)
    for row in session.execute(statement("find_samples", within=fragment(within)), values):
        by_id[row.dataset, row.sample_id].append(row)
        by_command[row.dataset, row.command].append(row)
    meant: dict[LabelChange, Sequence[Row[Any]]] = {}
    for change in changes:
        if change.sample_id:
            meant[change] = by_id[change.dataset, change.sample_id]
        else:
            meant[change] = by_command[change.dataset, change.command or ""]
    return meant


def _sample(change: LabelChange, rows: Sequence[Row[Any]]) -> ChangedSample:
    """Return the one sample that a correction means."""
    if len(rows) > 1:
        ids = ", ".join(sorted(row.sample_id for row in rows))
        raise OpinionError(
            f"{change} is {len(rows)} samples of dataset '{change.dataset}': give its "
            f"`sample`, one of {ids}"
        )
    (row,) = rows
    if change.command not in (None, row.command):
        raise OpinionError(
            f"{change} of dataset '{change.dataset}' has another command, {row.command!r}"
        )
    return ChangedSample(row.key, row.dataset, TrueLabel(row.target), change)


def _require_distinct(samples: Iterable[ChangedSample]) -> None:
    first: dict[int, LabelChange] = {}
    for each in samples:
        other = first.setdefault(each.key, each.change)
        if other is not each.change:
            raise OpinionError(
                f"two changes of one sample of dataset '{each.dataset}': {other} and {each.change}"
            )
