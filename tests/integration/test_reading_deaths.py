"""Notes of whose answer is read: what a killed worker leaves behind, and what becomes of its item."""

import fcntl
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec import json
from msgspec.structs import replace
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session
from structlog.testing import capture_logs

from aegish_dist.core.outcome import ErrorClass, Outcome
from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.core.verdict import Item, Verdict
from aegish_dist.db import deletion
from aegish_dist.db.engine import open_engine, transaction
from aegish_dist.db.verdicts import look_up
from aegish_dist.pipeline.control import plan_retry
from aegish_dist.pipeline.reading import REASON, SIZE, open_note, store_deaths
from tests.defined import defined
from tests.integration.samples import BLOCKED, TAR
from tests.integration.stored_runs import a_run, answer, stored_run
from tests.recorded import stored_recordings

READER = """
import os, signal, sys
from pathlib import Path
from msgspec import json
from aegish_dist.core.verdict import Item
from aegish_dist.pipeline.reading import open_note

folder, worker, items, by = sys.argv[1:]
note = open_note(Path(folder), worker)
for item in json.decode(items, type=list[Item | None]):
    note(item)
if by == "by itself":
    sys.exit()
if by == "never":
    print("reads", flush=True)
    signal.pause()
os.kill(os.getpid(), signal.Signals[by])
"""
"""A process that reads answers, in the way that a worker does, and ends by a signal."""


