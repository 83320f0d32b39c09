"""Pages of `docs/guides/`, each followed once in a copy of the tree, and the copy's command line."""

import shlex
from collections.abc import Callable

import pytest

from tests.howto.walkthrough import Walkthrough


@pytest.fixture(scope="module")
def walkthrough(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Walkthrough:
    """A copy of the tree in which the `PAGE` of the test's module was followed."""
    return Walkthrough(request.module.PAGE, tmp_path_factory.mktemp("tree"))


@pytest.fixture
def cli(walkthrough: Walkthrough, postgres_url: str) -> Callable[[str], str]:
    """Runs a line as a user types it, and returns what it writes to stdout."""

    def run(line: str) -> str:
        words = ("-m", "aegish_dist", *shlex.split(line))
        return walkthrough.run(*words, AEGISH_DIST_DATABASE_URL=postgres_url)

    return run
