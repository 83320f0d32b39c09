"""Runs and datasets in a real store."""

from datetime import timedelta
from decimal import Decimal

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from aegish_dist.core.model import CallParameters, Limits, ModelSpec, Price, Rate, WireFormat
from aegish_dist.core.run import new_run_id
from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.db.engine import transaction
from aegish_dist.db.missing import (
    Extent,
    FinishedModels,
    OpenModel,
    missing_items,
    open_models,
    open_queues,
)
from aegish_dist.db.runs import (
    INSERT_CHUNK,
    list_datasets,
    list_runs,
    load_assignment,
    load_dataset,
    load_run,
    resolve_run_id,
    sample_keys,
    save_dataset,
    unused_run_id,
)
from aegish_dist.errors import StoreError
from tests.defined import defined
from tests.integration.samples import ALLOWED, BLOCKED, COMMANDS, CURL, LS, NOON, PROMPT, TAR
from tests.integration.stored_runs import a_model, a_run, answer, row_counts, store, stored_run

FULL_SPEC = ModelSpec(
    id="openai/gpt-x",
    wire=WireFormat.OPENAI,
    name="gpt-x",
    base_url="https://llm.example/v1",
    key_variable="OPENAI_API_KEY",
    max_in_flight=7,
    price=Price(
        input=Rate(Decimal("1.25"), ((200_000, Decimal("2.50")), (1_000_000, Decimal(5)))),
        output=Rate(Decimal("0.1000000000000000055")),
        cache_read=Rate(Decimal("0.125"), ((200_000, Decimal("0.25")),)),
        cache_write=None,
        per_call=Decimal("0.0001"),
    ),
    parameters={"reasoning_effort": "low", "seed": None, "options": {"k": [1, 2.5, True]}},
    simulated=True,
    requests_per_minute=90.5,
    tokens_per_minute=40_000,
    shared=Limits(max_in_flight=3),
)


def test_a_run_comes_back_as_it_was(session: Session) -> None:
    more = Dataset("more", (LS,), source="elsewhere", licence="MIT")
    run = replace(
        a_run(datasets=(COMMANDS, more), models=(a_model("a/plain"), FULL_SPEC), epochs=3),
        created_at=NOON + timedelta(microseconds=123_456),
        parameters=CallParameters(None, 0.1, 123, 0.5, Decimal("1.10"), Decimal(2)),
    )
    store(session, run, (COMMANDS, more))
    assert load_run(session, run.run_id) == run


def test_an_imported_run_has_neither_prompt_nor_parameters(session: Session) -> None:
    run = a_run(prompt=None)
    store(session, run)
    assert load_run(session, run.run_id) == run
    assert load_assignment(session, run.run_id, "test/a") is None


def test_an_assignment_is_what_the_run_recorded(session: Session) -> None:
    run = a_run(models=(a_model("test/a"), FULL_SPEC))
    store(session, run)
    found = defined(load_assignment(session, run.run_id, "openai/gpt-x"))
    assert (found.spec, found.prompt, found.parameters) == (FULL_SPEC, PROMPT, CallParameters())
    assert load_assignment(session, run.run_id, "test/other") is None
    assert load_assignment(session, "0other", "test/a") is None


def test_a_run_of_an_older_version_is_read(engine: Engine) -> None:
    with transaction(engine) as session:
        stored_run(session, run_id="run1", models=(FULL_SPEC,))
        for table, column, later in (
            ("run_models", "spec", ["requests_per_minute", "tokens_per_minute", "shared"]),
            ("runs", "parameters", ["max_cost_usd", "max_cost_per_model_usd"]),
        ):
            statement = f"UPDATE {table} SET {column} = {column} - CAST(:later AS text[])"
            session.execute(text(statement), {"later": later})
        found = defined(load_assignment(session, "run1", FULL_SPEC.id))

    assert found.parameters == CallParameters()
    assert found.spec == replace(
        FULL_SPEC, requests_per_minute=None, tokens_per_minute=None, shared=Limits()
    )


def test_the_list_of_runs_counts_each_by_itself(session: Session) -> None:
    models, datasets = ("test/a", "test/b"), (COMMANDS, Dataset("more", (LS,)))
    stored = stored_run(session, run_id="older", datasets=datasets, models=models, epochs=2)
    answer(session, stored, {stored.item(TAR): BLOCKED, stored.item(LS, dataset="more"): ALLOWED})
    stored_run(session, run_id="newer", created_at=NOON + timedelta(seconds=1))
    newer, older = list_runs(session, 10)
    assert (newer.run_id, newer.models, newer.samples, newer.verdicts) == ("newer", 1, 3, 0)
    assert (older.run_id, older.models, older.samples, older.verdicts) == ("older", 2, 4, 2)
    assert (older.epochs, older.created_at, older.origin) == (2, NOON, "submit")
    assert [each.run_id for each in list_runs(session, 1)] == ["newer"]


