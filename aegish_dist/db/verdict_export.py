"""Verdicts out of the store as JSON or CSV, which PostgreSQL writes itself.

A part is what one model said about a range of samples. So memory holds some ten thousand verdicts
however large the run is, and their order is fixed.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from msgspec.inspect import DecimalType, DictType
from psycopg import ClientCursor
from sqlalchemy import text
from sqlalchemy.orm import Session

from aegish_dist.core.run import Run
from aegish_dist.core.scoring import ScoringRule
from aegish_dist.core.verdict import CallError
from aegish_dist.core.verdict_record import FIELDS, RecordField
from aegish_dist.db.counting import PerModel
from aegish_dist.db.engine import driver_connection
from aegish_dist.db.statements import fragment, statement
from aegish_dist.db.verdict_reader import NO_CHANGES, SqlScoring, prepare, sample_ranges

PART_ROWS = 10_000

_BOUND = re.compile(r"(?<![:\w]):(\w+)")

_ELSEWHERE = {
    "model": ":model",
    "dataset": ":dataset_name",
    "command": "sample.command",
    "target": "sample.stored_target",
    "category": "sample.stored_category",
    "cluster": "sample.cluster",
    "answered": "error_class IS NULL",
    "pruned": fragment("pruned"),
    "simulated": ":simulated",
    "metadata": "sample.details::text",
    "call_errors": "coalesce(errors, '[]')",
}
"""Fields of a record that are no columns of `verdicts`."""
_ATTEMPT = ", ".join(f"'{each.name}', {each.name}" for each in fields(CallError))
_MARK_SQL = fragment("mark")


@dataclass(frozen=True, slots=True)
class Judgements:
    """Columns that say whether a verdict is correct, one for each rule set."""

    rules: Mapping[str, ScoringRule] = field(default_factory=dict)
    """By name of the column, a plain one."""
    changes: Mapping[str, Any] = field(default_factory=lambda: NO_CHANGES)
    """Of an overlay; see `SqlScoring`."""

    @property
    def values(self) -> dict[str, object]:
        """The values that the columns of `sql` bind."""
        values: dict[str, object] = {name: list(changed) for name, changed in self.changes.items()}
        for number, rule in enumerate(self.rules.values()):
            marks = SqlScoring(rule).marks.items()
            values |= {f"{target}_marks_{number}": each for target, each in marks}
        return values

    @property
    def sql(self) -> str:
        """Further columns, each after a comma; null where a verdict is unscored."""
        return "".join(
            f""", CASE {_MARK_SQL.replace("_marks", f"_marks_{number}")}
                WHEN 1 THEN true WHEN -1 THEN false END AS "{name}\""""
            for number, name in enumerate(self.rules)
        )


def export(
    session: Session, run: Run, judgements: Judgements | None = None, *, columns: bool = False
) -> Iterator[bytes]:
    """Export every verdict of a run, all generations, ordered by model, dataset and sample.

    Args:
        columns: Give CSV with a header in place of lines of JSON. Then `metadata` and `call_errors`
            are JSON, null is empty, and the empty text is quoted.

    Yields:
        Some thousand verdicts in UTF-8.
    """
    judged = judgements or Judgements()
    keys = PerModel.of(session, run).keys
    prepare(session)
    session.execute(text("SET LOCAL timezone = 'UTC'"))
    opinions, rows = judged.values, (_as_csv if columns else _as_json)(judged.sql)
    ranges = list(sample_ranges(session, run.run_id, max(1, PART_ROWS // run.epochs)))
    for spec in run.models:
        model = {"model": spec.id, "simulated": spec.simulated, "key": keys[spec.id]}
        for part in ranges:
            values = model | {"dataset_name": part.dataset} | part.bounds() | opinions
            yield _copy(session, rows, values)


def _as_csv(judged: str) -> str:
    return f"COPY ({_rows(_csv_column, judged)}) TO STDOUT (FORMAT csv, HEADER)"


def _as_json(judged: str) -> str:
    # Lines of JSON hold no raw control character, so nothing is ever quoted.
    return f"""
        COPY (SELECT row_to_json(line) FROM ({_rows(_json_column, judged)}) AS line)
        TO STDOUT (FORMAT csv, DELIMITER E'\x02', QUOTE E'\x01')
    """  # noqa: S608  # nosec B608 # constants of ours


def _rows(column: Callable[[RecordField], str], judged: str) -> str:
    columns = ", ".join(f"{column(each)} AS {each.name}" for each in FIELDS)
    found = statement("export_verdicts", {"columns": columns + judged, "attempt": _ATTEMPT})
    return found.text


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
            return f"{column}::json"
        case _:
            return column


def _copy(session: Session, sql: str, values: dict[str, Any]) -> bytes:
    data = bytearray()
    with ClientCursor(driver_connection(session)).copy(_BOUND.sub(r"%(\1)s", sql), values) as lines:
        for line in lines:
            data += line
    return bytes(data)
