"""Files of a stranger, each value in turn another one: refused in a line, or harmless to all others."""

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import cycle
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from msgspec.structs import replace
from sqlalchemy import Engine, text

from aegish_dist.core.outcome import ErrorClass, Outcome
from aegish_dist.core.verdict import CallError
from aegish_dist.db import archive
from aegish_dist.db.batches import models_to_plan
from aegish_dist.db.engine import transaction
from aegish_dist.db.missing import open_queues, save_retry, take_due
from aegish_dist.errors import AegishError, StoreError
from aegish_dist.pipeline.archives import restore_run
from aegish_dist.pipeline.evaluate import Evaluated
from aegish_dist.pipeline.spool import spool
from tests.integration.command_line import CommandLine
from tests.integration.forged_archives import Rows, forge, put, rows_of
from tests.integration.samples import BLOCKED, DETAILED, LS, NOON
from tests.integration.stored_runs import answer, stored_run
from tests.integration.test_archive import contents, execute

pytestmark = pytest.mark.long
RUN, OTHER = "0abcdefgh", "0bbcdefgh"
FAR = datetime(9999, 12, 31, tzinfo=UTC)
VALUES: dict[type, tuple[object, ...]] = {
    bool: (None, True, False),
    int: (None, -1, 0, 2, 77, 2**15, 2**31, 2**62),
    float: (None, -1.0, 1e300, float("nan"), float("inf")),
    datetime: (None, datetime(1, 1, 1, tzinfo=UTC), FAR),
    str: (
        *(None, "", "x\x1b[2J'\"", OTHER, "other", "latest", "-1", "NaN", "1e1000", "planned"),
        *("{}", "[]", "null", '{"models": 1}', "[" * 500, "{99}", "submit", "import", "paused"),
        *("aegish.test/a#" + OTHER, "harmless", "test/b", "9" * 400),
    ),
}


@pytest.fixture
def place(engine: Engine, aegish: CommandLine, tmp_path: Path) -> Path:
    """Return the archive of a run with rows in all tables, which has left a store with another run."""
    stored_run(engine, BLOCKED, run_id=OTHER, name="other", models=("test/a", "test/b"))
    aegish.ok("aggregate", "--run-id", OTHER)
    failed = replace(DETAILED, call_errors=(CallError(1, ErrorClass.SERVER, 500, 1.5, "x", NOON),))
    said = {"test/a": failed, "test/b": BLOCKED}
    run = stored_run(engine, said, models=("test/a", "test/b"))
    with transaction(engine) as session:
        save_retry(session, RUN, [Outcome.BLOCK], ["test/b"])
    answer(engine, run, {run.item(LS, model="test/b", generation=1): BLOCKED})
    execute(
        engine,
        "INSERT INTO batches (run_model_id, token, state, requests, expected_usd, ended_at)"
        f" SELECT id, repeat('a', 15) || id, 'ended', 3, 1, now() FROM run_models"
        f" WHERE run_id = '{RUN}';"
        " INSERT INTO batched_items (run_model_id, sample_key, epoch, generation)"
        f" SELECT min(model.id), max(sample.key), 1, 0 FROM run_models AS model, samples AS sample"
        f" WHERE run_id = '{RUN}';"
        " INSERT INTO aggregations (run_id, scoring, finished_at)"
        f" VALUES ('{RUN}', 'aegish-5.3', now())",
    )
    aegish.ok("aggregate", "--run-id", RUN)
    aegish.ok("runs", "archive", RUN, "--to", tmp_path, "--delete", "--yes")
    return tmp_path / RUN


def _changes(rows: Rows) -> Iterator[tuple[str, Rows]]:
    """Yield the rows of a table, each time with another thing wrong."""
    if rows:
        yield "a missing row", rows[1:]
        yield "a row twice", [*rows, rows[0]]
        yield "one more row", [*rows, rows[0] | {"id": 99, "key": 99, "attempt": 9, "epoch": 9}]
    for column in rows[0] if rows else ():
        kind = next((type(each[column]) for each in rows if each[column] is not None), str)
        for value in VALUES.get(kind, ()):
            if value != rows[0][column]:
                yield f"{column} = {str(value)[:30]!r}", [rows[0] | {column: value}, *rows[1:]]


