"""Runs a guard that is a program, and leaves none of its processes and files behind.

A program of its own, of the standard library alone: a worker starts one for each process of a
guard, as `python -I -S supervisor.py CONFIGURATION`. It reads questions, `{"stdin",
"time_limit_s"}` a line, one at a time, and answers each by a report: a line of JSON, then what is
kept of the guard's output and errors, of which the line states the sizes. It ends when its standard
input does: the worker is gone, or wants no more.

In mode `once` the guard is started for each question. In mode `lines` it lives on until something
is wrong. Whenever it ends, what it left is killed, also what called `setsid` or forked twice:
orphans return to a subreaper.
"""

import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
from contextlib import ExitStack, suppress
from typing import Any

MAX_OUTPUT_BYTES = 2**20  # for one question, on standard output and on standard error
KEPT_ERROR_BYTES = 2**16
PIECE_BYTES = 2**16
MAX_FILE_BYTES = 2**26
MAX_DESCRIPTORS = 1024
LAST_S = 0.2  # seconds in which a guard that closes its output may also end
OUTLIVED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # the worker alone says when to end

LINUX = sys.platform == "linux"
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 24, 36, 38
BEYOND_RULES = (19, 21, 38)  # CAP_SYS_PTRACE, CAP_SYS_ADMIN, CAP_PERFMON, of root
CREATE_RULESET, RESTRICT_SELF = 444, 446  # Landlock's calls, the same on every architecture
MAKE_BLOCK, SCOPE_SIGNAL = 1 << 11, 1 << 1


def landlock_rules() -> int:
    """Return the descriptor of Landlock's rules for guards; below zero: there is no Landlock.

    Whatever they forbid, a process under rules can neither trace one that is not nor read its
    environment: the worker has keys in `/proc/PID/environ`. From Linux 6.12 on it cannot send it
    signals either.
    """
    version = LIBC.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    files, scoped = (0, SCOPE_SIGNAL) if version >= 6 else (MAKE_BLOCK, 0)
    rules = (ctypes.c_uint64 * 3)(files, 0, scoped)
    return int(LIBC.syscall(CREATE_RULESET, rules, ctypes.c_size_t(24), 0))


