"""Import every commit of a clone of GTFOBins since May 2018, and say what was skipped.

Run with `python benchmarks/gtfobins_history.py CLONE`. On 2026-11-23: 1,719 commits, none refused,
59 with something skipped, 68 files and 29 entries in all. It takes ten minutes.
"""

import os
import subprocess
import tempfile
from collections import Counter
from functools import lru_cache
from pathlib import Path

import click
from measuring import laid_out

from aegish_dist.datasets import gtfobins
from aegish_dist.errors import DatasetError
from aegish_dist.inputs.yaml import parse_yaml


def git(clone: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", "-C", clone, *arguments], check=True, capture_output=True).stdout


def read_commit(clone: Path, commit: str, kept: dict[str, bytes]) -> list[DatasetError] | None:
    """Return what was skipped of a commit; None if it is refused.

    Args:
        kept: Files by their id in git, as most are the same in the next commit.
    """
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder, "_gtfobins")
        directory.mkdir()
        for line in git(clone, "ls-tree", commit, "_gtfobins/").decode().splitlines():
            described, path = line.split("\t", 1)
            _, kind, blob = described.split()
            if kind == "blob":
                content = kept.get(blob) or git(clone, "cat-file", "blob", blob)
                kept[blob] = content
                directory.joinpath(Path(path).name).write_bytes(content)
        try:
            draft = gtfobins.read_gtfobins(Path(folder))
            draft.checked()
        except DatasetError as error:
            click.echo(f"{commit} refused: {error}")
            return None
        if draft.skipped:
            click.echo(f"{commit} skips {len(draft.skipped)}: {draft.skipped[0]}")
        return list(draft.skipped)


@click.command(help=laid_out(__doc__))
@click.argument("clone", type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(clone: Path) -> None:
    """Print the commits that are refused, and how many files and entries are skipped."""
    os.nice(10)
    # Most files are the same in the next commit. What is parsed is only read.
    vars(gtfobins)["parse_yaml"] = lru_cache(maxsize=None)(parse_yaml)
    vars(gtfobins)["fill_in"] = lru_cache(maxsize=None)(gtfobins.fill_in)
    commits = git(clone, "log", "--format=%H", "--since=2018-05-01", "HEAD").decode().split()
    kept: dict[str, bytes] = {}
    seen: dict[bytes, list[DatasetError] | None] = {}
    kinds: Counter[str] = Counter()
    for commit in commits:
        tree = git(clone, "rev-parse", f"{commit}:_gtfobins")
        if tree not in seen:
            seen[tree] = read_commit(clone, commit, kept)
        skipped = seen[tree]
        kinds["refused" if skipped is None else "partial" if skipped else "whole"] += 1
        kinds.update("entries" if error.field else "files" for error in skipped or ())
    click.echo(
        f"{len(commits)} commits of {len(seen)} trees: {kinds['refused']} refused,"
        f" {kinds['partial']} with something skipped: {kinds['files']} files and"
        f" {kinds['entries']} entries in all"
    )


if __name__ == "__main__":
    main()
