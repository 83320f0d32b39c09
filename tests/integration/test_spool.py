"""Answers in files: written when the database is away, stored when it is back."""

import asyncio
import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session
from structlog.testing import capture_logs

from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.core.verdict import CallError, Completion, Item
from aegish_dist.db.engine import open_engine
from aegish_dist.db.schema import error_row
from aegish_dist.errors import DatasetError
from aegish_dist.opinions.parsing import judge
from aegish_dist.pipeline.evaluate import Evaluated
from aegish_dist.pipeline.spool import Recovered, recover, recover_folder, spool
from tests.integration.command_line import CommandLine
from tests.integration.samples import COMMANDS, NOON
from tests.integration.stored_runs import StoredRun, answer, stored_run
from tests.recorded import stored_recordings
from workers.store import DaemonThread
from workers.writer import VerdictWriter

AWAY = open_engine("postgresql://nobody@127.0.0.1:1/none")

ANY_TEXT = 'line\nbreak \ufffd \ufffd \ue000 {"action": "BLOCK"}'
SLOW = CallError(1, ErrorClass.RATE_LIMIT, 429, 1.5, "slow down\ufffd", NOON)
FACTS: dict[str, Any] = {"attempts": 2, "worker": "w", "created_at": NOON, "call_errors": (SLOW,)}
VERDICT = replace(judge(Completion(ANY_TEXT)), **FACTS)


@pytest.fixture
def stored(engine: Engine) -> StoredRun:
    return stored_run(engine)


def evaluated(run: StoredRun, dataset: Dataset = COMMANDS) -> list[Evaluated]:
    """Return answers about samples, as a worker holds them."""
    items = [run.item(sample, dataset=dataset.name) for sample in dataset.samples]
    return [Evaluated(item, run.key(item), VERDICT) for item in items]


@pytest.fixture
def path(stored: StoredRun, tmp_path: Path) -> Path:
    """A file with an answer for each item of the run."""
    return spool(tmp_path, evaluated(stored))


def verdicts(engine: Engine, run: StoredRun) -> list[object]:
    with Session(engine) as session:
        return [each.verdict for each in stored_recordings(session, run.run_id)]


def test_answers_survive_a_file(engine: Engine, stored: StoredRun, tmp_path: Path) -> None:
    answers = evaluated(stored)
    path = spool(tmp_path / "new" / "spool", answers)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert recover(engine, path) == Recovered(3, 0, 0, None, None)
    assert verdicts(engine, stored) == [each.verdict for each in answers]
    assert not path.exists()


def test_storing_a_file_twice_does_no_harm(
    engine: Engine, stored: StoredRun, tmp_path: Path
) -> None:
    """A stored verdict stays as it is: a file may hold one that was stored after all."""
    answers = evaluated(stored)
    first = replace(answers[0].verdict, worker="first", call_errors=())
    answer(engine, stored, {answers[0].item: first})
    spool(tmp_path, answers)
    spool(tmp_path, answers)
    recover_folder(engine, tmp_path)
    found = verdicts(engine, stored)
    assert len(found) == 3
    assert first in found
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "null",
        "[" * 100_000,
        '{"item": ["r", "m", 1, 1, 0], "verdict": [], "errors": []}',
        '{"item": ["r", "m", 1, 1, 0], "verdict": {}, "errors": [7]}',
        '{"item": ["r\\u0000", "m", 1, 1, 0], "verdict": {}, "errors": []}',
        '{"item": ["r\\ud800", "m", 1, 1, 0], "verdict": {}, "errors": []}',
        '{"item": ["another", "m", 1, 1, 0], "verdict": {}, "errors": []}',
        '{"item": ["r", "m", 99999999999999999999, 1, 0], "verdict": {}, "errors": []}',
    ],
    ids=range(10),
)
def test_a_damaged_line(
    engine: Engine, stored: StoredRun, path: Path, tmp_path: Path, line: str
) -> None:
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], line, *lines[1:], ""]))
    with capture_logs() as logs:
        recover_folder(engine, tmp_path)
    assert len(verdicts(engine, stored)) == 3
    (kept,) = tmp_path.iterdir()
    assert kept.name == f"{path.name}.damaged"
    assert kept.read_text() == line + "\n"
    damaged = [each for each in logs if each["log_level"] == "error"]
    assert [(each["event"], each["path"]) for each in damaged] == [("answers_damaged", str(kept))]
    assert damaged[0]["problem"].startswith("line 2: ")


