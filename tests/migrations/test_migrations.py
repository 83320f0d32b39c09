"""The migrations against a real PostgreSQL."""

import shutil
from pathlib import Path

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect, text

from aegish_dist.db import schema
from aegish_dist.errors import StoreError


def test_migrations_have_one_head() -> None:
    script = ScriptDirectory.from_config(schema.alembic_config())
    assert script.get_heads() == [schema.head()]


def test_mappings_and_migrations_agree(engine: Engine) -> None:
    assert schema.drift(engine) == []


def test_upgrade_after_downgrade(unmigrated_engine: Engine) -> None:
    schema.upgrade(unmigrated_engine)
    with unmigrated_engine.begin() as connection:
        command.downgrade(schema.alembic_config(connection), "base")
    assert inspect(unmigrated_engine).get_table_names() == ["alembic_version"]
    schema.upgrade(unmigrated_engine)
    assert schema.drift(unmigrated_engine) == []
    assert schema.current(unmigrated_engine) == schema.head()


def test_upgrade_twice_changes_nothing(engine: Engine) -> None:
    schema.upgrade(engine)
    schema.require_current(engine)


def test_unmigrated_database_is_refused(unmigrated_engine: Engine) -> None:
    assert schema.current(unmigrated_engine) is None
    with pytest.raises(StoreError, match="aegish-dist db upgrade"):
        schema.require_current(unmigrated_engine)


@pytest.mark.parametrize("version", ["0010", "9999"], ids=["of development", "newer"])
def test_a_database_that_no_migration_leads_from_is_refused(engine: Engine, version: str) -> None:
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE alembic_version SET version_num = '{version}'"))
    for refusing in (schema.require_current, schema.upgrade):
        with pytest.raises(StoreError, match=f"at {version}, this .*`verdicts export` there"):
            refusing(engine)


@pytest.mark.parametrize(
    "held",
    ["SELECT pg_advisory_xact_lock(27414567566141441)", "LOCK TABLE verdicts IN ACCESS SHARE MODE"],
    ids=["another migration", "a long report"],
)
def test_an_upgrade_that_cannot_lock_names_the_session_that_holds_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, held: str
) -> None:
    """It ends after the time for locks in one line, and changes nothing."""
    before = schema.head()
    folder = shutil.copytree(schema.MIGRATIONS, tmp_path / "migrations")
    (folder / "versions/9999_next.py").write_text(
        f"from alembic import op\nrevision, down_revision = '9999', '{before}'\n"
        "def upgrade(): op.execute('ALTER TABLE verdicts ADD COLUMN stray integer')\n"
    )
    monkeypatch.setattr(schema, "MIGRATIONS", folder)
    monkeypatch.setattr(schema, "LOCK_TIMEOUT_S", 1)
    with engine.begin() as holder:
        pid = holder.scalar(text("SELECT pg_backend_pid()"))
        holder.execute(text(held))
        with pytest.raises(StoreError, match=rf"PID {pid}, aegish-dist.*pg_terminate_backend"):
            schema.upgrade(engine)
    assert schema.current(engine) == before


def test_drift_names_what_differs(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE runs ADD COLUMN stray integer")
    (difference,) = schema.drift(engine)
    assert "stray" in difference


def test_a_check_that_is_not_valid_is_no_difference(engine: Engine) -> None:
    """Without a warning either, which `db check` would print."""
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "ALTER TABLE verdicts ADD CONSTRAINT ck_verdicts_added CHECK (attempts >= 0) NOT VALID"
        )
    assert schema.drift(engine) == []
