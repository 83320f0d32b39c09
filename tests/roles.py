"""The roles of `deploy/roles.sql`, as Compose makes them at each start."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import make_url, text

from aegish_dist.db.embedded import binaries
from tests.services import as_superuser, opened

PASSWORDS = ("AEGISH_DIST_APP_PASSWORD", "AEGISH_DIST_WORKER_PASSWORD")
ROLES = Path(__file__).parents[1] / "deploy" / "roles.sql"


def run_roles(url: str) -> None:
    options = ["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", f"--file={ROLES}"]
    subprocess.run(
        [binaries() / "psql", *options, as_superuser(url)],
        env=os.environ | dict.fromkeys(PASSWORDS, 'it\'s a "secret"'),
        check=True,
    )


@contextmanager
def roles(url: str) -> Iterator[None]:
    """Give the roles their rights on a database for the length of the body."""
    run_roles(url)
    run_roles(url)  # as at every start
    yield
    with opened(as_superuser(url)) as superuser, superuser.begin() as connection:
        connection.execute(text("DROP OWNED BY aegish_app, aegish_worker"))


def as_role(url: str, role: str) -> str:
    return make_url(url).set(username=role).render_as_string(hide_password=False)
