"""Files of a stranger, each value in turn another one: refused in a line, or harmless to all others."""

import json
import re
from collections.abc import Iterator
from copy import copy
from decimal import Decimal
from itertools import cycle, islice
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine, text

from aegish_dist.core.model import Price, Rate
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.run import Prompt
from aegish_dist.core.verdict import CallError
from aegish_dist.db import deletion
from aegish_dist.db.batches import models_to_plan
from aegish_dist.db.engine import transaction
from aegish_dist.db.missing import open_queues, take_due
from aegish_dist.errors import AegishError
from aegish_dist.pipeline.archives import restore_run
from aegish_dist.pipeline.evaluate import Evaluated
from aegish_dist.pipeline.spool import spool
from tests.integration.command_line import CommandLine
from tests.integration.forged_archives import seal
from tests.integration.samples import BLOCKED, DETAILED, LS, NOON
from tests.integration.stored_runs import a_model, contents, execute, stored_run

pytestmark = pytest.mark.long
RUN, OTHER = "0abcdefgh", "0bbcdefgh"
OTHERS: tuple[Any, ...] = (None, "x", -1, 1e300, [], {}, [1], {"x": "y"})
"""What each value of a file is replaced by."""


@pytest.fixture
def place(engine: Engine, aegish: CommandLine, tmp_path: Path) -> Path:
    """Return the archive of a run that has left a store with another run."""
    failed = replace(DETAILED, call_errors=(CallError(1, ErrorClass.SERVER, 500, 1.5, "x", NOON),))
    price = Price(Rate(Decimal(1), ((10, Decimal(2)),)), Rate(Decimal(3)))
    models = [a_model("test/a", price=price), a_model("test/b", batch_share=Decimal("0.5"))]
    prompts = {"test/b": Prompt("terse", "", "{command}")}
    said = {"test/a": failed, "test/b": BLOCKED}
    stored_run(engine, BLOCKED, run_id=OTHER, name="other", models=("test/a", "test/b"))
    stored_run(engine, said, models=models, prompts=prompts, batch_after_s=60)
    for run in (OTHER, RUN):
        aegish.ok("aggregate --run-id", run)
    aegish.ok(f"runs archive {RUN} --delete --yes --to", tmp_path)
    return tmp_path / RUN


class Store:
    """A store with another run, and what may not change of it."""

    def __init__(self, engine: Engine, aegish: CommandLine) -> None:
        self.engine, self.aegish = engine, aegish
        self.rows, self.report = contents(engine), self._report()
        self._others = cycle(("status", "verdicts list", "verdicts export -o -"))

    def _report(self) -> Any:
        reported = self.aegish.ok("report --run-id other --format json").json
        return reported["run"], reported["models"], reported["ranking"]

    def require_unharmed(self) -> None:
        """Look at all other rows, their report, and whether workers would ask anything."""
        for table, rows in contents(self.engine).items():
            assert not {*self.rows[table]} - {*rows}, table
        assert self._report() == self.report
        with transaction(self.engine) as session:
            assert {each.run_id for each in open_queues(session).values()} == {OTHER}
            assert (models_to_plan(session), take_due(session)) == ([], [])
            open_batches = text("SELECT FROM batches WHERE state <> 'ended'")
            assert session.execute(open_batches).all() == []

    def require_readable(self) -> None:
        """Have the report, and in turn another command, read what was restored; none ends by a bug.

        `test_bad_rows` has all commands read all rows, whatever they hold.
        """
        for command in ("report", next(self._others)):
            done = self.aegish(f"{command} --run-id {RUN}")
            assert done.code in (0, 1), (command, done.err)

    def forget(self) -> None:
        with transaction(self.engine) as session:
            deletion.delete_run(session, RUN)
        assert contents(self.engine) == self.rows


