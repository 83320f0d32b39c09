"""The embedded PostgreSQL: whose it is, who can get at it, and when it ends."""

import fcntl
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace

import psutil
import psycopg
import pytest
from sqlalchemy import make_url, text
from sqlalchemy.orm import Session

from aegish_dist.db import embedded, schema
from aegish_dist.db.embedded import (
    PRIVATE_NAMES,
    Account,
    EmbeddedServer,
    binaries,
    embedded_server,
    embedded_version,
    make_home,
    require_passage,
    running_url,
    server_account,
)
from aegish_dist.db.engine import RunChanges
from aegish_dist.errors import StoreError
from aegish_dist.files import replacing
from tests.integration.samples import BLOCKED, COMMANDS
from tests.integration.stored_runs import stored_run
from tests.recorded import lines_of
from tests.services import make_trusting_data, opened, short_home, wait_until

USER = """
import sys, time
from pathlib import Path
from aegish_dist.db.embedded import embedded_server
print(embedded_server(Path(sys.argv[1])).pid, flush=True)
time.sleep(600)
"""
US = Account(os.geteuid(), os.getegid())
STRANGER = Account(54_321, 54_321)


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A home that several tests use one after the other, which spares them making its files."""
    with short_home() as made:
        yield made


def test_first_starts_at_once_make_one_user(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[SimpleNamespace] = []

    def getpwnam(name: str) -> SimpleNamespace:
        if not made:
            raise KeyError(name)
        return made[0]

    def add_user() -> None:
        time.sleep(0.05)  # in which the others ask for it too
        made.append(SimpleNamespace(pw_uid=900 + len(made), pw_gid=900))

    monkeypatch.setattr("pwd.getpwnam", getpwnam)
    monkeypatch.setattr(embedded, "_add_user", add_user)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(server_account) for _ in range(4)]
    accounts = {each.result() for each in asked}
    assert (accounts, len(made)) == ({Account(900, 900)}, 1)


@pytest.fixture
def server(home: Path) -> Iterator[EmbeddedServer]:
    """The running server of that home."""
    with closing(embedded_server(home)) as started:
        yield started


@contextmanager
def user_of(home: Path) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """Another process that uses the server of a home; yields it and the id of the server."""
    command = [sys.executable, "-c", USER, str(home)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def answers(server: EmbeddedServer) -> bool:
    with psycopg.connect(server.url) as connection:
        return connection.execute("SELECT 1").fetchone() == (1,)


def test_only_its_owner_can_enter(server: EmbeddedServer, home: Path) -> None:
    """Others can enter neither the home nor the data, in which the socket lies."""
    data = home / "postgres"
    assert mode(home) in (0o700, 0o710)
    assert mode(home) == 0o700 or home.stat().st_gid == data.stat().st_gid
    assert mode(data) == 0o700
    assert (data / ".s.PGSQL.5432").is_socket()
    assert answers(server)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_a_process_that_is_killed_leaves_no_server(home: Path, how: signal.Signals) -> None:
    """The server ends with its last user, also where that user could not stop it."""
    with user_of(home) as (user, pid):
        assert psutil.pid_exists(pid)
        user.send_signal(how)
        user.wait()
    wait_until(lambda: not psutil.pid_exists(pid), "the server to end", 20)
    with closing(embedded_server(home)) as server:
        assert answers(server)


def test_a_server_outlives_all_but_its_last_user(server: EmbeddedServer, home: Path) -> None:
    """While one process uses it, another one may come and be killed."""
    with user_of(home) as (_, pid):
        assert pid == server.pid
    assert answers(server)
    server.close()
    assert server.pid is None


def guard_of(home: Path) -> psutil.Process:
    (guard,) = (
        process
        for process in psutil.process_iter(["cmdline"])
        if str(home / "postgres.guard") in " ".join(process.info["cmdline"] or ())
    )
    return guard


def test_a_server_whose_guard_was_killed_gets_another(server: EmbeddedServer, home: Path) -> None:
    """It goes on serving, and the next user sees to it that it ends."""
    pid = server.pid
    guard_of(home).kill()
    assert answers(server)
    server.start()
    assert server.pid == pid
    guard_of(home)
    server.close()
    assert server.pid is None


def test_a_server_that_was_killed_is_started_again(server: EmbeddedServer) -> None:
    """Files left behind by a power cut are no obstacle."""
    pid = server.pid
    assert pid is not None
    processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    for process in processes:
        process.kill()
    psutil.wait_procs(processes, timeout=20)
    server.start()
    assert server.pid != pid
    assert answers(server)


def test_a_home_with_a_long_name_has_its_socket_in_a_private_folder() -> None:
    """No other user can enter that folder, and it is gone with the server."""
    with short_home() as top:
        top.chmod(0o711)
        long = top / ("long-" * 20)
        with closing(embedded_server(long)) as server:
            folder = Path(str(make_url(server.url).query["host"]))
            assert answers(server)
            assert mode(folder) == 0o700
            assert folder.stat().st_uid in (os.geteuid(), (long / "postgres").stat().st_uid)
        assert not folder.exists()


def test_folders_above_the_home_stay_as_they_are(tmp_path: Path) -> None:
    """A closed folder is not opened to let the server in: where it cannot get in, one line says so."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    before = [mode(folder) for folder in (closed, *closed.parents)]
    with pytest.raises(StoreError, match=f"cannot get to .*: {closed} is closed.*AEGISH_DIST_HOME"):
        make_home(closed / "home", Account(STRANGER.uid, os.getegid() + 1))
    assert [mode(folder) for folder in (closed, *closed.parents)] == before


