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
from aegish_dist.db.engine import open_engine
from aegish_dist.db.verdicts import look_up
from aegish_dist.pipeline.control import plan_retry
from aegish_dist.pipeline.reading import REASON, SIZE, open_note, store_deaths
from tests.integration.samples import BLOCKED, COMMANDS
from tests.integration.stored_runs import StoredRun, a_run, answer, store, stored_run
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


@pytest.fixture
def stored(engine: Engine) -> StoredRun:
    return stored_run(engine)


@pytest.fixture
def item(stored: StoredRun) -> Item:
    return stored.item(COMMANDS.samples[0])


def command_of(folder: Path, worker: str, *items: Item | None, by: str) -> list[str]:
    return [sys.executable, "-c", READER, str(folder), worker, json.encode(items).decode(), by]


def dies(folder: Path, worker: str, *items: Item | None) -> None:
    """Leave behind what a process does that ends now: with its memory, its lock goes."""
    note = open_note(folder, worker)
    for item in items:
        note(item)


def ends(folder: Path, worker: str, *items: Item | None, by: str) -> None:
    """Have a process of its own read answers of items, the last of which ends it."""
    done = subprocess.run(command_of(folder, worker, *items, by=by), check=False)
    assert done.returncode == (0 if by == "by itself" else -signal.Signals[by])


def settle(engine: Engine, folder: Path) -> list[Any]:
    """Look once, as a worker that starts; return the lines of its log."""
    with capture_logs() as logs:
        store_deaths(engine, folder, set())
    return logs


def deaths(engine: Engine) -> list[tuple[Any, ...]]:
    with engine.connect() as connection:
        rows = connection.execute(
            text("SELECT sample_key, epoch, generation, worker FROM reading_deaths ORDER BY worker")
        )
        return [tuple(row) for row in rows]


def verdicts(engine: Engine, run: StoredRun) -> list[Verdict]:
    with Session(engine) as session:
        return [each.verdict for each in stored_recordings(session, run.run_id)]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("by", ["SIGKILL", "SIGSEGV", "SIGTERM"])
def test_the_second_death_is_the_verdict(
    engine: Engine, stored: StoredRun, item: Item, tmp_path: Path, by: str
) -> None:
    """Each death is logged and stored; only then the item has a verdict, which says why."""
    ends(tmp_path, "first", item, by=by)
    [logged] = settle(engine, tmp_path)
    key = (item.sample_key, 1, 0)
    assert deaths(engine) == [(*key, "first")]
    assert verdicts(engine, stored) == []
    facts = {"run_id": item.run_id, "model": item.model, "sample_key": item.sample_key}
    assert logged.items() >= {"event": "worker_died_reading", "log_level": "warning"}.items()
    assert logged.items() >= (facts | {"worker": "first", "deaths": 1}).items()

    ends(tmp_path, "second", item, by=by)
    [logged] = settle(engine, tmp_path)
    assert logged.items() >= (facts | {"worker": "second", "deaths": 2}).items()
    assert deaths(engine) == [(*key, "first"), (*key, "second")]
    [verdict] = verdicts(engine, stored)
    assert (verdict.outcome, verdict.error_class) == (Outcome.API_ERROR, ErrorClass.MALFORMED)
    assert (verdict.completion, verdict.cost_usd, verdict.worker) == (None, None, "second")
    [error] = verdict.call_errors
    assert error.message == REASON.format(item.run_id)
    assert error.error_class is ErrorClass.MALFORMED
    with Session(engine) as session:
        [found] = look_up(session, [item])
    assert found is not None
    assert found.done
    assert names(tmp_path) == set()


def test_only_the_item_that_is_read_counts(
    engine: Engine, stored: StoredRun, tmp_path: Path
) -> None:
    """Of three items, one has been read, one is being read, and one waits for its answer."""
    read, reading, _ = map(stored.item, COMMANDS.samples)
    dies(tmp_path, "w", read, None, reading)
    settle(engine, tmp_path)
    assert deaths(engine) == [(reading.sample_key, 1, 0, "w")]


def test_a_worker_between_two_answers_leaves_no_death(
    engine: Engine, stored: StoredRun, tmp_path: Path
) -> None:
    """Twice `kill -9`, and a worker that stops: their files go, and nothing is said."""
    first, second, _ = map(stored.item, COMMANDS.samples)
    ends(tmp_path, "a", first, None, by="SIGKILL")
    ends(tmp_path, "b", first, None, second, None, by="SIGKILL")
    ends(tmp_path, "c", first, None, by="by itself")
    assert settle(engine, tmp_path) == []
    assert deaths(engine) == []
    assert names(tmp_path) == set()


