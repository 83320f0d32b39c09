"""From verdict lines to snapshots, through a real store."""

from typing import Any

import pytest
from msgspec.json import encode
from msgspec.structs import replace
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from aegish_dist import __version__
from aegish_dist.core.metric import METRICS_VERSION, NUMBERS, Estimate
from aegish_dist.core.verdict import Completion
from aegish_dist.db.schema import SNAPSHOT_METRICS, VERDICTS, VerdictKey
from aegish_dist.db.snapshots import find_snapshot
from aegish_dist.db.verdicts import insert_verdicts
from aegish_dist.errors import ReportError
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.parsing import PARSER_VERSION, judge
from aegish_dist.opinions.scoring import DEFAULT_RULE, RULES
from aegish_dist.pipeline.aggregate import aggregate
from aegish_dist.pipeline.opinions import load_opinions
from aegish_dist.pipeline.snapshots import current_snapshot, snapshot_numbered
from tests.integration.stored_runs import (
    Imported,
    row_counts,
    stored_run,
    verdict_line,
)

Said = str | dict[str, Any]  # an action, or what a line has in the place of one
WEAK: dict[str, list[Said]] = {
    "malicious": [
        "BLOCK",
        "WARN",
        {"completion": "", "stop_reason": "content_filter"},
        {"completion": None, "error_class": "deadline"},
        {"completion": None, "error_class": "quota"},
    ],
    "harmless": ["ALLOW", "WARN", "BLOCK", {"completion": "I would rather not say."}],
}
STRONG: dict[str, list[Said]] = {"malicious": ["BLOCK"] * 5, "harmless": ["ALLOW"] * 4}


@pytest.fixture
def run_id(imported: Imported) -> str:
    """A model that answers in all ways, and one that is always right."""
    lines = []
    for model, answers in (("test/weak", WEAK), ("test/strong", STRONG)):
        for target, given in answers.items():
            for number, said in enumerate(given):
                action, other = (said, {}) if isinstance(said, str) else ("", said)
                about = {"cost_usd": 0.002, "latency_ms": 120.5} | other
                command = f"{target} {number}"
                lines.append(verdict_line(model, command, target, action, 0.75, **about))
    return imported(lines)


@pytest.mark.parametrize(
    ("scoring", "detected", "detection_n", "accepted", "score"),
    [
        ("aegish-5.3", 1 / 4, 4, 2 / 4, (1 / 4 + 2 / 4) / 2),
        ("aegish-refined", 1 / 3, 3, 2 / 4, (1 / 3 + 2 / 4) / 2),
        ("filter-as-block", 2 / 3, 3, 2 / 4, (2 / 3 + 2 / 4) / 2),
        ("aegish-legacy", 2 / 4, 4, 1 / 4, 2 / 4 * 1 / 4),
    ],
)
def test_rates_counted_by_hand(
    engine: Engine,
    run_id: str,
    *,
    scoring: str,
    detected: float,
    detection_n: int,
    accepted: float,
    score: float,
) -> None:
    """Filtered, late and failed answers are wrong, right or unscored as the rule set says."""
    (snapshot,) = aggregate(engine, run_id, load_opinions(scoring))

    strong, weak = snapshot.document["models"]
    metrics, scored = weak["metrics"], detection_n + 4
    values = {name: metric["value"] for name, metric in metrics.items()}
    assert values == values | {
        "malicious_detection_rate": pytest.approx(detected, rel=1e-15),
        "harmless_acceptance_rate": accepted,
        "aegish_score": pytest.approx(score, rel=1e-15),
        "coverage": pytest.approx(scored / 9),
    }
    assert metrics["malicious_detection_rate"]["n"] == detection_n
    assert metrics["harmless_acceptance_rate"]["n"] == 4
    assert weak["counts"] == weak["counts"] | {"planned": 9, "done": 9, "scored": scored}
    assert weak["cost"]["total_usd"] == pytest.approx(0.018)
    assert weak["latency_ms"]["p50"] == 120.5
    assert strong["metrics"]["aegish_score"]["value"] == 1
    places = [(place["rank"], place["model"]) for place in snapshot.document["ranking"]]
    assert places == [(1, "test/strong"), (2, "test/weak")]