def test_the_way_is_open_for_whom_a_folder_lets_through(tmp_path: Path) -> None:
    """Owner, group and others are distinguished as the kernel does."""
    home = tmp_path / "home"
    home.mkdir()
    inside = home / "postgres"
    home.chmod(0o710)
    require_passage(inside, US) if os.geteuid() else None
    with pytest.raises(StoreError, match=str(home)):
        require_passage(inside, STRANGER)


def test_a_shared_folder_is_no_home(tmp_path: Path) -> None:
    """A folder in which others may write is refused, and is not taken away from them."""
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "theirs").touch()
    shared.chmod(0o777)
    with pytest.raises(StoreError, match=r"others may write in .*AEGISH_DIST_HOME"):
        make_home(shared, US)
    assert mode(shared) == 0o777


def test_a_home_that_is_gone_is_no_obstacle_to_an_end(server: EmbeddedServer, home: Path) -> None:
    """A process that has used it ends in order."""
    moved = home.rename(home.with_name(f"{home.name}-moved"))
    server.close()
    moved.rename(home)


def test_the_version_is_known_without_a_server() -> None:
    """The version is that of the programs in the wheel."""
    assert embedded_version().startswith("18.")


def test_a_first_start_that_was_killed_is_no_obstacle() -> None:
    """The next process waits for what is left of it, and makes the files again."""
    with short_home() as top:
        user = subprocess.Popen([sys.executable, "-c", USER, str(top)], stdout=subprocess.DEVNULL)
        wait_until((top / "postgres.new").exists, "the files to be begun", 20)
        user.kill()
        user.wait()
        with closing(embedded_server(top)) as server:
            assert answers(server)
            assert not (top / "postgres.new").exists()


def test_keys_stay_out_of_the_environments_of_guard_and_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each user of the system may read those of his own processes."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    with short_home() as home, closing(EmbeddedServer(home)) as server:
        server.start()
        postgres = psutil.Process(server.pid)
        for each in (postgres, postgres.parent()):
            assert each is not None
            environ = each.environ()
            assert "OPENAI_API_KEY" not in environ
            assert environ["LC_ALL"] == "C.UTF-8"


def as_others_see_it(server: EmbeddedServer) -> str:
    """The conninfo of a process that reaches the socket and reads no file of the home."""
    folder = make_url(server.url).query["host"]
    return f"host={folder} dbname=postgres passfile=/dev/null"