@pytest.mark.parametrize("file", ["run.json", "verdicts.jsonl"])
def test_each_part_of_an_archive(
    file: str, engine: Engine, aegish: CommandLine, place: Path, tmp_path: Path
) -> None:
    """What is restored harms no other run, and reports, status and exports end in a line at worst."""
    store, harmful = Store(engine, aegish), []
    whole = (place / file).read_text()
    # Of `run.json` every second change is tried, of verdicts each change of the first line.
    first, *more = [whole] if file == "run.json" else whole.split("\n")
    for what, changed in islice(_in_json(json.loads(first)), 0, None, 1 if more else 2):
        forged = tmp_path / "forged"
        copytree(place, forged)
        (forged / file).write_text("\n".join([json.dumps(changed), *more]))
        seal(forged)
        try:
            _restore(store, forged)
        except Exception as error:
            harmful.append(f"{what}: {type(error).__name__} {str(error)[:300]}")
            execute(engine, f"DELETE FROM runs WHERE id = '{RUN}'")
        rmtree(forged)
    assert harmful == []


def _restore(store: Store, place: Path) -> None:
    """Restore a run that is harmless to all others, or is refused in a line."""
    refused = ""
    try:
        restore_run(store.engine, place)
    except AegishError as error:
        refused = str(error)
    if refused:
        assert "\n" not in refused
        assert contents(store.engine) == store.rows
    else:
        store.require_unharmed()
        store.require_readable()
        store.forget()


def _in_json(document: Any) -> Iterator[tuple[str, Any]]:
    """Yield a JSON value, each time with another leaf or branch of it replaced, and what that was."""
    keys = list(document) if isinstance(document, dict) else range(len(document))
    for key in keys:
        others: list[tuple[str, Any]] = [(repr(value), value) for value in OTHERS]
        if isinstance(document[key], dict | list):
            others += _in_json(document[key])
        for what, part in others:
            changed = copy(document)
            changed[key] = part
            yield f"{key}.{what}", changed


def test_each_value_of_verdict_lines_and_of_left_over_answers(
    engine: Engine, aegish: CommandLine, tmp_path: Path
) -> None:
    """An import, or a spool, adds verdicts of its own or nothing; what is stored stays."""
    run = stored_run(engine, DETAILED, run_id=OTHER, name="other")
    aegish.ok("aggregate --run-id", OTHER)
    lines, item = tmp_path / "lines.jsonl", run.item(LS)
    aegish.ok(f"verdicts export --run-id {OTHER} -o", lines)
    left = spool(tmp_path, [Evaluated(item, run.key(item), DETAILED)])
    store = Store(engine, aegish)
    for path, command in ((lines, "import"), (left, "recover")):
        for what, changed in _in_json(json.loads(path.read_text().splitlines()[0])):
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
    aegish.ok("aggregate --run-id", OTHER)
    store = Store(engine, aegish)
    path = tmp_path / "file.toml"
    model = {"id": "ollama/x", "name": "x", "price": {"input": 1, "output": 2}, "max_in_flight": 3}
    change = {
        "dataset": "commands",
        "command": LS.command,
        "target": "malicious",
        "category": "shell",
        "reason": "r",
        "author": "a",
    }
    with monkeypatch.context() as patch:
        patch.setenv("AEGISH_DIST_CATALOG", str(path))
        for _, changed in _in_json(model):
            path.write_text("[[models]]\n" + _toml(changed))
            done = aegish("submit --models ollama/x --dataset harmless --dry-run")
            assert done.code in (0, 1), done.err
    for _, changed in _in_json(change):
        path.write_text('name = "o"\nversion = 1\n[[changes]]\n' + _toml(changed))
        done = aegish(f"report --format json --run-id {OTHER} --overlay", path)
        assert done.code in (0, 1), done.err
    store.require_unharmed()


def _toml(table: dict[str, Any]) -> str:
    """Write a table as TOML, which has no null: such keys are left out."""
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in table.items() if value is not None]
    written = "".join(lines).replace('": ', '" = ')
    return re.sub(r', "\w+" = null|"\w+" = null(, )?', "", written)
