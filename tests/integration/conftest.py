"""Fixtures of the tests against real servers."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from tests.integration.command_line import CommandLine
from tests.integration.stored_runs import Imported, imported_run
from tests.roles import as_role, roles
from tests.services import opened


@pytest.fixture(scope="session")
def _engine_for_sessions(_postgres: Any) -> Iterator[Engine]:
    with _postgres.database() as url, opened(url) as engine:
        yield engine


@pytest.fixture
def session(_engine_for_sessions: Engine) -> Iterator[Session]:
    """A session that sees no rows but its own; never commit it, it is rolled back.

    Tests that commit take `engine`, for which a database of their own is made.
    """
    with Session(_engine_for_sessions) as opened:
        yield opened


@pytest.fixture
def app(postgres_url: str, engine: Engine) -> Iterator[Engine]:
    """The database of the test as commands have it, on a role without rights on the schema."""
    with roles(postgres_url), opened(as_role(postgres_url, "aegish_app")) as app:
        yield app


@pytest.fixture
def worker(app: Engine, postgres_url: str) -> Iterator[Engine]:
    """The same database as workers have it."""
    with opened(as_role(postgres_url, "aegish_worker")) as worker:
        yield worker


@pytest.fixture
def aegish(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, postgres_url: str
) -> CommandLine:
    """The command line on the database of the test."""
    monkeypatch.setenv("AEGISH_DIST_DATABASE_URL", postgres_url)
    monkeypatch.setenv("COLUMNS", "100")  # pytest's workers say 80
    return CommandLine(capsys)


@pytest.fixture
def imported(engine: Engine, tmp_path: Path) -> Imported:
    """Stores verdict lines as a run of the name `a name`, and returns its id."""
    return partial(imported_run, engine, tmp_path)
