"""Follows a page of `docs/guides/` in a copy of the tree, as a contributor would by hand.

A page holds its code in fenced blocks whose info string names a file:

- ```` ```python new=PATH ```` creates the file;
- ```` ```diff edit=PATH ```` changes it: lines that begin with a space or `-` must stand in it
  together exactly once, and become those that begin with a space or `+`. `N` is the number that
  stands there, `N + 1` the next one: so a page holds in a tree that has followed it.

Every other block is for the reader alone. A migration of a page follows the last one of the tree,
whatever numbers the page gives both.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aegish_dist.db import schema

ROOT = Path(__file__).parents[2]
PARTS = (
    *("aegish_dist", "workers", "tests", "benchmarks", "docs", "deploy"),
    *(".ci", "pyproject.toml", "alembic.ini", "docker-compose.yml", "Dockerfile", "README.md"),
)

_BLOCK = re.compile(r"^```\w+ (new|edit)=(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

_REVISIONS = re.compile(r'^revision = "(\d{4})"\ndown_revision = "(\d{4})"$', re.MULTILINE)
NEXT_REVISION = f"{int(schema.head()) + 1:04}"
"""Of a migration that a page adds."""


class Walkthrough:
    """A copy of the tree in which a page was followed."""

    def __init__(self, page: str, folder: Path) -> None:
        """Copy the tree and apply the blocks of the page, top to bottom.

        Args:
            folder: Where the copy goes; empty.
        """
        self.tree = folder  # root of the copy
        self.created: set[str] = set()  # files that the page adds
        self.edited: set[str] = set()  # files that the page changes
        for part in PARTS:
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, folder / part)
        text = _numbered((ROOT / "docs/guides" / page).read_text(encoding="utf-8"))
        blocks = _BLOCK.findall(text)
        assert blocks, f"{page} has no block that names a file"
        for verb, path, body in blocks:
            self._create(path, body) if verb == "new" else self._edit(path, body)

    def run(self, *arguments: str, timeout_s: float = 60.0, **environment: str) -> str:
        """Run Python in the copy and return what it wrote to stdout.

        Args:
            timeout_s: Seconds after which it is killed, which fails the test.
        """
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.tree,
            env={**os.environ, "PYTHONPATH": str(self.tree), **environment},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def test(self, *arguments: str) -> None:
        self.run("-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, timeout_s=300.0)

    def golden(self) -> tuple[Any, Any]:
        """Write the golden file of metrics again; return what it held before and what it holds."""
        path = self.tree / "tests/unit/statistics/golden_metrics.json"
        before = json.loads(path.read_text("ascii"))
        self.run("-m", "tests.unit.statistics.test_metrics")
        return before, json.loads(path.read_text("ascii"))

    def written(self, *lines: Mapping[str, object]) -> str:
        """Write verdict lines to a file of the copy; return its path."""
        path = self.tree / "verdicts.jsonl"
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return str(path)

    def _create(self, path: str, body: str) -> None:
        target = self.tree / path
        assert not target.exists(), f"{path} exists already"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(body, encoding="utf-8")
        self.created.add(path)

    def _edit(self, path: str, body: str) -> None:
        target = self.tree / path
        text = target.read_text(encoding="utf-8")
        before, after = _side(body, "-"), _side(body, "+")
        if "= N + 1\n" in after:
            [number] = re.findall(re.escape(before).replace("N\\\n", "([0-9]+)\n"), text)
            before = before.replace("= N\n", f"= {number}\n")
            after = after.replace("= N + 1\n", f"= {int(number) + 1}\n")
        assert text.count(before) == 1, f"{path} holds {text.count(before)} times:\n{before}"
        target.write_text(text.replace(before, after), encoding="utf-8")
        if path not in self.created:
            self.edited.add(path)


def _numbered(page: str) -> str:
    """Return a page with the number of its migration, and the one before, as the tree has them."""
    found = _REVISIONS.search(page)
    if found is None:
        return page
    number, before = found.groups()
    return page.replace(number, NEXT_REVISION).replace(before, schema.head())


def _side(body: str, sign: str) -> str:
    """Return one side of a change, line by line without the first character."""
    return "".join(
        line[1:] or "\n" for line in body.splitlines(keepends=True) if line[0] in (" ", sign, "\n")
    )
