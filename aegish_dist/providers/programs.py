"""Guards that are programs: a few processes of each, shared by all runs of a worker.

Each process is watched over by a supervisor of its own (`supervisor.py`), which kills it with all
that it started when this side closes its socket. Programs come from the catalog of the worker's
operator alone.
"""

import asyncio
import json
import os
import re
import secrets
import signal
import sys
import tempfile
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from errno import EACCES, ENOENT, ENOEXEC, ENOTDIR, EPERM
from functools import cache
from pathlib import Path
from typing import Self, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aegish_dist.core.model import Program
from aegish_dist.core.outcome import ErrorClass, StopKind
from aegish_dist.core.secrets import SHORT_KEY_CHARS, KeyMask
from aegish_dist.core.text import clean_text
from aegish_dist.core.verdict import Completion
from aegish_dist.errors import ProviderError
from aegish_dist.logs import get_logger
from aegish_dist.providers import confinement, lenient, supervisor
from aegish_dist.providers.failures import one_line
from aegish_dist.providers.supervisor import MAX_OUTPUT_BYTES, Ended

log = get_logger(__name__)

PYTHON_HOST = str(Path(supervisor.__file__).with_name("python_host.py"))
PACKAGES = str(Path(supervisor.__file__).parents[2])
# The supervisor's program. It is run without `site`, so it finds this package and no other.
SUPERVISE = (
    "import sys; sys.path.append(sys.argv.pop(1));"
    " from aegish_dist.providers.supervisor import main; main()"
)
LONGEST_REPORT_BYTES = 8 * MAX_OUTPUT_BYTES  # in JSON a byte may take six
IDLE_S = 60.0  # seconds without a question after which a process is ended, at the next look
LATEST_S = 10.0  # seconds after a deadline in which a supervisor ends its guard and reports
ALWAYS_PASSED = ("PATH", "LANG")
UNANSWERED = (Ended.DEADLINE, Ended.EARLY, Ended.SIZE)
NOT_THERE = frozenset({ENOENT, EACCES, ENOEXEC, ENOTDIR, EPERM})
NO_PROGRAM_CODES = (126, 127)  # of shells: a command that is not executable, or not found
_TELLING = re.compile(r"error|exception|fatal|panic|not found|denied|no such", re.IGNORECASE)


class GuardReport(Struct, frozen=True):
    """The end of a question, as a supervisor tells it."""

    ended: Ended | None = None  # None: the guard was not started
    exit: int | None = None  # exit code of a guard that is ended, below zero the signal
    errno: int | None = None  # why it was not started
    service_ms: float | None = None
    output: str = ""
    errors: str = ""  # their end


class Programs:
    """The programs of one worker process."""

    def __init__(self, hidden: Collection[Path] = ()) -> None:
        """Prepare; `hidden`: folders that no program may read, where Landlock is there."""
        self._hidden = tuple(os.path.realpath(folder) for folder in hidden)
        self._pools: dict[Program, _Pool] = {}
        self._end_idle()

    def _end_idle(self) -> None:
        """End what is idle now, and look again while the loop runs."""
        for pool in self._pools.values():
            pool.end_idle(IDLE_S)
        asyncio.get_running_loop().call_later(IDLE_S / 4, self._end_idle)

    def client(
        self, program: Program, time_limit_s: float, reads: Callable[[Completion], bool]
    ) -> "ProgramClient":
        """Prepare a client for one run.

        Args:
            reads: Whether an answer holds an action; one with an exit code other than 0 that
                holds none is a failure.
        """
        pool = self._pools.setdefault(program, _Pool(program, self._hidden))
        return ProgramClient(program, pool, time_limit_s, reads)

    async def close(self) -> None:
        """End all processes and wait for their ends."""
        await asyncio.gather(*(pool.close() for pool in self._pools.values()))


def python_program(target: str, like: Program) -> Program:
    """Return the program that asks an object, `module:object`, of this process's environment."""
    path = json.dumps([os.path.abspath(each) for each in sys.path])
    command = (sys.executable, "-I", PYTHON_HOST, target, path)
    return replace(
        like,
        command=command,
        mode="lines",
        input="json",
    )


