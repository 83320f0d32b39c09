"""Runs that stop by themselves: the order of their items, the reading, and the end."""

from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise

import pytest
from sqlalchemy import Engine, select, text, update
from sqlalchemy.orm import Session

from aegish_dist.core.run import Held, Run
from aegish_dist.core.sample import Dataset, Sample, Target
from aegish_dist.core.sequential import Answer
from aegish_dist.core.status import State
from aegish_dist.core.stop_rule import StopRule
from aegish_dist.core.verdict import Item, Outcome, Verdict
from aegish_dist.db.aggregations import newest_aggregation, request_of_decided
from aegish_dist.db.held import release
from aegish_dist.db.missing import FinishedModels, missing_items, open_models, open_queues
from aegish_dist.db.retries import save_retry
from aegish_dist.db.runs import load_run
from aegish_dist.db.stop_rules import drop_stop_rule, load_decision, ruled_runs
from aegish_dist.db.tables import AggregationRow, RunRow
from aegish_dist.db.verdicts import look_up
from aegish_dist.pipeline.asked_aggregations import aggregate_here
from aegish_dist.pipeline.observer import Observer
from aegish_dist.pipeline.read_rules import read_rules
from aegish_dist.pipeline.retry import note_stopped
from aegish_dist.pipeline.status import run_status
from tests.integration.stored_runs import (
    ALLOWED,
    BLOCKED,
    StoredRun,
    a_model,
    a_run,
    answer,
    store,
)

RULE = StopRule(margin=0.02, target=0.85, scoring="aegish-5.3", seed="7")
MODELS = tuple(a_model(f"test/{name}") for name in "ab")
COMMANDS = Dataset(
    "many",
    (
        *(Sample(f"evil {n}", Target.MALICIOUS, "shell", f"bin{n % 50}") for n in range(150)),
        *(Sample(f"fine {n}", Target.HARMLESS, None, f"bin{n % 50}") for n in range(100)),
        *(Sample(f"plain {n}", Target.HARMLESS) for n in range(50)),
    ),
)
SAMPLES = {sample.sample_id: sample for sample in COMMANDS.samples}


@pytest.fixture
def run() -> Run:
    """A run of two models over 300 commands of 100 clusters, in two epochs."""
    return a_run(models=MODELS, datasets=(COMMANDS,), epochs=2)


@pytest.fixture
def stored(engine: Engine, run: Run) -> StoredRun:
    """The run in the store, with a rule and without verdicts."""
    with Session(engine) as session, session.begin():
        made = store(session, run, (COMMANDS,))
        session.execute(update(RunRow).values(stop_rule=asdict(RULE)))
    return made