class Store:
    """A store with another run, and what may not change of it."""

    def __init__(self, engine: Engine, aegish: CommandLine) -> None:
        self.engine, self.aegish = engine, aegish
        self.rows, self.report = contents(engine), self._report()
        self._others = cycle(("status", "verdicts list", "verdicts export -o -"))

    def _report(self) -> Any:
        reported = self.aegish.ok("report", "--run-id", "other", "--format", "json").json
        return reported["run"], reported["models"], reported["ranking"]

    def require_unharmed(self) -> None:
        """Look at all other rows, their report, and whether workers would ask anything."""
        for table, rows in contents(self.engine).items():
            assert not {*self.rows[table]} - {*rows}, table
        assert self._report() == self.report
        with transaction(self.engine) as session:
            assert {each.run_id for each in open_queues(session).values()} == {OTHER}
            assert (models_to_plan(session), take_due(session)) == ([], [])
            open_batches = session.scalar(
                text("SELECT count(*) FROM batches WHERE state <> 'ended'")
            )
            assert open_batches == 0

    def require_readable(self) -> None:
        """Have the report, and in turn another command, read what was restored; none ends by a bug.

        `test_bad_rows` has all commands read all rows, whatever they hold.
        """
        for command in ("report", next(self._others)):
            done = self.aegish(*command.split(), "--run-id", RUN)
            assert done.code in (0, 1), (command, done.err)

    def forget(self) -> None:
        with transaction(self.engine) as session:
            archive.delete_run(session, RUN)
        assert contents(self.engine) == self.rows


@pytest.mark.parametrize("table", archive.TABLES)
def test_each_value_of_an_archive(
    table: str, engine: Engine, aegish: CommandLine, place: Path, tmp_path: Path
) -> None:
    store, harmful = Store(engine, aegish), []
    assert rows_of(place, table)
    for what, changed in _changes(rows_of(place, table)):
        forged = tmp_path / "forged"
        copytree(place, forged)
        with suppress(pa.ArrowException, OverflowError, psycopg.Error, StoreError):
            forge(engine, forged, table, partial(_put, changed))
        try:
            refused = _restored(engine, forged)
            if refused is None:
                store.require_unharmed()
                store.require_readable()
                store.forget()
            else:
                assert "\n" not in refused
                assert contents(engine) == store.rows
        except Exception as error:
            harmful.append(f"{what}: {type(error).__name__} {str(error)[:300]}")
            execute(engine, f"DELETE FROM runs WHERE id = '{RUN}'")
        rmtree(forged)
    assert harmful == []


def _put(changed: Rows, rows: Rows) -> None:
    rows[:] = changed


def _restored(engine: Engine, place: Path) -> str | None:
    """Restore a run; return the refusal, None where there is none."""
    try:
        restore_run(engine, place)
    except AegishError as error:
        return str(error)
    return None


def _in_json(document: Any) -> Iterator[tuple[str, Any]]:
    """Yield a JSON value, each time with another leaf or branch of it replaced."""
    parts = document.items() if isinstance(document, dict) else enumerate(document)
    for key, part in list(parts):
        for value in (None, "x", -1, 1e300, [], {}, [1], {"x": "y"}):
            copy = document | {key: value} if isinstance(document, dict) else [*document]
            copy[key] = value
            yield f"{key} = {value}", copy
        if isinstance(part, dict | list):
            for what, changed in _in_json(part):
                copy = {**document} if isinstance(document, dict) else [*document]
                copy[key] = changed
                yield f"{key}.{what}", copy


PARTS = {
    "run_models.spec": 1,
    "runs.parameters": 1,
    "snapshots.document": 37,
    "snapshots.identities": 3,
    "snapshots.opinion": 7,
    "snapshots.pair_p": 1,
}
"""Columns of JSON; of all ways to change a value, each so many-th is taken."""


