"""Extending runs on a real store, with the embedded worker and the baselines."""

from collections import Counter

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist.broker.messages import queue_name
from aegish_dist.core.run import RunPause
from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.core.status import State
from aegish_dist.db.engine import transaction
from aegish_dist.db.missing import (
    Extent,
    FinishedModels,
    extent_of,
    missing_items,
    open_queues,
    save_extension,
)
from aegish_dist.db.runs import hold, save_dataset
from aegish_dist.errors import StoreError
from aegish_dist.pipeline.status import run_status
from tests.integration.command_line import CommandLine
from tests.integration.samples import BLOCKED, COMMANDS, LS, TAR
from tests.integration.stored_runs import a_model, a_run, answer, contents, stored_run

ALWAYS, KEYWORD = "baseline/always-block", "baseline/keyword"
OTHERS = Dataset("others", (Sample("rm -rf /", TrueLabel.MALICIOUS, "shell", "rm"),))


@pytest.fixture
def run_id(aegish: CommandLine, engine: Engine) -> str:
    """A complete run of one model about three samples."""
    with transaction(engine) as session:
        save_dataset(session, COMMANDS, selectable=True)
        save_dataset(session, OTHERS, selectable=True)
    return aegish.ok(f"submit --models {ALWAYS} --dataset commands --name mine").out.strip()


def counted(aegish: CommandLine) -> dict[str, tuple[int, int]]:
    """Return how many items of each model are planned and done."""
    models = aegish.ok("aggregate --run-id mine --json").json["models"]
    return {each["model"]: (each["counts"]["planned"], each["counts"]["done"]) for each in models}


@pytest.mark.parametrize(
    ("options", "calls", "planned"),
    [
        (f"--models {KEYWORD}", 3, {ALWAYS: 3, KEYWORD: 3}),
        (f"--models {ALWAYS},{KEYWORD},{KEYWORD}", 3, {ALWAYS: 3, KEYWORD: 3}),
        ("--epochs 3", 6, {ALWAYS: 9}),
        ("--dataset others --dataset commands", 1, {ALWAYS: 4}),
        # 2 models x 4 samples x 2 epochs, less the 3 that are there
        (f"--models {KEYWORD} --epochs 2 --dataset others", 13, {ALWAYS: 8, KEYWORD: 8}),
    ],
)
def test_only_what_is_new_is_asked(
    aegish: CommandLine,
    engine: Engine,
    run_id: str,
    *,
    options: str,
    calls: int,
    planned: dict[str, int],
) -> None:
    """Plan, estimate and work agree; earlier verdicts stay, and metrics count all of them."""
    before = contents(engine)
    extend = f"extend --run-id mine {options}"

    dry = aegish.ok(f"{extend} --dry-run --json").json
    assert (dry["tasks"], dry["stored"], dry["missing"]) == (calls, False, 0)
    assert contents(engine) == before

    extended = aegish.ok(extend)
    assert extended.out == f"{run_id}: {calls} items added\n"
    assert f"{calls} calls more: 1 + " in extended.err
    verdicts = contents(engine)["verdicts"]
    assert {*verdicts} >= {*before["verdicts"]}
    assert len(verdicts) == 3 + calls
    assert counted(aegish) == {model: (number, number) for model, number in planned.items()}
    assert run_status(engine, run_id).state is State.COMPLETE

    again = aegish.refused(extend)
    assert again == f"error: run {run_id} asks all of that already: there is nothing to add\n"


def test_runs_that_cannot_be_extended(aegish: CommandLine, engine: Engine, run_id: str) -> None:
    """Fewer epochs, other samples under a name that the run has, and held runs."""
    aegish.ok("extend --run-id mine --epochs 2")
    fewer = aegish.refused("extend --run-id mine --epochs 1")
    assert "asks every sample 2 times already" in fewer
    with transaction(engine) as session:
        save_dataset(session, Dataset("commands", (TAR, LS)), selectable=True)
        hold(session, run_id, RunPause.PAUSED)

    assert f"run {run_id} is paused" in aegish.refused("extend --run-id mine --epochs 3")
    assert aegish.ok("resume --run-id mine").out == f"{run_id}: complete\n"
    samples = aegish.refused("extend --run-id mine --dataset commands")
    assert f"commands: run {run_id} asks other samples under this name (3, not 2)" in samples


def test_what_an_extension_enqueues(session: Session) -> None:
    """Items that were planned before are left alone, whether or not they have a verdict."""
    stored, run = stored_run(session, {TAR: BLOCKED}), a_run()
    before = extent_of(session, run)
    queue = queue_name("test/b", run.run_id)
    save_extension(session, run.run_id, [a_model("test/b")], [queue], [], epochs=2)

    found = list(missing_items(session, run.run_id, beyond=before))

    new = stored.items("test/a", epoch=2)
    for epoch in (1, 2):
        new += stored.items("test/b", epoch=epoch)
    assert Counter(found) == Counter(new)
    assert before == Extent(("test/a",), before.dataset_ids, 1)


def test_an_extension_opens_what_was_finished(session: Session) -> None:
    """Workers listen again, and what they know of the run does not close it too early."""
    stored, run = stored_run(session, BLOCKED), a_run()
    finished = FinishedModels(stretch=1)
    while open_queues(session):
        finished.close(session)

    extent_of(session, run)
    save_extension(session, run.run_id, [], [], [], epochs=2)
    for _ in range(5):
        finished.close(session)
    assert len(open_queues(session)) == 1

    answer(session, stored, dict.fromkeys(stored.items(epoch=2), BLOCKED))
    for _ in range(1000):  # each looks for a limited time, and other tests draw keys too
        finished.close(session)
        if not open_queues(session):
            break
    assert open_queues(session) == {}


def test_two_extensions_at_once(engine: Engine) -> None:
    """The second one was planned on what is not so any more, and is refused."""
    run = a_run()
    stored_run(engine)
    with transaction(engine) as session:
        extent_of(session, run)
        save_extension(session, run.run_id, [], [], [], epochs=2)
    changed = pytest.raises(StoreError, match="changed by another command")
    with transaction(engine) as session, changed:
        extent_of(session, run)