@pytest.mark.parametrize("login", lines_of("logins_without_a_password.jsonl"))
def test_nobody_gets_in_without_the_password(server: EmbeddedServer, login: str) -> None:
    with pytest.raises(psycopg.OperationalError, match=r"no pg_hba\.conf entry|password"):
        psycopg.connect(f"{as_others_see_it(server)} {login}")


@pytest.mark.parametrize("login", lines_of("logins_with_the_password.jsonl"), ids=str)
def test_the_password_opens_one_database_to_one_role(
    server: EmbeddedServer, login: dict[str, str]
) -> None:
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(server.url, **login)  # type: ignore[arg-type]  # of any keyword


@pytest.mark.parametrize("statement", lines_of("refused_statements.jsonl"))
def test_the_role_gets_neither_a_shell_nor_a_file(
    server: EmbeddedServer, tmp_path: Path, statement: str
) -> None:
    """Not even with its password."""
    mark = tmp_path / "mark"
    tmp_path.chmod(0o777)
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TEMP TABLE stolen (line text)")
        with pytest.raises(psycopg.Error) as refused:
            connection.execute(statement.format(mark=mark).encode())
    known = ("42501", "0A000", "42704", "58P01", "42883")
    # No right; or there is no such extension, language or library; or no such function.
    assert refused.value.sqlstate in known, refused.value
    assert not mark.exists()


def test_one_role_can_log_in_and_has_no_right_beside_its_database(server: EmbeddedServer) -> None:
    rights = ("super", "createdb", "createrole", "replication", "bypassrls")
    columns = ", ".join(f"rol{right}" for right in rights)
    with psycopg.connect(server.url) as connection:
        logins = connection.execute("SELECT rolname FROM pg_roles WHERE rolcanlogin").fetchall()
        assert logins == [("aegish",)]
        (own,) = connection.execute(
            f"SELECT {columns} FROM pg_roles WHERE rolname = 'aegish'".encode()
        ).fetchall()
        assert not any(own)
        members = "SELECT count(*) FROM pg_auth_members WHERE member = 'aegish'::regrole"
        assert connection.execute(members).fetchone() == (0,)


def password(home: Path) -> str:
    return (home / "postgres.password").read_text().strip().rpartition(":")[2]


def test_the_password_is_in_its_file_alone(server: EmbeddedServer, home: Path) -> None:
    """Neither in the URL nor in a log, nor in what the programs of the server are started with."""
    file = home / "postgres.password"
    assert file.name in PRIVATE_NAMES
    assert (mode(file), file.stat().st_uid) == (0o600, os.geteuid())
    secret = password(home)
    assert len(secret) == 64
    assert secret not in server.url
    assert secret not in (home / "postgres.log").read_text()
    for process in (psutil.Process(server.pid), guard_of(home)):
        assert secret not in f"{process.cmdline()} {process.environ()}"


