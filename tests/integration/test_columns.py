"""Verdicts as columns, against the same verdicts read row by row."""

from collections.abc import Iterator
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import Row, select, text
from sqlalchemy.orm import Session

from aegish_dist.core.columns import NO_VERDICT, SampleKind
from aegish_dist.core.outcome import ErrorClass, Outcome, OutcomeDetail, StopKind, find
from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.core.verdict import Completion, Timing, Verdict
from aegish_dist.db.columns import read_columns
from aegish_dist.db.overlays import OverlayInRun
from aegish_dist.db.runs import load_run
from aegish_dist.db.schema import DATASETS, SAMPLES, VERDICTS
from aegish_dist.errors import UnreadableRunError
from aegish_dist.opinions.opinion import LabelChange, Opinion, Overlay
from aegish_dist.opinions.parsing import judge
from aegish_dist.pipeline.opinions import overlay_of
from tests.guards import listed
from tests.integration.samples import BLOCKED, CURL, LS, TAR
from tests.integration.stored_runs import StoredRun, answer, stored_run

MODELS = ("test/a", "test/b", "test/mute")
MALICIOUS, HARMLESS = TrueLabel
MORE = Dataset("a first one", tuple(Sample(f"cat {number}", HARMLESS) for number in range(20)))
ATTACKS = Dataset(
    "commands", tuple(Sample(f"sh {i}", MALICIOUS, "shell", f"sh{i % 7}") for i in range(20))
)
RELABELLED, EXCLUDED = MORE.samples[3], ATTACKS.samples[11]
OVERLAY = Overlay(
    "mine",
    1,
    (
        LabelChange(MORE.name, RELABELLED.sample_id, None, MALICIOUS, "file-read", "reads", "Ada"),
        LabelChange(ATTACKS.name, EXCLUDED.sample_id, None, None, None, "twice", "Ada"),
    ),
)
COMPLETIONS = ("", "I cannot say.", '{"action": "ALLOW"}', '{"action": "WARN"}')
NOTHING = (None, None, None, None, None)


def a_verdict(draw: Random) -> Verdict:
    """Draw a verdict; each number of it may be unknown."""
    if draw.random() < 0.2:
        error = draw.choice(list(ErrorClass))
        late = error is ErrorClass.DEADLINE
        return Verdict(Outcome.TIMEOUT_ERROR if late else Outcome.API_ERROR, None, error)
    stated = f'{{"action": "BLOCK", "confidence": {draw.random()}}}'
    said = draw.choice([*COMPLETIONS, stated, stated])
    stop_kind = draw.choice([None, *StopKind])
    suspicion = draw.choice([None, draw.gauss()])
    return replace(
        judge(Completion(said, stop_kind=stop_kind, suspicion=suspicion)),
        cost_usd=draw.choice([None, Decimal(draw.randrange(10**20)).scaleb(-21)]),
        timing=Timing(service_ms=draw.choice([None, draw.uniform(0, 1e5)])),
    )


@pytest.fixture
def stored(session: Session) -> StoredRun:
    """Three epochs with missing items and retries; of the last model there is no verdict."""
    run = stored_run(session, models=MODELS, datasets=(ATTACKS, MORE), epochs=3)
    draw = Random(7)
    answers = {}
    for epoch in (1, 2, 3):
        for generation, share in enumerate((0.9, 0.3, 0.1)):
            for item in run.items(*MODELS[:2], epoch=epoch, generation=generation):
                if draw.random() < share:
                    answers[item] = a_verdict(draw)
    answer(session, run, answers)
    return run


def samples_that_count(session: Session) -> Iterator[tuple[Row[Any], SampleKind]]:
    """Yield the samples in the order of columns, with their labels under the overlay."""
    query = select(SAMPLES, DATASETS.c.name).join(DATASETS, SAMPLES.c.dataset_id == DATASETS.c.id)
    for row in session.execute(query.order_by(DATASETS.c.name, SAMPLES.c.key)):
        if row.sample_id == RELABELLED.sample_id:
            yield row, SampleKind(MALICIOUS, "file-read", None)
        elif row.sample_id != EXCLUDED.sample_id:
            yield row, SampleKind(TrueLabel(row.target), row.category, row.cluster)


def cells(row: Row[Any] | None) -> tuple[OutcomeDetail | float | None, ...]:
    """Return what all columns have to say of a verdict."""
    if row is None:
        return NOTHING
    finding = find(
        Outcome(row.outcome),
        row.stop_kind and StopKind(row.stop_kind),
        row.error_class and ErrorClass(row.error_class),
    )
    cost = None if row.cost_usd is None else float(row.cost_usd)
    return (finding, row.confidence, row.suspicion, cost, row.service_ms)


def test_every_cell_is_that_of_its_row(session: Session, stored: StoredRun) -> None:
    run = load_run(session, stored.run_id)
    overlay = overlay_of(session, run, Opinion(overlay=OVERLAY))
    columns = read_columns(session, run, MODELS, overlay, texts=True)
    expected = list(samples_that_count(session))
    samples = columns.samples
    assert (len(samples), columns.epochs) == (39, 3)
    assert samples.keys.tolist() == [row.key for row, _ in expected]
    assert samples.names == [(row.name, row.sample_id) for row, _ in expected]
    assert samples.commands == [row.command for row, _ in expected]
    assert [samples.kinds[kind] for kind in samples.kind.tolist()] == [kind for _, kind in expected]
    assert list(columns.guards) == list(MODELS)
    seen = set()
    for model, guard in columns.guards.items():
        of_model = select(VERDICTS).where(VERDICTS.c.run_model_id == stored.models[model])
        newest = {}
        for row in session.execute(of_model.order_by(VERDICTS.c.generation)):
            newest[row.sample_key, row.epoch] = row
        findings = [*OutcomeDetail, None]
        assert findings[NO_VERDICT] is None
        found = zip(
            [findings[place] for place in guard.finding.ravel().tolist()],
            listed(guard.confidence),
            listed(guard.own_number),
            listed(guard.cost_usd),
            listed(guard.latency_ms),
            strict=True,
        )
        items = [(row.key, epoch) for row, _ in expected for epoch in (1, 2, 3)]
        rows = [newest.get(item) for item in items]
        assert list(found) == [cells(row) for row in rows]
        seen |= {cells(row)[0] for row in rows}
    assert seen == {*OutcomeDetail, None}


@pytest.mark.parametrize(
    "change",
    [
        "sample_key = (SELECT min(key) FROM samples)",
        "sample_key = (SELECT max(key) FROM samples)",
        "sample_key = (SELECT max(key) + 1 FROM samples)",
        "epoch = 3",
    ],
)
def test_a_verdict_about_no_item_of_the_run_is_an_error_about_it(
    session: Session, change: str
) -> None:
    """Its sample may be in datasets of other runs, or in none; the run has two epochs."""
    stored_run(session, run_id="0earlier0", datasets=(Dataset("earlier", (CURL,)),))
    asked = Dataset("asked", (TAR, LS))
    run_id = stored_run(session, {TAR: BLOCKED}, datasets=(asked,), epochs=2).run_id
    stored_run(session, run_id="0later000", datasets=(Dataset("later", (CURL,)),))
    run = load_run(session, run_id)
    read_columns(session, run, ["test/a"], OverlayInRun())
    session.execute(text(f"UPDATE verdicts SET {change}"))
    with pytest.raises(UnreadableRunError, match=run_id):
        read_columns(session, run, ["test/a"], OverlayInRun())
