"""The migrations against a real PostgreSQL."""

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect

from aegish_dist.db import schema
from aegish_dist.errors import StoreError


def test_migrations_have_one_head():
    """No two migrations follow the same one."""
    script = ScriptDirectory.from_config(schema.alembic_config())

    assert script.get_heads() == [schema.head()]


def test_mappings_and_migrations_agree(engine: Engine):
    """A migrated database has exactly the tables, columns and indexes of the mappings."""
    assert schema.drift(engine) == []


def test_upgrade_after_downgrade(unmigrated_engine: Engine):
    """Going down to nothing leaves no table of ours, and going up again brings the same schema."""
    schema.upgrade(unmigrated_engine)
    with unmigrated_engine.begin() as connection:
        command.downgrade(schema.alembic_config(connection), "base")
    assert inspect(unmigrated_engine).get_table_names() == ["alembic_version"]

    schema.upgrade(unmigrated_engine)

    assert schema.drift(unmigrated_engine) == []
    assert schema.current(unmigrated_engine) == schema.head()


def test_upgrade_twice_changes_nothing(engine: Engine):
    """An upgrade of a current database leaves it current."""
    schema.upgrade(engine)

    schema.require_current(engine)


def test_unmigrated_database_is_refused(unmigrated_engine: Engine):
    """The refusal names the command that helps."""
    assert schema.current(unmigrated_engine) is None
    with pytest.raises(StoreError, match="aegish-dist db upgrade"):
        schema.require_current(unmigrated_engine)


def test_drift_names_what_differs(engine: Engine):
    """A column that no migration made is found."""
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE runs ADD COLUMN stray integer")

    (difference,) = schema.drift(engine)

    assert "stray" in difference