def test_a_short_item_after_a_long_one(engine: Engine, stored: StoredRun, tmp_path: Path) -> None:
    """What a longer note leaves behind a shorter one is no part of it."""
    item = stored.item(COMMANDS.samples[0])
    dies(tmp_path, "w", replace(item, model="m" * 300), None, item)
    settle(engine, tmp_path)
    assert len(deaths(engine)) == 1


def test_a_living_worker_is_left_alone(engine: Engine, item: Item, tmp_path: Path) -> None:
    """It may be slow; when it is killed, another process finds its note."""
    command = command_of(tmp_path, "w", item, by="never")
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"reads\n"
        assert settle(engine, tmp_path) == []
        assert (deaths(engine), names(tmp_path)) == ([], {"w"})
        process.kill()
    settle(engine, tmp_path)
    assert len(deaths(engine)) == 1


def test_a_file_that_is_just_being_made_is_left_alone(engine: Engine, tmp_path: Path) -> None:
    """It is there before it is locked."""
    (tmp_path / "w").touch()
    assert settle(engine, tmp_path) == []
    assert names(tmp_path) == {"w"}


def test_a_note_that_is_stored_twice_is_one_death(
    engine: Engine, stored: StoredRun, item: Item, tmp_path: Path
) -> None:
    """As after a worker that was killed between the commit and the removal of the file."""
    dies(tmp_path, "w", item)
    note = (tmp_path / "w").read_bytes()
    for _ in range(3):
        (tmp_path / "w").write_bytes(note)
        settle(engine, tmp_path)
    assert len(deaths(engine)) == 1
    assert verdicts(engine, stored) == []


def test_a_verdict_that_is_there_stays(
    engine: Engine, stored: StoredRun, item: Item, tmp_path: Path
) -> None:
    """A worker that dies just after the reading, or beside one that stores the answer."""
    answer(engine, stored, {item: BLOCKED})
    for worker in ("a", "b", "c"):
        dies(tmp_path, worker, item)
    settle(engine, tmp_path)
    [verdict] = verdicts(engine, stored)
    assert verdict.outcome is Outcome.BLOCK
    assert verdict.call_errors == ()


def test_many_workers_that_look_at_once(engine: Engine, stored: StoredRun, tmp_path: Path) -> None:
    """Each death counts once, and the second one of each item is never missed."""
    for sample in COMMANDS.samples:
        for worker in ("a", "b"):
            dies(tmp_path, f"{worker}{sample.sample_id}", stored.item(sample))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: store_deaths(engine, tmp_path, set()), range(8)))
    assert len(deaths(engine)) == 2 * len(COMMANDS.samples)
    assert {each.outcome for each in verdicts(engine, stored)} == {Outcome.API_ERROR}
    assert len(verdicts(engine, stored)) == len(COMMANDS.samples)
    assert names(tmp_path) == set()


def test_machines_that_count_one_item_at_once(
    engine: Engine, stored: StoredRun, tmp_path: Path
) -> None:
    """Workers of two machines find one death each: one of them knows of both."""
    many = Dataset("many", tuple(Sample(f"echo {n}", TrueLabel.HARMLESS) for n in range(10)))
    run = stored_run(engine, run_id="0ijklmnop", datasets=(many,))
    items = [run.item(sample, dataset="many") for sample in many.samples]
    note = bytearray(SIZE)
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        for number, item in enumerate(items):
            line = b"\1" + json.encode(item) + b"\n"
            (folder / f"{folder.name}{number}").write_bytes(line + note[len(line) :])
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda name: store_deaths(engine, tmp_path / name, set()), "ab"))
    assert len(verdicts(engine, run)) == len(items)


def test_a_retry_asks_once_more_and_counts_anew(engine: Engine, tmp_path: Path) -> None:
    """Deaths belong to a generation."""
    run = a_run()
    stored = store(engine, run)
    item = stored.item(COMMANDS.samples[0])
    answer(engine, stored, dict.fromkeys(map(stored.item, COMMANDS.samples[1:]), BLOCKED))
    for worker in ("a", "b"):
        dies(tmp_path, worker, item)
    settle(engine, tmp_path)
    plan_retry(engine, run, {Outcome.API_ERROR})
    again = replace(item, generation=1)
    with Session(engine) as session:
        old, new = look_up(session, [item, again])
    assert old is not None
    assert new is not None
    assert (old.done, new.done) == (True, False)
    dies(tmp_path, "c", again)
    settle(engine, tmp_path)
    assert len(verdicts(engine, stored)) == 3
    dies(tmp_path, "d", again)
    settle(engine, tmp_path)
    generations = [generation for _, _, generation, _ in deaths(engine)]
    assert generations == [0, 0, 1, 1]
    assert len(verdicts(engine, stored)) == 4