@pytest.mark.parametrize("column", ["outcome", "attempts", "created_at", "cost_usd", "worker"])
def test_a_row_that_the_database_refuses(
    engine: Engine, stored: StoredRun, path: Path, column: str
) -> None:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[1]["verdict"][column] = {"x": 1} if column != "worker" else "\x00"
    lines[1]["verdict"]["run_model_id"] = 999
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = recover(engine, path)
    assert (found.stored, found.damaged) == (2, 1)
    assert len(verdicts(engine, stored)) == 2


def test_a_file_of_another_database(
    engine: Engine, stored: StoredRun, path: Path, tmp_path: Path
) -> None:
    lines = path.read_text().replace(stored.run_id, "0another0")
    path.write_text(lines)
    with pytest.raises(
        DatasetError, match=r"left as it is \(line 1: this database has no such item"
    ):
        recover(engine, path)
    for copy in ("answers-1.jsonl", "answers-2.jsonl"):
        (tmp_path / copy).write_text(lines)
    with capture_logs() as logs:
        recover_folder(engine, tmp_path)
    [line] = [(each["event"], each["log_level"], each["files"]) for each in logs]
    assert line == ("answers_for_another_database", "warning", 3)
    assert [each.read_text() for each in tmp_path.iterdir()] == [lines] * 3
    assert verdicts(engine, stored) == []


@pytest.mark.parametrize("content", ["", "?\n", '{"model": "a/b"}\n' * 3000])
def test_a_file_of_something_else(tmp_path: Path, content: str) -> None:
    path = tmp_path / "verdicts.jsonl"
    path.write_text(content)
    with pytest.raises(DatasetError, match="left as it is"):
        recover(AWAY, path)
    assert [each.read_text() for each in tmp_path.iterdir()] == [content]


def test_a_file_without_an_end_of_a_line(tmp_path: Path) -> None:
    """A crash may leave a file of zero bytes, of any size; memory holds one line of it."""
    path = tmp_path / "answers-1.jsonl"
    path.touch()
    os.truncate(path, 2**33)
    with pytest.raises(DatasetError, match="has a line above 16,777,216 bytes"):
        recover(AWAY, path)
    assert path.exists()