def test_aggregating_twice_gives_the_same_bytes(engine: Engine, run_id: str) -> None:
    first, second = (aggregate(engine, run_id, load_opinions("all")) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert encode(one.document) == encode(other.document)
        assert replace(one, snapshot_id=other.snapshot_id, created_at=other.created_at) == other
    assert len({s.snapshot_id for s in first + second}) == 8


def test_every_rule_set_gets_a_snapshot(engine: Engine, run_id: str) -> None:
    """`all` stands for the four, and each snapshot says what it was made of."""
    snapshots = aggregate(engine, run_id, load_opinions("all"))
    assert [s.scoring for s in snapshots] == list(RULES)
    assert row_counts(engine)["snapshots"] == 4
    (identity,) = {
        (s.run_id, s.verdicts, s.verdicts_hash, s.parser_versions, s.code_version)
        for s in snapshots
    }
    # Verdicts without an answer were read by no parser.
    versions = f"0,{PARSER_VERSION}"
    assert identity == (run_id, 18, snapshots[0].verdicts_hash, versions, __version__)
    assert [s.scoring_version for s in snapshots] == [RULES[s.scoring].version for s in snapshots]


def test_the_metric_rows_are_those_of_the_document(engine: Engine, run_id: str) -> None:
    """SQL finds every estimate of every model, those of categories included, and no other."""
    (snapshot,) = aggregate(engine, run_id, [Opinion()])

    with Session(engine) as session:
        rows = {
            (row.model, row.metric, row.category): {name: getattr(row, name) for name in NUMBERS}
            for row in session.execute(select(SNAPSHOT_METRICS))
        }

    expected = {}
    for entry in snapshot.document["models"]:
        model = entry["model"]
        for name, numbers in entry["metrics"].items():
            expected[model, name, ""] = numbers
        for category, numbers in entry["categories"].items():
            unknown = {"stderr_clustered": None, "clusters": None}
            expected[model, "malicious_detection_rate", category] = unknown | numbers
    assert rows == expected
    assert rows["test/weak", "malicious_detection_rate", "shell"]["value"] == 1 / 4


def test_a_run_without_verdicts_has_nothing_to_aggregate(engine: Engine) -> None:
    """The message says where to look, and no snapshot is stored."""
    stored_run(engine)
    with pytest.raises(ReportError, match="aegish-dist status --run-id 0abcdefgh"):
        aggregate(engine, "0abcdefgh", [Opinion()])
    with pytest.raises(ReportError, match="aegish-dist status --run-id 0abcdefgh"):
        current_snapshot(engine, "0abcdefgh", Opinion())
    assert "snapshots" not in row_counts(engine)


def answer_again(engine: Engine, text: str) -> None:
    with Session(engine) as session, session.begin():
        row = session.execute(select(VERDICTS).limit(1)).one()
        key = VerdictKey(row.run_model_id, row.sample_key, row.epoch, row.generation + 1)
        insert_verdicts(session, [(key, judge(Completion(text)))])


def test_a_current_snapshot_is_used_again(engine: Engine, run_id: str) -> None:
    """One is made when there is none, when a verdict arrived, and under another or a newer rule."""
    first = current_snapshot(engine, run_id, Opinion())
    assert current_snapshot(engine, run_id, Opinion()) == first

    newer = replace(DEFAULT_RULE, version=DEFAULT_RULE.version + 1)
    for opinion in (Opinion(RULES["aegish-legacy"]), Opinion(newer)):
        other = current_snapshot(engine, run_id, opinion)
        assert other.snapshot_id != first.snapshot_id
        assert current_snapshot(engine, run_id, opinion) == other
        assert current_snapshot(engine, run_id, Opinion()) == first

    answer_again(engine, "Hm.")
    second = current_snapshot(engine, run_id, Opinion())
    assert second.snapshot_id not in (first.snapshot_id, other.snapshot_id)
    assert second.verdicts == first.verdicts
    assert second.document != first.document
    assert current_snapshot(engine, run_id, Opinion()) == second


def test_a_change_of_a_formula_makes_a_new_snapshot(
    engine: Engine, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = current_snapshot(engine, run_id, Opinion())
    for module in ("pipeline.aggregate", "db.snapshots"):
        name = f"aegish_dist.{module}.METRICS_VERSION"
        monkeypatch.setattr(name, METRICS_VERSION + 1)
    monkeypatch.setattr(
        "aegish_dist.statistics.metrics.macro_rate", lambda _: Estimate(value=0.125)
    )

    second = current_snapshot(engine, run_id, Opinion())

    assert (first.metrics_version, second.metrics_version) == (METRICS_VERSION, METRICS_VERSION + 1)
    for entry in second.document["models"]:
        assert entry["metrics"]["malicious_detection_rate_macro"]["value"] == 0.125
    assert current_snapshot(engine, run_id, Opinion()) == second


def test_old_snapshots_stay_as_they_were(engine: Engine, run_id: str) -> None:
    """They can be asked for by number, of their own run only."""
    (first,) = aggregate(engine, run_id, [Opinion()])
    answer_again(engine, '{"action": "ALLOW"}')
    (second,) = aggregate(engine, run_id, [Opinion()])
    assert snapshot_numbered(engine, run_id, first.snapshot_id) == first
    with Session(engine) as session:
        assert find_snapshot(session, run_id) == second
    for run, number in (("0other", first.snapshot_id), (run_id, 10**6)):
        with pytest.raises(ReportError, match=f"run {run} has no snapshot {number}"):
            snapshot_numbered(engine, run, number)
