"""Counting only what has changed, and several models at once."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine, event, select, text, update
from sqlalchemy.orm import Session

from aegish_dist.core.verdict import Completion, Timing, Verdict
from aegish_dist.db.engine import transaction
from aegish_dist.db.schema import RUNS, SNAPSHOTS
from aegish_dist.findings.snapshot import Snapshot
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.parsing import judge
from aegish_dist.opinions.scoring import DEFAULT_RULE, RULES
from aegish_dist.pipeline.aggregate import aggregate
from aegish_dist.pipeline.snapshots import current_snapshot
from tests.integration.samples import ALLOWED, BLOCKED, CURL, LS, TAR
from tests.integration.stored_runs import StoredRun, a_model, answer, stored_run, tallies

MODELS = tuple(a_model(f"test/{letter}") for letter in "abc")


def sure(text: str, confidence: float, service_ms: float) -> Verdict:
    completion = Completion(f'{{"action": "{text}", "confidence": {confidence}}}')
    return replace(judge(completion), timing=Timing(service_ms=service_ms))


@pytest.fixture
def stored(engine: Engine) -> StoredRun:
    """Three models that have judged two of three samples in two epochs."""
    stored = stored_run(engine, models=MODELS, epochs=2)
    verdicts = {
        stored.item(sample, model=spec.id, epoch=epoch): sure(action, 0.1 * epoch, 10.5 * number)
        for number, spec in enumerate(MODELS)
        for sample, action in ((TAR, "BLOCK"), (LS, "ALLOW" if number else "WARN"))
        for epoch in (1, 2)
    }
    answer(engine, stored, verdicts)
    return stored


@contextmanager
def statements(engine: Engine) -> Iterator[list[str]]:
    sent: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        sent.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    yield sent
    event.remove(engine, "before_cursor_execute", note)


def models_counted(sent: list[str]) -> int:
    return sum("AS digest" in statement for statement in sent)


def as_bytes(snapshot: Snapshot) -> bytes:
    return json.dumps(snapshot.document, sort_keys=True).encode()


def more(engine: Engine, stored: StoredRun, verdicts: dict[tuple[str, int], Verdict]) -> None:
    items = {
        stored.item(CURL, model=model, epoch=epoch): each
        for (model, epoch), each in verdicts.items()
    }
    answer(engine, stored, items)


def nothing(engine: Engine, stored: StoredRun) -> None:
    pass


def one_more(engine: Engine, stored: StoredRun) -> None:
    more(engine, stored, {("test/b", 1): ALLOWED})


def one_retried(engine: Engine, stored: StoredRun) -> None:
    """Leave the number of verdicts that count as it was, and yet change an outcome."""
    answer(engine, stored, {stored.item(TAR, model="test/c", generation=1): ALLOWED})


def one_parsed_by_another_version(engine: Engine, stored: StoredRun) -> None:
    key = {"model": stored.models["test/a"], "sample": stored.item(TAR).sample_key}
    statement = (
        "UPDATE verdicts SET outcome = 'FORMAT_ERROR', parser_version = parser_version + 1"
        " WHERE run_model_id = :model AND sample_key = :sample AND epoch = 1"
    )
    with transaction(engine) as session:
        session.execute(text(statement), key)


def hashes_of_an_older_version(engine: Engine, stored: StoredRun) -> None:
    """Have the snapshot identify verdicts by their contents alone."""
    with transaction(engine) as session:
        identities = {
            model: {name: value for name, value in each.items() if name != "local_hash"}
            for model, each in session.scalars(select(SNAPSHOTS.c.identities)).one().items()
        }
        session.execute(update(SNAPSHOTS).values(identities=identities))


@pytest.mark.parametrize(
    ("change", "counted"),
    [
        (nothing, 0),
        (one_more, 1),
        (one_retried, 1),
        (one_parsed_by_another_version, 1),
        (hashes_of_an_older_version, 3),
    ],
)
def test_only_models_with_other_verdicts_are_counted(
    engine: Engine, stored: StoredRun, change: Callable[[Engine, StoredRun], None], counted: int
) -> None:
    """And the result is that of counting all of them again."""
    (first,) = aggregate(engine, stored.run_id, [Opinion()])
    change(engine, stored)
    with statements(engine) as sent:
        (second,) = aggregate(engine, stored.run_id, [Opinion()])
    with statements(engine) as all_sent:
        (again,) = aggregate(engine, stored.run_id, [Opinion()], recount=True)
    assert (models_counted(sent), models_counted(all_sent)) == (counted, 3)
    assert second.snapshot_id != first.snapshot_id
    assert as_bytes(second) == as_bytes(again)
    assert second.identities == again.identities
    assert (second.identities == first.identities) is (
        change in (nothing, hashes_of_an_older_version)
    )


def test_a_longer_plan_is_noticed(engine: Engine, stored: StoredRun) -> None:
    aggregate(engine, stored.run_id, [Opinion()])
    with transaction(engine) as session:
        session.execute(update(RUNS).where(RUNS.c.id == stored.run_id).values(epochs=4))
    for snapshot in (
        current_snapshot(engine, stored.run_id, Opinion()),
        aggregate(engine, stored.run_id, [Opinion()])[0],
    ):
        for entry in snapshot.document["models"]:
            assert entry["counts"]["planned"] == 3 * 4
            assert entry["metrics"]["coverage"]["value"] == pytest.approx(4 / 12)


def test_every_rule_keeps_its_own_entries(engine: Engine, stored: StoredRun) -> None:
    """A rule without an earlier snapshot has all models counted, for itself and for the others."""
    aggregate(engine, stored.run_id, [Opinion()])
    opinions = list(map(Opinion, RULES.values()))
    with statements(engine) as sent:
        first = aggregate(engine, stored.run_id, opinions)
    more(engine, stored, {("test/a", 2): BLOCKED})
    with statements(engine) as sent_later:
        second = aggregate(engine, stored.run_id, opinions)
    assert (models_counted(sent), models_counted(sent_later)) == (3, 1)
    recounted = aggregate(engine, stored.run_id, opinions, recount=True)
    assert list(map(as_bytes, second)) == list(map(as_bytes, recounted))
    assert len({as_bytes(snapshot) for snapshot in first}) > 1


def test_a_newer_version_of_a_rule_counts_everything(engine: Engine, stored: StoredRun) -> None:
    aggregate(engine, stored.run_id, [Opinion()])
    newer = Opinion(replace(DEFAULT_RULE, version=DEFAULT_RULE.version + 1))
    with statements(engine) as sent:
        aggregate(engine, stored.run_id, [newer])
    assert models_counted(sent) == 3


def test_a_count_is_one_picture(engine: Engine, stored: StoredRun) -> None:
    """Verdicts that come in while models are counted are not seen by any of them."""
    repeatable = engine.execution_options(isolation_level="REPEATABLE READ")
    with Session(repeatable) as session:
        before = tallies(session, stored.run_id)
        more(engine, stored, {("test/a", 1): BLOCKED, ("test/c", 2): BLOCKED})
        assert tallies(session, stored.run_id) == before
    with Session(engine) as session:
        assert tallies(session, stored.run_id) != before