def test_another_servers_password_in_the_environment_is_no_obstacle(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its variable comes before the file for libpq."""
    monkeypatch.setenv("PGPASSWORD", "another")
    with opened(server.url) as engine, engine.connect() as connection:
        assert connection.scalar(text("SELECT current_user")) == "aegish"
    with closing(RunChanges(server.url)) as changes:
        assert changes.wait(0)


def test_a_home_of_any_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The URL quotes what a name may hold, for SQLAlchemy and for libpq."""
    with short_home() as top:
        top.chmod(0o711)
        home = top / "it's 100% a b+c&d=e?f#g\\h\"é"
        with closing(embedded_server(home)) as server:
            assert answers(server)
            assert running_url(home) == server.url
            with opened(server.url) as engine, engine.connect() as connection:
                assert connection.scalar(text("SELECT 1")) == 1


def test_a_password_that_others_may_read_is_refused(home: Path) -> None:
    """The driver would ignore the file without a word of why."""
    with closing(embedded_server(home)):
        pass
    file = home / "postgres.password"
    file.chmod(0o640)
    with pytest.raises(StoreError, match=rf"{file} is open to other users: .*chmod 600"):
        embedded_server(home)
    file.chmod(0o600)
    with closing(embedded_server(home)) as server:
        assert answers(server)


def test_a_password_that_was_deleted_is_made_anew(home: Path) -> None:
    """Not before the last process that uses the server has ended, which loses nothing by it."""
    with closing(embedded_server(home)):
        before = password(home)
    with user_of(home) as (user, pid):
        (home / "postgres.password").unlink()
        with pytest.raises(StoreError, match=r"postgres\.password was deleted: try again when"):
            embedded_server(home)
        assert psutil.pid_exists(pid)
        user.kill()
        user.wait()
        with closing(embedded_server(home)) as server:
            assert answers(server)
            assert server.pid != pid
    assert password(home) != before


@contextmanager
def server_of_the_first_version(home: Path) -> Iterator[str]:
    """Serve a home as the first version did, without its guard; yields the superuser's URL."""
    data, account, root = home / "postgres", server_account(), os.geteuid() == 0
    command = [str(binaries() / "postgres"), "-D", str(data), "-h", "", "-k", str(data)]
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        user=account.uid if root else None,
        group=account.gid if root else None,
        extra_groups=[] if root else None,
    ) as process:
        try:
            ready = data / "postmaster.pid"
            wait_until(lambda: ready.exists() and "ready" in ready.read_text(), "PostgreSQL", 20)
            yield f"postgresql://postgres:@/postgres?host={data}"
        finally:
            process.send_signal(signal.SIGINT)


OF_A_USER = """
    CREATE TYPE mood AS ENUM ('good');
    CREATE DOMAIN short AS text CHECK (length(VALUE) < 9);
    CREATE SEQUENCE "Numbers";
    CREATE TABLE "it's mine" (id serial, mood mood, short short);
    CREATE VIEW mine AS SELECT * FROM "it's mine";
    CREATE MATERIALIZED VIEW kept AS SELECT * FROM "it's mine";
    CREATE FUNCTION one(integer) RETURNS integer LANGUAGE sql SECURITY DEFINER AS 'SELECT 1';
    CREATE PROCEDURE two() LANGUAGE sql AS 'SELECT 1';
    CREATE AGGREGATE total(integer) (SFUNC = int4pl, STYPE = integer);
"""
"""What a user may have made beside the product's tables."""

OWNERS = """
    SELECT relowner::regrole::text FROM pg_class WHERE relnamespace = 'public'::regnamespace
    UNION SELECT proowner::regrole::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace
    UNION SELECT typowner::regrole::text FROM pg_type WHERE typnamespace = 'public'::regnamespace
"""


@contextmanager
def home_of_the_first_version() -> Iterator[tuple[Path, str]]:
    """A home with a stored run, of which the superuser owns all; yields the run's id too."""
    with short_home() as home:
        make_trusting_data(home)
        with server_of_the_first_version(home) as url, opened(url) as engine:
            schema.upgrade(engine)
            with Session(engine) as session, session.begin():
                run_id = stored_run(session, BLOCKED).run_id
            with psycopg.connect(url) as connection:
                connection.execute(OF_A_USER)
        yield home, run_id


def runs_of(server: EmbeddedServer) -> list[str]:
    """The ids of the stored runs, after what a command does at its start."""
    with opened(server.url) as engine:
        schema.upgrade(engine)
        schema.require_current(engine)
        with engine.connect() as connection:
            assert connection.scalar(text("SELECT count(*) FROM verdicts")) == len(COMMANDS.samples)
            return list(connection.scalars(text("SELECT id FROM runs")))