class Stream:
    """A pipe from the guard, of which the end is kept."""

    def __init__(self, descriptor: int, most_bytes: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self._most_bytes = most_bytes
        self.closed = False
        self.clear()

    def clear(self) -> None:
        self.kept = bytearray()
        self.size = 0

    def read(self) -> bool:
        """Read a piece; return whether there was one."""
        try:
            piece = os.read(self.descriptor, PIECE_BYTES)
        except BlockingIOError:
            return False
        self.closed = not piece
        self.size += len(piece)
        self.kept += piece
        del self.kept[: -self._most_bytes]
        return bool(piece)


class GuardProcess:
    """One start of the program, in a session and an empty folder of its own."""

    def __init__(self, configuration: dict[str, Any], rules: int, woken: int) -> None:
        self._configuration = configuration
        self._is_once = configuration["mode"] == "once"
        self._rules = rules
        self._woken = woken  # readable after the end of a process
        self._folder = os.path.join(configuration["root"], f"aegish-guard-{os.urandom(8).hex()}")
        self._process = 0
        self._exit: int | None = None  # exit code, below zero the signal
        self._opened, self._asking = ExitStack(), ExitStack()
        self.streams: list[Stream] = []  # output and errors

    def start(self, limit_s: float) -> None:
        """Start the program; an `OSError` says why it does not start."""
        os.mkdir(self._folder, 0o700)
        with ExitStack() as theirs:
            stdin, self._asks = _pipe(theirs, self._asking)
            os.set_blocking(self._asks, False)
            answers, stdout = _pipe(self._opened, theirs)
            errors, stderr = _pipe(self._opened, theirs)
            failed, fails = _pipe(self._opened, theirs)
            self._process = os.fork()
            if self._process == 0:
                try:
                    for target, source in enumerate((stdin, stdout, stderr)):
                        os.dup2(source, target)  # `exec` closes others, as Python opens them so
                    self._become_program(limit_s)
                except Exception as error:
                    words = getattr(error, "strerror", None) or str(error)
                    os.write(fails, json.dumps([getattr(error, "errno", None), words]).encode())
                finally:
                    os._exit(127)
        self.streams += Stream(answers, MAX_OUTPUT_BYTES), Stream(errors, KEPT_ERROR_BYTES)
        if problem := os.read(failed, PIECE_BYTES):
            raise OSError(*json.loads(problem))

    def _become_program(self, limit_s: float) -> None:
        os.setsid()
        os.chdir(self._folder)
        for number in (*OUTLIVED, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        if LINUX:
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            for capability in BEYOND_RULES:
                LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
            LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            LIBC.syscall(RESTRICT_SELF, self._rules, 0)
        limits = {
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_FSIZE: MAX_FILE_BYTES,
            resource.RLIMIT_NOFILE: MAX_DESCRIPTORS,
            # Not the address space, of which engines of JavaScript reserve gigabytes.
            resource.RLIMIT_DATA: self._configuration["memory_mb"] * 2**20,
            **({resource.RLIMIT_CPU: int(limit_s) + 2} if self._is_once else {}),
        }
        for kind, most in limits.items():
            ceiling = resource.getrlimit(kind)[1]
            kept = most if ceiling == resource.RLIM_INFINITY else min(most, ceiling)
            resource.setrlimit(kind, (kept, kept))
        names = [name for name in self._configuration["variables"] if name in os.environ]
        environment = dict.fromkeys(("HOME", "TMPDIR"), self._folder)
        environment |= {name: os.environ[name] for name in names}
        command = self._configuration["command"]
        os.execvpe(command[0], command, environment)  # noqa: S606  # nosec B606

    def ask(self, question: bytes) -> None:
        with suppress(OSError):  # a guard that reads nothing may answer all the same
            os.write(self._asks, question)  # at once: a pipe takes 64 KiB, and commands are shorter
        if self._is_once:
            self._asking.close()

    def watch(self, ends_s: float | None = None) -> str:
        """Read until a guard of mode `lines` answers, or until the guard has to be ended.

        Returns:
            `answer`, `exit`, `deadline`, `size`, `closed`, or `worker`, which has sent something.
        """
        while True:
            left_ms = None if ends_s is None else (ends_s - time.monotonic()) * 1000
            if left_ms is not None and left_ms <= 0:
                return "deadline"
            poller = select.poll()
            watched = [stream for stream in self.streams if not stream.closed]
            for descriptor in (0, self._woken, *(stream.descriptor for stream in watched)):
                poller.register(descriptor, select.POLLIN)
            ready = {descriptor for descriptor, _ in poller.poll(left_ms)}
            for stream in watched:
                if stream.descriptor in ready:
                    stream.read()
            if end := self._found(is_asked=ends_s is not None):
                return end
            if 0 in ready:
                return "worker"

    def _found(self, *, is_asked: bool) -> str:
        output = self.streams[0]
        if is_asked and not self._is_once and b"\n" in output.kept:
            return "answer"
        if max(stream.size for stream in self.streams) > MAX_OUTPUT_BYTES:
            return "size"
        if output.closed and not self._is_once:
            select.select([self._woken], [], [], LAST_S)
        self._reap()
        if self._exit is not None:
            return "exit"
        return "closed" if output.closed and not self._is_once else ""

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
            if process == self._process:
                self._exit = os.waitstatus_to_exitcode(status)

    def end(self) -> int | None:
        """Kill all that is left, read what it wrote, remove its folder; return the exit code."""
        with suppress(OSError):
            if self._process:
                os.killpg(self._process, signal.SIGKILL)
        while self._reap():
            for process in _descendants():
                with suppress(OSError):
                    os.kill(process, signal.SIGKILL)
            select.select([self._woken], [], [], 0.01)
        for stream in self.streams:
            while stream.read():
                pass
        self._asking.close()
        self._opened.close()
        try:
            os.rmdir(self._folder)
        except OSError:  # it is not empty; these go as deep as a guard may
            for command in (["chmod", "-R", "u+rwx", self._folder], ["rm", "-rf", self._folder]):
                os.spawnvp(os.P_WAIT, command[0], command)  # noqa: S606  # nosec B606
        return self._exit


def _pipe(reads: ExitStack, writes: ExitStack) -> tuple[int, int]:
    reader, writer = os.pipe()
    reads.callback(os.close, reader)
    writes.callback(os.close, writer)
    return reader, writer


def _descendants() -> list[int]:
    """Return all processes below this one; none where the system has no /proc."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if LINUX else ():
        with suppress(OSError, ValueError), open(f"/proc/{int(name)}/stat", "rb") as stat:
            parent = int(stat.read().rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(int(name))
    found = [os.getpid()]
    for process in found:
        found += children.get(process, [])
    return found[1:]


def main() -> None:
    configuration = json.loads(sys.argv[1])
    rules = -1
    if LINUX:
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        rules = landlock_rules()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in OUTLIVED:
        signal.signal(number, signal.SIG_IGN)
    woken, wakes = os.pipe()
    for end in (woken, wakes):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    guard: GuardProcess | None = None
    with suppress(BrokenPipeError):
        while True:
            if guard is not None and guard.watch() != "worker":
                guard.end()
                guard = None
            line = sys.stdin.buffer.readline()
            if not line:
                break
            guard = _reported(json.loads(line), guard or GuardProcess(configuration, rules, woken))
    if guard is not None:
        guard.end()


def _reported(question: dict[str, Any], guard: GuardProcess) -> GuardProcess | None:
    """Answer a question by a report; return the guard if it lives on."""
    began_s = time.monotonic()
    report: dict[str, object] = {}
    try:
        if not guard.streams:
            guard.start(question["time_limit_s"])
        else:
            for stream in guard.streams:
                stream.read()  # not asked for
                stream.clear()
    except OSError as error:
        report |= {"errno": error.errno, "problem": error.strerror}
    else:
        guard.ask(question["stdin"].encode("utf-8", "replace"))
        report["ended"] = guard.watch(began_s + question["time_limit_s"])
        report["service_ms"] = round((time.monotonic() - began_s) * 1000, 3)
    lives = report.get("ended") == "answer"
    if not lives:
        report["exit"] = guard.end()
    kept = [bytes(stream.kept) for stream in guard.streams]
    report["sizes"] = [len(each) for each in kept]
    sys.stdout.buffer.write(b"".join((json.dumps(report).encode(), b"\n", *kept)))
    sys.stdout.buffer.flush()
    return guard if lives else None


if __name__ == "__main__":
    main()