class ProgramClient(Struct, frozen=True):
    program: Program
    pool: "_Pool"
    time_limit_s: float
    reads: Callable[[Completion], bool]

    async def complete(self, command: str, epoch: int = 1) -> Completion:
        number = secrets.token_hex(8)  # an answer that is written in advance fits no question
        question = _question(self.program, command, number)
        async with self.pool.supervisor() as supervisor:
            report = await supervisor.report(question, self.time_limit_s)
            answer = self._line_of(report, number)  # after an odd one the guard is ended
        text = self._of_run(report) if answer is None else _of_document(answer)
        return _completion(text, report.service_ms)

    def _line_of(self, report: GuardReport, number: str) -> dict[str, object] | None:
        """Return the document that answers a question in mode `lines`; None where none does."""
        line, ending, _ = report.output.partition("\n")
        if not ending or report.ended in UNANSWERED or self.program.mode == "once":
            return None
        answer = dict(lenient.mapping(lenient.parse(line.encode(), self._masked)))
        if answer.pop("id", None) != number:
            raise lenient.malformed("the program's answer is not to the question's `id`")
        return answer

    def _of_run(self, report: GuardReport) -> str:
        by_signal = report.exit is not None and report.exit < 0
        if by_signal or report.ended is not Ended.EXIT or self.program.mode == "lines":
            raise self._failure(report)
        text = self._text(report.output)
        if not text and report.exit:
            text = self._text(report.errors)
        if report.exit or not text:
            text = f"{text}\nexit code {report.exit}".strip()
        if report.exit and not self.reads(_completion(text)):
            raise self._failure(report)
        return text

    def _failure(self, report: GuardReport) -> ProviderError:
        """Return the failure of a guard that gave no answer."""
        kind = ErrorClass.SERVER
        words = "closed its output"
        match report:
            case GuardReport(errno=int() as errno):
                words = f"cannot be started: {self.program.command[0]}"
                if errno in NOT_THERE:
                    kind = ErrorClass.NOT_FOUND
            case GuardReport(ended=Ended.SIZE):
                return lenient.malformed(f"the program's output exceeds {MAX_OUTPUT_BYTES} bytes")
            case GuardReport(ended=Ended.DEADLINE):
                words = f"gave no answer within {self.time_limit_s:g} s"
                kind = ErrorClass.DEADLINE
            case GuardReport(ended=Ended.EXIT, exit=int() as code):
                words = f"ended with exit code {code}"
                if code < 0:
                    words = f"was ended by a signal: {signal.strsignal(-code)}"
                if code in NO_PROGRAM_CODES:
                    kind = ErrorClass.NOT_FOUND
            case GuardReport(ended=Ended.EARLY):
                words = "answered too early"

        lines = [line for line in self._text(report.errors).splitlines() if line.strip()]
        telling = [line for line in lines if _TELLING.search(line)] or lines
        if telling:
            words = f"{words}: {telling[-1]}"
        return ProviderError(one_line(f"the program {words}"), error_class=kind)

    def _text(self, said: str) -> str:
        return clean_text(str(self._masked(said))).strip()

    def _masked(self, value: object) -> object:
        for mask in self.pool.masks:
            value = mask.value(value)
        return value


def _of_document(answer: dict[str, object]) -> str:
    match answer:
        case {"text": str(text)} if len(answer) == 1:
            return text
        case {"error": str(problem)} if len(answer) == 1:
            words = f"the program failed: {one_line(problem)}"
            raise ProviderError(words, error_class=ErrorClass.SERVER)
    return json.dumps(answer, ensure_ascii=False)


def _completion(text: str, took_ms: float | None = None) -> Completion:
    return Completion(
        text,
        stop_reason="stop",
        stop_kind=StopKind.STOP,
        took_ms=took_ms,
    )


def _question(program: Program, command: str, number: str) -> str:
    if program.input == "text":
        return command
    document: dict[str, object] = {"id": number, "command": command}
    if program.input == "hook":
        document = {"id": number} if program.mode == "lines" else {}
        # A folder that is there: hooks deny every command of an agent in one that is not.
        document |= {
            "session_id": "aegish-dist",
            "transcript_path": "",
            "cwd": tempfile.gettempdir(),
            "hook_event_name": "PreToolUse",
            "tool_name": "Bash",
            "tool_input": {"command": command},
        }

    question = json.dumps(document, ensure_ascii=False)
    return f"{question}\n" if program.mode == "lines" else question


