"""Guards that are programs: real processes, some of which attack."""

import asyncio
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import msgspec
import pytest

from aegish_dist.core.model import Program
from aegish_dist.errors import ProviderError
from aegish_dist.providers import confinement, programs
from aegish_dist.providers.programs import ProgramClient, Programs, python_program
from tests.recorded import lines_of
from tests.services import wait_until
from tests.without_landlock import NO_LANDLOCK

LOOP = """
import json, os, sys, threading, time
for line in sys.stdin:
    question = json.loads(line)
    command = question["command"]
    answer = json.dumps({"id": question["id"], "about": command})
    %s
    print(answer, flush=True)
"""
MARK = "AEGISH_TEST_MARK"


@pytest.fixture(autouse=True)
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A word in the environment of each process of the test; none of them outlives it."""
    word = os.urandom(8).hex()
    monkeypatch.setenv(MARK, word)
    yield word
    assert processes(word) == []


def by_id(word: str) -> dict[int, str]:
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{MARK}={word}".encode() in (folder / "environ").read_bytes():
                found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
    return {process: words for process, words in found.items() if words}  # else it has just ended


def processes(word: str) -> list[str]:
    return list(by_id(word).values())


def program(*command: str, **more: Any) -> Program:
    more["pass_variables"] = (MARK, *more.get("pass_variables", ()))
    return Program(command=command, **more)


def shell(script: str, **more: Any) -> Program:
    return program("sh", "-c", script, **more)


def python(script: str, **more: Any) -> Program:
    return program(sys.executable, "-c", script, **more)


def loop(script: str = "", **more: Any) -> Program:
    """A long-lived guard that answers each command by itself."""
    return python(LOOP % script, mode="lines", **more)


@asynccontextmanager
async def running() -> AsyncIterator[Programs]:
    programs = Programs()
    try:
        yield programs
    finally:
        await programs.close()


async def said(client: ProgramClient, command: str = "ls") -> str:
    """Ask one question; a failure is its class and its words."""
    try:
        return (await client.complete(command)).text or ""
    except ProviderError as error:
        return f"{error.error_class}: {error}"


def clients(programs: Programs, guard: Program, limit_s: float = 20.0) -> ProgramClient:
    return programs.client(guard, limit_s, lambda answer: "exit code 2" in (answer.text or ""))


def asked(guard: Program, *commands: str, limit_s: float = 20.0) -> list[str]:
    async def ask() -> list[str]:
        async with running() as programs:
            client = clients(programs, guard, limit_s)
            return [await said(client, command) for command in commands or ("ls",)]

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("guard", "answer"),
    [
        (shell("cat", input="text"), "echo é"),
        (shell("sed -E 's/[0-9a-f]{16}/1/'"), '{"id": "1", "command": "echo é"}'),
        (shell("echo '{}'; exit 2"), "{}\nexit code 2"),
        (shell("echo no >&2; exit 2"), "no\nexit code 2"),
        (shell("echo said >&2"), "exit code 0"),
        (
            shell("echo 'Error: of mine' >&2; echo bye >&2; exit 1"),
            "server: the program ended with exit code 1: Error: of mine",
        ),
        (shell("kill -9 $$"), "server: the program was ended by a signal: Killed"),
        (
            shell("exec no-such-guard"),
            "not_found: the program ended with exit code 127: sh: 1: exec: no-such-guard: not found",
        ),
        (
            program("/no/such/guard"),
            "not_found: the program cannot be started: /no/such/guard: No such file or directory",
        ),
        (
            program("/etc/passwd", mode="lines"),
            "not_found: the program cannot be started: /etc/passwd: Permission denied",
        ),
        (
            program("cat", writes=("/no/such/folder",)),
            "not_found: the program cannot be started: cat: /no/such/folder: No such file or directory",
        ),
    ],
)
def test_a_program_is_asked_once_for_a_command(guard: Program, answer: str) -> None:
    assert asked(guard, "echo é") == [answer]


def test_a_hook_is_sent_the_document_of_an_agent() -> None:
    [said] = asked(shell("cat", input="hook"), "ls")
    assert json.loads(said) == {
        "session_id": "aegish-dist",
        "transcript_path": "",
        "cwd": gettempdir(),
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "ls"},
    }


def test_a_long_lived_program_answers_line_by_line() -> None:
    texts = asked(loop(), "ls", 'say "hi"\n')
    assert [json.loads(text) for text in texts] == [{"about": "ls"}, {"about": 'say "hi"\n'}]


LONG = "é" * 150_000  # more than a pipe takes


@pytest.mark.parametrize(
    ("guard", "answer"),
    [
        (shell("wc -c", input="text"), "300000"),
        (loop('answer = json.dumps({"id": question["id"], "n": len(command)})'), '{"n": 150000}'),
        (shell("exec <&-; sleep 0.2; exit 2", input="text"), "exit code 2"),
        (
            shell("echo '{}'; sleep 60", mode="lines"),
            "server: the program answered too early",
        ),
    ],
)
def test_a_question_is_written_whole(guard: Program, answer: str) -> None:
    assert asked(guard, LONG) == [answer]


@pytest.mark.parametrize(
    ("language", "code", "limits", "words"),
    lines_of("attacks_of_guards.jsonl"),
)
def test_an_attack_is_a_failure_of_its_own(
    language: str, code: str, limits: dict[str, int], words: str
) -> None:
    guard = {"loop": loop, "shell": shell, "python": python}[language](code, **limits)
    limit_s = 0.5 if "deadline" in words else 20.0
    started = time.monotonic()
    assert asked(guard, limit_s=limit_s) == [words]
    assert time.monotonic() - started < 40


def test_a_report_that_is_too_long_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "LONGEST_REPORT_BYTES", 100)
    assert asked(shell("cat", input="text"), "x" * 1000) == [
        "server: the program's supervisor ended"
    ]


def test_a_guard_that_kills_its_supervisor_leaves_nothing() -> None:
    assert asked(shell("kill -9 $PPID && sleep 600; exit 2")) in (
        ["server: the program's supervisor ended"],
        ["sh: 1: kill: Operation not permitted\nexit code 2"],  # from Linux 6.12 on
    )


def test_a_guard_is_asked_again_after_each_failure() -> None:
    """Answers that are late, for another command or doubled are taken for no other command's."""
    script = """
    if command == "late": time.sleep(60)
    if command == "other": answer = answer.replace('"id": "', '"id": "7')
    if command == "twice": answer += "\\n" + answer
    """
    commands = ("a", "late", "b", "other", "c", "twice", "d")
    texts = asked(loop(script), *commands, limit_s=4.0)
    about = [json.loads(text)["about"] if "{" in text else text.partition(":")[0] for text in texts]
    assert about == ["a", "deadline", "b", "malformed", "c", "twice", "d"]


