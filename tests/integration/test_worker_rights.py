"""What the role of workers can do to a score: nothing, judged by the reports before and after."""

from collections.abc import Sequence
from pathlib import Path

import psycopg
import pytest
from msgspec import Struct
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from aegish_dist.core.outcome import Outcome
from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.core.text import printable_json
from aegish_dist.core.verdict import Item
from aegish_dist.db.engine import transaction
from aegish_dist.db.missing import FinishedModels
from aegish_dist.db.runs import load_run
from aegish_dist.db.verdicts import look_up
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.pipeline.aggregate import ONE_VIEW, aggregate
from aegish_dist.pipeline.control import plan_retry
from aegish_dist.pipeline.report import ReportPart, report_data
from aegish_dist.report.formats import render_json
from tests.integration.samples import ALLOWED, BLOCKED, CURL, LS, TAR
from tests.integration.stored_runs import answer, imported_run, stored_run
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
    with transaction(app) as session:
        run = load_run(session, RETRIED)
    plan_retry(app, run, {Outcome.ALLOW})
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


ITEM = "run_model_id, sample_key, epoch, generation"
FORGED = f"INSERT INTO verdicts ({ITEM}, outcome, parser_version, attempts) VALUES"
NEWER = f"{FORGED} ({{model}}, {{tar}}, 1, 1, 'ALLOW', 1, 1)"
SNAPSHOT = (
    "run_id, scoring, scoring_version, metrics_version, parser_versions, verdicts, verdicts_hash,"
    " code_version, identities, pair_p, opinion"
)
LOWER = "regexp_replace(document::text, '\\m0\\.\\d+', '0.01', 'g')::jsonb"

REAL = {
    "a generation that no retry planned": [NEWER],
    "a later generation than a retry planned": [
        f"{FORGED} ({{retried}}, {{ls}}, 1, 2, 'BLOCK', 1, 1)"
    ],
    "another item than a retry planned": [f"{FORGED} ({{retried}}, {{tar}}, 1, 1, 'ALLOW', 1, 1)"],
    "a gap of an import": [f"{FORGED} ({{gap}}, {{gap_sample}}, 1, 0, 'BLOCK', 1, 1)"],
    "COPY": [
        f"COPY verdicts ({ITEM}, outcome, parser_version, attempts) FROM STDIN"
        "\n{model}\t{tar}\t1\t1\tALLOW\t1\t1\n"
    ],
    "an update in place of the conflict": [
        f"{FORGED} ({{model}}, {{tar}}, 1, 0, 'ALLOW', 1, 1)"
        f" ON CONFLICT ({ITEM}) DO UPDATE SET outcome = 'ALLOW'"
    ],
    "MERGE that inserts": [
        "MERGE INTO verdicts USING (SELECT 1) AS one ON false WHEN NOT MATCHED THEN"
        f" INSERT ({ITEM}, outcome, parser_version, attempts)"
        " VALUES ({model}, {tar}, 1, 1, 'ALLOW', 1, 1)"
    ],
    "a retry of its own": ["INSERT INTO retried_items VALUES ({model}, {tar}, 1, 1)", NEWER],
    "without triggers": ["SET session_replication_role = replica", NEWER],
    "without the trigger": ["ALTER TABLE verdicts DISABLE TRIGGER check_planned", NEWER],
    "the role of commands": ["SET ROLE aegish_app", NEWER],
    "a verdict is changed": [
        "UPDATE verdicts SET outcome = 'ALLOW', reason = NULL, confidence = NULL"
    ],
    "a verdict is replaced": [
        "DELETE FROM verdicts WHERE run_model_id = {model} AND sample_key = {tar}",
        f"{FORGED} ({{model}}, {{tar}}, 1, 0, 'ALLOW', 1, 1)",
    ],
    "labels": ["UPDATE samples SET target = 'malicious', category = 'c', cluster = 'c'"],
    "a snapshot's document": [f"UPDATE snapshots SET document = {LOWER}"],
    "a snapshot of its own": [
        f"INSERT INTO snapshots ({SNAPSHOT}, document, created_at)"
        f" SELECT {SNAPSHOT}, {LOWER}, now() FROM snapshots"
    ],
    "no snapshot": ["DELETE FROM snapshots"],
    "failed calls of a verdict of others": [
        f"INSERT INTO call_errors ({ITEM}, attempt, error_class, message, at)"
        " VALUES ({model}, {tar}, 1, 0, 9, 'server', 'forged', now())"
    ],
    "a run": ["DELETE FROM retried_items", "UPDATE runs SET epochs = 9"],
    "a model": ["UPDATE run_models SET datasets = '{{}}', spec = spec || '{{\"name\": \"x\"}}'"],
}
"""Ways that work for the owner of the database."""

