"""Verdicts out of the store as JSON or CSV, which PostgreSQL writes itself.

Part by part: a part is what one model said about a range of samples. So
memory holds some ten thousand verdicts however large the run is, and their order is fixed.
"""

# ruff: noqa: S608  statements are put together from nothing but this module

import re
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, fields
from selectors import EVENT_READ, DefaultSelector
from typing import Any, NamedTuple, TypeVar

from msgspec.inspect import DecimalType, DictType, StrType
from psycopg import ClientCursor, Connection
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult
from sqlalchemy import text
from sqlalchemy.orm import Session

from aegish_dist.core.run import Run
from aegish_dist.core.verdict import CallError
from aegish_dist.core.verdict_record import FIELDS, RecordField
from aegish_dist.db.judgements import Judgements
from aegish_dist.db.per_model import PerModel, prepare_counting
from aegish_dist.db.sample_ranges import sample_ranges
from aegish_dist.db.statements import fragment
from aegish_dist.db.text import ESCAPE
from aegish_dist.db.verdict_rows import holds_any_text

PART_ROWS = 10_000
NOT_JUDGED = Judgements()

Result = TypeVar("Result")

_MARK = ESCAPE.encode()
_ESCAPED = re.compile(_MARK + b"([0-9a-f]{4})")

_ELSEWHERE = {
    "model": "%(model)s",
    "dataset": "%(dataset)s",
    "command": "sample.command",
    "target": "sample.target",
    "category": "sample.category",
    "cluster": "sample.cluster",
    "answered": "error_class IS NULL",
    "pruned": fragment("pruned"),
    "simulated": "%(simulated)s",
    "metadata": "sample.details::text",
    "call_errors": "coalesce(errors, '[]')",
}
"""Fields of a record that are no columns of `verdicts`."""

_ERROR = ", ".join(f"'{each.name}', {each.name}" for each in fields(CallError))

_ROWS = f"""
    SELECT {{columns}}
    FROM verdicts AS verdict
    JOIN samples AS sample ON sample.key = verdict.sample_key
    LEFT JOIN unnest(%(changed_keys)s::bigint[], %(changed_targets)s::text[])
        AS change (key, target) ON change.key = sample.key
    LEFT JOIN (
        SELECT sample_key, epoch, generation,
               json_agg(json_build_object({_ERROR}) ORDER BY attempt) AS errors
        FROM call_errors
        WHERE run_model_id = %(key)s AND sample_key >= %(first)s AND sample_key < %(end)s
        GROUP BY 1, 2, 3
    ) AS failed USING (sample_key, epoch, generation)
    WHERE run_model_id = %(key)s AND sample_key >= %(first)s AND sample_key < %(end)s
      AND sample.key >= %(first)s AND sample.key < %(end)s AND sample.dataset_id = %(dataset_id)s
    ORDER BY sample_key, epoch, generation
"""  # nosec B608 # constants of ours


def _csv_column(field: RecordField) -> str:
    return _ELSEWHERE.get(field.name) or f"verdict.{field.column}"


def _json_column(field: RecordField) -> str:
    column = _csv_column(field)
    match field.kind:
        case DecimalType():  # a number where a number is exact
            return (
                f"CASE WHEN {column} = {column}::float8::numeric THEN to_json({column})"
                f" ELSE to_json({column}::text) END"
            )
        case DictType():
            return f"{_guarded(column)}::json"
        case StrType() if not (field.is_moment or holds_any_text(field)):
            return _guarded(column)
        case _:
            return column


def _guarded(column: str) -> str:
    """Escape the escape character in a column where it stands for itself."""
    return f"replace({column}, '{ESCAPE}', '{ESCAPE}{ord(ESCAPE):04x}')"


def _rows(column: Callable[[RecordField], str], judged: str) -> str:
    columns = ", ".join(f"{column(each)} AS {each.name}" for each in FIELDS)
    return _ROWS.format(columns=columns + judged)


def _json(judged: str) -> str:
    """Return the statement for lines of JSON, which hold no raw control character to quote."""
    return f"""
        COPY (SELECT row_to_json(line) FROM ({_rows(_json_column, judged)}) AS line)
        TO STDOUT (FORMAT csv, DELIMITER E'\x02', QUOTE E'\x01')
    """  # nosec B608 # constants of ours


def _csv(judged: str) -> str:
    return f"COPY ({_rows(_csv_column, judged)}) TO STDOUT (FORMAT csv, HEADER)"


class _Part(NamedTuple):
    model: str
    simulated: bool
    key: int
    dataset: str
    dataset_id: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Exported:
    """Some thousand verdicts as text in UTF-8."""

    data: bytes
    """Lines of JSON, or CSV with a header."""
    is_csv: bool


def export(
    session: Session,
    run: Run,
    use: Callable[[Exported], Result],
    *,
    columns: bool = False,
    judgements: Judgements = NOT_JUDGED,
) -> Iterator[Result]:
    """Export every verdict of a run, all generations, ordered by model, dataset and sample.

    Args:
        columns: Whether CSV will do, with JSON in the columns `metadata` and `call_errors`. Null
            is empty, the empty text is quoted. A part with text that UTF-8 cannot hold is JSON all
            the same.

    Yields:
        What `use` returned, in order.
    """
    models = PerModel.of(session, run)
    parts = list(_parts(session, run, models))
    statements = (_csv(judgements.sql) if columns else None, _json(judgements.sql))
    values = judgements.values

    prepare_counting(session)
    for part in parts:
        yield use(_export(session, statements, part._asdict() | values))


def _parts(session: Session, run: Run, models: PerModel) -> Iterator[_Part]:
    ranges = list(sample_ranges(session, run.run_id, max(1, PART_ROWS // run.epochs)))
    for spec in run.models:
        for samples in ranges:
            yield _Part(spec.id, spec.simulated, models.keys[spec.id], *astuple(samples))


def _export(
    session: Session, statements: tuple[str | None, str], values: dict[str, Any]
) -> Exported:
    session.execute(text("SET LOCAL timezone = 'UTC'"))
    as_csv, as_json = statements
    if as_csv is not None:
        table = _copy(session, as_csv, values)
        if _MARK not in table:
            return Exported(table, is_csv=True)
    lines = _copy(session, as_json, values)
    return Exported(_ESCAPED.sub(rb"\\u\1", lines) if _MARK in lines else lines, is_csv=False)


def _copy(session: Session, statement: str, parameters: dict[str, Any]) -> bytes:
    """Return what a COPY sends, row by row as libpq has it.

    `Cursor.copy` takes ten times as long over a row, and threads get in each other's way there.
    """
    connection = session.connection().connection.driver_connection
    assert isinstance(connection, Connection)  # noqa: S101  # nosec B101 # what SQLAlchemy types as anything
    line = connection.pgconn
    command = ClientCursor(connection).mogrify(statement, parameters)
    _require(line.exec_(command.encode()))
    data = bytearray()
    with DefaultSelector() as selector:
        selector.register(line.socket, EVENT_READ)
        while (got := line.get_copy_data(1))[0] >= 0:
            if got[0]:
                data += got[1]
            else:
                selector.select()
                line.consume_input()
    while (result := line.get_result()) is not None:
        _require(result)
    return bytes(data)


def _require(result: PGresult) -> None:
    if result.status not in (ExecStatus.COPY_OUT, ExecStatus.COMMAND_OK):
        raise error_from_result(result)
