"""Fixtures of the tests against real servers."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    """A session on this test's own database; what is not committed is rolled back."""
    with Session(engine) as opened:
        yield opened