OTHERS = {
    "an epoch that the run does not ask": [f"{FORGED} ({{model}}, {{tar}}, 7, 0, 'ALLOW', 1, 1)"],
    "an epoch beyond several": [f"{FORGED} ({{repeated}}, {{tar}}, 3, 0, 'ALLOW', 1, 1)"],
    "the greatest generation": [f"{FORGED} ({{model}}, {{tar}}, 1, 32767, 'ALLOW', 1, 1)"],
    "a retry in an epoch of its own": [f"{FORGED} ({{retried}}, {{curl}}, 2, 1, 'ALLOW', 1, 1)"],
    "a sample of another dataset": [f"{FORGED} ({{model}}, {{cat}}, 1, 0, 'ALLOW', 1, 1)"],
    "a model of another run": [f"{FORGED} ({{of_files}}, {{tar}}, 1, 0, 'ALLOW', 1, 1)"],
    "a model that is none": [f"{FORGED} (999999, {{tar}}, 1, 0, 'ALLOW', 1, 1)"],
    "a sample that is none": [f"{FORGED} ({{model}}, 999999, 1, 0, 'ALLOW', 1, 1)"],
    "an import in a later generation": [f"{FORGED} ({{gap}}, {{gap_sample}}, 1, 1, 'BLOCK', 1, 1)"],
    "behind a planned one": [
        f"{FORGED} ({{retried}}, {{ls}}, 1, 1, 'ALLOW', 1, 1), ({{model}}, {{tar}}, 1, 1, 'ALLOW', 1, 1)"
    ],
    "beside a planned one": [
        f"WITH planned AS ({FORGED} ({{retried}}, {{ls}}, 1, 1, 'ALLOW', 1, 1) RETURNING 1) {NEWER}"
    ],
    "MERGE that updates": [
        "MERGE INTO verdicts USING (SELECT 1) AS one ON true"
        " WHEN MATCHED THEN UPDATE SET outcome = 'ALLOW'"
    ],
    "TRUNCATE": ["TRUNCATE verdicts CASCADE"],
    "deleted samples": ["DELETE FROM samples"],
    "a sample more": [
        "INSERT INTO samples (dataset_id, sample_id, command, target, details)"
        " SELECT dataset_id, 'new', 'new', target, details FROM samples"
    ],
    "the size of a dataset": ["UPDATE datasets SET samples = 1, malicious = 0"],
    "fewer datasets": ["DELETE FROM run_datasets"],
    "another dataset": ["INSERT INTO run_datasets SELECT '0complete', id FROM datasets"],
    "a prompt": ["UPDATE prompts SET system = 'forged'"],
    "no run": ["DELETE FROM runs"],
    "a model more": [
        "INSERT INTO run_models (run_id, model, spec, queue, open)"
        " SELECT run_id, 'x', spec, '', false FROM run_models WHERE id = {model}"
    ],
    "numbers of a snapshot": ["UPDATE snapshot_metrics SET value = 0"],
    "further numbers of a snapshot": [
        "INSERT INTO snapshot_metrics (snapshot_id, model, metric, category, n)"
        " SELECT snapshot_id, model, metric, 'forged', n FROM snapshot_metrics"
    ],
    "an aggregation of another snapshot": ["UPDATE aggregations SET snapshot_ids = '{{1}}'"],
    "an aggregation with its result": [
        "INSERT INTO aggregations (run_id, completion, scoring, finished_at, snapshot_ids)"
        " VALUES ('0complete', 'forged', 'default', now(), '{{1}}')"
    ],
    "an aggregation of another rule set": [
        "INSERT INTO aggregations (run_id, completion, scoring) VALUES ('0complete', 'x', 'x')"
    ],
    "items that are hidden in a batch": [
        f"INSERT INTO batched_items ({ITEM}) SELECT {ITEM} FROM verdicts",
        "UPDATE batched_items SET live = true, tries = 9",
    ],
    "a batch that spends all": [
        "INSERT INTO batches (run_model_id, token, state, requests, expected_usd)"
        " VALUES ({model}, 'x', 'planned', 1, 999999)"
    ],
    "models that are open, runs that are held": [
        "UPDATE run_models SET open = true",
        "UPDATE runs SET held = 'cancelled'",
        NEWER,
    ],
    "no failed calls": ["DELETE FROM call_errors"],
    "numbers of the next rows": [
        "SELECT setval(pg_get_serial_sequence('snapshots', 'id'), 1)",
        "SELECT nextval(pg_get_serial_sequence('samples', 'key'))",
    ],
    "large objects": [
        "SELECT lo_put(lo_from_bytea(0, 'a'), 0, 'b')",
        "SELECT lo_import('/etc/passwd')",
    ],
    "another version": ["UPDATE alembic_version SET version_num = '0001'"],
    "a function before that of the system": [
        "CREATE FUNCTION pg_temp.has_table_privilege(text, text) RETURNS boolean"
        " LANGUAGE sql AS 'SELECT true'",
        "SET search_path = pg_temp, public, pg_catalog",
        NEWER,
    ],
    "the trigger on a table of its own": [
        "CREATE TEMP TABLE own AS SELECT id FROM run_models",
        "CREATE TRIGGER own AFTER DELETE ON own REFERENCING OLD TABLE AS gone"
        " FOR EACH STATEMENT EXECUTE FUNCTION delete_verdicts_of_models()",
        "DELETE FROM own",
    ],
    "a rule": ["CREATE RULE own AS ON INSERT TO workers DO ALSO DELETE FROM verdicts"],
    "a policy": ["ALTER TABLE verdicts ENABLE ROW LEVEL SECURITY"],
    "rights of its own": [
        "GRANT ALL ON verdicts TO aegish_worker",
        "UPDATE verdicts SET outcome = 'ALLOW'",
    ],
}

