"""What a hostile guard reaches: its worker, its store, another guard, the files of its user.

One worker for each account asks a guard that tries everything below. What became of the worker and
of the files decides, and not the error that the guard saw alone.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from aegish_dist.core.model import Program
from aegish_dist.errors import ProviderError
from aegish_dist.providers import confinement
from aegish_dist.providers.confinement import all_but
from aegish_dist.providers.programs import Programs
from tests.without_landlock import NO_LANDLOCK

ROOT = Path(__file__).parents[2]
PACKAGES = [path for path in sys.path if path.endswith("site-packages")]
OTHER_USER = 65534
IS_ROOT = os.geteuid() == 0
PLACES = [*(["root"] if IS_ROOT else []), "user", "container", "without Landlock"]
CONFINED = PLACES[:-1]

GUARD = r"""
import ctypes, errno, fcntl, glob, json, os, resource, signal, socket, struct, subprocess, sys
worker, store, beside, package, rival, terminal = int(sys.argv[1]), *sys.argv[2:]
HARMLESS, confined = signal.SIGURG, os.environ["PLACE"] != "without Landlock"
supervisor, library = os.getppid(), ctypes.CDLL(None, use_errno=True)
calls = json.loads(os.environ["CALLS"])
module = package + "/aegish_dist/providers/supervisor.py"

def read(path):
    with open(path, "rb") as file:
        return file.read().decode("latin-1")

def write(path, flags=os.O_WRONLY):
    os.write(os.open(path, flags, 0o600), b"changed")

def call(name, *arguments):
    if name not in calls:
        raise OSError(errno.ENOSYS, "not of this machine")
    if library.syscall(calls[name], *arguments) < 0:
        raise OSError(ctypes.get_errno(), name)

def limit(process, kind, value):
    call("prlimit64", process, kind, (ctypes.c_uint64 * 2)(value, value), None)

def of_library(name, *arguments):
    if getattr(library, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)

def through_a_mapping():
    address = ctypes.create_string_buffer(64)
    local, remote = (ctypes.c_size_t * 2)(ctypes.addressof(address), 64), (ctypes.c_size_t * 2)(4096, 64)
    of_library("process_vm_readv", worker, local, 1, remote, 1, 0)

def connect(address):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(address)

