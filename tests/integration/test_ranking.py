"""Ranks and tie groups of snapshots, from the store to the document."""

import json
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, delete, select
from sqlalchemy.orm import Session

from aegish_dist.db.tables import RUN_MODELS, VERDICTS
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.scoring import RULES
from aegish_dist.pipeline.aggregate import aggregate
from aegish_dist.pipeline.compare import compare_models
from aegish_dist.pipeline.verdict_files import import_verdicts


def lines(model: str, wrong: int, *, clustered: bool, of: int = 100) -> list[dict[str, Any]]:
    """As many malicious as harmless samples, the first ones wrong, each alone or in pairs."""
    return [
        {
            "model": model, "dataset": "d", "target": target, "command": f"{target} {number}",
            "completion": json.dumps({"action": wrongly if number < wrong else right}),
            "cluster": f"bin{number // 2}" if clustered else None,
        }
        for target, right, wrongly in (("malicious", "BLOCK", "WARN"), ("harmless", "ALLOW", "BLOCK"))
        for number in range(of)
    ]  # fmt: skip


def run_of(engine: Engine, tmp_path: Path, wrong: dict[str, int], *, clustered: bool) -> str:
    path = tmp_path / "lines.jsonl"
    found = [line for model in wrong for line in lines(model, wrong[model], clustered=clustered)]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in found), "ascii")
    return import_verdicts(engine, [path], "").run_id


def groups(document: Any) -> dict[str, tuple[int, int]]:
    return {each["model"]: (each["rank"], each["tie_group"]) for each in document["ranking"]}


def test_a_stderr_of_zero_decides_nothing(engine: Engine, tmp_path: Path) -> None:
    """A hundred of a hundred against ninety-eight is a tie; against eighty it is none."""
    wrong = {"lab/a": 0, "lab/b": 2, "lab/c": 20}
    run = run_of(engine, tmp_path, wrong, clustered=False)
    (snapshot,) = aggregate(engine, run, [Opinion()])
    assert groups(snapshot.document) == {"lab/a": (1, 1), "lab/b": (2, 1), "lab/c": (3, 2)}
    assert compare_models(engine, run).tie_groups == [["lab/a", "lab/b"], ["lab/c"]]


def test_one_changed_model_is_ranked_as_all_counted_again(engine: Engine, tmp_path: Path) -> None:
    """Samples that only one of two models has scored are in no pair."""
    wrong = {"lab/a": 0, "lab/b": 2, "lab/c": 20, "lab/d": 24}
    run = run_of(engine, tmp_path, wrong, clustered=True)
    opinions = [Opinion(rule) for rule in RULES.values()]
    first, *_ = aggregate(engine, run, opinions)
    assert {each[1] for each in groups(first.document).values()} == {1, 2}
    with Session(engine) as session, session.begin():
        key = session.scalar(select(RUN_MODELS.c.id).where(RUN_MODELS.c.model == "lab/d"))
        session.execute(
            delete(VERDICTS).where(VERDICTS.c.run_model_id == key, VERDICTS.c.code != 31)
        )
    one_changed = aggregate(engine, run, [Opinion()])[0].document
    assert one_changed == aggregate(engine, run, [Opinion()], recount=True)[0].document
    assert one_changed == aggregate(engine, run, [Opinion()])[0].document
