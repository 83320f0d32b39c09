"""The note of whose answer a worker reads, and what becomes of an answer that ends its reader.

An answer may freeze or crash the process that reads it. The broker gives its message to the next
worker, and so to all of them in turn. So each worker notes an item before it reads its answer, in a
file that outlives the process and is locked while the process lives. Another worker that finds the
note unlocked stores the death. With the second death the item gets its verdict: it is not asked
again.

Only the item whose answer is being read counts, not the hundreds that a process holds: no other one
is to blame for a `kill -9`.
"""

import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

from msgspec import json
from msgspec.structs import asdict
from sqlalchemy import Engine

from aegish_dist.core.outcome import ErrorClass, Outcome
from aegish_dist.core.verdict import CallError, Item, Verdict
from aegish_dist.db.engine import transaction
from aegish_dist.db.verdicts import add_reading_death, insert_verdicts, look_up
from aegish_dist.errors import InputError, StoreUnusableError
from aegish_dist.logs import get_logger

log = get_logger(__name__)

SIZE = mmap.PAGESIZE
"""Bytes of a note: one that is true while an answer is read, then the item as a line of JSON."""
DEATHS = 2
"""Workers that may die while they read an answer of an item, before it is given up."""
REASON = (
    "two workers ended while they read the answer: it is not asked again;"
    " `aegish-dist retry --run-id {} --outcome API_ERROR` asks it once more"
)
_encode = json.Encoder().encode


def open_note(folder: Path, worker: str) -> Callable[[Item | None], None]:
    """Return a function that notes the item whose answer is read now; None: no answer is.

    The next worker that starts removes the file. Where the folder takes none, the worker goes on
    without, and says so.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (folder / worker).open("xb+") as file:
            flock(file, LOCK_EX)  # for as long as there is the memory, which holds the file open
            # On a disk that is full, memory without blocks would end the process.
            os.posix_fallocate(file.fileno(), 0, SIZE)
            memory = mmap.mmap(file.fileno(), SIZE)
    except OSError as error:
        log.warning("reading_not_noted", folder=str(folder), problem=str(error))
        return lambda item: None

    def note(item: Item | None) -> None:
        # Writing to memory: every answer pays for it.
        if item is not None:
            text = _encode(item)[: SIZE - 2] + b"\n"
            memory[1 : 1 + len(text)] = text
        memory[0] = item is not None  # only now: the process may end at any point

    return note


def store_deaths(engine: Engine, folder: Path, left: set[Path]) -> None:
    """Store which workers of this machine died while they read an answer; raises nothing.

    Args:
        left: Files that are no notes, or of another database: each is named once, and stays.
    """
    for path in set(folder.glob("*")) - left:
        try:
            # Another worker may be faster. What is locked belongs to a worker that lives.
            with suppress(FileNotFoundError, BlockingIOError):
                _take(engine, path)
        except Exception as error:
            log.warning("reading_note_left", path=str(path), problem=str(error))
            if not isinstance(error, StoreUnusableError):
                left.add(path)


def _take(engine: Engine, path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb", buffering=0) as file:
        flock(file, LOCK_EX | LOCK_NB)
        text = file.read(SIZE + 1)
        if not text:
            return  # it is just being made
        if len(text) != SIZE or os.fstat(descriptor).st_uid != os.geteuid():
            raise InputError("it is no note of a worker of this user")
        if text[0]:
            item = json.decode(text[1:].partition(b"\n")[0], type=Item)
            _store(engine, item, path.name)
        path.unlink()  # after the commit: what is stored twice is still one death


def _store(engine: Engine, item: Item, worker: str) -> None:
    with transaction(engine) as session:
        (found,) = look_up(session, [item])
        if found is None:
            raise InputError("this database has no such item")
        deaths = add_reading_death(session, found.key, worker)
        if deaths >= DEATHS and not found.done:
            insert_verdicts(session, [(found.key, _given_up(item, worker))])
    log.warning("worker_died_reading", worker=worker, deaths=deaths, **asdict(item))


def _given_up(item: Item, worker: str) -> Verdict:
    kind = ErrorClass.MALFORMED  # the answer has come
    reason = REASON.format(item.run_id)
    now = datetime.now(UTC)
    return Verdict(
        Outcome.API_ERROR,
        None,
        kind,
        attempts=DEATHS,
        worker=worker,
        created_at=now,
        call_errors=(CallError(DEATHS, kind, None, None, reason, now),),
    )
