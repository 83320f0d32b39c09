"""Runs a guard that is a program, and leaves none of its processes and files behind.

A program of its own, of the standard library alone: `python -I -S supervisor.py CONFIGURATION`. It
reads questions, `{"stdin", "time_limit_s"}` a line, one at a time, and answers each by a report: a
line of JSON, then what is kept of the guard's output and errors, of which the line states the
sizes. It ends when its standard input does: the worker is gone, or wants no more.

In mode `once` the guard is started for each question; in mode `lines` it lives on while all is
well. When it ends, what it left is killed, also what called `setsid` or forked twice: orphans
return to a subreaper.
"""

import ctypes
import json
import os
import resource
import select
import signal
import subprocess  # nosec B404
import sys
import time
from contextlib import suppress
from typing import IO, Any

MAX_OUTPUT_BYTES = 2**20  # for one question, on standard output and on standard error
KEPT_ERROR_BYTES = PIECE_BYTES = 2**16
LIMITS = {
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_FSIZE: 2**26,
    resource.RLIMIT_NOFILE: 1024,
}
LAST_S = 0.2  # seconds in which a guard that closes its output may also end
OUTLIVED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # the worker alone says when to end

LINUX = sys.platform == "linux"
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 24, 36, 38
BEYOND_RULES = (19, 21, 38)  # CAP_SYS_PTRACE, CAP_SYS_ADMIN, CAP_PERFMON, of root
CREATE_RULESET, RESTRICT_SELF = 444, 446  # Landlock's calls, the same on every architecture
MAKE_BLOCK, SCOPE_SIGNAL = 1 << 11, 1 << 1


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
        version = LIBC.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), 1)
        files, scoped = (0, SCOPE_SIGNAL) if version >= 6 else (MAKE_BLOCK, 0)
        rules = (ctypes.c_uint64 * 3)(files, 0, scoped)
        domain = LIBC.syscall(CREATE_RULESET, rules, ctypes.c_size_t(24), 0)
        LIBC.syscall(RESTRICT_SELF, domain, 0)


class Stream:
    """A pipe from the guard, of which the end is kept."""

    def __init__(self, pipe: IO[bytes], most_bytes: int) -> None:
        self.pipe = pipe
        self._most_bytes = most_bytes
        self.closed = False
        self.forget()

    def forget(self) -> None:
        self.kept = bytearray()
        self.size = 0

    def read(self) -> bool:
        """Read a piece; return whether there was one."""
        piece = self.pipe.read(PIECE_BYTES)
        self.closed = piece == b""
        self.size += len(piece or b"")
        self.kept += piece or b""
        del self.kept[: -self._most_bytes]
        return bool(piece)