class Notes:
    """A folder of notes, and what the store has of a run of three items whose answers are read."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine, self.folder = engine, folder
        self.run = stored_run(engine)
        self.items = self.run.items()
        self.item = self.run.item(TAR)

    def dies(self, worker: str, *items: Item | None) -> None:
        """Leave behind what a process does that ends now: with its memory, its lock goes."""
        note = open_note(self.folder, worker)
        for item in items or (self.item,):
            note(item)

    def command(self, worker: str, *items: Item | None, by: str) -> list[str]:
        asked = json.encode(items).decode()
        return [sys.executable, "-c", READER, str(self.folder), worker, asked, by]

    def ends(self, worker: str, *items: Item | None, by: str) -> None:
        """Have a process of its own read answers of items, the last of which ends it."""
        done = subprocess.run(self.command(worker, *items, by=by), check=False)
        assert done.returncode == (0 if by == "by itself" else -signal.Signals[by])

    def settle(self) -> list[Any]:
        """Look once, as a worker that starts; return the lines of its log."""
        with capture_logs() as logs:
            store_deaths(self.engine, self.folder, set())
        return logs

    def deaths(self) -> list[tuple[Any, ...]]:
        facts = "sample_key, epoch, generation, worker"
        with self.engine.connect() as connection:
            rows = connection.execute(text(f"SELECT {facts} FROM reading_deaths ORDER BY worker"))
            return [tuple(row) for row in rows]

    def verdicts(self) -> list[Verdict]:
        with Session(self.engine) as session:
            return [each.verdict for each in stored_recordings(session, self.run.run_id)]

    def done(self, *items: Item) -> list[bool]:
        with Session(self.engine) as session:
            return [defined(each).done for each in look_up(session, items)]

    def names(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}


@pytest.fixture
def notes(engine: Engine, tmp_path: Path) -> Notes:
    (tmp_path / "reading").mkdir()
    return Notes(engine, tmp_path / "reading")


@pytest.mark.parametrize("by", ["SIGKILL", "SIGSEGV", "SIGTERM"])
def test_the_second_death_is_the_verdict(notes: Notes, by: str) -> None:
    """Each death is logged and stored; only then the item has a verdict, which says why."""
    item = notes.item
    notes.ends("first", item, by=by)
    [logged] = notes.settle()
    key = (item.sample_key, 1, 0)
    assert notes.deaths() == [(*key, "first")]
    assert notes.verdicts() == []
    facts = {"run_id": item.run_id, "model": item.model, "sample_key": item.sample_key}
    facts |= {"event": "worker_died_reading", "log_level": "warning"}
    assert logged.items() >= (facts | {"worker": "first", "deaths": 1}).items()

    notes.dies("second")
    [logged] = notes.settle()
    assert logged.items() >= (facts | {"worker": "second", "deaths": 2}).items()
    assert notes.deaths() == [(*key, "first"), (*key, "second")]
    [verdict] = notes.verdicts()
    assert (verdict.outcome, verdict.error_class) == (Outcome.API_ERROR, ErrorClass.MALFORMED)
    assert (verdict.completion, verdict.cost_usd, verdict.worker) == (None, None, "second")
    [error] = verdict.call_errors
    assert error.message == REASON.format(item.run_id)
    assert error.error_class is ErrorClass.MALFORMED
    assert notes.done(item) == [True]
    assert notes.names() == set()


def test_only_the_item_that_is_read_counts(notes: Notes) -> None:
    """Of three items, one has been read, one is being read, and one waits for its answer."""
    read, reading, _ = notes.items
    notes.dies("w", read, None, reading)
    notes.settle()
    assert notes.deaths() == [(reading.sample_key, 1, 0, "w")]


def test_a_worker_between_two_answers_leaves_no_death(notes: Notes) -> None:
    """`kill -9`, and a worker that stops: their files go, and nothing is said."""
    first, second, _ = notes.items
    notes.ends("b", first, None, second, None, by="SIGKILL")
    notes.ends("c", first, None, by="by itself")
    assert notes.settle() == []
    assert notes.deaths() == []
    assert notes.names() == set()


def test_a_short_item_after_a_long_one(notes: Notes) -> None:
    """What a longer note leaves behind a shorter one is no part of it."""
    item = notes.item
    notes.dies("w", replace(item, model="m" * 300), None, item)
    notes.settle()
    assert len(notes.deaths()) == 1


def test_a_living_worker_is_left_alone(notes: Notes) -> None:
    """It may be slow; when it is killed, another process finds its note."""
    command = notes.command("w", notes.item, by="never")
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert defined(process.stdout).readline() == b"reads\n"
        assert notes.settle() == []
        assert (notes.deaths(), notes.names()) == ([], {"w"})
        process.kill()
    notes.settle()
    assert len(notes.deaths()) == 1


def test_a_file_that_is_just_being_made_is_left_alone(notes: Notes) -> None:
    """It is there before it is locked."""
    (notes.folder / "w").touch()
    assert notes.settle() == []
    assert notes.names() == {"w"}


def test_a_note_that_is_stored_twice_is_one_death(notes: Notes) -> None:
    """As after a worker that was killed between the commit and the removal of the file."""
    notes.dies("w")
    note = (notes.folder / "w").read_bytes()
    for _ in range(3):
        (notes.folder / "w").write_bytes(note)
        notes.settle()
    assert len(notes.deaths()) == 1
    assert notes.verdicts() == []


def test_a_verdict_that_is_there_stays(notes: Notes) -> None:
    """A worker that dies just after the reading, or beside one that stores the answer."""
    answer(notes.engine, notes.run, {notes.item: BLOCKED})
    for worker in ("a", "b", "c"):
        notes.dies(worker)
    notes.settle()
    [verdict] = notes.verdicts()
    assert verdict.outcome is Outcome.BLOCK
    assert verdict.call_errors == ()


def test_many_workers_that_look_at_once(notes: Notes) -> None:
    """Each death counts once, and the second one of each item is never missed."""
    for item in notes.items:
        for worker in ("a", "b"):
            notes.dies(f"{worker}{item.sample_key}", item)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: store_deaths(notes.engine, notes.folder, set()), range(8)))
    assert len(notes.deaths()) == 2 * 3
    assert [each.outcome for each in notes.verdicts()] == [Outcome.API_ERROR] * 3
    assert notes.names() == set()


def test_machines_that_count_one_item_at_once(notes: Notes, tmp_path: Path) -> None:
    """Workers of two machines find one death each: one of them knows of both."""
    many = Dataset("many", tuple(Sample(f"echo {n}", TrueLabel.HARMLESS) for n in range(10)))
    notes.run = stored_run(notes.engine, run_id="0ijklmnop", datasets=(many,))
    items = notes.run.items()
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        for number, item in enumerate(items):
            line = b"\1" + json.encode(item) + b"\n"
            (folder / f"{folder.name}{number}").write_bytes(line.ljust(SIZE, b"\0"))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda name: store_deaths(notes.engine, tmp_path / name, set()), "ab"))
    assert len(notes.verdicts()) == len(items)


def test_a_retry_asks_once_more_and_counts_anew(notes: Notes) -> None:
    """Deaths belong to a generation."""
    others = {item: BLOCKED for item in notes.items if item != notes.item}
    answer(notes.engine, notes.run, others)
    for worker in ("a", "b"):
        notes.dies(worker)
    notes.settle()
    plan_retry(notes.engine, a_run(), {Outcome.API_ERROR})
    again = replace(notes.item, generation=1)
    assert notes.done(notes.item, again) == [True, False]
    notes.dies("c", again)
    notes.settle()
    assert len(notes.verdicts()) == 3
    notes.dies("d", again)
    notes.settle()
    generations = [generation for _, _, generation, _ in notes.deaths()]
    assert generations == [0, 0, 1, 1]
    assert len(notes.verdicts()) == 4


def test_a_deleted_run_takes_its_deaths_along(notes: Notes) -> None:
    notes.dies("a")
    notes.settle()
    notes.dies("b")
    with transaction(notes.engine) as session:
        deletion.delete_run(session, notes.run.run_id)
    assert notes.deaths() == []
    [logged] = notes.settle()
    assert logged["event"] == "reading_note_left"
    assert (notes.deaths(), notes.names()) == ([], {"b"})


def a_symlink(path: Path) -> None:
    path.with_name("target").write_bytes(bytes(SIZE))
    path.symlink_to(path.with_name("target").rename(path.parents[1] / "target"))


def a_huge_file(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**33)


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


def a_note_of_another_user(path: Path) -> None:
    path.write_bytes(bytes(SIZE))
    os.chown(path, 12345, 12345)


def written(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content.ljust(SIZE, b"\0"))


FORGED: dict[str, Callable[[Path], object]] = {
    "random bytes": lambda path: path.write_bytes(os.urandom(SIZE - 1) + b"x"),
    "a short file": lambda path: path.write_bytes(b"\0"),
    "a huge file": a_huge_file,
    "no JSON": written(b"\1?\n"),
    "no end": lambda path: path.write_bytes(b"\1" + b"[" * (SIZE - 1)),
    "not an item": written(b"\1[1, 2]\n"),
    "an item of the wrong types": written(b'\1{"run_id": 1, "model": "m", "sample_key": "1"}\n'),
    "a key beyond all columns": written(
        b'\1{"run_id": "0abcdefgh", "model": "test/a", "sample_key": 99999999999999999999}\n'
    ),
    "an epoch beyond its column": written(
        b'\1{"run_id": "0abcdefgh", "model": "test/a", "sample_key": 1, "epoch": 99999}\n'
    ),
    "a NUL in a name": written(
        b'\1{"run_id": "0abc\\u0000", "model": "test/a", "sample_key": 1}\n'
    ),
    "half of a surrogate": written(
        b'\1{"run_id": "0abc\\ud800", "model": "test/a", "sample_key": 1}\n'
    ),
    "another run": written(b'\1{"run_id": "0other", "model": "test/a", "sample_key": 1}\n'),
    "a symbolic link": a_symlink,
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a folder": Path.mkdir,
    "a socket": a_socket,
    "another user's": a_note_of_another_user,
}


def test_what_is_no_note_is_named_once_and_left(notes: Notes) -> None:
    """The notes beside it are stored all the same."""
    for name, make in FORGED.items():
        make(notes.folder / name)
    notes.dies("worker")
    left: set[Path] = set()
    with capture_logs() as logs:
        for _ in range(2):
            store_deaths(notes.engine, notes.folder, left)
    logged = [line["path"] for line in logs if line["event"] == "reading_note_left"]
    assert sorted(logged) == sorted(str(notes.folder / name) for name in FORGED)
    assert notes.names() == {*FORGED}
    assert len(notes.deaths()) == 1
    assert notes.verdicts() == []


def test_a_pipe_holds_up_nobody(notes: Notes) -> None:
    os.mkfifo(notes.folder / "pipe")
    notes.dies("w")
    notes.settle()
    assert (len(notes.deaths()), notes.names()) == (1, {"pipe"})


def test_a_name_that_is_no_text(notes: Notes) -> None:
    notes.dies("w")
    (notes.folder / "w").rename(os.fsdecode(os.fsencode(notes.folder) + b"/\xff"))
    [logged] = notes.settle()
    assert logged["event"] == "reading_note_left"
    assert notes.deaths() == []


def test_a_database_that_is_away_keeps_the_note(notes: Notes) -> None:
    """The same worker stores it as soon as the database is back."""
    notes.dies("w")
    left: set[Path] = set()
    away = open_engine("postgresql://nobody@127.0.0.1:1/none")
    store_deaths(away, notes.folder, left)
    assert notes.names() == {"w"}
    store_deaths(notes.engine, notes.folder, left)
    assert (len(notes.deaths()), notes.names()) == (1, set())


def test_no_folder_is_no_death(notes: Notes) -> None:
    notes.folder.rmdir()
    assert notes.settle() == []


ITEM = Item("0abcdefgh", "test/a", 1, 1, 0)


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A file system without a free block; without the right to mount, a limit of no byte."""
    folder = tmp_path / "full"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k,mode=700", "none", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        yield folder
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        return
    (folder / "other").write_bytes(bytes(4096))
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def goes_on_without(folder: Path) -> None:
    with capture_logs() as logs:
        note = open_note(folder, "w")
        for each in (ITEM, None, ITEM):
            note(each)
    assert [line["event"] for line in logs] == ["reading_not_noted"]


def test_a_full_disk_does_not_end_a_worker(full: Path) -> None:
    """It says so once, and its answers are read as before; the signal would be SIGBUS."""
    goes_on_without(full)


def test_a_folder_that_takes_no_file_does_not_end_a_worker(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    goes_on_without(tmp_path / "file")
    goes_on_without(Path("/proc/self"))


def test_a_name_beyond_the_note_does_not_end_a_worker(tmp_path: Path) -> None:
    note = open_note(tmp_path, "w")
    note(replace(ITEM, model="m" * 2 * SIZE))
    note(None)
    path = tmp_path / "w"
    with path.open("rb") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert path.stat().st_size == SIZE


def test_the_lock_is_not_inherited(notes: Notes) -> None:
    """A guard that a worker started may outlive it."""
    script = READER.replace(
        "os.kill(", "import subprocess; subprocess.Popen(['sleep', '30']); os.kill("
    )
    command = notes.command("w", notes.item, by="SIGKILL")
    command[2] = script.replace("Popen(", "Popen(close_fds=False, args=")
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    notes.settle()
    assert len(notes.deaths()) == 1