@pytest.mark.parametrize("part", PARTS)
def test_each_part_of_a_document_of_an_archive(
    part: str, engine: Engine, aegish: CommandLine, place: Path, tmp_path: Path
) -> None:
    """Reports, status and exports of what was restored end in a line at worst."""
    store, harmful = Store(engine, aegish), []
    table, _, column = part.partition(".")
    first = rows_of(place, table)[0]
    for what, changed in list(_in_json(json.loads(first[column])))[:: PARTS[part]]:
        forged = tmp_path / "forged"
        copytree(place, forged)
        put(engine, forged, table, **{column: json.dumps(changed)})
        try:
            if _restored(engine, forged) is None:
                store.require_unharmed()
                store.require_readable()
                store.forget()
        except Exception as error:
            harmful.append(f"{what}: {type(error).__name__} {str(error)[:300]}")
            execute(engine, f"DELETE FROM runs WHERE id = '{RUN}'")
        rmtree(forged)
    assert harmful == []


def test_each_value_of_verdict_lines_and_of_left_over_answers(
    engine: Engine, aegish: CommandLine, tmp_path: Path
) -> None:
    """An import, or a spool, adds verdicts of its own or nothing; what is stored stays."""
    run = stored_run(engine, DETAILED, run_id=OTHER, name="other")
    aegish.ok("aggregate", "--run-id", OTHER)
    lines, left = tmp_path / "lines.jsonl", tmp_path / "left.jsonl"
    aegish.ok("verdicts", "export", "--run-id", OTHER, "-o", lines)
    line = json.loads(lines.read_text().splitlines()[0])
    item = run.item(LS)
    spooled = json.loads(
        spool(tmp_path, [Evaluated(item, run.key(item), DETAILED)]).read_text().splitlines()[0]
    )
    store = Store(engine, aegish)
    for path, command, document in ((lines, "import", line), (left, "recover", spooled)):
        for what, changed in _in_json(document):
            path.write_text(json.dumps(changed) + "\n")
            done = aegish("verdicts", command, path)
            assert done.code in (0, 1), (command, what, done.err)
            assert done.err.count("\n") <= 2, (command, what, done.err)
            store.require_unharmed()


def test_each_value_of_catalogs_and_overlays(
    engine: Engine, aegish: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A catalog or an overlay is refused in a line or counts for its own command alone."""
    stored_run(engine, DETAILED, run_id=OTHER, name="other")
    aegish.ok("aggregate", "--run-id", OTHER)
    store = Store(engine, aegish)
    path = tmp_path / "file.toml"
    catalog = {
        "id": "ollama/x",
        "name": "x",
        "price": {"input": 1, "output": 2},
        "max_in_flight": 3,
    }
    change = {"dataset": "commands", "command": LS.command, "target": "malicious",
              "category": "shell", "reason": "r", "author": "a"}  # fmt: skip
    for _, model in _in_json(catalog):
        path.write_text("[[models]]\n" + _toml(model))
        monkeypatch.setenv("AEGISH_DIST_CATALOG", str(path))
        done = aegish("submit", "--models", "ollama/x", "--dataset", "harmless", "--dry-run")
        assert done.code in (0, 1), done.err
    monkeypatch.delenv("AEGISH_DIST_CATALOG")
    for _, changed in _in_json(change):
        path.write_text('name = "o"\nversion = 1\n[[changes]]\n' + _toml(changed))
        done = aegish("report", "--run-id", OTHER, "--overlay", path, "--format", "json")
        assert done.code in (0, 1), done.err
    store.require_unharmed()


def _toml(table: dict[str, Any]) -> str:
    parts = {
        key: "{}" if value == {} else value for key, value in table.items() if value is not None
    }
    return "".join(
        f"{key} = {value if value == '{}' else _inline(value)}\n" for key, value in parts.items()
    )


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        known = ", ".join(
            f"{key} = {_inline(part)}" for key, part in value.items() if part is not None
        )
        return f"{{{known}}}"
    return json.dumps(value)
