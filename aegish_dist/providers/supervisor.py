"""Runs a guard that is a program, and leaves none of its processes and files behind.

A program of its own, of the standard library alone: `programs.py` starts it. It reads questions,
`{"stdin", "time_limit_s"}` a line, one at a time, and answers each by a report, a line too. It ends
when its standard input does: the worker is gone, or wants no more.

In mode `once` the guard is started for each question; in mode `lines` it lives on while all is
well. When it ends, what it left is killed, also what called `setsid` or forked twice: orphans
return to a subreaper. `confinement.py` says what a guard may do.
"""

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
from enum import StrEnum
from typing import Any

from aegish_dist.providers import confinement

MAX_OUTPUT_BYTES = 2**20  # for one question, on standard output and on standard error
PIECE_BYTES = KEPT_ERRORS = 2**16
ORPHANS_S = 10.0  # longest time in which orphans are chased
LAST_S = 0.2  # seconds in which a guard that closes its output may also end
ALL_IT_MAY_SIGNAL = -1


class Ended(StrEnum):
    """How a guard's answer to a question ended."""

    ANSWER = "answer"
    EARLY = "early"  # answered before the guard could have read the question
    EXIT = "exit"
    DEADLINE = "deadline"
    SIZE = "size"  # more output than is kept
    CLOSED = "closed"  # the output was closed, and the guard lived on
    WORKER = "worker"  # the worker is gone


class Surroundings:
    """The folder and the rules that the guards of this supervisor share, and how they end."""

    def __init__(self, configuration: dict[str, Any], woken: int) -> None:
        self.configuration = configuration
        self.woken = woken  # readable after the end of a process
        self.reaches_guards_alone = confinement.enter_domain()
        self.folder: str = configuration["folder"]
        os.mkdir(self.folder, 0o700)
        hidden = configuration["hidden"]
        writes = configuration["writes"]
        self.files = confinement.FileRules(self.folder, hidden, writes)

    def new_home(self) -> str:
        """Make an empty home, in which the folder `work` is the guard's.

        Guards take what deletes in a home folder for dangerous, so they work below it.
        """
        home = os.path.join(self.folder, os.urandom(8).hex())
        os.mkdir(home, 0o700)
        os.mkdir(os.path.join(home, "work"))
        return home

    def kill_guards(self) -> None:
        """Kill every process below this one.

        That takes no descriptor where the kernel confines the signals of this process: it sends one
        to all that it may reach.
        """
        if self.reaches_guards_alone:
            _kill([ALL_IT_MAY_SIGNAL])
        else:
            _kill(_descendants())

    def clear(self) -> None:
        """Remove all that a guard left in the folder."""
        with suppress(FileNotFoundError):
            paths = [os.path.join(self.folder, name) for name in os.listdir(self.folder)]
            left = [path for path in paths if not _is_removed(path)]
            if left:
                _run("chmod", "-R", "u+rwx", self.folder)
                _run("find", self.folder, "-mindepth", "1", "-delete")

    def close(self) -> None:
        self.clear()
        with suppress(OSError):
            os.rmdir(self.folder)


class GuardProcess:
    """One start of the program, in a session and an empty folder of its own."""

    def __init__(self, surroundings: Surroundings, limit_s: float) -> None:
        """Start the program; an `OSError` says why it does not start."""
        configuration = surroundings.configuration
        self._surroundings = surroundings
        self._is_once = configuration["mode"] == "once"
        ruleset = surroundings.files.ruleset()
        # Not the address space, of which engines of JavaScript reserve gigabytes.
        of_memory = {resource.RLIMIT_DATA: configuration["memory_mb"] * 2**20}
        limits = confinement.LIMITS | of_memory
        if self._is_once:
            limits[resource.RLIMIT_CPU] = int(limit_s) + 2
        names = [name for name in configuration["variables"] if name in os.environ]
        environment = {name: os.environ[name] for name in names}
        home = surroundings.new_home()
        try:
            self._process = subprocess.Popen(  # noqa: S603  # nosec B603 # as the catalog says
                configuration["command"],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=os.path.join(home, "work"),
                env={
                    "HOME": home,
                    "TMPDIR": home,
                    **environment,
                },
                start_new_session=True,
                # There are no threads.
                preexec_fn=lambda: confinement.confine(limits, ruleset),  # noqa: PLW1509
            )
        except OSError:
            surroundings.clear()
            raise

        pipes = (self._process.stdin, self._process.stdout, self._process.stderr)
        self._asks, *outputs = (pipe for pipe in pipes if pipe is not None)
        for pipe in (self._asks, *outputs):
            os.set_blocking(pipe.fileno(), False)
        self._open = {pipe.fileno(): pipe for pipe in outputs}
        # Of the output, then of the errors.
        self._kept = {descriptor: bytearray() for descriptor in self._open}
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
        if ended is not Ended.ANSWER:
            self.end()
            if self._has_too_much():  # it wrote that before
                ended = Ended.SIZE

        output, errors = (kept.decode("utf-8", "replace") for kept in self._kept.values())
        return {
            "ended": ended,
            "exit": self.exit,
            "service_ms": service_ms,
            "output": output,
            "errors": errors[-KEPT_ERRORS:],
        }

    def _has_too_much(self) -> bool:
        return any(len(kept) > MAX_OUTPUT_BYTES for kept in self._kept.values())

    def _send(self) -> None:
        """Write what the pipe takes now: some take 4 KiB, when the user has many pipes."""
        try:
            self._unsent = self._unsent[self._asks.write(self._unsent) or 0 :]
        except OSError:  # a guard that reads nothing may answer all the same
            self._unsent = self._unsent[:0]
        if self._is_once and not self._unsent:
            self._asks.close()

    def _watch(self, ends_s: float) -> Ended:
        """Send and read until the guard answers, or has to be ended."""
        output = next(iter(self._kept))
        while (left_ms := (ends_s - time.monotonic()) * 1000) > 0:
            poller = select.poll()
            for descriptor in (0, self._surroundings.woken, *self._open):
                poller.register(descriptor, select.POLLIN)
            if self._unsent:
                poller.register(self._asks, select.POLLOUT)
            ready = {descriptor for descriptor, _ in poller.poll(left_ms)}
            self._read(ready & self._open.keys())
            if self._has_too_much():
                return Ended.SIZE
            if not self._is_once and b"\n" in self._kept[output]:
                return Ended.EARLY if self._unsent else Ended.ANSWER
            if self._unsent and self._asks.fileno() in ready:
                self._send()
            closed = output not in self._open and not self._is_once
            if closed:  # it may be ending
                select.select([self._surroundings.woken], [], [], LAST_S)
            self._reap()
            if self.exit is not None:
                return Ended.EXIT
            if closed or 0 in ready:
                return Ended.CLOSED if closed else Ended.WORKER

        return Ended.DEADLINE

    def _read(self, descriptors: Iterable[int]) -> bool:
        """Read a piece of each, and keep one byte above the limit; return whether there was one."""
        before = sum(map(len, self._kept.values()))
        for descriptor in list(descriptors):
            piece = self._open[descriptor].read(PIECE_BYTES)
            kept = self._kept[descriptor]
            kept.extend((piece or b"")[: MAX_OUTPUT_BYTES + 1 - len(kept)])
            if piece == b"":
                self._open.pop(descriptor).close()

        return sum(map(len, self._kept.values())) > before

    def _reap(self) -> bool:
        """Reap what has ended; return whether a process is left."""
        with suppress(BlockingIOError):
            os.read(self._surroundings.woken, PIECE_BYTES)
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
            self._surroundings.kill_guards()
            select.select([self._surroundings.woken], [], [], 0.01)

        while self._read(self._open):
            pass
        for pipe in (self._asks, *self._open.values()):
            pipe.close()
        self._surroundings.clear()


