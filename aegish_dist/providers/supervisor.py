"""Runs a guard that is a program, and leaves none of its processes and files behind.

A program of its own, of the standard library alone: `python -I -S supervisor.py CONFIGURATION`. It
reads questions, `{"stdin", "time_limit_s"}` a line, one at a time, and answers each by a report, a
line too. It ends when its standard input does: the worker is gone, or wants no more.

In mode `once` the guard is started for each question; in mode `lines` it lives on while all is
well. When it ends, what it left is killed, also what called `setsid` or forked twice: orphans
return to a subreaper.
"""

import ctypes
import glob
import json
import os
import resource
import select
import signal
import subprocess  # nosec B404
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

MAX_OUTPUT_BYTES = 2**20  # for one question, on standard output and on standard error
PIECE_BYTES = KEPT_ERRORS = 2**16
LIMITS = {
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_FSIZE: 2**26,
    resource.RLIMIT_NOFILE: 1024,
    resource.RLIMIT_NPROC: 2**13,  # of the user, and not of root: a fork bomb stops there
}
ORPHANS_S = 10.0  # longest time in which orphans are chased
LAST_S = 0.2  # seconds in which a guard that closes its output may also end
OUTLIVED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # the worker alone says when to end

LINUX = sys.platform == "linux"
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP = 1, 4, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
BEYOND_RULES = (19, 21, 38)  # CAP_SYS_PTRACE, CAP_SYS_ADMIN, CAP_PERFMON, of root
CREATE_RULESET, RESTRICT_SELF = 444, 446  # Landlock's calls, the same on every architecture
MAKE_BLOCK, SCOPE_SIGNAL = 1 << 11, 1 << 1
LANDLOCK = LIBC.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), 1) if LINUX else 0
"""Its version; below 1 where it is missing or forbidden."""


def confine(limits: dict[int, int]) -> None:
    """Confine this process and all that it starts.

    Whatever the rules of Landlock forbid, a process under rules can neither trace one that is not
    nor read its environment: the worker has keys in `/proc/PID/environ`. From Linux 6.12 on it
    cannot send it signals either.
    """
    for number in OUTLIVED:
        signal.signal(number, signal.SIG_DFL)
    for kind, most in limits.items():
        ceiling = resource.getrlimit(kind)[1]
        kept = most if ceiling == resource.RLIM_INFINITY else min(most, ceiling)
        resource.setrlimit(kind, (kept, kept))
    if LINUX:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        for capability in BEYOND_RULES:
            LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
        files, scoped = (0, SCOPE_SIGNAL) if LANDLOCK >= 6 else (MAKE_BLOCK, 0)
        rules = (ctypes.c_uint64 * 3)(files, 0, scoped)
        domain = LIBC.syscall(CREATE_RULESET, rules, ctypes.c_size_t(24), 0)
        LIBC.syscall(RESTRICT_SELF, domain, 0)


