"""What the role of workers can do to a score: nothing, judged by the reports before and after."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec import Struct
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from aegish_dist.core.outcome import Outcome
from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.core.text import printable_json
from aegish_dist.core.verdict import Item
from aegish_dist.db.engine import ONE_VIEW, transaction
from aegish_dist.db.missing import FinishedModels
from aegish_dist.db.verdicts import look_up
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.pipeline.aggregate import aggregate
from aegish_dist.pipeline.control import plan_retry
from aegish_dist.pipeline.report import ReportPart, report_data
from aegish_dist.report.formats import render_json
from tests.integration.samples import ALLOWED, BLOCKED, CURL, LS, TAR
from tests.integration.stored_runs import a_run, answer, imported_run, stored_run
from tests.recorded import lines_of
from tests.services import as_superuser, opened

FILES = Dataset("files", (Sample("cat /etc/passwd", TrueLabel.HARMLESS),))
ANSWERS = {TAR: BLOCKED, CURL: ALLOWED, LS: ALLOWED}
COMPLETE, REPEATED, RETRIED, OF_FILES = "0complete", "0repeated", "0retried", "0of-files"


class Scene(Struct, frozen=True):
    """Runs whose scores are known."""

    runs: tuple[str, ...]
    keys: dict[str, int]
    """Numbers of models and samples, by which attacks name them."""

    def scores(self, app: Engine) -> list[str]:
        """Return the reports, and what counting all verdicts again gives."""
        parts = (ReportPart.FAILURE_TIMES, ReportPart.SCORES)
        reports = [
            render_json(report_data(app, run_id, Opinion(), parts=parts)) for run_id in self.runs
        ]
        recounts = []
        with Session(app.execution_options(isolation_level=ONE_VIEW)) as session:  # rolled back
            for run_id in self.runs:
                (counted,) = aggregate(app, run_id, [Opinion()], recount=True, within=session)
                recounts.append(printable_json(counted.document))
        return reports + recounts


@pytest.fixture
def scene(app: Engine, tmp_path: Path) -> Scene:
    """Runs that are complete, one that waits for an item of a retry, and an import with a gap."""
    complete = stored_run(app, ANSWERS, run_id=COMPLETE, models=("test/a", "test/b"))
    answer(app, complete, dict.fromkeys(complete.items("test/b"), BLOCKED))
    repeated = stored_run(app, ANSWERS, run_id=REPEATED, epochs=2)
    answer(app, repeated, dict.fromkeys(repeated.items(epoch=2), BLOCKED))
    files = stored_run(app, BLOCKED, run_id=OF_FILES, datasets=(FILES,))
    retried = stored_run(app, ANSWERS, run_id=RETRIED)
    plan_retry(app, a_run(RETRIED), {Outcome.ALLOW})
    answer(app, retried, {retried.item(CURL, generation=1): BLOCKED})
    line = {"command": "cp a b", "target": "harmless", "completion": '{"action": "ALLOW"}'}
    lines = [line | {"model": "full"}, line | {"model": "full", "command": "mv a b"}]
    imported = imported_run(app, tmp_path, [*lines, line | {"model": "gap"}])
    with transaction(app) as session:
        FinishedModels().close(session)
        gap = session.execute(
            text(
                "SELECT model.id, sample.key FROM run_models AS model, samples AS sample"
                " WHERE model.run_id = :run AND model.model = 'gap' AND sample.command = 'mv a b'"
            ),
            {"run": imported},
        ).one()
    samples = complete.samples["commands"]
    keys = {
        "model": complete.models["test/a"],
        "repeated": repeated.models["test/a"],
        "retried": retried.models["test/a"],
        "of_files": files.models["test/a"],
        "gap": gap.id,
        "gap_sample": gap.key,
        "tar": samples[TAR.sample_id],
        "curl": samples[CURL.sample_id],
        "ls": samples[LS.sample_id],
        "cat": files.samples["files"][FILES.samples[0].sample_id],
    }
    scene = Scene((COMPLETE, REPEATED, OF_FILES, RETRIED, imported), keys)
    for run_id in scene.runs:
        aggregate(app, run_id, [Opinion()])
    return scene


def attack(role: Engine, scene: Scene, statements: Sequence[str]) -> list[psycopg.Error]:
    """Execute statements on one connection, each a transaction; what follows COPY is its input."""
    errors = []
    url = role.url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            sql, _, lines = statement.format_map(scene.keys).partition("\n")
            try:
                if lines:
                    with connection.cursor().copy(sql) as copy:
                        copy.write(lines)
                else:
                    connection.execute(sql)
            except psycopg.Error as error:
                errors.append(error)
    return errors


*WAYS, SHADOWS = lines_of("attacks_on_scores.jsonl")
Copied = Callable[[str], AbstractContextManager[str]]


def test_no_way_changes_a_score(worker: Engine, app: Engine, scene: Scene) -> None:
    """One after the other, on the same runs: a way may also build on those before it.

    A way of which each statement is refused changes nothing by itself.
    """
    before = scene.scores(app)

    changing = []
    for way in WAYS:
        errors = attack(worker, scene, way["statements"])
        if len(errors) < len(way["statements"]) and scene.scores(app) != before:
            changing.append(way["name"])

    assert changing == []
    assert scene.scores(app) == before


@pytest.fixture
def copied(_postgres: Any) -> Copied:
    """Yields a copy of a database without connections, by its name."""
    copied: Copied = _postgres.database
    return copied


def test_ways_that_the_owner_has(engine: Engine, app: Engine, scene: Scene, copied: Copied) -> None:
    """Each forbidden way would work for a role with all rights: tried on a copy of the runs."""
    before = scene.scores(app)
    for each in (app, engine):
        each.dispose()

    idle = []
    for way in WAYS:
        if not way["works_for_owner"]:
            continue
        with copied(str(app.url.database)) as url, opened(as_superuser(url)) as owner:
            assert attack(owner, scene, way["statements"]) == [], way["name"]
            if scene.scores(owner) == before:
                idle.append(way["name"])

    assert idle == []


@pytest.mark.parametrize("granted", [False, True])
def test_tables_of_a_session_shadow_none(
    worker: Engine, app: Engine, engine: Engine, scene: Scene, granted: bool
) -> None:
    """Not even where the owner has given workers the right to temporary tables."""
    if granted:
        attack(engine, scene, [f"GRANT TEMPORARY ON DATABASE {engine.url.database} TO PUBLIC"])
    before = scene.scores(app)

    errors = attack(worker, scene, SHADOWS["statements"])

    assert len(errors) == (1 if granted else len(SHADOWS["statements"]) - 1)
    assert scene.scores(app) == before


def test_an_import_plans_no_item(app: Engine, scene: Scene) -> None:
    """So a file of left-over answers fills no gap of it either."""
    (imported,) = set(scene.runs) - {COMPLETE, REPEATED, RETRIED, OF_FILES}
    gap = Item(imported, "gap", scene.keys["gap_sample"], 1, 0)
    with transaction(app) as session:
        assert look_up(session, [gap]) == [None]


def test_every_function_names_its_schema(engine: Engine) -> None:
    """What a session names before the schema is not found by a trigger."""
    query = "SELECT proconfig FROM pg_proc WHERE pronamespace = current_schema()::regnamespace"
    with engine.connect() as connection:
        settings = connection.scalars(text(query)).all()
    assert len(settings) >= 6
    assert all(each == ["search_path=public, pg_temp"] for each in settings)