def test_an_answer_in_advance_is_taken_for_no_command() -> None:
    script = """
    print(answer, flush=True)
    time.sleep(0.05)
    answer = json.dumps({"id": "%x" % (int(question["id"], 16) + 1), "about": "forged"})
    """
    texts = asked(loop(script), *"abc")
    assert not any("forged" in text for text in texts)


@pytest.mark.parametrize("end", ["os._exit", "os.close"])
async def test_a_guard_that_ended_between_two_questions_is_started_again(
    mark: str, end: str
) -> None:
    """Or has closed its output."""

    def answers() -> bool:
        guards = [each for each, words in by_id(mark).items() if "supervisor" not in words]
        return any(os.path.exists(f"/proc/{each}/fd/1") for each in guards)

    async with running() as programs:
        client = clients(programs, loop(f"threading.Timer(0.1, {end}, [1]).start()"))
        for command in ("a", "b"):
            assert await said(client, command) == f'{{"about": "{command}"}}'
            while answers():
                await asyncio.sleep(0.05)


LEAVES = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for kind in range(3):
    if os.fork() == 0:
        if kind:
            os.setsid()
        if kind == 2 and os.fork():
            os._exit(0)
        time.sleep(600)
        os._exit(0)
"""


KILLS = "time.sleep(0.3); os.kill(os.getppid(), 9); time.sleep(600)"


@pytest.mark.parametrize("end", ["print(1)", "time.sleep(600)", "os.abort()"])
async def test_no_child_of_a_guard_is_left_after_a_question(mark: str, end: str) -> None:
    async with running() as programs:
        await said(clients(programs, python(LEAVES + end), 1.0))
        assert ["providers.supervisor" in each for each in processes(mark)] == [True]


NAMELESS = """
import os, subprocess, time
for number in range(20):
    subprocess.Popen(["setsid", "env", "-i", "sh", "-c", "sleep 600; :", %r])
    time.sleep(0.01)
