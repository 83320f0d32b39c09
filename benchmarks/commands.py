"""CPU of commands about large runs, by this working tree and by another one, in turn.

Run `python benchmarks/commands.py TREE [--repeats 3]`, where TREE is a checkout of another commit
with an environment of its own in `.venv`. It takes a quarter of an hour and 2 GB of disk.

Each tree has a PostgreSQL of its own, filled with synthetic verdicts, which is not counted. The
figures are seconds of the whole process, user and system, and the median of the ratios pair by
pair, this tree over the other one.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import click
from cluster import ROOT
from measuring import laid_out, number, print_table
from msgspec import Struct
from synthetic import fill

SERVE = """
import sys
from pathlib import Path
from aegish_dist.db.embedded import embedded_server
print(embedded_server(Path(sys.argv[1])).url, flush=True)
sys.stdin.read()
"""
"""Serves until its input ends; uses nothing but what both trees have."""

# By name: guards, commands and epochs.
RUNS = {
    "few": (10, 10, 1),
    "long": (20, 5_000, 1),
    "repeated": (11, 1_172, 3),
    "wide": (100, 100, 1),
    "million": (11, 90_909, 1),
}
COMMANDS = (
    ("long", "report --sections all"),
    ("long", "report --format html -o /dev/null"),
    ("long", "calibrate"),
    ("repeated", "policies search"),
    ("wide", "compare --all-pairs"),
    ("wide", "compare --json"),
    ("wide", "calibrate"),
    ("few", "report"),
    ("million", "aggregate --recount"),
    ("million", "report"),
    ("million", "status"),
)


class Tree(Struct, frozen=True):
    """A checkout with a store of its own."""

    path: Path
    url: str

    def cpu_s(self, *arguments: str) -> float:
        """Run a command to its end and return the CPU seconds of its process."""
        process = subprocess.Popen(
            [str(python_of(self.path)), "-m", "aegish_dist", *arguments],
            cwd=self.path,
            env={**os.environ, "AEGISH_DIST_DATABASE_URL": self.url},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise RuntimeError(f"{self.path}: aegish-dist {arguments}: status {status}")
        return usage.ru_utime + usage.ru_stime


def python_of(tree: Path) -> Path:
    return tree / ".venv" / "bin" / "python"


@contextmanager
def served(path: Path, home: str) -> Iterator[Tree]:
    """Run a tree's own PostgreSQL, filled with all runs."""
    server = subprocess.Popen(
        [str(python_of(path)), "-c", SERVE, home],
        cwd=path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with server:
        assert server.stdout is not None
        tree = Tree(path, server.stdout.readline().strip())
        tree.cpu_s("db", "upgrade")
        for run, (guards, commands, epochs) in RUNS.items():
            fill(tree.url, run, guards * commands * epochs, epochs, guards)
            tree.cpu_s("aggregate", "--run-id", run)
        yield tree


@click.command(help=laid_out(__doc__))
@click.argument("tree", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--repeats", default=3, show_default=True)
def main(*, tree: Path, repeats: int) -> None:
    """Fill both stores and run each command in turn."""
    rows = []
    with ExitStack() as stack:
        trees = []
        for path in (ROOT, tree.resolve()):
            home = stack.enter_context(tempfile.TemporaryDirectory(prefix="ab"))
            trees.append(stack.enter_context(served(path, home)))
        for run, command in COMMANDS:
            pairs = []
            for _ in range(repeats):
                pairs.append([each.cpu_s(*command.split(), "--run-id", run) for each in trees])
            guards, commands, epochs = RUNS[run]
            rows.append(
                {
                    "run": f"{guards} x {commands:,} x {epochs}",
                    "command": command,
                    "this tree s": number(median(ours for ours, _ in pairs)),
                    "other tree s": number(median(theirs for _, theirs in pairs)),
                    "ratio": number(median(ours / theirs for ours, theirs in pairs)),
                }
            )
    print_table(f"CPU of commands, median of {repeats}", rows)


if __name__ == "__main__":
    main()
