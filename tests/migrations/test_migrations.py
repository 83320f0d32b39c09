"""The migrations against a real PostgreSQL."""

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect, text

from aegish_dist.broker.messages import queue_name
from aegish_dist.db import schema
from aegish_dist.errors import StoreError


def test_migrations_have_one_head() -> None:
    """No two migrations follow the same one."""
    script = ScriptDirectory.from_config(schema.alembic_config())

    assert script.get_heads() == [schema.head()]


def test_mappings_and_migrations_agree(engine: Engine) -> None:
    """A migrated database has exactly the tables, columns and indexes of the mappings."""
    assert schema.drift(engine) == []


def test_upgrade_after_downgrade(unmigrated_engine: Engine) -> None:
    """Going down to nothing leaves no table of ours, and going up again brings the same schema."""
    schema.upgrade(unmigrated_engine)
    with unmigrated_engine.begin() as connection:
        command.downgrade(schema.alembic_config(connection), "base")
    assert inspect(unmigrated_engine).get_table_names() == ["alembic_version"]

    schema.upgrade(unmigrated_engine)

    assert schema.drift(unmigrated_engine) == []
    assert schema.current(unmigrated_engine) == schema.head()


def test_upgrade_twice_changes_nothing(engine: Engine) -> None:
    """An upgrade of a current database leaves it current."""
    schema.upgrade(engine)

    schema.require_current(engine)


def test_unmigrated_database_is_refused(unmigrated_engine: Engine) -> None:
    """The refusal names the command that helps."""
    assert schema.current(unmigrated_engine) is None
    with pytest.raises(StoreError, match="aegish-dist db upgrade"):
        schema.require_current(unmigrated_engine)


def test_a_database_of_a_newer_version_is_refused(engine: Engine) -> None:
    """An upgrade would not know the way, and is not what helps."""
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))

    for refusing in (schema.require_current, schema.upgrade):
        with pytest.raises(StoreError, match="at 9999, this version knows only"):
            refusing(engine)


@pytest.mark.parametrize(
    "held",
    ["SELECT pg_advisory_xact_lock(27414567566141441)", "LOCK TABLE verdicts IN ACCESS SHARE MODE"],
    ids=["another migration", "a long report"],
)
def test_an_upgrade_that_cannot_lock_names_the_session_that_holds_it(
    unmigrated_engine: Engine, monkeypatch: pytest.MonkeyPatch, held: str
) -> None:
    """It ends after the time for locks in one line, and changes nothing."""
    monkeypatch.setattr(schema, "LOCK_TIMEOUT_S", 1)
    with unmigrated_engine.begin() as connection:
        command.upgrade(schema.alembic_config(connection), "0001")
    with unmigrated_engine.begin() as holder:
        pid = holder.scalar(text("SELECT pg_backend_pid()"))
        holder.execute(text(held))

        with pytest.raises(StoreError, match=rf"PID {pid}, aegish-dist.*pg_terminate_backend"):
            schema.upgrade(unmigrated_engine)

    assert schema.current(unmigrated_engine) == "0001"


def test_drift_names_what_differs(engine: Engine) -> None:
    """A column that no migration made is found."""
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE runs ADD COLUMN stray integer")

    (difference,) = schema.drift(engine)

    assert "stray" in difference


def test_queues_of_unfinished_runs(unmigrated_engine: Engine) -> None:
    """A run of an earlier version gets the queues that are filled now; an imported one has none."""
    with unmigrated_engine.begin() as connection:
        config = schema.alembic_config(connection)
        command.upgrade(config, "0002")
        connection.execute(
            text(
                "INSERT INTO runs (id, name, origin, package_version, epochs, created_at) VALUES"
                " ('0abcdefgh', '', 'submit', '', 1, now()), ('0abcdefgj', '', 'import', '', 1, now())"
            )
        )
        connection.execute(
            text(
                "INSERT INTO run_models (run_id, model, spec, queue, open) VALUES"
                " ('0abcdefgh', 'lab/a#1', '{}', 'aegish.lab/a#1', true),"
                " ('0abcdefgj', 'lab/a', '{}', '', false)"
            )
        )
        queues = text("SELECT queue FROM run_models ORDER BY run_id")

        command.upgrade(config, "0003")
        renamed = connection.scalars(queues).all()
        command.downgrade(config, "0002")

        assert renamed == [queue_name("lab/a#1", "0abcdefgh"), ""]
        assert connection.scalars(queues).all() == ["aegish.lab/a#1", ""]


def test_datasets_of_imported_models(unmigrated_engine: Engine) -> None:
    """An import of an earlier version learns which datasets each model was put to."""
    with unmigrated_engine.begin() as connection:
        config = schema.alembic_config(connection)
        command.upgrade(config, "0006")
        for statement in (
            "INSERT INTO datasets (name, fingerprint, source, licence, samples, malicious, selectable)"
            " SELECT n, n, '', '', 1, 0, false FROM unnest(ARRAY['one', 'two']) AS n",
            "INSERT INTO samples (dataset_id, sample_id, command, target, details)"
            " SELECT id, name, name, 'harmless', '{}' FROM datasets",
            "INSERT INTO runs (id, name, origin, package_version, epochs, created_at)"
            " SELECT o, '', o, '', 1, now() FROM unnest(ARRAY['import', 'submit']) AS o",
            "INSERT INTO run_datasets SELECT runs.id, datasets.id FROM runs, datasets",
            "INSERT INTO run_models (run_id, model, spec, queue, open)"
            " SELECT id, 'lab/a', '{}', '', false FROM runs",
            "INSERT INTO verdicts (run_model_id, sample_key, epoch, generation, outcome,"
            " parser_version, attempts) SELECT run_models.id, min(samples.key), 1, 0, 'BLOCK', 1, 1"
            " FROM run_models, samples GROUP BY 1",
        ):
            connection.execute(text(statement))

        command.upgrade(config, "0007")

        put_to = text("SELECT run_id, datasets FROM run_models ORDER BY run_id")
        (first,) = connection.scalars(text("SELECT id FROM datasets WHERE name = 'one'"))
        assert connection.execute(put_to).all() == [("import", [first]), ("submit", None)]