class GuardProcess:
    """One start of the program, in a session and an empty folder of its own."""

    def __init__(self, configuration: dict[str, Any], woken: int, limit_s: float) -> None:
        """Start the program; an `OSError` says why it does not start."""
        self._is_once = configuration["mode"] == "once"
        self._woken = woken  # readable after the end of a process
        self._home = f"{configuration['home']}-{os.urandom(8).hex()}"
        # Guards take what deletes in a home folder for dangerous, so the guard works below it.
        self._folder = os.path.join(self._home, "work")
        # Not the address space, of which engines of JavaScript reserve gigabytes.
        limits = LIMITS | {resource.RLIMIT_DATA: configuration["memory_mb"] * 2**20}
        if self._is_once:
            limits[resource.RLIMIT_CPU] = int(limit_s) + 2
        names = [name for name in configuration["variables"] if name in os.environ]
        environment = {name: os.environ[name] for name in names}
        os.mkdir(self._home, 0o700)
        os.mkdir(self._folder)
        try:
            self._process = subprocess.Popen(  # noqa: S603  # nosec B603 # as the catalog says
                configuration["command"],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self._folder,
                env={"HOME": self._home, "TMPDIR": self._home, **environment},
                start_new_session=True,
                preexec_fn=lambda: confine(limits),  # noqa: PLW1509  there are no threads
            )
        except OSError:
            remove(self._home)
            raise
        pipes = (self._process.stdin, self._process.stdout, self._process.stderr)
        self._asks, *outputs = (pipe for pipe in pipes if pipe is not None)
        for pipe in (self._asks, *outputs):
            os.set_blocking(pipe.fileno(), False)
        self._open = {pipe.fileno(): pipe for pipe in outputs}
        self._kept = {descriptor: bytearray() for descriptor in self._open}  # output, errors
        self.exit: int | None = None  # exit code, below zero the signal
        self.ended = False

    def is_ready(self) -> bool:
        """Drop what was written without a question; return whether the guard lives."""
        if not self.ended:
            self._read(self._open)
            for kept in self._kept.values():
                kept.clear()
            self._reap()
            if self.exit is not None or next(iter(self._kept)) not in self._open:
                self.end()
        return not self.ended

    def answer(self, question: dict[str, Any], began_s: float) -> dict[str, object]:
        """Ask a question, end the guard unless it answers and lives on, and return a report."""
        self._unsent = memoryview(question["stdin"].encode("utf-8", "replace"))
        self._send()
        ended = self._watch(began_s + question["time_limit_s"])
        service_ms = (time.monotonic() - began_s) * 1000
        if ended != "answer":
            self.end()
            if max(map(len, self._kept.values())) > MAX_OUTPUT_BYTES:  # it wrote that before
                ended = "size"
        texts = [kept.decode("utf-8", "replace") for kept in self._kept.values()]
        report = {"ended": ended, "exit": self.exit, "service_ms": service_ms}
        return {**report, "output": texts[0], "errors": texts[1][-KEPT_ERRORS:]}

    def _send(self) -> None:
        """Write what the pipe takes now: some take 4 KiB, when the user has many pipes."""
        try:
            self._unsent = self._unsent[self._asks.write(self._unsent) or 0 :]
        except OSError:  # a guard that reads nothing may answer all the same
            self._unsent = self._unsent[:0]
        if self._is_once and not self._unsent:
            self._asks.close()

    def _watch(self, ends_s: float) -> str:
        """Send and read until the guard answers; return `answer`, or why it has to be ended.

        That is `early` (it answered before it could have read the question), `exit`, `deadline`,
        `size`, `closed` (its output), or `worker`, which is gone.
        """
        output = next(iter(self._kept))
        while (left_ms := (ends_s - time.monotonic()) * 1000) > 0:
            poller = select.poll()
            for descriptor in (0, self._woken, *self._open):
                poller.register(descriptor, select.POLLIN)
            if self._unsent:
                poller.register(self._asks, select.POLLOUT)
            ready = {descriptor for descriptor, _ in poller.poll(left_ms)}
            self._read(ready & self._open.keys())
            if max(map(len, self._kept.values())) > MAX_OUTPUT_BYTES:
                return "size"
            if not self._is_once and b"\n" in self._kept[output]:
                return "early" if self._unsent else "answer"
            if self._unsent and self._asks.fileno() in ready:
                self._send()
            closed = output not in self._open and not self._is_once
            if closed:  # it may be ending
                select.select([self._woken], [], [], LAST_S)
            self._reap()
            if self.exit is not None:
                return "exit"
            if closed or 0 in ready:
                return "closed" if closed else "worker"
        return "deadline"

    def _read(self, descriptors: Iterable[int]) -> bool:
        """Read a piece of each, and keep one byte above the limit; return whether there was one."""
        before = sum(map(len, self._kept.values()))
        for descriptor in list(descriptors):
            piece, kept = self._open[descriptor].read(PIECE_BYTES), self._kept[descriptor]
            kept.extend((piece or b"")[: MAX_OUTPUT_BYTES + 1 - len(kept)])
            if piece == b"":
                self._open.pop(descriptor).close()
        return sum(map(len, self._kept.values())) > before

    def _reap(self) -> bool:
        """Reap what has ended; return whether a process is left."""
        with suppress(BlockingIOError):
            os.read(self._woken, PIECE_BYTES)
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if process == 0:
                return True
            if process == self._process.pid:
                self.exit = self._process.returncode = os.waitstatus_to_exitcode(status)

    def end(self) -> None:
        """Kill all that is left, read what it wrote, and remove its folder."""
        self.ended = True
        with suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        while self._reap():
            _kill(_descendants())
            select.select([self._woken], [], [], 0.01)
        while self._read(self._open):
            pass
        for pipe in (self._asks, *self._open.values()):
            pipe.close()
        remove(self._home)


def remove(home: str) -> None:
    """Remove the home of a guard and all below it, or the link that a guard put in its place."""
    if os.path.islink(home):
        os.unlink(home)
        return
    try:
        os.rmdir(os.path.join(home, "work"))
        os.rmdir(home)
    except OSError:  # they are not empty; these go as deep as a guard may
        for command in (["chmod", "-R", "u+rwx", home], ["rm", "-rf", home]):
            subprocess.run(command, check=False)  # noqa: S603  # nosec B603


def end_orphans(home: str) -> None:
    """End what a killed supervisor left: processes that know a home of its guards, and these."""
    word, ends_s = f"{home}-".encode(), time.monotonic() + ORPHANS_S
    while (
        orphans := [each for each, environ in _processes("environ") if word in environ]
    ) and time.monotonic() < ends_s:
        _kill(orphans)
        time.sleep(0.01)
    for left in glob.glob(f"{glob.escape(home)}-*"):
        remove(left)


def _processes(about: str) -> Iterator[tuple[int, bytes]]:
    """Yield all processes with a file of /proc; none where the system has no /proc."""
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        with suppress(OSError, ValueError), open(f"/proc/{int(name)}/{about}", "rb") as file:
            yield int(name), file.read()


def _kill(processes: Iterable[int]) -> None:
    for process in processes:
        with suppress(OSError):
            os.kill(process, signal.SIGKILL)


def _descendants() -> list[int]:
    """Return all processes below this one."""
    children: dict[int, list[int]] = {}
    for process, stat in _processes("stat"):
        parent = int(stat.rpartition(b")")[2].split()[1])
        children.setdefault(parent, []).append(process)
    found = [os.getpid()]
    for process in found:
        found += children.get(process, [])
    return found[1:]


def main() -> None:
    configuration = json.loads(sys.argv[1])
    if LINUX:
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in OUTLIVED:
        signal.signal(number, signal.SIG_IGN)
    woken, wakes = os.pipe()
    for end in (woken, wakes):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    guard: GuardProcess | None = None
    try:
        for line in sys.stdin:
            question, began_s = json.loads(line), time.monotonic()
            try:
                if guard is None or not guard.is_ready():
                    guard = GuardProcess(configuration, woken, question["time_limit_s"])
                report = guard.answer(question, began_s)
            except OSError as error:
                report = {"errno": error.errno, "errors": error.strerror}
            print(json.dumps(report), flush=True)  # noqa: T201
    finally:
        if guard is not None and not guard.ended:
            guard.end()
        os._exit(0)  # without a last try to write to a worker that is gone


if __name__ == "__main__":
    main()
