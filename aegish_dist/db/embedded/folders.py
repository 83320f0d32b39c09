"""The folders of the embedded PostgreSQL, closed to other users, and the user that serves there.

Nothing outside of the home is ever changed. A folder that cannot be made private, or that the user
that serves cannot reach, is refused.
"""

import os
import pwd
import shutil
import stat
import subprocess  # nosec B404 # of useradd
import tempfile
from dataclasses import dataclass
from pathlib import Path

from aegish_dist.errors import StoreError

SERVER_USER = "pgserver"
"""Serves where root asks for it: PostgreSQL refuses to run as root."""
DATA = "postgres"
OURS = frozenset(
    (DATA, *(f"{DATA}.{what}" for what in ("new", "start", "users", "guard", "log")), "spool")
)
"""Names in the home; a folder that holds anything else is not changed."""
LONGEST_SOCKET_PATH = 100
"""Bytes; Linux takes 107, macOS 103."""
SOCKET = ".s.PGSQL.5432"
ELSEWHERE = "set AEGISH_DIST_HOME to a folder of its own, or AEGISH_DIST_DATABASE_URL to a server"


@dataclass(frozen=True, slots=True)
class Account:
    """A user of this machine."""

    uid: int
    gid: int


def server_account() -> Account:
    """Return the account that serves: of this process, or for root one of its own.

    Raises:
        StoreError: That user is not there and cannot be made.
    """
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    try:
        found = pwd.getpwnam(SERVER_USER)
    except KeyError:
        _add_user()
        found = pwd.getpwnam(SERVER_USER)
    return Account(found.pw_uid, found.pw_gid)


def _add_user() -> None:
    command = ["useradd", "--system", "--user-group", "--shell", "/bin/false", SERVER_USER]
    try:
        subprocess.run(command, check=True, capture_output=True)  # noqa: S603  # nosec B603 # our own words
    except (OSError, subprocess.CalledProcessError) as error:
        raise StoreError(
            f"PostgreSQL does not run as root, and the user '{SERVER_USER}' cannot be made for it:"
            " run this as another user, or set AEGISH_DIST_DATABASE_URL to a server"
        ) from error


def make_home(home: Path, account: Account) -> Path:
    """Make the home and see that only its owner and the account that serves can enter it.

    Args:
        home: Directory of the product; it is made when it is missing.

    Returns:
        The folder of the data, which may not be there yet.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    home = home.resolve()
    found = home.stat()
    if found.st_uid != os.geteuid():
        raise StoreError(f"{home} belongs to another user: {ELSEWHERE}")
    if OURS.issuperset(path.name for path in home.iterdir()):
        os.chown(home, -1, account.gid)
        home.chmod(0o700 if account.uid == os.geteuid() else 0o710)
    elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise StoreError(f"others may write in {home}: {ELSEWHERE}")
    data = home / DATA
    require_passage(data, account)
    if data.exists() and data.stat().st_uid != account.uid:
        raise StoreError(f"{data} belongs to another user: {ELSEWHERE}")
    return data


def require_passage(path: Path, account: Account) -> None:
    """Refuse a path that an account cannot get to.

    Raises:
        StoreError: The account may not enter a folder above it.
    """
    for folder in path.parents:
        found = folder.stat()
        if account.uid == found.st_uid:
            needed = stat.S_IXUSR
        elif account.gid == found.st_gid:
            needed = stat.S_IXGRP
        else:
            needed = stat.S_IXOTH
        if not found.st_mode & needed:
            raise StoreError(
                f"PostgreSQL cannot get to {path}: {folder} is closed to the user that serves,"
                f" '{SERVER_USER}' where this runs as root. Run it as another user, or {ELSEWHERE}"
            )


def make_folder(folder: Path, account: Account) -> Path:
    """Make a folder that only an account can enter; one left by a start that failed is emptied."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    os.chown(folder, account.uid, account.gid)
    return folder


def socket_folder(data: Path, account: Account) -> Path:
    """Return a folder for the socket that only the account can enter: the data's own if it may.

    The path of a socket is bounded, so a home with a long name gets a short folder elsewhere.
    """
    if len(os.fsencode(data / SOCKET)) <= LONGEST_SOCKET_PATH:
        return data
    folder = Path(tempfile.mkdtemp(prefix="aegish-dist-", dir="/tmp"))  # nosec B108 # made private by mkdtemp
    os.chown(folder, account.uid, account.gid)
    return folder