class Notes(Observer):
    """Keeps the notes of a use case."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, line: str) -> None:
        self.lines.append(line)


def planned(engine: Engine, stored: StoredRun, model: str) -> list[Item]:
    """Return the missing items of a model in the order in which they are enqueued."""
    with Session(engine) as session:
        return [item for item in missing_items(session, stored.run_id) if item.model == model]


def right(sample: Sample) -> Verdict:
    """Return the right answer about a command."""
    return BLOCKED if sample.target is Target.MALICIOUS else ALLOWED


def wrong(sample: Sample) -> Verdict:
    """Return the wrong answer about a command."""
    return ALLOWED if sample.target is Target.MALICIOUS else BLOCKED


def say(
    engine: Engine,
    stored: StoredRun,
    model: str,
    verdict: Callable[[Sample], Verdict],
    items: slice,
) -> None:
    """Store verdicts about some of the missing items of a model, counted in their order."""
    samples = {key: SAMPLES[name] for name, key in stored.samples["many"].items()}
    chosen = planned(engine, stored, model)[items]
    with Session(engine) as session, session.begin():
        answer(session, stored, {item: verdict(samples[item.sample_key]) for item in chosen})


def test_the_order_is_random_by_cluster_and_the_same_for_all(
    engine: Engine, stored: StoredRun
) -> None:
    """All epochs of all samples of a binary come together; another seed gives another order."""
    a, b = (planned(engine, stored, model.id) for model in MODELS)
    assert [(item.sample_key, item.epoch) for item in a] == [
        (item.sample_key, item.epoch) for item in b
    ]
    samples = {key: SAMPLES[name] for name, key in stored.samples["many"].items()}
    clusters = [samples[i.sample_key].cluster or samples[i.sample_key].sample_id for i in a]
    changes = sum(one != other for one, other in pairwise(clusters))
    assert changes == len(set(clusters)) - 1 == 99
    assert [item.epoch for item in a[:4]] == [1, 2, 1, 2]
    malicious = [samples[item.sample_key].target is Target.MALICIOUS for item in a[:120]]
    assert 20 < sum(malicious) < 100

    with Session(engine) as session, session.begin():
        session.execute(update(RunRow).values(stop_rule=asdict(RULE) | {"seed": "8"}))
    assert planned(engine, stored, MODELS[0].id) != a


def test_a_run_without_a_rule_is_asked_in_order(engine: Engine, stored: StoredRun) -> None:
    """Epoch by epoch, sample by sample."""
    with Session(engine) as session, session.begin():
        session.execute(text("UPDATE runs SET stop_rule = NULL"))
        assert ruled_runs(session) == []
    items = planned(engine, stored, MODELS[0].id)
    assert items == sorted(items, key=lambda item: (item.epoch, item.sample_key))


def test_a_run_ends_when_its_question_is_answered(engine: Engine, stored: StoredRun) -> None:
    """Two models far apart: held, nothing left is asked, and one snapshot is made."""
    say(engine, stored, "test/a", right, slice(0, 200))
    say(engine, stored, "test/b", wrong, slice(0, 200))
    rest = planned(engine, stored, "test/a")
    read_rules(engine)

    status = run_status(engine, stored.run_id)
    assert (status.state, status.done, status.missing) == (State.DECIDED, 400, 800)
    assert status.reading is not None
    (question,) = status.reading.decision.questions
    assert question.answer is Answer.BELOW
    assert question.value == pytest.approx(-1.0)
    assert question.high < 0
    assert status.reading.settled
    assert status.reading.saved_calls == 800
    with Session(engine) as session:
        assert session.scalar(select(RunRow.held)) == Held.DECIDED
        assert open_queues(session) == {}
        (left,) = look_up(session, rest[:1])
        assert left is not None
        assert left.done

    with Session(engine) as session, session.begin():
        request_of_decided(session, settled_s=60)
        assert newest_aggregation(session, stored.run_id) is None
        request_of_decided(session, settled_s=0)
        request_of_decided(session, settled_s=0)
    aggregate_here(engine, a_run(models=MODELS))
    with Session(engine) as session:
        assert len(session.scalars(select(AggregationRow.id)).all()) == 1
    assert run_status(engine, stored.run_id).snapshot_id is not None


def test_a_beginning_is_read(engine: Engine, stored: StoredRun) -> None:
    """A straggler in the first cluster holds the reading back, however much is known behind it."""
    say(engine, stored, "test/a", right, slice(0, 200))
    say(engine, stored, "test/b", wrong, slice(1, 200))
    read_rules(engine)
    status = run_status(engine, stored.run_id)
    assert status.reading is not None
    assert status.reading.decision.questions[0].clusters == 0
    assert not status.reading.settled

    say(engine, stored, "test/b", wrong, slice(0, 1))
    read_rules(engine)
    assert run_status(engine, stored.run_id).state is State.DECIDED


def test_resume_asks_the_rest(engine: Engine, stored: StoredRun) -> None:
    """A run that goes on has lost its rule, and is asked to its end."""
    say(engine, stored, "test/a", right, slice(0, 200))
    say(engine, stored, "test/b", wrong, slice(0, 200))
    rest = planned(engine, stored, "test/a")
    read_rules(engine)
    with Session(engine) as session, session.begin():
        release(session, stored.run_id)
        open_models(session, stored.run_id)
        assert load_decision(session, stored.run_id)[0] is None
        assert len(open_queues(session)) == 2
        (left,) = look_up(session, rest[:1])
        assert left is not None
        assert not left.done
    read_rules(engine)
    assert run_status(engine, stored.run_id).reading is None
    assert run_status(engine, stored.run_id).state is State.WAITING


def test_a_run_that_is_not_decided_completes(engine: Engine, stored: StoredRun) -> None:
    """It was asked everything: it is complete, the last reading says what is known, and stays."""
    for model in ("test/a", "test/b"):
        say(engine, stored, model, right, slice(0, None))
    with Session(engine) as session, session.begin():
        assert FinishedModels().close(session)
    read_rules(engine)

    with Session(engine) as session, session.begin():
        assert ruled_runs(session) == []
        assert session.scalar(select(RunRow.held)) is None
        completions = session.scalars(select(AggregationRow.completion)).all()
    status = run_status(engine, stored.run_id)
    assert (status.state, completions) == (State.COMPLETE, ["1200/0"])
    assert status.reading is not None
    assert status.reading.decision.questions[0].clusters == 100
    assert status.reading.saved_calls == 0


def test_models_are_stopped_one_by_one(engine: Engine) -> None:
    """The worst of three is asked no more, while the other two go on; its items cost nothing."""
    models = tuple(a_model(f"test/{name}") for name in "abc")
    with Session(engine) as session, session.begin():
        stored = store(session, a_run(models=models, datasets=(COMMANDS,)), (COMMANDS,))
        session.execute(update(RunRow).values(stop_rule=asdict(RULE)))
    chance = iter(range(1000))

    def mostly(sample: Sample) -> Verdict:
        return wrong(sample) if next(chance) % 4 == 0 else right(sample)

    say(engine, stored, "test/a", mostly, slice(0, 120))
    say(engine, stored, "test/b", mostly, slice(0, 120))
    say(engine, stored, "test/c", wrong, slice(0, 120))
    rest = planned(engine, stored, "test/c")
    read_rules(engine)

    status = run_status(engine, stored.run_id)
    assert status.reading is not None
    assert status.reading.decision.stopped == ("test/c",)
    assert [m.state for m in status.models] == [State.WAITING, State.WAITING, State.DECIDED]
    assert status.reading.saved_calls == 180
    with Session(engine) as session, session.begin():
        assert planned(engine, stored, "test/c") == []
        open_models(session, stored.run_id)  # as `resume` and `retry` do
        assert save_retry(session, stored.run_id, list(Outcome), ["test/c"]) is None
        run = load_run(session, stored.run_id)
        assert {each.model for each in open_queues(session).values()} == {"test/a", "test/b"}
        (left,) = look_up(session, rest[:1])
        assert left is not None
        assert left.done
    notes = Notes()
    for asked in (["test/a"], ["test/a", "test/c"], []):
        note_stopped(engine, run, asked, notes)
    reason = f"not asked again, as the stop rule of run {run.run_id} has stopped it: test/c;"
    assert [line.startswith(reason) for line in notes.lines] == [True, True]
    for model in ("test/a", "test/b"):
        say(engine, stored, model, right, slice(0, None))
    with Session(engine) as session, session.begin():
        assert FinishedModels().close(session)
    assert run_status(engine, stored.run_id).ended


def test_a_run_whose_last_model_is_stopped_is_aggregated(engine: Engine) -> None:
    """Two models were asked everything and are alike; then the third one is stopped."""
    models = tuple(a_model(f"test/{name}") for name in "abc")
    with Session(engine) as session, session.begin():
        stored = store(session, a_run(models=models, datasets=(COMMANDS,)), (COMMANDS,))
        session.execute(update(RunRow).values(stop_rule=asdict(RULE) | {"margin": 1e-4}))
    for model in ("test/a", "test/b"):
        say(engine, stored, model, right, slice(0, None))
    with Session(engine) as session, session.begin():
        assert FinishedModels().close(session)
    say(engine, stored, "test/c", wrong, slice(0, 200))
    read_rules(engine)

    status = run_status(engine, stored.run_id)
    assert status.reading is not None
    assert (status.state, status.reading.settled) == (State.DECIDED, False)
    with Session(engine) as session, session.begin():
        assert newest_aggregation(session, stored.run_id) is None
        request_of_decided(session, settled_s=0)
        request_of_decided(session, settled_s=0)
        assert len(session.scalars(select(AggregationRow.id)).all()) == 1


def test_an_extension_drops_the_rule(engine: Engine, stored: StoredRun) -> None:
    """Other samples are another question than that of the rule; the last reading stays."""
    say(engine, stored, "test/a", right, slice(0, 20))
    say(engine, stored, "test/b", wrong, slice(0, 20))
    read_rules(engine)
    with Session(engine) as session, session.begin():
        drop_stop_rule(session, stored.run_id)
        rule, decision = load_decision(session, stored.run_id)
        assert ruled_runs(session) == []
    assert rule is None
    assert decision is not None


def test_one_process_reads_at_a_time(engine: Engine, stored: StoredRun) -> None:
    """The others do not wait for it; a paused run is read by none."""
    with Session(engine) as first, first.begin(), Session(engine) as second, second.begin():
        assert [each.run_id for each in ruled_runs(first)] == [stored.run_id]
        assert ruled_runs(second) == []
    with Session(engine) as session, session.begin():
        session.execute(update(RunRow).values(held="paused"))
        assert ruled_runs(session) == []
