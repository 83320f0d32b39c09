"""The embedded PostgreSQL: whose it is, who can get at it, and when it ends."""

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace

import psutil
import psycopg
import pytest

from aegish_dist.db import embedded
from aegish_dist.db.embedded import (
    Account,
    EmbeddedServer,
    embedded_server,
    embedded_version,
    make_home,
    require_passage,
    server_account,
)
from aegish_dist.errors import StoreError
from tests.services import short_home, wait_until

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
            folder = Path(server.url.partition("host=")[2])
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