"""
"""Children that have left the guard's session and cleared their environment."""


def named(word: str) -> list[int]:
    """Return the processes with a word among their arguments."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if word in (folder / "cmdline").read_text().split("\0"):
                found.append(int(folder.name))
    return found


@pytest.mark.parametrize("end", ["time.sleep(600)", "os._exit(0)", "os.close(1); os.close(2)"])
async def test_no_child_without_an_environment_outlives_the_deadline(mark: str, end: str) -> None:
    async with running() as programs:
        await said(clients(programs, python(NAMELESS % mark + end), 2.0))
        assert named(mark) == []


async def test_guards_end_although_their_supervisor_may_open_nothing(
    mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    async with running() as programs:
        guard = python(NAMELESS % mark + "time.sleep(600)")
        asking = asyncio.create_task(said(clients(programs, guard, 3.0)))
        while len(named(mark)) < 20:
            await asyncio.sleep(0.05)
        [supervisor] = [each for each, words in by_id(mark).items() if "supervisor" in words]
        resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (0, 0))
        assert "program" in await asking
    assert (named(mark), list(tmp_path.iterdir())) == ([], [])


def test_no_child_of_a_long_lived_guard_is_left(mark: str) -> None:
    assert asked(loop(f"exec({LEAVES!r})")) == ['{"about": "ls"}']


async def test_no_process_of_a_fork_bomb_is_left(mark: str) -> None:
    """64 of them, as root has no limit; for two seconds each takes the place of another."""
    script = """
import os, time
ends, leader = time.monotonic() + 2, os.getpid()
for _ in range(6):
    if os.fork() == 0:
        os.setsid()
while time.monotonic() < ends:
    if os.getpid() != leader and os.fork():
        os._exit(0)
time.sleep(600)
"""

    async with running() as programs:
        text = await said(clients(programs, python(script), 1.0))
        assert text == "deadline: the program gave no answer within 1 s"
        assert ["providers.supervisor" in each for each in processes(mark)] == [True]


async def test_no_child_of_a_guard_outlives_a_supervisor_that_is_killed(
    mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    async with running() as programs:
        asking = asyncio.create_task(said(clients(programs, python(LEAVES + "time.sleep(600)"))))
        while sum("sleep(600)" in each for each in processes(mark)) < 4:
            await asyncio.sleep(0.05)
        assert [each.name[:13] for each in tmp_path.iterdir()] == ["aegish-guard-"]
        for process, words in by_id(mark).items():
            if "providers.supervisor" in words:
                os.kill(process, signal.SIGKILL)
        assert await asking == "server: the program's supervisor ended"
    assert (processes(mark), list(tmp_path.iterdir())) == ([], [])


WITHOUT_LANDLOCK = (
    NO_LANDLOCK
    + """
import asyncio
from aegish_dist.core.model import Program
from aegish_dist.providers.programs import Programs
async def main():
    programs = Programs()
    for script in sys.argv[2:]:
        command = (sys.executable, "-c", script, f"/proc/{os.getpid()}/environ")
        guard = Program(command=command, pass_variables=(sys.argv[1],))
        try:
            print((await programs.client(guard, 20, lambda _: False).complete("ls")).text)
        except Exception as error:
            print(error)
    await programs.close()
asyncio.run(main())
"""
)


def test_a_worker_without_landlock_hides_its_keys_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A guard that forks twice kills its supervisor, which it may signal there."""
    monkeypatch.setenv("A_KEY", "sk-proj-0123456789abcdef")
    reads = "import sys; print('A_KEY' in open(sys.argv[1]).read())"

    def as_of_a_container() -> None:
        for capability in range(41):
            confinement.LIBC.prctl(confinement.PR_CAPBSET_DROP, capability, 0, 0, 0)

    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_LANDLOCK, MARK, reads, LEAVES + KILLS],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=as_of_a_container,
    )
    reading, killing = ended.stdout.splitlines()
    assert (ended.stdout + ended.stderr).count("guards_without_landlock") == 1
    assert "PermissionError" in reading
    assert killing == "the program's supervisor ended"