class _Pool:
    """The processes of one program; who waits for a free one is served in turn."""

    def __init__(self, program: Program, hidden: Collection[str]) -> None:
        self._program = program
        self._hidden = hidden
        self._free = asyncio.Semaphore(program.processes)
        self._idle: list[tuple[float, Supervisor]] = []  # since when; the last is asked next
        self._ending: set[asyncio.Task[None]] = set()
        passed = [os.environ.get(name, "") for name in program.pass_variables]
        self.masks = [KeyMask(value) for value in passed if len(value) >= SHORT_KEY_CHARS]

    @asynccontextmanager
    async def supervisor(self) -> "AsyncIterator[Supervisor]":
        """Lend a supervisor; after a failure its state is unknown, and it is ended."""
        async with self._free:
            if self._idle:
                supervisor = self._idle.pop()[1]
            else:
                supervisor = await Supervisor.start(self._program, self._hidden)
            try:
                yield supervisor
            except BaseException:
                self._end(supervisor)
                raise
            self._idle.append((asyncio.get_running_loop().time(), supervisor))

    def end_idle(self, seconds: float) -> None:
        """End the processes that were asked nothing for so long."""
        now_s = asyncio.get_running_loop().time()
        while self._idle and now_s - self._idle[0][0] >= seconds:
            _, longest_idle = self._idle.pop(0)
            self._end(longest_idle)

    def _end(self, supervisor: "Supervisor") -> None:
        ending = asyncio.create_task(supervisor.end())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        self.end_idle(0)
        await asyncio.gather(*self._ending)


@cache
def _hide_keys() -> None:
    """Hide this process's environment and memory, and warn once of barriers that are missing."""
    confinement.hide_memory()
    remedy = "see docs/guides/guards.md"
    if confinement.LINUX and confinement.LANDLOCK < 1:
        log.warning("guards_without_landlock", remedy=remedy)
    if confinement.LINUX and confinement.FILTER is None:
        log.warning("guards_without_seccomp", remedy=remedy)


def _require_outside(program: Program, hidden: Collection[str]) -> None:
    """Refuse paths in a folder that guards may not read: the program, and what it may write."""
    paths = [argument for argument in program.command if os.path.isabs(argument)]
    paths += program.writes
    for folder in hidden:
        for path in paths:
            real = os.path.realpath(path)
            written = path in program.writes
            if confinement.is_below(real, folder) or (written and real == folder):
                words = f"cannot be started: {path} lies in {folder}, which no guard may read"
                raise ProviderError(f"the program {words}", error_class=ErrorClass.NOT_FOUND)


class Supervisor(Struct, frozen=True):
    """A process of `supervisor.py`, which watches over one guard at a time."""

    process: asyncio.subprocess.Process
    questions: StreamWriter
    reports: StreamReader
    folder: str  # of its guards' homes

    @classmethod
    async def start(cls, program: Program, hidden: Collection[str]) -> Self:
        _hide_keys()
        _require_outside(program, hidden)
        folder = os.path.join(tempfile.gettempdir(), f"aegish-guard-{secrets.token_hex(8)}")
        names = (*ALWAYS_PASSED, *program.pass_variables)
        configuration = {
            "command": program.command,
            "mode": program.mode,
            "memory_mb": program.memory_mb,
            "writes": program.writes,
            "variables": names,
            "folder": folder,
            "hidden": hidden,
        }
        arguments = ("-I", "-S", "-c", SUPERVISE, PACKAGES, json.dumps(configuration))
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={name: os.environ[name] for name in names if name in os.environ},
                limit=LONGEST_REPORT_BYTES,
                start_new_session=True,  # signals of the worker's terminal are not for it
            )
        except OSError as error:
            words = f"no process can be started: {error.strerror}"
            raise ProviderError(words, error_class=ErrorClass.SERVER) from error

        return cls(
            process, cast(StreamWriter, process.stdin), cast(StreamReader, process.stdout), folder
        )

    async def report(self, question: str, limit_s: float) -> GuardReport:
        asked = {"stdin": question, "time_limit_s": limit_s}
        try:
            self.questions.write(json.dumps(asked).encode() + b"\n")
            async with asyncio.timeout(limit_s + LATEST_S):
                return msgspec.json.decode(await self.reports.readline(), type=GuardReport)
        except (msgspec.DecodeError, ValueError, OSError):  # ValueError: it is too long
            words = "the program's supervisor ended"
            raise ProviderError(words, error_class=ErrorClass.SERVER) from None

    async def end(self) -> None:
        """Have it end its guard and itself."""
        self.questions.close()
        try:
            async with asyncio.timeout(LATEST_S):
                await self.reports.read()  # a report that no call waits for
        except TimeoutError:
            self.process.kill()

        if await self.process.wait():  # it was killed, and its guard may have children
            await asyncio.to_thread(supervisor.end_orphans, self.folder)