@pytest.mark.parametrize(
    ("text", "run_id"),
    [
        ("0aa000001", "0aa000001"),
        ("0aa000001x", "0aa000001x"),
        ("0ab", "0ab000001"),
        ("0c_", "0c_000001"),
        ("0c%", "0c%000001"),
        ("0c\\", "0c\\000001"),
        ("latest", "0aa000001"),
    ],
)
def test_a_run_is_found_by_what_users_type(session: Session, text: str, run_id: str) -> None:
    ids = ["0aa000001x", "0ab000001", "0c_000001", "0c%000001", "0c\\000001", "0ccx00001"]
    for each in ids:
        stored_run(session, run_id=each)
    stored_run(session, run_id="0aa000001", created_at=NOON + timedelta(seconds=1))
    assert resolve_run_id(session, text) == run_id


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0a", r"run '0a' is ambiguous: it could be 0aa000001, 0ab000001"),
        ("0ac", "no run '0ac': `aegish-dist runs` lists them"),
        ("0aa0000011", "no run '0aa0000011'"),
        ("0AA", "no run '0AA'"),
        ("", "no run ''"),
        ("%", "no run '%'"),
        ("0a_", "no run '0a_'"),
        ("' OR 1=1 --", "no run '' OR 1=1 --'"),
    ],
)
def test_what_names_no_run_or_several_is_refused(session: Session, text: str, message: str) -> None:
    stored_run(session, run_id="0aa000001")
    stored_run(session, run_id="0ab000001")
    with pytest.raises(StoreError) as caught:
        resolve_run_id(session, text)
    assert str(caught.value).startswith(message)


def test_a_name_stands_for_its_run(session: Session) -> None:
    names = ("0ab", "nightly", "twice", "twice", "latest", "0aa000001")
    for day, (letter, name) in enumerate(zip("abcdef", names, strict=True)):
        stored_run(session, run_id=f"0a{letter}000001", name=name, created_at=NOON + timedelta(day))
    found = {"nightly": "b", "0ab": "a", "0ab0": "b", "0aa000001": "a", "latest": "f"}
    for typed, letter in found.items():
        assert resolve_run_id(session, typed) == f"0a{letter}000001"
    with pytest.raises(StoreError, match="ambiguous: it could be 0ac000001, 0ad000001"):
        resolve_run_id(session, "twice")
    with pytest.raises(StoreError, match="no run 'night'"):
        resolve_run_id(session, "night")


def test_an_empty_store_has_no_latest_run(session: Session) -> None:
    with pytest.raises(StoreError, match="aegish-dist submit"):
        resolve_run_id(session, "latest")


def test_a_new_run_misses_everything_model_by_model(session: Session) -> None:
    """Epoch by epoch, and each time in the same order of samples."""
    stored = stored_run(session, models=("test/b", "test/a"), epochs=2)
    missing = list(missing_items(session, stored.run_id))
    asked = [(model, epoch) for model in ("test/a", "test/b") for epoch in (1, 2)]
    assert [(each.model, each.epoch) for each in missing[::3]] == asked
    keys = [each.sample_key for each in missing]
    assert keys == keys[:3] * 4
    assert set(keys) == {stored.item(sample).sample_key for sample in (TAR, CURL, LS)}
    assert list(missing_items(session, "0other")) == []


@pytest.mark.parametrize("beyond", [None, Extent((), (), 1)])
def test_the_first_items_of_a_run_are_of_all_datasets(
    session: Session, beyond: Extent | None
) -> None:
    """What a capped or interrupted run has asked by then has attacks and harmless commands."""
    both = [
        Dataset(target.value, tuple(Sample(f"{target} {n}", target) for n in range(100)))
        for target in (TrueLabel.MALICIOUS, TrueLabel.HARMLESS)
    ]
    stored = stored_run(session, datasets=both)
    first = list(missing_items(session, stored.run_id, beyond=beyond))[:32]
    attacks = {stored.item(each, dataset=both[0].name) for each in both[0].samples}
    assert 5 <= len(attacks & set(first)) <= 27  # hypergeometric: below 1e-5 beyond these


def test_what_has_a_verdict_is_not_missing(session: Session) -> None:
    """A verdict of any generation covers its model, sample and epoch in its run, nothing else."""
    stored, other = (
        stored_run(session, run_id=run_id, models=("test/a", "test/b"), epochs=2)
        for run_id in ("run1", "run2")
    )
    done = {stored.item(TAR, epoch=2), stored.item(LS, model="test/b")}
    answer(session, stored, dict.fromkeys(done, BLOCKED))
    answer(session, stored, {stored.item(TAR, epoch=2, generation=1): ALLOWED})
    answer(session, stored, {stored.item(CURL, generation=2): ALLOWED})
    missing = list(missing_items(session, "run1"))
    assert len(missing) == 9
    assert not (done | {stored.item(CURL)}) & set(missing)
    assert len(list(missing_items(session, other.run_id))) == 12