def test_a_home_that_is_a_link_is_unlinked_alone(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "keep").mkdir(0o500)
    script = """
import os
home = os.environ["HOME"]
os.rename(home, home + "-moved")
os.symlink({!r}, home)
print(home)
"""
    [home] = asked(python(script.format(str(tmp_path))))
    assert Path(home).is_absolute()
    assert not Path(home).is_symlink()
    assert not Path(f"{home}-moved").exists()
    assert (tmp_path / "work").is_dir()
    assert (tmp_path / "keep").stat().st_mode & 0o777 == 0o500


async def test_a_process_that_is_asked_nothing_is_ended(
    mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "IDLE_S", 0.5)

    async with running() as started:
        client = clients(started, loop(processes=2))
        for _ in range(2):
            await asyncio.gather(said(client), said(client))
            assert len(processes(mark)) == 4
            while processes(mark):
                await asyncio.sleep(0.05)


DRIVER = """
import asyncio, sys, msgspec
from aegish_dist.core.model import Program
from aegish_dist.providers.programs import Programs
async def main():
    guards = msgspec.json.decode(sys.argv[1], type=list[Program])
    programs = Programs()
    calls = [programs.client(guard, 600, bool).complete("ls") for guard in guards]
    print("asked", flush=True)
    await asyncio.gather(*calls)
asyncio.run(main())
"""


def test_no_guard_outlives_a_worker_that_is_killed(mark: str) -> None:
    guards = [loop(f"exec({LEAVES!r}); time.sleep(600)"), python(LEAVES + "time.sleep(600)")]
    document = msgspec.json.encode(guards).decode()
    with subprocess.Popen([sys.executable, "-c", DRIVER, document]) as worker:
        wait_until(
            lambda: sum("sleep(600)" in each for each in processes(mark)) >= 9, "guards are asked"
        )
        worker.send_signal(signal.SIGKILL)
    wait_until(lambda: not processes(mark), "all are ended")


def test_a_guard_sees_no_key_and_an_empty_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-proj-0123456789abcdef")
    monkeypatch.setenv("LANG", "C.UTF-8")
    script = f"""
import json, os
def read(place):
    try:
        return open(f"/proc/{{place}}/environ").read()
    except OSError:
        return ""
try:
    open(f"/proc/{{os.getppid()}}/fd/1", "w").write('{{"ended": "exit", "exit": 0, "output": "forged"}}\\n')
except OSError:
    pass
seen = read({os.getpid()}) + read(os.getppid()) + "".join(os.environ.values())
here = os.getcwd()
print(json.dumps([sorted(os.environ), os.listdir(), sorted(os.listdir("/proc/self/fd"))[:-1],
    "sk-proj" in seen, os.environ["HOME"] == os.path.dirname(here), here, os.getpid() == os.getsid(0)]))
os.makedirs("a/b/c"), open("a/b/c/d", "w"), os.chmod("a/b", 0)
"""
    [text] = asked(python(script))
    names, files, descriptors, key_seen, below_home, folder, leads = json.loads(text)
    assert names == sorted([MARK, "HOME", "LANG", "PATH", "TMPDIR"])
    assert (files, descriptors, key_seen) == ([], ["0", "1", "2"], False)
    assert below_home
    assert leads
    assert not Path(folder).parent.exists()


def test_a_variable_that_is_passed_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GUARD_KEY", "0123456789abcdef")
    script = "echo $GUARD_KEY; echo $GUARD_KEY >&2; exit $1"
    for code, text in (("0", "[key]"), ("1", "server: the program ended with exit code 1: [key]")):
        guard = program("sh", "-c", script, "sh", code, pass_variables=("GUARD_KEY",))
        assert asked(guard) == [text]


def test_control_characters_are_kept_as_of_other_providers() -> None:
    """A terminal never sees them, as all that is printed is escaped."""
    text = "\x1b[2J�\u202e��"
    assert asked(python(r"import os; os.write(1, b'\x1b[2J\x00\xe2\x80\xae\xff\xfe')")) == [text]
    answer = loop('answer = answer[:-1] + r\', "reason": "\\u001b\\u0000\\ud800"}\'')
    assert json.loads(asked(answer)[0])["reason"] == "\x1b��"


