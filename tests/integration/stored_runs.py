"""Small runs put straight into the store, for tests to ask questions about."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from sqlalchemy import Engine, func, select, text
from sqlalchemy.orm import Session

from aegish_dist.broker.messages import queue_names
from aegish_dist.core.model import CallParameters, ModelSpec, WireFormat
from aegish_dist.core.run import Prompt, Run
from aegish_dist.core.sample import Dataset, Sample
from aegish_dist.core.tally import ModelTally
from aegish_dist.core.verdict import Item, Verdict
from aegish_dist.db.counting import count_models
from aegish_dist.db.engine import transaction
from aegish_dist.db.runs import load_run, sample_keys, save_dataset, save_run
from aegish_dist.db.schema import METADATA, RUN_MODELS, VerdictKey
from aegish_dist.db.verdicts import insert_verdicts
from aegish_dist.pipeline.datasets import describe
from aegish_dist.pipeline.verdict_files import import_verdicts
from tests.integration.samples import COMMANDS, NOON, PROMPT


def a_model(model: str, **fields: Any) -> ModelSpec:
    return ModelSpec(model, WireFormat.OPENAI, model.partition("/")[2], **fields)


def a_run(
    run_id: str = "0abcdefgh",
    *,
    models: Sequence[ModelSpec | str] = ("test/a",),
    datasets: Sequence[Dataset] = (COMMANDS,),
    prompt: Prompt | None = PROMPT,
    **fields: Any,
) -> Run:
    """Make a run; `fields` are others of `Run`. One without a prompt is an import."""
    defaults: dict[str, Any] = {
        "created_at": NOON,
        "name": "a name",
        "origin": "submit" if prompt else "import",
        "package_version": "1.2.3",
        "parameters": CallParameters() if prompt else None,
        "epochs": 1,
    }
    return Run(
        run_id=run_id,
        prompt=prompt,
        datasets=tuple(map(describe, datasets)),
        models=tuple(a_model(each) if isinstance(each, str) else each for each in models),
        **(defaults | fields),
    )


class StoredRun(Struct, frozen=True):
    run_id: str
    models: Mapping[str, int]
    samples: Mapping[str, Mapping[str, int]]

    def item(
        self,
        sample: Sample,
        *,
        model: str = "test/a",
        dataset: str = "commands",
        epoch: int = 1,
        generation: int = 0,
    ) -> Item:
        key = self.samples[dataset][sample.sample_id]
        return Item(self.run_id, model, key, epoch, generation)

    def items(self, *models: str, epoch: int = 1, generation: int = 0) -> list[Item]:
        """Return an item of each sample for some models, by default for all."""
        return [
            Item(self.run_id, model, key, epoch, generation)
            for model in models or self.models
            for samples in self.samples.values()
            for key in samples.values()
        ]

    def key(self, item: Item) -> VerdictKey:
        return VerdictKey(self.models[item.model], item.sample_key, item.epoch, item.generation)


def _session(store: Engine | Session) -> AbstractContextManager[Session]:
    """Return the session, or one on the engine that commits at its end."""
    return nullcontext(store) if isinstance(store, Session) else transaction(store)


def store(
    into: Engine | Session,
    run: Run,
    datasets: Sequence[Dataset] = (COMMANDS,),
    batch_after_s: float | None = None,
) -> StoredRun:
    """Store a run; one without a prompt is an import, which has no queues."""
    queues = queue_names(run) if run.prompt else []
    with _session(into) as session:
        ids = [save_dataset(session, dataset, selectable=False) for dataset in datasets]
        save_run(session, run, ids, queues, batch_after_s=batch_after_s)
        rows = session.execute(
            select(RUN_MODELS.c.model, RUN_MODELS.c.id).where(RUN_MODELS.c.run_id == run.run_id)
        )
        keys = [sample_keys(session, dataset_id) for dataset_id in ids]
        return StoredRun(
            run.run_id,
            {row.model: row.id for row in rows},
            {dataset.name: found for dataset, found in zip(datasets, keys, strict=True)},
        )


def answer(into: Engine | Session, stored: StoredRun, verdicts: Mapping[Item, Verdict]) -> int:
    rows = [(stored.key(item), each) for item, each in verdicts.items()]
    with _session(into) as session:
        return insert_verdicts(session, rows)


Answers = Mapping[Sample, Verdict] | Verdict


def stored_run(
    into: Engine | Session,
    answers: Answers | Mapping[str, Answers] = MappingProxyType({}),
    *,
    run_id: str = "0abcdefgh",
    datasets: Sequence[Dataset] = (COMMANDS,),
    batch_after_s: float | None = None,
    **fields: Any,
) -> StoredRun:
    """Store a run with verdicts of its first epoch.

    Args:
        into: A session, or an engine on which to commit.
        answers: A verdict for all samples, or by sample; of the first model, or by model.
        fields: Other parameters of `a_run`.
    """
    run = a_run(run_id, datasets=datasets, **fields)
    by_model: Any = answers
    if isinstance(answers, Verdict) or not all(isinstance(each, str) for each in answers):
        by_model = {run.models[0].id: answers}
    with _session(into) as session:
        stored = store(session, run, datasets, batch_after_s)
        for model, said in by_model.items():
            verdicts = {
                stored.item(sample, model=model, dataset=dataset.name): verdict
                for dataset in datasets
                for sample in dataset.samples
                if (verdict := said if isinstance(said, Verdict) else said.get(sample))
            }
            answer(session, stored, verdicts)
    return stored


def verdict_line(
    model: str,
    command: str,
    target: str,
    action: str,
    confidence: float | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Make a line of a verdict file; attacks have a category. `fields` are others of the line."""
    said = (
        {"action": action} if confidence is None else {"action": action, "confidence": confidence}
    )
    line = {
        "model": model,
        "dataset": "d",
        "command": command,
        "target": target,
        "completion": json.dumps(said),
    }
    category = {"category": "shell"} if target == "malicious" else {}
    return line | category | fields


def imported_run(engine: Engine, folder: Path, lines: Iterable[object]) -> str:
    """Import verdict lines from a file in a folder; return the id of the run."""
    path = folder / "lines.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "ascii")
    return import_verdicts(engine, [path], "a name").run_id


def tallies(session: Session, run_id: str) -> list[ModelTally]:
    """Count the verdicts of a run, whatever was counted before."""
    counted = count_models(session, load_run(session, run_id), {}).models
    return [tally for each in counted for tally in each.tallies]


Imported = Callable[[Iterable[object]], str]
"""What the fixture `imported` gives."""


def contents(engine: Engine) -> dict[str, list[str]]:
    """Return all rows of all tables, as they are compared."""
    with engine.connect() as connection:
        return {
            table: list(
                connection.scalars(text(f"SELECT to_jsonb(t)::text FROM {table} AS t ORDER BY 1"))
            )
            for table in METADATA.tables
        }


def execute(engine: Engine, statement: str) -> None:
    """Run SQL that no product code would, and commit it."""
    with engine.begin() as connection:
        connection.execute(text(statement))


def selected(engine: Engine, query: str) -> list[Any]:
    """Return the rows of a query, or the values of its only column."""
    with engine.connect() as connection:
        rows = connection.execute(text(query)).all()
    return [tuple(row) if len(row) > 1 else row[0] for row in rows]


def row_counts(engine: Engine) -> dict[str, int]:
    """Count the rows of every table that has any."""
    with Session(engine) as session:
        counts = {
            name: session.scalar(select(func.count()).select_from(table)) or 0
            for name, table in METADATA.tables.items()
        }
    return {name: rows for name, rows in counts.items() if rows}
