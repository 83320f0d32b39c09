"""Guards that are programs: real processes, some of which attack."""

import asyncio
import json
import sys
from tempfile import gettempdir
from typing import Any, TypeVar

import pytest

from aegish_dist.core.model import Program
from aegish_dist.errors import ProviderError
from aegish_dist.providers.programs import Programs

T = TypeVar("T")
ANSWERS = """
import json, sys
for line in sys.stdin:
    question = json.loads(line)
    action = "BLOCK" if "rm" in question["command"] else "ALLOW"
    print(json.dumps({"id": question["id"], "action": action}), flush=True)
"""


def shell(script: str, **more: Any) -> Program:
    return Program(command=("sh", "-c", script), **more)


def python(script: str, **more: Any) -> Program:
    return Program(command=(sys.executable, "-c", script), **more)


def asked(program: Program, *commands: str, limit_s: float = 20.0) -> list[str]:
    """Ask a program in turn; a failure is its class and its words."""

    async def body() -> list[str]:
        programs = Programs()
        client = programs.client(
            program, limit_s, lambda answer: "exit code 2" in (answer.text or "")
        )
        said = []
        for command in commands or ("ls",):
            try:
                said.append((await client.complete(command)).text or "")
            except ProviderError as error:
                said.append(f"{error.error_class}: {error}")
        await programs.close()
        return said

    return asyncio.run(body())


@pytest.mark.parametrize(
    ("program", "answer"),
    [
        (shell("cat", input="text"), "echo é"),
        (shell("cat"), '{"id": "1", "command": "echo é"}'),
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
            Program(command=("/no/such/guard",)),
            "not_found: the program cannot be started: /no/such/guard: No such file or directory",
        ),
        (
            Program(command=("/etc/passwd",), mode="lines"),
            "not_found: the program cannot be started: /etc/passwd: Permission denied",
        ),
    ],
)
def test_a_program_is_asked_once_for_a_command(program: Program, answer: str) -> None:
    assert asked(program, "echo é") == [answer]


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
    program = python(ANSWERS, mode="lines")
    assert asked(program, "ls", "rm x") == ['{"action": "ALLOW"}', '{"action": "BLOCK"}']