def test_a_home_of_the_first_version_is_taken_over() -> None:
    """Its run is there, the role owns everything, and the superuser gets in no longer."""
    with home_of_the_first_version() as (home, run_id):
        for _ in "12":
            with closing(embedded_server(home)) as server:
                assert runs_of(server) == [run_id]
                with psycopg.connect(server.url) as connection:
                    assert connection.execute(OWNERS).fetchall() == [("aegish",)]
                    connection.execute("ALTER TABLE verdicts ADD COLUMN stray integer")
                    connection.execute("ALTER TYPE mood ADD VALUE 'bad'")
                    connection.execute("DROP FUNCTION one(integer)")
                    connection.rollback()
                with pytest.raises(psycopg.OperationalError, match="no pg_hba"):
                    psycopg.connect(f"{as_others_see_it(server)} user=postgres")


def test_a_server_of_the_first_version_that_is_used_is_left_alone() -> None:
    """One line says what to do; a later start takes its home over."""
    with home_of_the_first_version() as (home, run_id):
        with (
            server_of_the_first_version(home) as url,
            (home / "postgres.users").open("a") as users,
        ):
            fcntl.flock(users, fcntl.LOCK_SH)
            for _ in "12":
                with pytest.raises(StoreError, match=r"by an earlier version.*: try again when"):
                    embedded_server(home)
            with psycopg.connect(url) as connection:
                assert connection.execute("SELECT id FROM runs").fetchone() == (run_id,)
        with closing(embedded_server(home)) as server:
            assert runs_of(server) == [run_id]


def test_a_server_of_the_first_version_that_nobody_uses_is_stopped() -> None:
    """Its guard was killed, for instance."""
    with (
        home_of_the_first_version() as (home, run_id),
        server_of_the_first_version(home),
        closing(embedded_server(home)) as server,
    ):
        assert runs_of(server) == [run_id]


def begins_single(home: Path) -> Callable[[], bool]:
    """Whether the program that gives the database to the role has been started for a home."""

    def begins() -> bool:
        return any(
            "--single" in process.info["cmdline"]
            and str(home) in process.info["environ"].get("PGDATA", "")
            for process in psutil.process_iter(["cmdline", "environ"])
            if process.info["cmdline"] and process.info["environ"]
        )

    return begins


SLOW = """
from pathlib import Path
from aegish_dist.db import embedded
slow = Path({!r})
slow.write_text("SELECT pg_sleep(3);\\n" + embedded.ROLE_SQL.read_text())
embedded.ROLE_SQL = slow
"""


def test_a_takeover_that_is_killed_is_no_obstacle(tmp_path: Path) -> None:
    """The next process waits for what is left of it, and does it again."""
    with home_of_the_first_version() as (home, run_id):
        slow = SLOW.format(str(tmp_path / "slow.sql"))  # long enough to be seen
        command = [sys.executable, "-c", slow + USER, str(home)]
        user = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        wait_until(begins_single(home), "the take-over to begin", 20)
        user.kill()
        user.wait()
        with closing(embedded_server(home)) as server:
            assert runs_of(server) == [run_id]


@pytest.mark.parametrize("writes", [0, 1], ids=["the rules", "the password"])
def test_a_takeover_that_ends_before_a_file_is_finished_later(
    writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Path] = []

    @contextmanager
    def full(path: Path, *, private: bool = False) -> Iterator[object]:
        if len(written) == writes:
            raise OSError(28, "No space left on device")
        written.append(path)
        with replacing(path, private=private) as stream:
            yield stream

    with home_of_the_first_version() as (home, run_id):
        with monkeypatch.context() as patch:
            patch.setattr(embedded, "replacing", full)
            with pytest.raises(StoreError, match=r"No space left on device"):
                embedded_server(home)
        assert not (home / "postgres.password").exists()
        with closing(embedded_server(home)) as server:
            assert runs_of(server) == [run_id]


def test_first_starts_at_once_share_one_server() -> None:
    with short_home() as home, ThreadPoolExecutor(3) as threads:

        def pid_for_another(_: int) -> int:
            with user_of(home) as (_process, pid):
                time.sleep(0.5)  # for the others to join it
                return pid

        assert len(set(threads.map(pid_for_another, range(3)))) == 1
