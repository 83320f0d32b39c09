"""Run ids, what a run owes, and differences of runs besides their answers."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from aegish_dist.core.model import CallParameters, ModelSpec, WireFormat
from aegish_dist.core.run import (
    ALPHABET,
    ModelOfRun,
    Prompt,
    Run,
    RunDataset,
    incompatibilities,
    new_run_id,
)

MODEL = ModelSpec("lab/a", WireFormat.OPENAI, "a")
BASE = Run(
    run_id="0base", created_at=datetime(2026, 11, 1, tzinfo=UTC), name="", origin="submit",
    package_version="1", prompt=Prompt("guard", "s", "{command}"), parameters=CallParameters(),
    epochs=1, datasets=(RunDataset("d", "ab" * 32, 30, 20),), models=(MODEL,),
)  # fmt: skip
IMPORTED = replace(
    BASE, run_id="0import", prompt=None, parameters=None, origin="import",
    models=(replace(MODEL, wire=WireFormat.IMPORTED),),
)  # fmt: skip


def differences(base: Run, other: Run, **parsers: set[int]) -> list[str]:
    versions = {
        ModelOfRun(run.run_id, "lab/a"): parsers.get(run.run_id[1:], {1}) for run in (base, other)
    }
    return incompatibilities(base, other, ["lab/a"], versions)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "x"}, {"package_version": "2"}, {"epochs": 3},
        {"prompt": Prompt("renamed", "s", "{command}")},
        {"parameters": CallParameters(max_cost_usd=Decimal(1), max_cost_per_model_usd=Decimal(1))},
        {"models": (replace(MODEL, base_url="http://elsewhere", max_in_flight=3),)},
        {"models": (MODEL, replace(MODEL, id="lab/b", simulated=True))},
    ],
    ids=str,
)  # fmt: skip
def test_these_are_no_differences(changes: dict[str, Any]) -> None:
    assert differences(BASE, replace(BASE, run_id="0new", **changes)) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"datasets": (RunDataset("d", "cd" * 32, 3, 2),)},
         ["samples of 'd': 30 (abababab) against 3 (cdcdcdcd)"]),
        ({"datasets": (*BASE.datasets, RunDataset("e", "cd" * 32, 3, 2))},
         ["samples of 'e': none against 3 (cdcdcdcd)"]),
        ({"datasets_by_model": {"lab/a": frozenset()}},
         ["samples of 'd': 30 (abababab) against none"]),
        ({"parameters": CallParameters(max_output_tokens=1, time_limit_s=2)},
         ["most output tokens: 4096 against 1", "time limit in s: 180.0 against 2"]),
        ({"models": (replace(MODEL, name="a-2026"),)},
         ["name of lab/a at its provider: a against a-2026"]),
    ],
)  # fmt: skip
def test_each_difference_is_a_phrase(changes: dict[str, Any], expected: list[str]) -> None:
    assert differences(BASE, replace(BASE, run_id="0new", **changes)) == expected


def test_imported_runs_are_unknown_to_those_that_know() -> None:
    found = differences(BASE, IMPORTED)
    assert [each.split(":")[0] for each in found] == ["prompt", "parameters"]
    assert all(each.endswith("against unknown") for each in found)
    other = replace(IMPORTED, run_id="0again")
    assert differences(IMPORTED, other) == []
    assert differences(IMPORTED, other, again={2, 1}) == ["parser version: 1 against 1, 2"]


def test_a_side_without_a_verdict_has_no_parser() -> None:
    assert differences(BASE, replace(BASE, run_id="0new"), new=set()) == []


BEGINNING = datetime(2025, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "entropy", "run_id"),
    [
        *((0, 0, "000000000"), (0, 32 * 32 + 31, "00000010z"), (1, 33, "000001011")),
        *((32**3 + 2, 32**3 - 1, "001002zzz"), (32**6 - 1, 32**3 - 1, "zzzzzzzzz")),
    ],
)
def test_a_run_id_is_time_then_chance_in_base_32(seconds: int, entropy: int, run_id: str) -> None:
    """Six digits are seconds since 2025, three are drawn; the time zone does not matter."""
    moment = BEGINNING + timedelta(seconds=seconds)
    elsewhere = moment.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert new_run_id(moment, entropy) == new_run_id(elsewhere, entropy) == run_id


def test_a_run_id_can_be_typed() -> None:
    assert len(set(ALPHABET)) == 32
    assert sorted(ALPHABET) == list(ALPHABET)  # so ids sort by time
    assert not set(ALPHABET) & set("ilouABCDEFGHIJKLMNOPQRSTUVWXYZ")
    drawn = [new_run_id(BEGINNING) for _ in range(50)]
    assert all(len(run_id) == 9 and set(run_id) <= set(ALPHABET) for run_id in drawn)
    assert all(run_id.startswith("000000") for run_id in drawn)
    assert len(set(drawn)) > 1


def test_a_named_run_is_typed_by_its_name() -> None:
    names = [replace(BASE, name=name).typed for name in ("", "nightly", "two words")]
    assert names == ["0base", "nightly", "'two words'"]


def test_a_run_owes_every_repeat_of_every_sample() -> None:
    datasets = (RunDataset("a", "f", 10, 4), RunDataset("b", "g", 1, 0))
    run = replace(BASE, epochs=3, datasets=datasets)
    assert (run.samples, run.planned("any")) == (11, 33)
