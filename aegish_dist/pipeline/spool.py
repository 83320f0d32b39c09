"""Answers that could not be stored, in files of one JSON object per line, and their way back.

A worker that has to end while the database is away writes down what it holds; the next worker that
starts on this machine, or `aegish-dist verdicts recover`, stores it. A line names its item by run,
model and sample, so that nothing is stored in another database. It holds what a verdict holds.
"""

import json
import secrets
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec import Struct
from sqlalchemy import Engine
from sqlalchemy.exc import DataError, IntegrityError
from sqlalchemy.orm import Session

from aegish_dist.broker.messages import decode, encode
from aegish_dist.core.verdict import Item
from aegish_dist.db.engine import transaction
from aegish_dist.db.schema import error_row, verdict_row
from aegish_dist.db.verdicts import insert_rows, look_up
from aegish_dist.errors import DatasetError, InputError
from aegish_dist.files import replacing
from aegish_dist.inputs.checking import Location
from aegish_dist.inputs.documents import open_input
from aegish_dist.logs import get_logger
from aegish_dist.pipeline.evaluate import Evaluated

log = get_logger(__name__)

LEFT_OVER = "answers"  # begins the name of a file that workers store by themselves
REFUSED = "refused"  # begins the name of a file whose rows the database has refused
GROUP = 500
# More than an answer can take: a body of 1 MiB, escaped, with the errors of ten attempts.
MAX_LINE_BYTES = 2**24
NO_ITEM = "this database has no such item"
# Lines without an answer after which a file that began with them is taken for another one.
MAX_DAMAGED = 1000


class Recovered(Struct, frozen=True):
    stored: int
    present: int
    damaged: int  # lines that cannot be stored; they are kept in a file of their own
    kept: Path | None
    problem: str | None


def spool(folder: Path, group: Sequence[Evaluated], kind: str = LEFT_OVER) -> Path:
    """Write answers down, whole or not at all, for the owner of the process alone."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    now = datetime.now(UTC)
    path = folder / f"{kind}-{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}.jsonl"
    with replacing(path, private=True) as stream:
        for evaluated in group:
            stream.write(f"{_line(evaluated)}\n".encode())
    return path


def _line(evaluated: Evaluated) -> str:
    item, key, verdict = evaluated
    line = {
        "item": encode(item),
        "verdict": verdict_row(key, verdict),
        "errors": [error_row(key, error) for error in verdict.call_errors],
    }
    return json.dumps(line, default=str)


def recover_folder(engine: Engine, folder: Path) -> None:
    """Store all that workers of this machine left over; what cannot be stored now stays."""
    elsewhere = 0
    for path in sorted(folder.glob(f"{LEFT_OVER}-*.jsonl")):
        try:
            found = recover(engine, path)
        except DatasetError as error:
            if NO_ITEM in error.problem:
                elsewhere += 1
            else:
                log.error("answers_not_recovered", path=str(path), problem=str(error))
        except Exception as error:
            log.exception("answers_not_recovered", path=str(path), error=type(error).__name__)
        else:
            log.info(
                "answers_recovered", path=str(path), stored=found.stored, present=found.present
            )
            if found.kept is not None:
                log.error(
                    "answers_damaged",
                    path=str(found.kept),
                    lines=found.damaged,
                    problem=found.problem,
                )
    if elsewhere:
        log.warning(
            "answers_for_another_database",
            files=elsewhere,
            folder=str(folder),
            remedy="they are left as they are: move or delete them",
        )


def recover(engine: Engine, path: Path) -> Recovered:
    """Store a file of answers and remove it; lines that cannot be stored are kept beside it.

    Raises:
        DatasetError: The file cannot be read, or nothing in it can be stored: it is another file
            or belongs to another database. It is left as it is.
    """
    number = stored = present = 0
    damaged: list[bytes] = []
    problem = None
    lines = _lines(path)
    with transaction(engine) as session:
        while group := list(islice(lines, GROUP)):
            for part, came in _store_all(session, group):
                number += len(part)
                if isinstance(came, InputError):
                    damaged += part
                    problem = problem or f"line {number}: {came}"
                else:
                    stored, present = stored + came, present + len(part) - came
            if len(damaged) >= MAX_DAMAGED and not stored + present:
                break
    if not stored + present:
        raise DatasetError(
            f"nothing in it can be stored, the file is left as it is ({problem or 'it is empty'})",
            source=str(path),
        )
    kept = path.with_name(f"{path.name}.damaged") if damaged else None
    if kept is not None:
        with replacing(kept, private=True) as stream:
            stream.writelines(line + b"\n" for line in damaged)
    path.unlink(missing_ok=True)
    return Recovered(stored, present, len(damaged), kept, problem)


def _lines(path: Path) -> Iterator[bytes]:
    with Location(str(path)), open_input(path) as file:
        while line := file.readline(MAX_LINE_BYTES):
            if len(line) == MAX_LINE_BYTES:
                what = f"has a line above {MAX_LINE_BYTES:,} bytes, the file is left as it is"
                raise InputError(what)
            if line.strip():
                yield line.rstrip(b"\r\n")


def _store_all(
    session: Session, lines: Sequence[bytes]
) -> Iterator[tuple[Sequence[bytes], int | InputError]]:
    """Store lines together, as a worker that starts waits for it, or else one by one.

    Yields some of the lines in their order, with how many of their verdicts were not there yet.
    """
    try:
        yield lines, _store(session, lines)
    except InputError as error:
        if len(lines) == 1:
            yield lines, error
        else:
            for line in lines:
                yield from _store_all(session, [line])


def _store(session: Session, lines: Sequence[bytes]) -> int:
    """Store lines; return how many verdicts were not there yet."""
    read = list(map(_read, lines))
    rows: list[dict[str, Any]] = []
    errors: list[dict[str, Any]] = []
    try:
        with session.begin_nested():
            found = look_up(session, [item for item, _, _ in read])
            for (_, row, its_errors), known in zip(read, found, strict=True):
                if known is None:
                    raise InputError(NO_ITEM)
                key = known.key.columns()
                rows.append(row | key)
                errors += [error | key for error in its_errors]
            return insert_rows(session, rows, errors)
    except (DataError, IntegrityError, UnicodeError) as error:
        raise InputError(f"the database refuses it ({type(error).__name__})") from error


def _read(line: bytes) -> tuple[Item, dict[str, Any], list[dict[str, Any]]]:
    try:
        answer = json.loads(line)
        row, errors = answer["verdict"], answer["errors"]
        for columns in (row, *errors):
            if not isinstance(columns, dict):
                raise ValueError("no columns")
        return decode(answer["item"]), row, errors
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError("it is not the line of an answer") from error
