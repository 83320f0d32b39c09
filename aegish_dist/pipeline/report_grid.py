"""The verdicts of a report one by one, for the grid of its page."""

from collections.abc import Sequence
from itertools import accumulate

from sqlalchemy import Engine

from aegish_dist.core.opinion import Snapshot
from aegish_dist.core.outcome import ErrorClass, Outcome, ScoredAnswer
from aegish_dist.core.run import Run
from aegish_dist.core.text import printable
from aegish_dist.db.answers import TEXT_CHARS, read_grid
from aegish_dist.db.counting import is_unchanged
from aegish_dist.db.engine import transaction
from aegish_dist.db.verdict_reader import SqlScoring
from aegish_dist.pipeline.aggregate import ONE_VIEW
from aegish_dist.pipeline.opinions import overlay_of
from aegish_dist.report.data import ReportData
from aegish_dist.report.page.grid import Grid, GridShape, pack_columns, pack_part

BLOB_VERDICTS = 960
"""Verdicts whose texts are packed together, about: unpacking them takes a browser milliseconds."""
MAX_VERDICTS = 500_000
"""Planned verdicts of a grid: a browser holds some 100 bytes for each."""
MAX_WITH_TEXTS = 200_000
MAX_TEXT_BYTES = 64 * 2**20
"""Bytes of all packed texts; a third more in the file."""


def report_grid(engine: Engine, data: ReportData) -> Grid:
    """Gather the verdicts of a report under the opinion of its snapshot.

    Of too many verdicts there is less, which a note of the grid says.
    """
    run, opinion = data.run, data.snapshot.opinion
    planned = len(run.models) * run.samples * run.epochs
    if opinion is None:
        return Grid(None, notes=["This version does not know the rule set of the snapshot, so it "
                                 "cannot say which answers are right."])  # fmt: skip
    if planned > MAX_VERDICTS:
        return Grid(None, notes=[_too_many(planned, MAX_VERDICTS, "Single verdicts are")])
    texts = planned <= MAX_WITH_TEXTS
    notes = []
    if not texts:
        notes.append(_too_many(planned, MAX_WITH_TEXTS, "Completions and other texts are"))
    models = _in_order(run, data.snapshot)
    asked = max(1, len(run.models) * run.epochs)
    shape = GridShape(len(run.models), run.epochs, max(1, min(64, BLOB_VERDICTS // asked)))
    with transaction(engine, isolation_level=ONE_VIEW) as session:
        if not is_unchanged(session, run, data.snapshot.identities):
            notes.append("Below stand the verdicts that count now, which are not known to be those "
                         "of the snapshot: the numbers above may differ.")  # fmt: skip
        judged = SqlScoring(opinion.rule, overlay_of(session, run, opinion).values)
        read = read_grid(
            session, run, models, judged, commands=shape.commands_per_blob, texts=texts
        )
        parts = [pack_part(part, shape) for part in read]
    texts_of_all = [blob for part in parts for blob in part.texts]
    sizes = accumulate(map(len, texts_of_all))
    blobs = [blob for blob, size in zip(texts_of_all, sizes, strict=True) if size <= MAX_TEXT_BYTES]
    if len(blobs) < len(texts_of_all):
        notes.append(f"Texts of the last commands are left out: all would be more than "
                     f"{MAX_TEXT_BYTES >> 20} MiB.")  # fmt: skip
    return Grid(pack_columns(parts, shape, _facts(run, models, opinion.rule.name)), blobs, notes)


def _too_many(planned: int, most: int, what: str) -> str:
    return (
        f"{what} not in this file: the run plans {planned:,} verdicts, and a page takes "
        f"{most:,} of them. `aegish-dist verdicts list` and `verdicts show` find them."
    )


def _in_order(run: Run, snapshot: Snapshot) -> list[str]:
    """Return the models by rank, those at the end that the snapshot does not have."""
    asked = [spec.id for spec in run.models]
    ranked = [place["model"] for place in snapshot.document["ranking"]]
    return [model for model in ranked if model in asked] + [
        model for model in asked if model not in ranked
    ]


def _facts(run: Run, models: Sequence[str], rule: str) -> dict[str, object]:
    return {
        "run": run.run_id,
        "rule": printable(rule),
        "models": [printable(model) for model in models],
        "asked": [
            [printable(dataset.name) for dataset in run.datasets_of(model)] for model in models
        ],
        "outcomes": [each.value for each in Outcome],
        "labels": [each.value for each in ScoredAnswer],
        "errorClasses": [each.value for each in ErrorClass],
        "textChars": TEXT_CHARS,
    }
