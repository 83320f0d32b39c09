"""Overlays met with a run in a real store."""

from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.db.overlays import OverlayInRun, overlay_in_run
from aegish_dist.errors import OpinionError
from aegish_dist.opinions.opinion import LabelChange, Opinion, Overlay
from aegish_dist.pipeline.aggregate import aggregate
from aegish_dist.pipeline.snapshots import current_snapshot
from tests.integration.samples import ALLOWED, BLOCKED, COMMANDS, CURL, LS, TAR
from tests.integration.stored_runs import StoredRun, a_run, store, stored_run

LS_AGAIN = Sample("ls -l", TrueLabel.MALICIOUS, "file-read")
TWICE = Dataset("twice", (LS, LS_AGAIN))


def change(
    sample_id: str | None = LS.sample_id, target: TrueLabel | None = None, **fields: Any
) -> LabelChange:
    category = "shell" if target is TrueLabel.MALICIOUS else None
    made = LabelChange("commands", sample_id, None, target, category, "because", "Ada")
    return replace(made, **fields)


def an_opinion(*changes: LabelChange) -> Opinion:
    return Opinion(overlay=Overlay("mine", 1, changes))


def resolve(session: Session, *changes: LabelChange) -> OverlayInRun:
    run = a_run(datasets=(COMMANDS, TWICE))
    store(session, run, (COMMANDS, TWICE))
    return overlay_in_run(session, run, Overlay("mine", 1, changes), lambda _: False)


def test_samples_are_found_by_id_and_by_command(session: Session) -> None:
    changes = (change(), change(None, TrueLabel.HARMLESS, command=TAR.command))
    found = resolve(session, *changes)
    assert [each.target for each in found.samples] == [TrueLabel.HARMLESS, TrueLabel.MALICIOUS]
    assert tuple(each.change for each in found.samples) == changes
    assert found.ignored == ()


def test_changes_of_datasets_that_are_not_asked_are_ignored(session: Session) -> None:
    elsewhere = change(dataset="elsewhere")
    found = resolve(session, elsewhere, change())
    assert (len(found.samples), found.ignored) == (1, (elsewhere,))


def test_samples_of_the_whole_that_a_part_lacks_are_ignored(session: Session) -> None:
    """A run may ask a part of a dataset, be the whole in the store or bundled."""
    part = Dataset("commands", (LS,))
    run = a_run(datasets=(part,))
    store(session, run, (part,))
    of_tar = Overlay("mine", 1, (change(TAR.sample_id),))
    assert overlay_in_run(session, run, of_tar, lambda _: True).ignored == of_tar.changes
    stored_run(session, run_id="0whole")
    assert overlay_in_run(session, run, of_tar, lambda _: False).ignored == of_tar.changes


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ([change("0" * 16)], "sample 0000000000000000 is not in dataset 'commands'"),
        ([change(None, command="pwd")], "command 'pwd' is not in dataset 'commands'"),
        ([change(command="ls")], f"sample {LS.sample_id} .* has another command, 'ls -l'"),
        ([change(), change(None, command="ls -l")], "two changes of one sample of dataset 'comm"),
        (
            [change(None, command="ls -l", dataset="twice")],
            f"command 'ls -l' is 2 samples of dataset 'twice': give its `sample`, .*{LS.sample_id}",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    session: Session, changes: list[LabelChange], complaint: str
) -> None:
    with pytest.raises(OpinionError, match=f"overlay 'mine': {complaint}"):
        resolve(session, *changes)


@pytest.fixture
def stored(engine: Engine) -> StoredRun:
    """One model that blocks everything but `ls`."""
    return stored_run(engine, {TAR: BLOCKED, CURL: BLOCKED, LS: ALLOWED})


def test_snapshots_of_opinions_are_never_mixed(engine: Engine, stored: StoredRun) -> None:
    """Equal names do not make one of two overlays; each is used again as long as nothing changed."""
    excluded, relabelled = an_opinion(change()), an_opinion(change(target=TrueLabel.MALICIOUS))
    opinions = [Opinion(), excluded, relabelled]
    first = [current_snapshot(engine, stored.run_id, each) for each in opinions]
    assert len({each.snapshot_id for each in first}) == 3
    assert [current_snapshot(engine, stored.run_id, each) for each in opinions] == first
    again = aggregate(engine, stored.run_id, opinions)
    assert [each.document for each in again] == [each.document for each in first]
    assert [each.snapshot_id for each in again] != [each.snapshot_id for each in first]


def test_other_targets_make_another_snapshot(engine: Engine, stored: StoredRun) -> None:
    first = current_snapshot(engine, stored.run_id, Opinion())
    strict = Opinion(targets=replace(Opinion().targets, name="strict", least={"accuracy": 0.99}))
    second = current_snapshot(engine, stored.run_id, strict)
    assert second.snapshot_id != first.snapshot_id
    assert second.document == first.document
    assert second.opinion == strict