def _is_removed(path: str) -> bool:
    """Remove a home that holds nothing but its empty folder; return whether it is gone."""
    if os.path.islink(path):  # what it leads to is not the guard's
        return False
    try:
        os.rmdir(os.path.join(path, "work"))
        os.rmdir(path)
    except OSError:
        return False

    return True


def _run(*command: str) -> None:
    """Run a program of the system, which goes as deep as a guard may."""
    subprocess.run(command, check=False)  # noqa: S603  # nosec B603


def end_orphans(folder: str) -> None:
    """End what a killed supervisor left: the folder of its guards, and processes that know it."""
    word = f"{folder}/".encode()
    ends_s = time.monotonic() + ORPHANS_S
    while time.monotonic() < ends_s:
        orphans = [process for process, environ in _processes("environ") if word in environ]
        if not orphans:
            break
        _kill(orphans)
        time.sleep(0.01)

    if os.path.lexists(folder):
        _run("chmod", "-R", "u+rwx", folder)
        _run("rm", "-rf", folder)


def _processes(about: str) -> Iterator[tuple[int, bytes]]:
    """Yield all processes with a file of /proc; none where the system has no /proc."""
    if not os.path.isdir("/proc"):
        return
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError), open(f"/proc/{name}/{about}", "rb") as file:
                yield int(name), file.read()


def _kill(processes: Iterable[int]) -> None:
    for process in processes:
        with suppress(OSError):
            os.kill(process, signal.SIGKILL)


def _descendants() -> list[int]:
    """Return all processes below this one."""
    children: dict[int, list[int]] = {}
    for process, stat in _processes("stat"):
        # The name of a program stands in brackets and may hold anything.
        _, _, facts = stat.rpartition(b")")
        parent = int(facts.split()[1])
        children.setdefault(parent, []).append(process)

    descendants = children.get(os.getpid(), [])
    for process in descendants:
        descendants += children.get(process, [])
    return descendants


def _words(error: OSError, configuration: dict[str, Any]) -> str:
    """Return what is wrong, with the path unless it is the program's own."""
    if error.filename is None or error.filename == configuration["command"][0]:
        return str(error.strerror)
    return f"{error.filename}: {error.strerror}"


def main() -> None:
    configuration = json.loads(sys.argv[1])
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in confinement.OUTLIVED:
        signal.signal(number, signal.SIG_IGN)
    woken, wakes = os.pipe()
    for end in (woken, wakes):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    surroundings = Surroundings(configuration, woken)
    guard: GuardProcess | None = None
    try:
        for line in sys.stdin:
            question = json.loads(line)
            began_s = time.monotonic()
            try:
                if guard is None or not guard.is_ready():
                    guard = GuardProcess(surroundings, question["time_limit_s"])
                report = guard.answer(question, began_s)
            except OSError as error:
                report = {
                    "errno": error.errno,
                    "errors": _words(error, configuration),
                }
            print(json.dumps(report), flush=True)  # noqa: T201
    finally:
        if guard is not None and not guard.ended:
            guard.end()
        surroundings.close()
        os._exit(0)  # without a last try to write to a worker that is gone
