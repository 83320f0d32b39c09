"""The page on the data model against the schema, and its recipes against the product's reports."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine, RowMapping, text

from aegish_dist.core.outcome import ErrorClass, Outcome
from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.core.verdict import CallError, Completion, Item, Timing, Usage, Verdict
from aegish_dist.db.engine import transaction
from aegish_dist.db.missing import save_retry
from aegish_dist.db.schema import METADATA
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.parsing import judge
from aegish_dist.pipeline.report import report_data
from aegish_dist.pipeline.status import run_status
from aegish_dist.report.data import ReportData
from tests.integration.stored_runs import StoredRun, answer, selected, stored_run

PAGE = (Path(__file__).parents[2] / "docs/reference/data-model.md").read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"^```sql recipe=(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
SECTIONS = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL))
NOON = datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC)
COMMANDS = Dataset(
    "commands",
    (
        *(Sample(f"evil {n}", TrueLabel.MALICIOUS, "shell", f"binary {n % 2}") for n in range(4)),
        *(Sample(f"fine {n}", TrueLabel.HARMLESS) for n in range(3)),
    ),
)
MODELS = ("test/a", "test/b")


def said(action: str, service_ms: float = 100.0, **fields: Any) -> Verdict:
    judged = judge(Completion(f'{{"action": "{action}"}}', usage=Usage(10, 2)))
    timing = Timing(service_ms=service_ms)
    return replace(judged, timing=timing, cost_usd=Decimal("0.001"), created_at=NOON, **fields)


def failed(number: int) -> CallError:
    at = NOON + timedelta(minutes=number)
    return CallError(number, ErrorClass.RATE_LIMIT, 429, 1.0, "slow down", at)


@pytest.fixture
def stored(engine: Engine) -> StoredRun:
    """A run of two models and two epochs: failures, a retry, a missing verdict, one unscored."""
    chosen = ("BLOCK", "BLOCK", "ALLOW", "WARN", "ALLOW", "BLOCK", "WARN")
    stored = stored_run(engine, models=MODELS, datasets=(COMMANDS,), epochs=2)
    verdicts: dict[Item, Verdict] = {}
    for model, epoch in product(MODELS, (1, 2)):
        turned = 0 if model == "test/a" else epoch
        for n, sample in enumerate(COMMANDS.samples):
            item = stored.item(sample, model=model, epoch=epoch)
            verdicts[item] = said(chosen[n - turned], service_ms=100.0 * n + epoch)
    first, second, third = (stored.item(each) for each in COMMANDS.samples[:3])
    errors = (failed(1), failed(2))
    verdicts[first] = Verdict(
        Outcome.API_ERROR, None, ErrorClass.RATE_LIMIT, attempts=2, call_errors=errors
    )
    verdicts[second] = said("BLOCK", call_errors=errors[:1], attempts=2)
    del verdicts[third]
    answer(engine, stored, verdicts)
    with transaction(engine) as session:
        assert save_retry(session, stored.run_id, [Outcome.WARN], ["test/b"]) is not None
    again = {
        replace(item, generation=1): said("ALLOW")
        for item, verdict in verdicts.items()
        if item.model == "test/b" and verdict.outcome is Outcome.WARN
    }
    answer(engine, stored, again)
    return stored


@pytest.fixture
def report(engine: Engine, stored: StoredRun) -> ReportData:
    return report_data(engine, stored.run_id, Opinion())


@pytest.fixture
def entries(report: ReportData) -> dict[str, Any]:
    """What the snapshot of the report says, by model."""
    return {entry["model"]: entry for entry in report.snapshot.document["models"]}


Ask = Callable[..., Sequence[RowMapping]]


@pytest.fixture
def ask(engine: Engine, stored: StoredRun) -> Ask:
    """Gives what a recipe of the page finds, by default about the run."""

    def rows(recipe: str, **values: str) -> Sequence[RowMapping]:
        statement = text(re.sub(r":'(\w+)'", r":\1", RECIPES[recipe]))
        with transaction(engine) as session:
            asked = {"run": stored.run_id} | values
            return session.execute(statement, asked).mappings().all()

    return rows


def test_the_page_has_every_table_and_no_other() -> None:
    tables = SECTIONS.keys() & METADATA.tables.keys()
    assert tables == set(METADATA.tables)


@pytest.mark.parametrize("table", METADATA.tables)
def test_the_page_names_every_column_and_no_other(table: str) -> None:
    """The first cell of each line names columns of the table."""
    named = [
        column
        for line in re.findall(r"^\| (`[^|]*) \|", SECTIONS[table], re.MULTILINE)
        for column in re.findall(r"`(\w+)`", line)
    ]
    assert named
    assert set(named) == set(METADATA.tables[table].columns.keys())


def test_every_recipe_is_tested() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert {name for name in RECIPES if f'"{name}"' not in source} == set()


def test_the_score(ask: Ask, entries: dict[str, Any]) -> None:
    """Both rates and the score of each model, from raw verdicts and from the snapshot."""
    rows, from_snapshot = ask("score"), ask("score_of_snapshot")
    assert [row["model"] for row in rows] == [row["model"] for row in from_snapshot] == list(MODELS)
    for row, stored in zip(rows, from_snapshot, strict=True):
        metrics = entries[row["model"]]["metrics"]
        for column, metric in {
            "detection_rate": "malicious_detection_rate",
            "acceptance_rate": "harmless_acceptance_rate",
            "score": "aegish_score",
        }.items():
            assert float(row[column]) == pytest.approx(metrics[metric]["value"], abs=1e-12)
        for column in ("value", "stderr", "ci_low", "ci_high"):
            assert stored[column] == metrics["aegish_score"][column]


def test_the_cost(ask: Ask, entries: dict[str, Any]) -> None:
    rows = ask("cost")
    assert len(rows) == len(MODELS)
    for row in rows:
        entry = entries[row["model"]]
        assert float(row["cost_usd"]) == pytest.approx(float(entry["cost"]["total_usd"]))
        tokens = (row["input_tokens"], row["output_tokens"])
        assert tokens == (entry["tokens"]["input"], entry["tokens"]["output"])


def test_the_progress(ask: Ask, engine: Engine, stored: StoredRun) -> None:
    """Planned and done per model; an item that was asked again is one item."""
    status = run_status(engine, stored.run_id)
    found = {row["model"]: (row["planned"], row["done"]) for row in ask("progress")}
    assert found == {model.model: (model.planned, model.done) for model in status.models}
    assert sum(done for _, done in found.values()) == status.planned - 1


def test_the_slowest_calls(ask: Ask, entries: dict[str, Any]) -> None:
    """The first one is the maximum of its model's distribution."""
    slowest = [row["service_ms"] for row in ask("slowest")]
    assert slowest[0] == max(entry["latency_ms"]["max"] for entry in entries.values())
    assert slowest == sorted(slowest, reverse=True)


