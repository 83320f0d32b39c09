"""Verdicts into the store by COPY, a fifth of the time of inserts: what imports are made of."""

import json
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from msgspec.inspect import StrType
from psycopg import Connection
from psycopg.errors import UniqueViolation
from sqlalchemy.orm import Session

from aegish_dist.core.sample import Sample
from aegish_dist.core.verdict_record import STORED, AttemptRecord, VerdictRecord
from aegish_dist.db.statements import statement
from aegish_dist.db.tables import COLUMNS, ERROR_COLUMNS, VerdictKey, error_row
from aegish_dist.errors import SecondVerdictError

NULL = r"\N"
SAMPLE_COLUMNS = (
    *("key", "dataset_id", "sample_id", "command", "target", "category", "cluster", "details"),
)

_DRAW = statement("draw_sample_keys")
_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})
_VALUES = attrgetter(*(each.name for each in STORED))
_TEXTS = tuple(
    number
    for number, each in enumerate(STORED)
    if isinstance(each.kind, StrType) and not each.is_moment
)
_FREE = attrgetter(*(STORED[number].name for number in _TEXTS))


def copy_line(record: VerdictRecord) -> str:
    """Return a verdict as a line of COPY without the keys of model and sample."""
    values: Sequence[object] = _VALUES(record)
    free = "".join(filter(None, _FREE(record)))
    if not free.isprintable() or "\\" in free:
        values = list(values)
        for number in _TEXTS:
            if isinstance(text := values[number], str):
                values[number] = text.translate(_ESCAPES)
    return "\t".join([NULL if each is None else str(each) for each in values]) + "\n"


def copy_verdicts(session: Session, lines: bytes) -> None:
    """Append verdicts.

    Args:
        lines: Of each the key of its model, the key of its sample, and its `copy_line`, tabs
            between.

    Raises:
        SecondVerdictError: An item has a verdict already; the transaction is lost.
    """
    try:
        _copy(session, "verdicts", COLUMNS, lines)
    except UniqueViolation as error:
        raise SecondVerdictError from error


def copy_errors(session: Session, errors: Iterable[tuple[VerdictKey, AttemptRecord]]) -> None:
    """Append failed attempts of verdicts that are there."""
    _copy(
        session, "call_errors", ERROR_COLUMNS, _text(error_row(*each).values() for each in errors)
    )


def copy_samples(
    session: Session, dataset_id: int, samples: Mapping[str, Sample], keys: Mapping[str, int]
) -> None:
    """Append samples to a dataset."""
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
