"""Files of a stranger, each value in turn another one: refused in a line, or harmless to all others."""

import json
from collections.abc import Iterator
from decimal import Decimal
from itertools import cycle
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


@pytest.fixture
def place(engine: Engine, aegish: CommandLine, tmp_path: Path) -> Path:
    """Return the archive of a run that has left a store with another run."""
    stored_run(engine, BLOCKED, run_id=OTHER, name="other", models=("test/a", "test/b"))
    aegish.ok("aggregate --run-id", OTHER)
    failed = replace(DETAILED, call_errors=(CallError(1, ErrorClass.SERVER, 500, 1.5, "x", NOON),))
    said = {"test/a": failed, "test/b": BLOCKED}
    price = Price(Rate(Decimal(1), ((10, Decimal(2)),)), Rate(Decimal(3)))
    models = [a_model("test/a", price=price), a_model("test/b", batch_share=Decimal("0.5"))]
    prompts = {"test/b": Prompt("terse", "", "{command}")}
    stored_run(engine, said, models=models, prompts=prompts, batch_after_s=60)
    aegish.ok("aggregate --run-id", RUN)
    aegish.ok("runs archive --yes", RUN, "--to", tmp_path, "--delete")
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
            deletion.delete_run(session, RUN)
        assert contents(self.engine) == self.rows


@pytest.mark.parametrize("file", ["run.json", "verdicts.jsonl"])
def test_each_part_of_an_archive(
    file: str, engine: Engine, aegish: CommandLine, place: Path, tmp_path: Path
) -> None:
    """What is restored harms no other run, and reports, status and exports end in a line at worst."""
    store, harmful = Store(engine, aegish), []
    first, *more = (place / file).read_text().split("\n") if file != "run.json" else [""]
    document = json.loads(first or (place / file).read_text())
    for what, changed in list(_in_json(document))[:: 1 if first else 2]:
        forged = tmp_path / "forged"
        copytree(place, forged)
        (forged / file).write_text("\n".join([json.dumps(changed), *more]))
        seal(forged)
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


def test_each_value_of_verdict_lines_and_of_left_over_answers(
    engine: Engine, aegish: CommandLine, tmp_path: Path
) -> None:
    """An import, or a spool, adds verdicts of its own or nothing; what is stored stays."""
    run = stored_run(engine, DETAILED, run_id=OTHER, name="other")
    aegish.ok("aggregate --run-id", OTHER)
    lines, left = tmp_path / "lines.jsonl", tmp_path / "left.jsonl"
    aegish.ok("verdicts export --run-id", OTHER, "-o", lines)
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
    aegish.ok("aggregate --run-id", OTHER)
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
        done = aegish("submit --models ollama/x --dataset harmless --dry-run")
        assert done.code in (0, 1), done.err
    monkeypatch.delenv("AEGISH_DIST_CATALOG")
    for _, changed in _in_json(change):
        path.write_text('name = "o"\nversion = 1\n[[changes]]\n' + _toml(changed))
        done = aegish("report --run-id", OTHER, "--overlay", path, "--format", "json")
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