def test_a_deleted_run_takes_its_deaths_along(
    engine: Engine, stored: StoredRun, item: Item, tmp_path: Path
) -> None:
    dies(tmp_path, "a", item)
    settle(engine, tmp_path)
    dies(tmp_path, "b", item)
    with Session(engine) as session, session.begin():
        deletion.delete_run(session, stored.run_id)
    assert deaths(engine) == []
    [logged] = settle(engine, tmp_path)
    assert logged["event"] == "reading_note_left"
    assert (deaths(engine), names(tmp_path)) == ([], {"b"})


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


@pytest.mark.parametrize("make", FORGED.values(), ids=FORGED)
def test_what_is_no_note_is_named_once_and_left(
    engine: Engine,
    stored: StoredRun,
    item: Item,
    tmp_path: Path,
    make: Callable[[Path], object],
) -> None:
    """The notes beside it are stored all the same."""
    folder = tmp_path / "reading"
    folder.mkdir()
    make(folder / "odd")
    dies(folder, "worker", item)
    left: set[Path] = set()
    with capture_logs() as logs:
        store_deaths(engine, folder, left)
        store_deaths(engine, folder, left)
    logged = [line["path"] for line in logs if line["event"] == "reading_note_left"]
    assert logged == [str(folder / "odd")]
    assert names(folder) == {"odd"}
    assert len(deaths(engine)) == 1
    assert verdicts(engine, stored) == []


def test_a_pipe_holds_up_nobody(engine: Engine, item: Item, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    dies(tmp_path, "w", item)
    settle(engine, tmp_path)
    assert (len(deaths(engine)), names(tmp_path)) == (1, {"pipe"})


def test_a_name_that_is_no_text(engine: Engine, item: Item, tmp_path: Path) -> None:
    dies(tmp_path, "w", item)
    (tmp_path / "w").rename(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    [logged] = settle(engine, tmp_path)
    assert logged["event"] == "reading_note_left"
    assert deaths(engine) == []


def test_a_database_that_is_away_keeps_the_note(engine: Engine, item: Item, tmp_path: Path) -> None:
    """The same worker stores it as soon as the database is back."""
    dies(tmp_path, "w", item)
    left: set[Path] = set()
    away = open_engine("postgresql://nobody@127.0.0.1:1/none")
    store_deaths(away, tmp_path, left)
    assert names(tmp_path) == {"w"}
    store_deaths(engine, tmp_path, left)
    assert (len(deaths(engine)), names(tmp_path)) == (1, set())


def test_no_folder_is_no_death(engine: Engine, tmp_path: Path) -> None:
    assert settle(engine, tmp_path / "none") == []


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


def goes_on_without(folder: Path, item: Item) -> None:
    with capture_logs() as logs:
        note = open_note(folder, "w")
        for each in (item, None, item):
            note(each)
    assert [line["event"] for line in logs] == ["reading_not_noted"]


def test_a_full_disk_does_not_end_a_worker(full: Path, item: Item) -> None:
    """It says so once, and its answers are read as before; the signal would be SIGBUS."""
    goes_on_without(full, item)


def test_a_folder_that_takes_no_file_does_not_end_a_worker(tmp_path: Path, item: Item) -> None:
    (tmp_path / "file").touch()
    goes_on_without(tmp_path / "file", item)
    goes_on_without(Path("/proc/self"), item)


def test_a_name_beyond_the_note_does_not_end_a_worker(tmp_path: Path, item: Item) -> None:
    note = open_note(tmp_path, "w")
    note(replace(item, model="m" * 2 * SIZE))
    note(None)
    with (tmp_path / "w").open("rb") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert (tmp_path / "w").stat().st_size == SIZE


def test_the_lock_is_not_inherited(engine: Engine, item: Item, tmp_path: Path) -> None:
    """A guard that a worker started may outlive it."""
    script = READER.replace(
        "os.kill(", "import subprocess; subprocess.Popen(['sleep', '30']); os.kill("
    )
    command = command_of(tmp_path, "w", item, by="SIGKILL")
    command[2] = script.replace("Popen(", "Popen(close_fds=False, args=")
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    settle(engine, tmp_path)
    assert len(deaths(engine)) == 1
