"""`docs/guides/add-a-migration.md`: up, down, drift, and a worker of the version before."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError

from aegish_dist.db import schema
from aegish_dist.db.engine import transaction
from tests.howto.walkthrough import NEXT_REVISION, Walkthrough
from tests.integration.stored_runs import stored_run
from tests.services import opened

pytestmark = pytest.mark.long
PAGE = "add-a-migration.md"

MIGRATION = f"aegish_dist/db/migrations/versions/{NEXT_REVISION}_note_of_a_run.py"
BEFORE = schema.head()


@pytest.fixture
def before(unmigrated_url: str) -> Iterator[Engine]:
    """Connections of the version before, to a store of that version."""
    with opened(unmigrated_url) as engine:
        schema.upgrade(engine)
        yield engine


def db(walkthrough: Walkthrough, url: str, command: str) -> str:
    return walkthrough.run("-m", "aegish_dist", "db", command, AEGISH_DIST_DATABASE_URL=url).strip()


def alembic(walkthrough: Walkthrough, url: str, *arguments: str) -> None:
    walkthrough.run("-m", "alembic", *arguments, AEGISH_DIST_DATABASE_URL=url)


def test_one_module_and_one_mapping_are_touched(walkthrough: Walkthrough) -> None:
    assert walkthrough.created == {MIGRATION}
    assert walkthrough.edited == {"aegish_dist/db/schema.py", "docs/reference/data-model.md"}


def test_the_migrations_are_tested(walkthrough: Walkthrough) -> None:
    walkthrough.test("tests/migrations", "tests/integration/test_data_model.py")


def test_up_and_down(walkthrough: Walkthrough, before: Engine, unmigrated_url: str) -> None:
    with transaction(before) as session:
        stored_run(session, run_id="0before")
    note = text("SELECT note FROM runs WHERE id = '0before'")
    assert db(walkthrough, unmigrated_url, "upgrade") == f"{BEFORE} -> {NEXT_REVISION}"
    assert db(walkthrough, unmigrated_url, "check") == ""
    with transaction(before) as session:
        assert session.scalar(note) == ""
    alembic(walkthrough, unmigrated_url, "downgrade", BEFORE)
    assert schema.drift(before) == []
    assert schema.current(before) == BEFORE
    alembic(walkthrough, unmigrated_url, "upgrade", "head")
    assert db(walkthrough, unmigrated_url, "current") == NEXT_REVISION
    with transaction(before) as session:
        assert session.scalar(text("SELECT name FROM runs WHERE id = '0before'")) == "a name"


def test_the_drift_is_seen_without_the_migration(
    walkthrough: Walkthrough, before: Engine, unmigrated_url: str
) -> None:
    alembic(walkthrough, unmigrated_url, "upgrade", "head")
    with transaction(before) as session:
        session.execute(text("ALTER TABLE runs DROP COLUMN note"))
    with pytest.raises(AssertionError, match=r"add_column.*runs.*note"):
        db(walkthrough, unmigrated_url, "check")


def test_old_workers_keep_running(
    walkthrough: Walkthrough, before: Engine, unmigrated_url: str
) -> None:
    """The version before stores runs in the new schema; a note that is too long is refused."""
    alembic(walkthrough, unmigrated_url, "upgrade", "head")
    with transaction(before) as session:
        stored_run(session, run_id="0after")
    with transaction(before) as session:
        assert session.scalar(text("SELECT note FROM runs WHERE id = '0after'")) == ""
    with pytest.raises(IntegrityError, match="ck_runs_note"), transaction(before) as session:
        session.execute(text("UPDATE runs SET note = repeat('n', 501)"))