SHADOWS = [
    "CREATE TEMP TABLE runs AS SELECT * FROM public.runs",
    "CREATE TEMP TABLE run_models AS SELECT * FROM public.run_models",
    "CREATE TEMP TABLE run_datasets AS SELECT * FROM public.run_datasets",
    "CREATE TEMP TABLE samples AS SELECT * FROM public.samples",
    "CREATE TEMP TABLE retried_items AS SELECT * FROM public.retried_items",
    "INSERT INTO pg_temp.retried_items VALUES ({model}, {tar}, 1, 1)",
    "SET search_path = pg_temp, public",
    NEWER.replace("INTO verdicts", "INTO public.verdicts"),
]


def test_no_way_changes_a_score(worker: Engine, app: Engine, scene: Scene) -> None:
    """One after the other, on the same runs: a way may also build on those before it."""
    before = scene.scores(app)

    changing = []
    for name, statements in (REAL | OTHERS).items():
        attack(worker, scene, statements)
        if scene.scores(app) != before:
            changing.append(name)

    assert changing == []


@pytest.mark.parametrize("name", REAL)
def test_ways_that_the_owner_has(postgres_url: str, app: Engine, scene: Scene, name: str) -> None:
    """What workers are kept from would work."""
    before = scene.scores(app)

    with opened(as_superuser(postgres_url)) as owner:
        assert attack(owner, scene, REAL[name]) == []

    assert scene.scores(app) != before


@pytest.mark.parametrize("granted", [False, True])
def test_tables_of_a_session_shadow_none(
    worker: Engine, app: Engine, engine: Engine, scene: Scene, granted: bool
) -> None:
    """Not even where the owner has given workers the right to temporary tables."""
    if granted:
        attack(
            engine,
            scene,
            ["GRANT TEMPORARY ON DATABASE " + str(engine.url.database) + " TO PUBLIC"],
        )
    before = scene.scores(app)

    errors = attack(worker, scene, SHADOWS)

    assert len(errors) == (1 if granted else len(SHADOWS) - 1)
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
