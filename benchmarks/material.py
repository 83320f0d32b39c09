"""Samples of the benchmarks: the bundled datasets, or files of the user."""

import json
from pathlib import Path
from typing import Self

from cluster import Cluster
from msgspec import Struct

from aegish_dist.core.sample import Dataset
from aegish_dist.datasets.bundled import bundled_names, load_bundled
from aegish_dist.datasets.table import read_aegish, read_table
from aegish_dist.pipeline.datasets import narrow
from aegish_dist.prompts.loading import load_prompt

PROMPT = "guard"
TIME_LIMIT_S = 180


class Material(Struct, frozen=True):
    """Questions, the same for every program."""

    files: tuple[Path, ...]
    """Where they came from; nothing when they are bundled."""
    datasets: tuple[Dataset, ...]
    limit: int | None = None
    """At most this many samples of each; None for all."""

    @classmethod
    def load(cls, files: tuple[Path, ...] = (), limit: int | None = None) -> Self:
        """Read files, or the bundled datasets when there are none."""
        datasets = [_read(path) for path in files] or list(map(load_bundled, bundled_names()))
        # As `submit --limit` does: not the first ones of the file.
        return cls(files, tuple(narrow(each, (), limit) for each in datasets), limit)

    @property
    def commands(self) -> int:
        """How many there are."""
        return sum(len(each.samples) for each in self.datasets)

    def write(self, path: Path) -> None:
        """Write it for `inspect_task.py`."""
        prompt = load_prompt(PROMPT)
        samples = [
            {"id": each.sample_id, "command": each.command, "target": each.target}
            for dataset in self.datasets
            for each in dataset.samples
        ]
        content = {"system": prompt.system, "template": prompt.template, "samples": samples}
        path.write_text(json.dumps(content), encoding="utf-8")

    def store(self, cluster: Cluster) -> list[str]:
        """Import the files into a cluster and return the options of `submit`."""
        for path, dataset in zip(self.files, self.datasets, strict=False):
            kind = "aegish" if path.suffix == ".json" else "table"
            cluster.run("datasets", "import", kind, str(path), "--name", dataset.name)
        options = ["--prompt", PROMPT, "--time-limit", str(TIME_LIMIT_S)]
        options += ["--limit", str(self.limit)] if self.limit else []
        return options + [word for each in self.datasets for word in ("--dataset", each.name)]


def _read(path: Path) -> Dataset:
    draft = read_aegish(path) if path.suffix == ".json" else read_table(path)
    return draft.checked()