def by_a_child(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise PermissionError(done.stderr)
    return done.stdout

ATTACKS = {
    "key: environment of the worker": lambda: read(f"/proc/{worker}/environ"),
    "key: memory of the worker": lambda: read(f"/proc/{worker}/mem"),
    "key: by a child": lambda: by_a_child("cat", f"/proc/{worker}/environ"),
    "key: process_vm_readv": through_a_mapping,
    "key: ptrace": lambda: of_library("ptrace", 16, worker, 0, 0),
    "key: a descriptor of the worker": lambda: os.open(f"/proc/{worker}/fd/0", os.O_RDONLY),
    "store: read": lambda: read(store + "/secret"),
    "store: through the root of a process": lambda: read("/proc/self/root" + store + "/secret"),
    "store: through a link": lambda: (os.symlink(store, "link"), read("link/secret")),
    "store: a hard link": lambda: (os.link(store + "/secret", "hard"), read("hard")),
    "store: by a child": lambda: by_a_child("cat", store + "/secret"),
    "store: write": lambda: write(store + "/secret"),
    "store: a new file": lambda: write(store + "/new", os.O_WRONLY | os.O_CREAT),
    "store: move it away": lambda: os.rename(store, store + ".gone"),
    "signals: to the worker": lambda: os.kill(worker, HARMLESS),
    "signals: to every process": lambda: confined and os.kill(-1, signal.SIGKILL) or os.kill(worker, 0),
    "signals: to its group": lambda: os.killpg(os.getpgid(worker), HARMLESS),
    "signals: to its supervisor": lambda: os.kill(supervisor, HARMLESS),
    "signals: by a descriptor": lambda: signal.pidfd_send_signal(os.pidfd_open(worker), HARMLESS),
    "limits: CPU time": lambda: limit(worker, resource.RLIMIT_CPU, 0),
    "limits: files": lambda: limit(worker, resource.RLIMIT_NOFILE, 0),
    "limits: memory": lambda: limit(worker, resource.RLIMIT_AS, 0),
    "limits: files of its supervisor": lambda: limit(supervisor, resource.RLIMIT_NOFILE, 0),
    "limits: processes of its supervisor": lambda: limit(supervisor, resource.RLIMIT_NPROC, 0),
    "limits: prlimit(1)": lambda: by_a_child("prlimit", f"--pid={worker}", "--nofile=0:0"),
    "limits: its priority": lambda: os.setpriority(os.PRIO_PROCESS, worker, 19),
    "limits: the user's priority": lambda: os.setpriority(os.PRIO_USER, os.getuid(), 19),
    "limits: renice(1)": lambda: by_a_child("renice", "19", str(worker)),
    "limits: its processors": lambda: os.sched_setaffinity(worker, {max(os.sched_getaffinity(worker))}),
    "limits: its scheduler": lambda: os.sched_setscheduler(worker, os.SCHED_IDLE, os.sched_param(0)),
    "limits: its scheduler's attributes": lambda: call("sched_setattr", worker, (ctypes.c_uint32 * 12)(48, 5), 0),
    "limits: its access to disks": lambda: call("ioprio_set", 1, worker, 3 << 13),
    "limits: a ring of calls": lambda: call("io_uring_setup", 4, ctypes.create_string_buffer(120)),
    "sockets: an abstract one": lambda: connect("\0" + sys.argv[6]),
    "files: write beside": lambda: write(beside),
    "files: empty it": lambda: os.truncate(beside, 0),
    "files: append to it": lambda: write(beside, os.O_WRONLY | os.O_APPEND),
    "files: remove it": lambda: os.unlink(beside),
    "files: replace it": lambda: (write("mine", os.O_WRONLY | os.O_CREAT), os.rename("mine", beside)),
    "modes: flags": lambda: fcntl.ioctl(os.open(beside, os.O_RDONLY), 0x40086602, struct.pack("l", 0x80000)),
    "limits: shared memory": lambda: call("shmget", 0, 4096, 0o1600),
    "limits: a message queue": lambda: call("msgget", 0, 0o1600),
    "limits: semaphores": lambda: call("semget", 0, 1, 0o1600),
    "limits: a key": lambda: call("add_key", b"user", b"aegish-test", b"x", 1, -4),
    "files: shared memory": lambda: os.listdir("/dev/shm") and read("/dev/shm/" + os.listdir("/dev/shm")[0]) or 1 / 0,
    "files: a disk": lambda: read(next(iter(glob.glob("/dev/[vsn][dv]*a") or ["/dev/none"]))),
    "modes: attributes": lambda: os.setxattr(beside, "user.a", b"b"),
    "files: a folder in /tmp": lambda: os.mkdir(f"/tmp/{worker}-of-a-guard"),
    "files: a device": lambda: os.mknod("device", 0o20600, os.makedev(1, 3)),
    "files: killed last": lambda: open("/proc/self/oom_score_adj", "w").write("0"),
    "files: rewrite the supervisor": lambda: write(module),
    "files: empty the supervisor": lambda: os.truncate(module, 0),
    "files: remove the supervisor": lambda: os.unlink(module),
    "files: another module before it": lambda: write(package + "/json.py", os.O_WRONLY | os.O_CREAT),
    "files: its compiled file": lambda: write(os.path.dirname(module) + "/__pycache__/x.pyc", os.O_WRONLY | os.O_CREAT),
    "files: rewrite a rival": lambda: write(rival),
    "modes: a lease on the supervisor": lambda: fcntl.fcntl(os.open(module, os.O_RDONLY), 1024, fcntl.F_RDLCK),
}
# These report success, and what became of the files shows that they did nothing.
for path in (store, store + "/secret", beside, module, rival, os.path.dirname(package)):
    os.chmod(path, 0)
    os.chown(path, -1, os.getgid() + 1)
    os.utime(path, (1, 1))
    by_a_child("chmod", "0", path)
found = {}
for name, attack in ATTACKS.items():
    try:
        found[name] = f"done: {attack()!r}"
    except Exception as error:
        found[name] = f"refused: {type(error).__name__}"
use = {}
for name, action in {
    "home": lambda: write(os.environ["HOME"] + "/file", os.O_WRONLY | os.O_CREAT),
    "home: move": lambda: (os.mkdir("a"), os.rename(os.environ["HOME"] + "/file", "a/file")),
    "home: a socket": lambda: socket.socket(socket.AF_UNIX).bind("socket"),
    "beside the store": lambda: read(beside),
    "names": lambda: os.listdir(os.path.dirname(store)),
    "nothing": lambda: write("/dev/null"),
    "standard error": lambda: by_a_child("sh", "-c", "echo word > /dev/stderr; echo word > /dev/null"),
    "own limits": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)),
    "a folder of `writes`": lambda: write(terminal + "/file", os.O_WRONLY | os.O_CREAT),
    "capabilities": lambda: [line for line in open("/proc/self/status") if line.startswith("CapEff")],
}.items():
    try:
        use[name] = action()
    except Exception as error:
        use[name] = f"refused: {error!r}"
