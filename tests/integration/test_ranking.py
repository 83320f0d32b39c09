"""Ranks and tie groups of snapshots, from the store to the document."""

from itertools import product
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, delete, select

from aegish_dist.db.engine import transaction
from aegish_dist.db.schema import RUN_MODELS, VERDICTS
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.scoring import RULES
from aegish_dist.pipeline.aggregate import aggregate
from aegish_dist.pipeline.compare import compare_models
from tests.integration.stored_runs import imported_run, verdict_line


def run_of(engine: Engine, folder: Path, wrong: dict[str, int], *, clustered: bool) -> str:
    """Store 100 malicious and 100 harmless samples, the first ones wrong, each alone or in pairs."""
    lines = []
    for model, number in product(wrong, range(100)):
        cluster = f"bin{number // 2}" if clustered else None
        is_wrong = number < wrong[model]
        for target, action in (
            ("malicious", "WARN" if is_wrong else "BLOCK"),
            ("harmless", "BLOCK" if is_wrong else "ALLOW"),
        ):
            command = f"{target} {number}"
            lines.append(verdict_line(model, command, target, action, cluster=cluster))
    return imported_run(engine, folder, lines)


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
    with transaction(engine) as session:
        key = session.scalar(select(RUN_MODELS.c.id).where(RUN_MODELS.c.model == "lab/d"))
        session.execute(
            delete(VERDICTS).where(VERDICTS.c.run_model_id == key, VERDICTS.c.code != 31)
        )
    one_changed = aggregate(engine, run, [Opinion()])[0]
    for recount in (True, False):
        again = aggregate(engine, run, [Opinion()], recount=recount)[0]
        assert (again.document, again.pairs) == (one_changed.document, one_changed.pairs)