def _unblocked(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # noqa: S101  # nosec B101 # as asked of `Popen`
    os.set_blocking(pipe.fileno(), False)
    return pipe


class GuardProcess:
    """One start of the program, in a session and an empty folder of its own."""

    def __init__(self, configuration: dict[str, Any], woken: int, limit_s: float) -> None:
        """Start the program; an `OSError` says why it does not start."""
        self._is_once = configuration["mode"] == "once"
        self._woken = woken  # readable after the end of a process
        self._folder = os.path.join(configuration["root"], f"aegish-guard-{os.urandom(8).hex()}")
        # Not the address space, of which engines of JavaScript reserve gigabytes.
        limits = LIMITS | {resource.RLIMIT_DATA: configuration["memory_mb"] * 2**20}
        names = [name for name in configuration["variables"] if name in os.environ]
        environment = {name: os.environ[name] for name in names}
        if self._is_once:
            limits[resource.RLIMIT_CPU] = int(limit_s) + 2
        os.mkdir(self._folder, 0o700)
        try:
            self._process = process = subprocess.Popen(  # noqa: S603  # nosec B603 # of the catalog here
                configuration["command"],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self._folder,
                env={"HOME": self._folder, "TMPDIR": self._folder, **environment},
                start_new_session=True,
                preexec_fn=lambda: confine(limits),  # noqa: PLW1509  there are no threads
            )
        except OSError:
            os.rmdir(self._folder)
            raise
        self._asks, *pipes = map(_unblocked, (process.stdin, process.stdout, process.stderr))
        most = (MAX_OUTPUT_BYTES, KEPT_ERROR_BYTES)
        self.streams = list(map(Stream, pipes, most))
        self.ended = False
        self.exit: int | None = None  # exit code, below zero the signal

    def is_ready(self) -> bool:
        """Drop what was written without a question; return whether the guard lives."""
        if self.ended:
            return False
        for stream in self.streams:
            stream.read()
            stream.forget()
        self._reap()
        if self.exit is not None:
            self.end()
        return not self.ended

    def answer(self, question: bytes, limit_s: float) -> dict[str, object]:
        """Ask a question, and end the guard unless it lives on."""
        began_s = time.monotonic()
        with suppress(OSError):  # a guard that reads nothing may answer all the same
            self._asks.write(question)  # at once: a pipe takes 64 KiB, and commands are shorter
        if self._is_once:
            self._asks.close()
        ended = self._watch(began_s + limit_s)
        service_ms = (time.monotonic() - began_s) * 1000
        if ended != "answer":
            self.end()
        return {"ended": ended, "exit": self.exit, "service_ms": service_ms}

    def _watch(self, ends_s: float) -> str:
        """Read what the guard writes; return `answer`, or why it has to be ended.

        That is `exit`, `deadline`, `size`, `closed` (its output), or `worker`, which is gone.
        """
        while (left_ms := (ends_s - time.monotonic()) * 1000) > 0:
            poller = select.poll()
            streams = {each.pipe.fileno(): each for each in self.streams if not each.closed}
            for descriptor in (0, self._woken, *streams):
                poller.register(descriptor, select.POLLIN)
            ready = {descriptor for descriptor, _ in poller.poll(left_ms)}
            for descriptor in ready & streams.keys():
                streams[descriptor].read()
            if end := self._found():
                return end
            if 0 in ready:
                return "worker"
        return "deadline"

    def _found(self) -> str:
        output = self.streams[0]
        if not self._is_once and b"\n" in output.kept:
            return "answer"
        if max(stream.size for stream in self.streams) > MAX_OUTPUT_BYTES:
            return "size"
        closed = output.closed and not self._is_once
        if closed:
            select.select([self._woken], [], [], LAST_S)
        self._reap()
        if self.exit is not None:
            return "exit"
        return "closed" * closed

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
            for process in _descendants():
                with suppress(OSError):
                    os.kill(process, signal.SIGKILL)
            select.select([self._woken], [], [], 0.01)
        for stream in self.streams:
            while stream.read():
                pass
            stream.pipe.close()
        self._asks.close()
        try:
            os.rmdir(self._folder)
        except OSError:  # it is not empty; these go as deep as a guard may
            for command in (["chmod", "-R", "u+rwx", self._folder], ["rm", "-rf", self._folder]):
                subprocess.run(command, check=False)  # noqa: S603  # nosec B603


def _descendants() -> list[int]:
    """Return all processes below this one; none where the system has no /proc."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        with suppress(OSError, ValueError), open(f"/proc/{int(name)}/stat", "rb") as stat:
            parent = int(stat.read().rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(int(name))
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
    os.set_blocking(woken, False)
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    guard: GuardProcess | None = None
    try:
        for line in sys.stdin.buffer:
            question = json.loads(line)
            kept: list[bytes] = []
            try:
                if guard is None or not guard.is_ready():
                    guard = GuardProcess(configuration, woken, question["time_limit_s"])
                report = guard.answer(
                    question["stdin"].encode("utf-8", "replace"), question["time_limit_s"]
                )
                kept = [bytes(stream.kept) for stream in guard.streams]
            except OSError as error:
                report = {"errno": error.errno, "problem": error.strerror}
            report["sizes"] = [len(each) for each in kept]
            sys.stdout.buffer.write(b"".join((json.dumps(report).encode(), b"\n", *kept)))
            sys.stdout.buffer.flush()
    finally:
        if guard is not None and not guard.ended:
            guard.end()
        os._exit(0)  # without a last try to write to a worker that is gone


if __name__ == "__main__":
    main()