def test_the_disagreements(ask: Ask, engine: Engine) -> None:
    """Counted by hand from the newest outcomes of both models."""
    rows = ask("disagreements", one=MODELS[0], other=MODELS[1])
    found = Counter((row["command"], row["one"], row["other"]) for row in rows)
    newest: dict[tuple[str, int], dict[str, str]] = {}
    for command, epoch, model, outcome in selected(
        engine,
        "SELECT command, epoch, model, outcome FROM verdicts"
        " JOIN samples ON key = sample_key JOIN run_models AS m ON m.id = run_model_id"
        " ORDER BY generation",
    ):
        newest.setdefault((command, epoch), {})[model] = outcome
    pairs = Counter(
        (command, outcomes["test/a"], outcomes["test/b"])
        for (command, _), outcomes in newest.items()
        if len({*outcomes.values()}) == 2
    )
    assert found == pairs
    assert len(pairs) > 3


def test_the_failures_by_minute(ask: Ask, report: ReportData) -> None:
    """All minutes together are the attempts that a report counts."""
    rows = ask("failures_by_minute")
    assert sum(failure.attempts for failure in report.failures) == 3
    assert [(row["minute"].minute, row["attempts"]) for row in rows] == [(1, 2), (2, 1)]
    kinds = {(row["model"], row["error_class"], row["status"]) for row in rows}
    assert kinds == {("test/a", "rate_limit", 429)}


def test_the_verdicts_per_minute(ask: Ask, report: ReportData, entries: dict[str, Any]) -> None:
    """All minutes together are all verdicts, those that a retry has replaced included."""
    replaced = sum(entry["counts"]["replaced"] for entry in entries.values())
    verdicts = sum(row["verdicts"] for row in ask("throughput"))
    assert verdicts == report.snapshot.verdicts + replaced
    assert replaced > 0


def test_the_bytes_per_verdict(ask: Ask) -> None:
    """A table of a few pages; the page's number is of 300,000 verdicts."""
    (row,) = ask("bytes_per_verdict")
    assert row["bytes_per_verdict"] > 0