print(json.dumps([found, use]))
"""

DRIVER = r"""
import asyncio, json, os, resource, shutil, socket, sys, time
from pathlib import Path
from tempfile import TemporaryDirectory
folder, guard = Path(sys.argv[1]), sys.argv[2]
os.chmod(folder, 0o755)
package, store, writes = folder / "packages", folder / "home" / "store", folder / "writes"
import aegish_dist
source = Path(aegish_dist.__file__).parent
shutil.copytree(source / "providers", package / "aegish_dist" / "providers", ignore=lambda *_: ["batches"])
shutil.copy(source / "__init__.py", package / "aegish_dist")
store.mkdir(parents=True), writes.mkdir()
beside, rival = store.parent / "beside", folder / "rival"
(store / "secret").write_text("secret"), beside.write_text("beside")
rival.write_text("#!/bin/sh\nexit 2\n")
rival.chmod(0o755)
from aegish_dist.core.model import Program
from aegish_dist.providers import programs
programs.PACKAGES = str(package)
os.environ["A_KEY"] = "sk-proj-0123456789abcdef"
listener = socket.socket(socket.AF_UNIX)
listener.bind("\0" + str(writes)), listener.listen()

def state():
    files = {}
    for path in sorted(folder.rglob("*")):
        if writes not in (path, *path.parents) and "__pycache__" not in path.parts:
            about = path.stat()
            files[str(path)] = [about.st_mode, about.st_uid, about.st_gid]
            if path.is_file():
                files[str(path)] += [about.st_mtime_ns, path.read_text()]
    limits = [resource.getrlimit(each) for each in range(16)]
    return [files, limits, os.getpriority(os.PRIO_PROCESS, 0), sorted(os.sched_getaffinity(0)), os.sched_getscheduler(0)]

async def said(mine, path):
    try:
        return (await mine.client(Program(command=(path,)), 20, lambda _: True).complete("ls")).text
    except Exception as error:
        return str(error)

async def main():
    mine = programs.Programs([store])
    paths = (str(os.getpid()), *map(str, (store, beside, package, rival, writes)))
    hostile = Program(command=(sys.executable, "-c", guard, *paths), pass_variables=("CALLS", "PLACE"),
        input="text", writes=(str(writes),))
    before = state()
    answer = (await mine.client(hostile, 60, lambda _: False).complete("ls")).text
    unchanged = state() == before
    good = await said(mine, str(rival))
    words = await said(mine, str(store / "guard"))
    await mine.close()
    stray = Path(f"/tmp/{os.getpid()}-of-a-guard")
    left = stray.exists()
    if left:
        stray.rmdir()
    print(json.dumps([json.loads(answer), unchanged, good, words, (writes / "file").exists(), left]))

