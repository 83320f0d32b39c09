"""Exporting a run in the format of Every Eval Ever: of each model a record and its verdicts."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist.core.opinion import Opinion
from aegish_dist.core.run import Run
from aegish_dist.core.sample import Sample
from aegish_dist.core.snapshot import Snapshot
from aegish_dist.core.text import printable_json
from aegish_dist.db.counting import is_unchanged
from aegish_dist.db.engine import transaction
from aegish_dist.db.overlays import ChangedSample, OverlayInRun
from aegish_dist.db.runs import load_run
from aegish_dist.db.verdict_export import Judgements, export
from aegish_dist.files import replacing_in
from aegish_dist.interchange.every_eval_ever import (
    CORRECT,
    Relabelled,
    SampleLines,
    SamplesFile,
    evaluation_record,
    record_identity,
)
from aegish_dist.pipeline.aggregate import ONE_VIEW, aggregate, current_snapshot
from aegish_dist.pipeline.opinions import overlay_of
from aegish_dist.report.layout import ranked_entries

Open = Callable[[str], IO[bytes]]
"""Opens a file of that name to write."""


def export_every_eval_ever(
    engine: Engine, run_id: str, folder: Path, opinions: Sequence[Opinion] = ()
) -> list[str]:
    """Write a record per model and opinion, and beside it a line per scored verdict.

    All files appear, or none does. The same verdicts under the same opinion give the same files.

    Args:
        folder: Gets a folder `data`, as the collection of Every Eval Ever has it.
        opinions: Say which verdicts are correct; without one it is the default rule set.

    Returns:
        The names of the files, below the folder.

    Raises:
        OpinionError: The overlay does not fit the datasets of the run.
    """
    names: list[str] = []
    with replacing_in(folder) as opened:

        def written(name: str) -> IO[bytes]:
            names.append(name)
            return opened(name)

        for opinion in opinions or [Opinion()]:
            found = current_snapshot(engine, run_id, opinion)
            with transaction(engine, isolation_level=ONE_VIEW) as session:
                run = load_run(session, run_id)
                if not is_unchanged(session, run, found.identities):
                    found = aggregate(engine, run_id, [opinion], within=session)[0]
                _Records(run, found, written).write(session, opinion)
    return names


class _Records:
    """The files of a snapshot."""

    def __init__(self, run: Run, snapshot: Snapshot, opened: Open) -> None:
        self._run, self._snapshot, self._opened = run, snapshot, opened
        entries = ranked_entries(snapshot.document)
        self._entries = sorted(entries, key=lambda each: each.model)
        self._names = {each.model: record_identity(snapshot, each.model) for each in entries}

    def write(self, session: Session, opinion: Opinion) -> None:
        """Write the lines of all models, and each model's record, which has their hash."""
        files: dict[str, _Lines] = {}
        for model, lines, unscored in self._parts(session, opinion):
            path = self._names[model].samples_path
            files.setdefault(model, _Lines(partial(self._opened, path))).add(lines, unscored)
        for entry in self._entries:
            identity = self._names[entry.model]
            samples = files[entry.model].file() if entry.model in files else None
            record = evaluation_record(self._run, self._snapshot, entry, identity, samples)
            self._opened(identity.record_path).write(f"{printable_json(record)}\n".encode())

    def _parts(self, session: Session, opinion: Opinion) -> Iterator[tuple[str, list[str], int]]:
        """Yield model, lines and number of unscored verdicts, part by part."""
        overlay = overlay_of(session, self._run, opinion)
        made = SampleLines(opinion.rule, _relabelled(overlay))

        judged = Judgements({CORRECT: opinion.rule}, overlay.values)
        for part in export(session, self._run, judged):
            verdicts = [json.loads(line) for line in part.splitlines()]
            if verdicts:
                model = verdicts[0]["model"]
                yield model, *made.of(self._names[model].evaluation_id, verdicts)


class _Lines:
    """The file of a model's verdicts while it is written; it is opened for the first line."""

    def __init__(self, opened: Callable[[], IO[bytes]]) -> None:
        self._opened = opened
        self._stream: IO[bytes] | None = None
        self._hash, self._rows, self._unscored = hashlib.sha256(), 0, 0

    def add(self, lines: list[str], unscored: int) -> None:
        self._rows += len(lines)
        self._unscored += unscored
        if lines:
            data = "".join(f"{line}\n" for line in lines).encode()
            self._hash.update(data)
            self._stream = self._stream or self._opened()
            self._stream.write(data)

    def file(self) -> SamplesFile | None:
        """Return what was written; None where nothing was."""
        if self._stream is None:
            return None
        return SamplesFile(self._hash.hexdigest(), self._rows, self._unscored)


def _relabelled(overlay: OverlayInRun) -> dict[tuple[str, str], Relabelled]:
    return {
        (each.dataset, _sample_id(each)): Relabelled(each.change.target, each.change.category)
        for each in overlay.samples
        if each.change.target is not None
    }


def _sample_id(changed: ChangedSample) -> str:
    if changed.change.sample_id is not None:
        return changed.change.sample_id
    command = changed.change.command or ""
    return Sample(command, changed.target, changed.category, changed.cluster).sample_id