def test_only_files_are_recovered(tmp_path: Path) -> None:
    """A pipe and a device, which may never end, are refused at once."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(DatasetError, match="not a regular file"):
            recover(AWAY, path)


def test_many_answers_are_stored_within_the_time_of_a_start(engine: Engine, tmp_path: Path) -> None:
    """A worker that stores them at its start takes no messages meanwhile: it does so in groups."""
    samples = tuple(Sample(f"echo {number}", TrueLabel.HARMLESS) for number in range(2000))
    dataset = Dataset("many", samples)
    path = spool(tmp_path, evaluated(stored_run(engine, datasets=(dataset,)), dataset))
    statements = []
    event.listen(engine, "before_cursor_execute", lambda *_: statements.append(1))
    assert recover(engine, path).stored == 2000
    assert len(statements) <= 50


def test_a_database_that_is_away_keeps_the_file(path: Path, tmp_path: Path) -> None:
    with capture_logs() as logs:
        recover_folder(AWAY, tmp_path)
    assert path.exists()
    assert [each["event"] for each in logs] == ["answers_not_recovered"]


def test_the_command(aegish: CommandLine, stored: StoredRun, path: Path, tmp_path: Path) -> None:
    done = aegish.ok("verdicts recover", path)
    assert done.out == ""
    assert "3 answers stored, 0 were there already" in done.err
    aegish.refused("verdicts recover", path)
    again = spool(tmp_path, evaluated(stored))
    again.write_text("?\n" + again.read_text())
    left = aegish("verdicts recover", again)
    assert left.code == 1
    assert f"{again.name}.damaged" in left.err


@contextmanager
def writing(record: Callable[..., list[None]], folder: Path) -> Iterator[VerdictWriter]:
    thread = DaemonThread("test")
    yield VerdictWriter(record, thread, folder=folder)
    thread.shutdown()


class Database:
    """Refuses the samples of a set, and otherwise is away."""

    def __init__(self, refused: Item) -> None:
        self._refused = refused

    def __call__(self, group: Sequence[Evaluated]) -> list[None]:
        if [each.item for each in group] == [self._refused]:
            raise ValueError("a row of its own kind")
        raise OSError("away") if len(group) == 1 else ValueError("some row")


async def test_what_a_worker_keeps(engine: Engine, stored: StoredRun, tmp_path: Path) -> None:
    """A refused answer goes to a file at once, the others at the end; no log has a completion."""
    answers = evaluated(stored)
    with capture_logs() as logs, writing(Database(answers[1].item), tmp_path) as writer:
        tasks = [asyncio.create_task(writer(each)) for each in answers]
        await asyncio.wait_for(tasks[1], 10)  # acknowledged: asking again would cost as much
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await writer.close()
    assert "action" not in str(logs)
    (refused,), (left,) = tmp_path.glob("refused-*"), tmp_path.glob("answers-*")
    assert recover(engine, left).stored == 2
    recover_folder(engine, tmp_path)
    assert refused.exists()
    assert recover(engine, refused).stored == 1
    assert len(verdicts(engine, stored)) == 3


async def test_a_refused_answer_whose_item_was_cancelled(stored: StoredRun, tmp_path: Path) -> None:
    """It is paid for: it goes to a file although no coroutine waits for it any more."""
    first = evaluated(stored)[0]
    with writing(Database(first.item), tmp_path) as writer:
        task = asyncio.create_task(writer(first))
        await asyncio.sleep(0)  # it waits for its group
        task.cancel()
        async with asyncio.timeout(10):
            while not list(tmp_path.glob("*.jsonl")):
                await asyncio.sleep(0.001)
        assert await writer.close() == []
    (path,) = tmp_path.iterdir()
    assert path.name.startswith("refused-")


@pytest.mark.parametrize("second", ["folder", "file"])
async def test_a_folder_that_cannot_be_written(
    stored: StoredRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: str
) -> None:
    """Answers go to a folder of their own among the temporary files, or are lost with a word."""
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / second))
    first = evaluated(stored)[0]
    with capture_logs() as logs, writing(Database(first.item), tmp_path / "file") as writer:
        await asyncio.wait_for(writer(first), 10)
    last = logs[-1]["event"], logs[-1]["answers"]
    assert last == ("answers_kept_in_file" if second == "folder" else "answers_lost", 1)
    for path in (tmp_path / "folder").rglob("*.jsonl"):
        assert str(path) == logs[-1]["path"]
        assert path.parent.stat().st_mode & 0o077 == 0


async def test_an_answer_that_cannot_be_written_at_all(stored: StoredRun, tmp_path: Path) -> None:
    """A bug in one row neither keeps the answers of its group waiting nor loses those after it."""
    broken, *others = evaluated(stored)
    failed = cast("CallError", 429)
    broken = broken._replace(verdict=replace(broken.verdict, call_errors=(failed,)))

    def record(group: Sequence[Evaluated]) -> list[None]:
        for each in group:
            for error in each.verdict.call_errors:
                error_row(each.key, error)
        return [None for _ in group]

    with capture_logs() as logs, writing(record, tmp_path) as writer:
        await asyncio.wait_for(asyncio.gather(*map(writer, [broken, *others])), 10)
        assert await writer.close() == []
    assert [each["event"] for each in logs] == ["verdict_refused", "answers_lost"]
