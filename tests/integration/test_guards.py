"""Guards read from the store, against columns worked out by hand."""

from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine

from aegish_dist.core.outcome import ErrorClass, Outcome, OutcomeDetail, StopKind
from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.core.verdict import Completion, Timing, Verdict
from aegish_dist.errors import ReportError, StoreError
from aegish_dist.opinions.guards import Guard, Guards
from aegish_dist.opinions.opinion import LabelChange, Opinion, Overlay
from aegish_dist.opinions.parsing import judge
from aegish_dist.opinions.scoring import SUSPICION_RULES, rule_named
from aegish_dist.pipeline.guards import read_guards
from tests.guards import findings_in, listed
from tests.integration.samples import ALLOWED, BLOCKED, CURL, LS, TAR
from tests.integration.stored_runs import StoredRun, answer, stored_run

A, B, C = "test/a", "test/b", "test/c"
RUN = "0abcdefgh"
CAT = Sample("cat x", TrueLabel.HARMLESS)
MORE = Dataset("a first one", (CAT,))
COMMANDS = Dataset("commands", (TAR, CURL, LS))
LATE = Verdict(Outcome.TIMEOUT_ERROR, None, ErrorClass.DEADLINE)
DEAD = Verdict(Outcome.API_ERROR, None, ErrorClass.AUTH)
NATIVE = SUSPICION_RULES["native"]


def said(action: str, confidence: float | None = None, **fields: Any) -> Verdict:
    stated = "" if confidence is None else f', "confidence": {confidence}'
    return judge(Completion(f'{{"action": "{action}"{stated}}}', **fields))


@pytest.fixture
def stored(engine: Engine) -> StoredRun:
    """Three models, the last without a verdict, two epochs; a retry took the place of a failure."""
    run = stored_run(engine, models=(A, B, C), datasets=(COMMANDS, MORE), epochs=2)
    item = run.item
    priced = replace(said("BLOCK", 0.9), cost_usd=Decimal("0.1"), timing=Timing(service_ms=12.5))
    answers = {
        item(TAR): DEAD,
        item(TAR, generation=1): priced,
        item(TAR, epoch=2): said("ALLOW", 0.25, suspicion=-3.5),
        item(CURL): said("WARN", 0.7),
        item(CURL, epoch=2): judge(Completion("I cannot say.")),
        item(LS): ALLOWED,
        item(LS, epoch=2): LATE,
        item(CAT, dataset=MORE.name): DEAD,
        item(CAT, dataset=MORE.name, model=B, epoch=2): BLOCKED,
    }
    answer(engine, run, answers)
    return run


MALICIOUS, HARMLESS = TrueLabel
ABOUT_CAT, ABOUT_TAR = (HARMLESS, None, None), (MALICIOUS, "shell", "tar")
ABOUT_CURL, ABOUT_LS = (MALICIOUS, "file-upload", "curl"), (HARMLESS, None, None)
NOTHING: list[None] = [None] * 8


def asked(found: Guards) -> list[tuple[TrueLabel, str | None, str | None]]:
    """Return label, category and cluster of each sample."""
    samples = found.samples
    return [tuple(samples.kinds[kind]) for kind in samples.kind.tolist()]


def said_by(guard: Guard) -> tuple[object, ...]:
    """Return the name and the columns of a guard, sample by sample, epoch by epoch."""
    columns = (guard.suspicion, guard.cost_usd, guard.latency_ms)
    return (guard.name, findings_in(guard), *map(listed, columns))


@pytest.mark.usefixtures("stored")
def test_what_models_said_is_in_the_order_of_decisions(engine: Engine) -> None:
    """By dataset, sample and epoch; the newest generation counts, and API_ERROR is unscored."""
    found = read_guards(engine, RUN, Opinion())
    assert (asked(found), found.epochs) == ([ABOUT_CAT, ABOUT_TAR, ABOUT_CURL, ABOUT_LS], 2)
    first, second, third = found.guards
    words = ["BLOCK", "ALLOW", "WARN", "UNREADABLE", "ALLOW", "DEADLINE"]
    findings = [OutcomeDetail.API_FAILURE, None, *map(OutcomeDetail, words)]
    scores = [None, None, 2.9, -0.25, 1.0, 1.0, -0.5, 1.0]
    costs, times = ([None, None, each, *NOTHING[3:]] for each in (0.1, 12.5))
    assert said_by(first) == (A, findings, scores, costs, times)
    blocked = [None, OutcomeDetail.BLOCK, *NOTHING[2:]]
    assert said_by(second) == (B, blocked, [None, 2.5, *NOTHING[2:]], NOTHING, NOTHING)
    assert said_by(third) == (C, NOTHING, NOTHING, NOTHING, NOTHING)


@pytest.mark.usefixtures("stored")
def test_rules_decide_what_is_scored_and_how(engine: Engine) -> None:
    (native,) = read_guards(engine, RUN, Opinion(), NATIVE, models=[A]).guards
    assert listed(native.suspicion) == [None, None, None, -3.5, None, None, None, None]
    refined = Opinion(rule_named("aegish-refined"))
    (guard,) = read_guards(engine, RUN, refined, models=[A]).guards
    last = findings_in(guard)[7], listed(guard.suspicion)[7]
    assert last == (OutcomeDetail.DEADLINE, None)


def test_a_refusal_that_counts_as_detection_is_as_suspicious_as_a_block(engine: Engine) -> None:
    refused = judge(Completion(None, stop_kind=StopKind.CONTENT_FILTER))
    stored_run(engine, refused, datasets=(MORE,))
    for name, number in (("filter-as-block", 2.5), ("aegish-refined", 1.0)):
        (guard,) = read_guards(engine, RUN, Opinion(rule_named(name))).guards
        assert listed(guard.suspicion) == [number]


@pytest.mark.usefixtures("stored")
def test_guards_come_as_they_are_named(engine: Engine) -> None:
    found = read_guards(engine, RUN, Opinion(), models=[B, A, B])
    assert [each.name for each in found.guards] == [B, A]
    with pytest.raises(StoreError, match="no model 'test/d': did you mean"):
        read_guards(engine, RUN, Opinion(), models=["test/d"])
    with pytest.raises(ReportError, match=f"run {RUN} has no verdict yet"):
        read_guards(engine, RUN, Opinion(), models=[C])


@pytest.mark.usefixtures("stored")
def test_an_overlay_moves_and_removes_samples(engine: Engine) -> None:
    changes = (
        LabelChange(MORE.name, CAT.sample_id, None, MALICIOUS, "file-read", "reads", "Ada"),
        LabelChange("commands", None, TAR.command, None, None, "twice", "Ada"),
    )
    opinion = Opinion(overlay=Overlay("mine", 1, changes))
    found = read_guards(engine, RUN, opinion, models=[A])
    assert asked(found) == [(MALICIOUS, "file-read", None), ABOUT_CURL, ABOUT_LS]
    assert listed(found.guards[0].suspicion) == [None, None, 1.0, 1.0, -0.5, 1.0]
    samples = {"commands": (TAR, CURL, LS), MORE.name: (CAT,)}
    everything = tuple(
        LabelChange(name, None, sample.command, None, None, "out", "Ada")
        for name, each in samples.items()
        for sample in each
    )
    with pytest.raises(ReportError, match=f"the overlay excludes every command of run {RUN}"):
        read_guards(engine, RUN, Opinion(overlay=Overlay("none", 1, everything)))