async def test_processes_wait_in_turn_and_latency_leaves_that_out() -> None:
    async with running() as programs:
        client = clients(programs, loop("time.sleep(0.2)", processes=2))
        await client.complete("start")
        started = time.monotonic()
        answers = await asyncio.gather(*(client.complete(str(number)) for number in range(6)))
        elapsed_s = time.monotonic() - started
    took_ms = [answer.took_ms or 0.0 for answer in answers]
    assert elapsed_s >= 0.6
    assert min(took_ms) >= 200
    assert sum(took_ms) <= 2000 * elapsed_s  # of two processes


async def test_guards_that_hang_hold_up_no_other() -> None:
    async with running() as programs:
        hanging = clients(programs, loop("time.sleep(600)"), 600.0)
        hangs = [asyncio.create_task(said(hanging)) for _ in range(3)]
        good = clients(programs, loop())
        for _ in range(3):
            assert await said(good) == '{"about": "ls"}'
        assert not any(task.done() for task in hangs)
        for task in hangs:
            task.cancel()
        await asyncio.wait(hangs)


def test_nothing_is_left_of_twenty_processes() -> None:
    def opened() -> tuple[int, set[str]]:
        """Return the number of open descriptors, and the children of this process."""
        threads = Path("/proc/self/task").glob("*/children")
        children = {child for thread in threads for child in thread.read_text().split()}
        return len(os.listdir("/proc/self/fd")), children

    async def ask() -> None:
        async with running() as programs:
            for guard in (loop(processes=10), shell("exit 2", processes=10)):
                client = clients(programs, guard)
                await asyncio.gather(*(said(client) for _ in range(20)))

    asyncio.run(ask())
    before = opened()
    asyncio.run(ask())
    assert opened() == before


JQ = f"""#!{sys.executable}
import json, sys
assert sys.argv[1:] == ["-r", ".tool_input.command"]
print(json.load(sys.stdin)["tool_input"]["command"])
"""


def test_the_programs_of_the_guide_run_as_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = (Path(__file__).parents[2] / "docs/guides/guards.md").read_text(encoding="utf-8")
    hook, lines = (
        re.findall(rf"^```{language}\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
        for language in ("bash", "python")
    )
    (tmp_path / "sh_guard.py").write_text("def classify(command): return {'score': len(command)}")
    for name, text in (("hook", hook[0]), ("lines.py", lines[0]), ("jq", JQ)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o700)
    if shutil.which("jq") is None:
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    texts = asked(program(str(tmp_path / "hook"), input="hook"), "ls", "curl x | sh", "rm -rf ~")
    assert texts == ["exit code 0", *["on the deny list\nexit code 2"] * 2]
    guard = program(sys.executable, str(tmp_path / "lines.py"), mode="lines")
    assert asked(guard, "ls", "id") == ['{"score": 2}'] * 2


MODULE = """
import enum
class Action(enum.Enum):
    BLOCK = "block"
class Number:
    def item(self): return True
class Guard:
    def __init__(self): print("made")
    def __call__(self, command):
        print("asked")
        return {"text": "safe", "action": "BLOCK", "number": 0.25, "flag": False, "document": {"a": [1]},
            "enum": Action.BLOCK, "numpy": Number(), "nan": float("nan"), "none": None}[command]
async def later(command): return command
"""


def test_an_object_of_python_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_guards.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    like = program("")
    expected = {
        "text": "safe",
        "action": '{"action": "BLOCK"}',
        "number": '{"score": 0.25}',
        "flag": '{"unsafe": false}',
        "document": '{"a": [1]}',
        "enum": '{"action": "BLOCK"}',
        "numpy": '{"unsafe": true}',
        "nan": "server: the program failed: ValueError: Out of range float values are not JSON compliant",
        "none": "server: the program failed: TypeError: the object returned NoneType",
        "x": "server: the program failed: KeyError: 'x'",
    }
    assert asked(python_program("my_guards:Guard", like), *expected) == list(expected.values())
    assert asked(python_program("my_guards:later", like), "a", "b") == ["a", "b"]
    missing = "not_found: the program ended with exit code 127: AttributeError: module 'my_guards' has no attribute 'Gone'"
    assert asked(python_program("my_guards:Gone", like)) == [missing]
