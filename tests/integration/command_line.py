"""The command line, run inside the test's process."""

import csv
import io
import json
import logging
import shlex
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

    @property
    def lines(self) -> list[Any]:
        """The documents on standard output, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def rows(self) -> list[dict[str, str]]:
        """The rows of CSV on standard output."""
        return list(csv.DictReader(io.StringIO(self.out)))

    @property
    def unwrapped(self) -> str:
        """Standard output as one line of words, wherever the screen's width broke it."""
        return " ".join(self.out.split())


class CommandLine:
    """Runs commands against the database of a test.

    The first argument is a line as a user types it; what follows are further words, each as it is.
    """

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, line: str, *words: object) -> Done:
        """Run a command to its end, however that is."""
        self._capsys.readouterr()
        root = logging.getLogger()
        handlers, level = root.handlers[:], root.level
        try:
            code = run([*shlex.split(line), *map(str, words)])
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
        out, err = self._capsys.readouterr()
        return Done(code, out, err)

    def ok(self, line: str, *words: object) -> Done:
        """Run a command that has to succeed."""
        done = self(line, *words)
        assert done.code == 0, done.err
        return done

    def refused(self, line: str, *words: object) -> str:
        """Run a command that cannot be done; return the one line that says why."""
        done = self(line, *words)
        assert (done.code, done.out) == (1, ""), done.err
        assert done.err.startswith("error: ")
        assert done.err.count("\n") == 1
        return done.err

    def misused(self, line: str, *words: object) -> str:
        """Run a command with options that it does not take; return what it says of its use."""
        done = self(line, *words)
        assert (done.code, done.out) == (2, ""), done.err
        return done.err


def write_lines(path: Path, *lines: dict[str, Any]) -> Path:
    """Write a JSONL file."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