def test_workers_listen_until_a_model_is_finished(session: Session) -> None:
    models = (a_model("test/a", key_variable="A_KEY"), a_model("test/b"))
    stored = stored_run(session, models=models)
    a, b = (f"aegish.test/{name}#{stored.run_id}" for name in "ab")
    assert open_queues(session) == {
        queue: OpenModel(stored.run_id, model.id, model.destination)
        for queue, model in zip((a, b), models, strict=True)
    }
    answer(session, stored, {stored.item(sample): BLOCKED for sample in (TAR, CURL)})
    answer(session, stored, {stored.item(TAR, generation=1): BLOCKED})
    FinishedModels().close(session)
    assert set(open_queues(session)) == {a, b}
    answer(session, stored, {stored.item(LS): ALLOWED})
    FinishedModels().close(session)
    assert set(open_queues(session)) == {b}
    open_models(session, stored.run_id)
    assert set(open_queues(session)) == {a, b}


def test_nobody_listens_for_an_imported_run(session: Session) -> None:
    stored_run(session, prompt=None)
    open_models(session, "0abcdefgh")
    assert open_queues(session) == {}


def test_a_dataset_is_stored_once(engine: Engine) -> None:
    turned = replace(COMMANDS, samples=COMMANDS.samples[::-1])
    with transaction(engine) as session:
        key = save_dataset(session, COMMANDS, selectable=True)
        assert save_dataset(session, turned, selectable=True) == key
        assert set(sample_keys(session, key)) == {sample.sample_id for sample in COMMANDS.samples}
    assert row_counts(engine) == {"datasets": 1, "samples": 3}


def test_a_stored_dataset_comes_back_as_it_was(session: Session) -> None:
    """Order, labels and metadata survive, and so does a dataset larger than one insert."""
    echo = Sample("echo", TrueLabel.HARMLESS, cluster="echo")
    many = [
        replace(echo, command=f"echo {n}", metadata={"n": str(n), "é": "'; --"})
        for n in range(INSERT_CHUNK + 1)
    ]
    dataset = Dataset("many", (TAR, *many), source="here", licence="MIT")
    save_dataset(session, dataset, selectable=True)
    found = load_dataset(session, "many")
    assert found == dataset
    assert [each.metadata for each in found.samples] == [each.metadata for each in dataset.samples]


def test_selections_cannot_be_named(session: Session) -> None:
    """A dataset that was narrowed for a run is stored for it alone, until it is imported by name."""
    selection = replace(COMMANDS, samples=(TAR,))
    save_dataset(session, selection, selectable=False)
    assert load_dataset(session, "commands") is None
    assert list_datasets(session) == []
    save_dataset(session, selection, selectable=True)
    save_dataset(session, selection, selectable=False)
    assert load_dataset(session, "commands") == selection
    (listed,) = list_datasets(session)
    assert (listed.name, listed.samples, listed.malicious) == ("commands", 1, 1)
    assert listed.fingerprint == selection.fingerprint


def test_the_newest_dataset_of_a_name_is_meant(session: Session) -> None:
    save_dataset(session, COMMANDS, selectable=True)
    newer = replace(COMMANDS, samples=(TAR, LS))
    save_dataset(session, newer, selectable=True)
    save_dataset(session, replace(COMMANDS, samples=(LS,)), selectable=False)
    assert load_dataset(session, "commands") == newer
    assert load_dataset(session, "Commands") is None


def test_every_epoch_and_dataset_has_to_be_answered(session: Session) -> None:
    datasets = (Dataset("one", (TAR,)), Dataset("two", (LS,)))
    stored = stored_run(session, run_id="run1", datasets=datasets, epochs=2)
    stored_run(session, run_id="run2")
    items = [*stored.items(epoch=1), *stored.items(epoch=2)]
    answer(session, stored, dict.fromkeys(items[:-1], BLOCKED))
    FinishedModels().close(session)
    assert len(open_queues(session)) == 2
    answer(session, stored, {items[-1]: BLOCKED})
    FinishedModels().close(session)
    assert set(open_queues(session)) == {"aegish.test/a#run2"}


def test_what_was_imported_last_is_what_a_name_stands_for(engine: Engine) -> None:
    """Importing an earlier version again brings it back, as its import says."""
    versions = [Dataset("mine", (TAR,)), Dataset("mine", (TAR, CURL)), Dataset("mine", (TAR,))]
    for version in versions:
        with transaction(engine) as session:
            save_dataset(session, version, selectable=True)
        with Session(engine) as session:
            assert defined(load_dataset(session, "mine")).fingerprint == version.fingerprint


def test_a_run_that_draws_the_id_of_another_one_draws_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored_run(engine, run_id=new_run_id(NOON, 7))
    draws = iter([7, 7, 8])
    monkeypatch.setattr("secrets.randbelow", lambda _: next(draws))
    with Session(engine) as session:
        assert unused_run_id(session, NOON) == new_run_id(NOON, 8)
