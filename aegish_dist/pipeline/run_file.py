"""What a run asks of whom: in a few lines, and as a run file that `submit` takes."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from decimal import Decimal

from sqlalchemy import Engine

from aegish_dist.core.run import Run
from aegish_dist.core.sample import Dataset
from aegish_dist.core.text import known
from aegish_dist.db.engine import in_transaction
from aegish_dist.db.runs import load_run
from aegish_dist.errors import DatasetError
from aegish_dist.pipeline.datasets import choose_dataset, narrow
from aegish_dist.pipeline.runs import load_submitted_run
from aegish_dist.report.provenance import run_facts, submit_options


def describe_run(engine: Engine, run_id: str) -> Iterator[tuple[str, str]]:
    """Yield what a run is, a label and a text each."""
    run = in_transaction(engine, load_run, run_id)
    yield "Run", run_id
    for fact in run_facts(run):
        yield fact.label, fact.text
    yield "Models", ", ".join(spec.id for spec in run.models)


def run_file(engine: Engine, run_id: str) -> str:
    """Return the run file by which `submit` asks the questions of a run again.

    An imported run is a StoreError.
    """
    run = load_submitted_run(engine, run_id)
    datasets, limit = _chosen(engine, run)
    asked = {"dataset": datasets, "prompt": [each.pinned for each in run.arms], "limit": limit}
    options = known(submit_options(run) | asked)
    samples = ", ".join(f"{each.name} {each.fingerprint[:16]}" for each in run.datasets)
    return "\n".join(
        (
            f"# Run {run_id} of {run.created_at:%Y-%m-%d}, by aegish-dist {run.package_version}.",
            "# Ask it again: aegish-dist submit --run-file FILE. A prompt is NAME@FINGERPRINT:",
            "# with another text nothing is asked. In another store put its file in place of NAME,",
            "# FILE+cot in place of NAME+cot. Variants are the catalog's, and not checked.",
            *(
                f"# Not checked: own prompt of {model}, which was {_toml(prompt.pinned)}."
                for model, prompt in run.prompts.items()
                if prompt not in run.arms
            ),
            f"# Fingerprints of the samples: {samples}.",
            *(f"{key} = {_toml(value)}" for key, value in options.items()),
        )
    )


def _chosen(engine: Engine, run: Run) -> tuple[list[str], int | None]:
    """Return names that choose the samples of a run, and the limit for all; None: no limit.

    `NAME@RUN` stands where the dataset of this name gives other samples now.
    """
    whole: dict[str, Dataset] = {}
    limit: int | None = None  # the longest of the cut datasets
    for asked in run.datasets:
        with suppress(DatasetError):
            dataset = choose_dataset(engine, asked.name)
            whole[asked.name] = dataset
            if asked.samples < len(dataset.samples):
                limit = max(asked.samples, limit or 0)
    names = _names(run, whole, limit)
    # A limit would cut what `NAME@RUN` stands for, too.
    pinned = [asked for asked in run.datasets if asked.name not in names]
    if limit is not None and any(asked.samples > limit for asked in pinned):
        limit = None
        names = _names(run, whole, limit)
    return names, limit


def _names(run: Run, whole: Mapping[str, Dataset], limit: int | None) -> list[str]:
    names = []
    for asked in run.datasets:
        dataset = whole.get(asked.name)
        same = dataset is not None and narrow(dataset, (), limit).fingerprint == asked.fingerprint
        names.append(asked.name if same else f"{asked.name}@{run.run_id}")
    return names


def _toml(value: object) -> str:
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return str(value)
    return json.dumps(value, ensure_ascii=False)
