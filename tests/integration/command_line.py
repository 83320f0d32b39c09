"""The command line, run inside the test's process."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from aegish_dist.cli import run


class Done(Struct, frozen=True):
    """Output and exit code of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on standard output."""
        return json.loads(self.out)


class CommandLine:
    """Runs commands against the database of a test."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Done:
        """Run a command to its end, however that is."""
        self._capsys.readouterr()
        root = logging.getLogger()
        handlers, level = root.handlers[:], root.level
        try:
            code = run([str(argument) for argument in arguments])
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
        out, err = self._capsys.readouterr()
        return Done(code, out, err)

    def ok(self, *arguments: object) -> Done:
        """Run a command that has to succeed."""
        done = self(*arguments)
        assert done.code == 0, done.err
        return done

    def refused(self, *arguments: object) -> str:
        """Run a command that cannot be done; return the one line that says why."""
        done = self(*arguments)
        assert (done.code, done.out) == (1, ""), done.err
        assert done.err.startswith("error: ")
        assert done.err.count("\n") == 1
        return done.err


def write_lines(path: Path, *lines: dict[str, Any]) -> Path:
    """Write a JSONL file."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
