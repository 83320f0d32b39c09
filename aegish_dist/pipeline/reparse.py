"""Reparsing: read stored completions again with today's parser, without a call.

Only the parsed columns change, a batch of verdicts per transaction; the completions stay as they
came. Snapshots that were made before stay too, and the next report counts again. Workers may go on
meanwhile, and a second reparse does no harm: it waits for each batch, and finds nothing to change.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from aegish_dist.core.outcome import Outcome
from aegish_dist.core.parsing import judge
from aegish_dist.core.verdict import Completion
from aegish_dist.db.counting import PerModel
from aegish_dist.db.engine import transaction
from aegish_dist.db.runs import load_run
from aegish_dist.db.tables import DatasetRow, SampleRow, VerdictKey
from aegish_dist.db.verdicts import Reading, StoredAnswer, next_answers, write_readings
from aegish_dist.pipeline.workspace import SILENT, Observer

BATCH = 500
"""Verdicts per transaction at most."""
BATCH_CHARACTERS = 8 * 2**20
"""Characters of completions after which no further verdict joins a transaction: one may have up to
1 MiB, and most have a thousandth of that."""


@dataclass(frozen=True, slots=True)
class ChangedVerdict:
    """A verdict whose outcome today's parser reads differently."""

    model: str
    dataset: str
    command: str
    epoch: int
    """1-based repeat."""
    generation: int
    """0 for the first try, n for the n-th retry."""
    before: Outcome
    after: Outcome


@dataclass(frozen=True, slots=True)
class Reparsed:
    """A run whose completions were read again."""

    run_id: str
    completions: int
    updated: int
    """Verdicts of which any parsed column changed, if only the parser's version."""
    changed: tuple[ChangedVerdict, ...]
    """Those whose outcome changed, by model and key."""
    pruned: int = 0
    """Verdicts that keep what was read in them, as their completions were deleted."""


def reparse_run(
    engine: Engine, run_id: str, *, dry_run: bool = False, observer: Observer = SILENT
) -> Reparsed:
    """Read the completions of a run again with today's parser.

    Raises:
        StoreError: The database cannot be reached; batches that were stored stay so, and the same
            command again does the rest.
    """
    with transaction(engine) as session:
        run = load_run(session, run_id)
        models = PerModel.of(session, run).keys
    completions = updated = 0
    changed: list[ChangedVerdict] = []
    with observer.counting("completions read") as show:
        for model, run_model_id in models.items():
            after = VerdictKey(run_model_id, sample_key=-1, epoch=0, generation=0)
            while True:
                with transaction(engine) as session:
                    answers = next_answers(
                        session, after, BATCH, BATCH_CHARACTERS, lock=not dry_run
                    )
                    differing = [_Differing(each, new) for each in answers if (new := _read(each))]
                    if not dry_run:
                        write_readings(session, [(each.stored.key, each.now) for each in differing])
                    changed += _changed(session, model, differing)
                if not answers:
                    break
                after = answers[-1].key
                completions += len(answers)
                updated += len(differing)
                show(completions)
    pruned = 0 if run.pruned is None else run.pruned.completions
    return Reparsed(run_id, completions, updated, tuple(changed), pruned)


class _Differing(NamedTuple):
    """An answer that today's parser reads differently, if only by its version."""

    stored: StoredAnswer
    now: Reading


def _read(answer: StoredAnswer) -> Reading | None:
    """Read a completion; None when that gives what is stored."""
    found = judge(Completion(answer.text))
    reading = Reading(found.outcome, found.reason, found.confidence, found.parser_version)
    return None if reading == answer.reading else reading


def _changed(
    session: Session, model: str, differing: Sequence[_Differing]
) -> Iterator[ChangedVerdict]:
    turned = [each for each in differing if each.stored.reading.outcome is not each.now.outcome]
    named = session.execute(
        select(SampleRow.key, DatasetRow.name, SampleRow.command)
        .join(DatasetRow, DatasetRow.id == SampleRow.dataset_id)
        .where(SampleRow.key.in_([each.stored.key.sample_key for each in turned]))
    )
    samples = {key: (dataset, command) for key, dataset, command in named}
    for each in turned:
        key, before = each.stored.key, each.stored.reading.outcome
        dataset, command = samples[key.sample_key]
        yield ChangedVerdict(
            model, dataset, command, key.epoch, key.generation, before, each.now.outcome
        )