asyncio.run(main())
"""


def interpreter() -> str:
    """Return one that other users may run."""
    path = Path(sys.executable).resolve()
    reachable = all(folder.stat().st_mode & 0o001 for folder in path.parents)
    return sys.executable if reachable else "/usr/bin/python3"


def without_capabilities() -> None:
    for capability in range(41):
        confinement.LIBC.prctl(confinement.PR_CAPBSET_DROP, capability, 0, 0, 0)
    confinement.LIBC.prctl(confinement.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


@cache
def attacked(place: str, folder: Path) -> Any:
    """Return what the guard tells, and what became of the worker and the files."""
    account = OTHER_USER if IS_ROOT and place != "root" else None
    folder = folder / place
    folder.mkdir()
    if account:
        os.chown(folder, account, account)
    ended = subprocess.run(
        [
            interpreter() if account else sys.executable,
            "-c",
            NO_LANDLOCK * (place == "without Landlock") + DRIVER,
            folder,
            GUARD,
        ],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": ":".join([str(ROOT), *PACKAGES]),
            "CALLS": json.dumps(confinement.CALLS[confinement.MACHINE]),
            "PLACE": place,
        },
        cwd="/",
        user=account,
        group=account,
        extra_groups=[] if account else None,
        preexec_fn=without_capabilities if place == "container" else None,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Not below pytest's own folder, which is closed to other users."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def done(place: str, folder: Path) -> set[str]:
    """Return the kinds of attacks of which one was no error."""
    [[found, _], *_] = attacked(place, folder)
    return {name.partition(":")[0] for name, became in found.items() if "refused" not in became}


@pytest.mark.parametrize("place", CONFINED)
def test_no_attack_reaches_what_is_not_the_guards_own(place: str, folder: Path) -> None:
    [[found, _], unchanged, rival, _, _, left] = attacked(place, folder)
    assert [name for name, became in found.items() if "refused" not in became] == []
    assert len(found) > 45
    assert unchanged
    assert rival == "exit code 2"
    assert not left


ROWS = {
    "read the environment and memory": "key",
    "read a file of the store": "store",
    "write outside": "files",
    "change modes": "modes",
    "signal": "signals",
    "reach abstract sockets": "sockets",
    "change limits": "limits",
}


@pytest.mark.parametrize("place", PLACES)
def test_the_guide_says_what_holds_where(place: str, folder: Path) -> None:
    text = (ROOT / "docs" / "guides" / "guards.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    [heads] = [row for row in rows if row[0] == "a guard cannot"]
    column = heads.index(place)
    stated = {
        kind: row[column].split()[0]
        for start, kind in ROWS.items()
        for row in rows
        if row[0].startswith(start)
    }
    reached = done(place, folder)
    assert stated == {kind: "open" if kind in reached else "held" for kind in ROWS.values()}


@pytest.mark.parametrize("place", CONFINED)
def test_a_guard_can_do_what_guards_do(place: str, folder: Path) -> None:
    [[_, use], _, _, _, written, _] = attacked(place, folder)
    assert use.pop("capabilities") == ["CapEff:\t0000000000000000\n"]
    assert use.pop("beside the store") == "beside"
    assert sorted(use.pop("names")) == ["beside", "store"]
    assert {name: became for name, became in use.items() if "refused" in str(became)} == {}
    assert written


@pytest.mark.parametrize("place", PLACES)
def test_a_program_in_the_store_is_refused_by_name(place: str, folder: Path) -> None:
    [_, _, _, words, *_] = attacked(place, folder)
    store = folder / place / "home" / "store"
    assert words == (
        f"the program cannot be started: {store}/guard lies in {store}, which no guard may read"
    )


def test_all_but_leaves_out_what_is_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a/b/c", "a/b/d", "a/e", "f"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a" / "link").symlink_to(tmp_path / "a" / "b")
    (tmp_path / "a" / "file").write_text("")
    start = str(tmp_path)
    named = {path.removeprefix(start) for path in all_but([f"{start}/a/b/c"], start)}
    assert named == {"/a/b/d", "/a/e", "/a/file", "/f"}
    assert list(all_but([f"{start}/gone"], f"{start}/f")) == [f"{start}/f"]
    # A folder that may be entered and not listed, as /home often is.
    (tmp_path / "a" / "b" / "c" / "store").mkdir()
    real = os.scandir

    def scandir(path: str) -> Any:
        if path == f"{start}/a":
            raise PermissionError
        return real(path)

    monkeypatch.setattr("os.scandir", scandir)
    named = {path.removeprefix(start) for path in all_but([f"{start}/a/b/c/store"], start)}
    assert named == {"/a/b/d", "/f"}
    assert list(all_but([f"{start}/f"], f"{start}/f")) == []


@pytest.mark.parametrize("below", ["", "/spool"])
def test_a_guard_may_not_write_to_the_store(tmp_path: Path, below: str) -> None:
    guard = Program(command=("cat",), writes=(f"{tmp_path}{below}",))

    async def asked() -> str:
        programs = Programs([tmp_path])
        try:
            await programs.client(guard, 20, lambda _: True).complete("ls")
        except ProviderError as error:
            return str(error)
        finally:
            await programs.close()
        return ""

    problem = f"{tmp_path}{below} lies in {tmp_path}, which no guard may read"
    assert asyncio.run(asked()) == f"the program cannot be started: {problem}"


def test_copies_that_keep_attributes_work(tmp_path: Path) -> None:
    """cp(1) takes a refusal of attributes for a failure, and a file system without them for none."""
    script = "echo a > a && cp -p a b && cp -a a c && install -m 755 a d && cat b c d; echo $?"
    guard = Program(command=("sh", "-c", script))

    async def asked() -> str | None:
        programs = Programs()
        answer = await programs.client(guard, 20, lambda _: True).complete("ls")
        await programs.close()
        return answer.text

    assert asyncio.run(asked()) == "a\na\na\n0"


def test_the_filter_of_each_processor_names_its_calls() -> None:
    """Numbers from the tables of Linux 6.12: `syscall_64.tbl`, and the generic one for aarch64."""
    assert set(confinement.CALLS) == set(confinement.ARCHITECTURES)
    own = {"chmod", "chown", "lchown", "utime", "utimes", "futimesat"}  # of x86-64 alone
    assert confinement.CALLS["x86_64"].keys() - own == confinement.CALLS["aarch64"].keys()
    for machine, calls in confinement.CALLS.items():
        code = confinement.filter_of(machine)
        steps = [code[place : place + 8] for place in range(0, len(code), 8)]
        named = {int.from_bytes(step[4:], sys.byteorder) for step in steps if step[0] == 0x15}
        assert named >= {number for name, number in calls.items() if name != "seccomp"}
        assert len(steps) < 4096
