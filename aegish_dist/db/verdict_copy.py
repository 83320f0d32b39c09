"""Verdicts into the store by COPY, a fifth of the time of inserts: what imports are made of."""

import json
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

from psycopg import Connection
from psycopg.errors import UniqueViolation
from sqlalchemy.orm import Session

from aegish_dist.core.recording import CELLS, Cells
from aegish_dist.core.sample import Sample
from aegish_dist.core.verdict import CallError
from aegish_dist.db.statements import statement
from aegish_dist.db.text import encode_text
from aegish_dist.db.verdict_rows import VerdictKey, error_row
from aegish_dist.db.verdict_tables import CallErrorRow

NULL = r"\N"
COLUMNS = ("run_model_id", "sample_key", *CELLS)
ERROR_COLUMNS = tuple(column.name for column in CallErrorRow.__table__.columns)
SAMPLE_COLUMNS = (
    *("key", "dataset_id", "sample_id", "command", "target", "category", "cluster", "details"),
)

_DRAW = statement("draw_sample_keys")
_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})
_TEXTS = tuple(
    CELLS.index(name)
    for name in (
        *("completion", "stop_reason", "refusal", "model_returned", "upstream", "request_id"),
        "reason",
    )
)
_WORKER = CELLS.index("worker")
_FREE = itemgetter(*_TEXTS, _WORKER)


class SecondVerdictError(Exception):
    """Raised when an item has a verdict already; only the caller knows where the second stood."""


def cells_line(cells: Cells) -> str:
    """Return a verdict as a line of COPY without its keys; consumes the cells."""
    # Printable text holds no control character, no half surrogate and no escape of ours.
    free = "".join(filter(None, _FREE(cells)))
    if not free.isprintable() or "\\" in free:
        _escape(cells)
    return "\t".join([NULL if cell is None else cell for cell in cells]) + "\n"


def _escape(cells: Cells) -> None:
    for index in _TEXTS:
        text = cells[index]
        if text is not None:
            cells[index] = encode_text(text).translate(_ESCAPES)
    worker = cells[_WORKER]
    if worker is not None:
        cells[_WORKER] = worker.translate(_ESCAPES)


def copy_verdicts(session: Session, lines: bytes) -> None:
    """Append verdicts.

    Args:
        session: Transaction of the caller.
        lines: Of each the key of its model, the key of its sample, and what `cells_line` gives,
            tabs between.

    Raises:
        SecondVerdictError: An item has a verdict already; the transaction is lost.
    """
    try:
        _copy(session, "verdicts", COLUMNS, lines)
    except UniqueViolation as error:
        raise SecondVerdictError from error


def copy_errors(session: Session, errors: Iterable[tuple[VerdictKey, CallError]]) -> None:
    """Append failed attempts of verdicts that are there."""
    rows = (error_row(key, error) for key, error in errors)
    _copy(
        session,
        "call_errors",
        ERROR_COLUMNS,
        _text([row[c] for c in ERROR_COLUMNS] for row in rows),
    )


def copy_samples(
    session: Session, dataset_id: int, samples: Mapping[str, Sample], keys: Mapping[str, int]
) -> None:
    """Append samples, given by id, to a dataset under keys that `new_sample_keys` gave."""
    rows = (
        (
            keys[sample_id],
            dataset_id,
            sample_id,
            s.command,
            s.target,
            s.category,
            s.cluster,
            json.dumps(dict(s.metadata)),
        )
        for sample_id, s in samples.items()
    )
    _copy(session, "samples", SAMPLE_COLUMNS, _text(rows))


def new_sample_keys(session: Session, number: int) -> list[int]:
    """Draw keys for samples."""
    return list(session.scalars(_DRAW, {"number": number}))


def _text(rows: Iterable[Iterable[object]]) -> str:
    return "".join(
        "\t".join(NULL if cell is None else str(cell).translate(_ESCAPES) for cell in row) + "\n"
        for row in rows
    )


def _copy(session: Session, table: str, columns: Sequence[str], text: str | bytes) -> None:
    connection = session.connection().connection.driver_connection
    assert isinstance(connection, Connection)  # noqa: S101  # nosec B101 # what SQLAlchemy types as anything
    with (
        connection.cursor() as cursor,
        cursor.copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN") as copy,
    ):
        copy.write(text)
