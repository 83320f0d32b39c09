"""Run ids and what a run owes."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from aegish_dist.core.run import ALPHABET, Run, RunDataset, new_run_id

BEGINNING = datetime(2025, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "entropy", "run_id"),
    [
        (0, 0, "000000000"),
        (0, 32 * 32 + 31, "00000010z"),
        (1, 33, "000001011"),
        (32**3 + 2, 32**3 - 1, "001002zzz"),
        (32**6 - 1, 32**3 - 1, "zzzzzzzzz"),
    ],
)
def test_a_run_id_is_time_then_chance_in_base_32(seconds: int, entropy: int, run_id: str) -> None:
    """Six digits are seconds since 2025, three are drawn."""
    assert new_run_id(BEGINNING + timedelta(seconds=seconds), entropy) == run_id


def test_run_ids_sort_by_time() -> None:
    """Whatever was drawn, the later run has the greater id."""
    times = [BEGINNING + timedelta(seconds=s) for s in (0, 1, 31, 32, 10**6, 4 * 10**7, 10**9)]

    ids = [new_run_id(time, 0 if number % 2 else 32**3 - 1) for number, time in enumerate(times)]

    assert ids == sorted(ids)
    assert len(set(ids)) == len(times)


def test_a_run_id_can_be_typed() -> None:
    """Nine characters of an alphabet without upper case and without i, l, o and u."""
    assert len(ALPHABET) == 32
    assert not set(ALPHABET) & set("ilouABCDEFGHIJKLMNOPQRSTUVWXYZ")
    drawn = [new_run_id(BEGINNING) for _ in range(50)]
    assert all(len(run_id) == 9 and set(run_id) <= set(ALPHABET) for run_id in drawn)
    assert all(run_id.startswith("000000") for run_id in drawn)
    assert len(set(drawn)) > 1


def test_a_run_id_does_not_depend_on_the_time_zone() -> None:
    """Only the instant counts."""
    elsewhere = BEGINNING.astimezone(timezone(timedelta(hours=5, minutes=30)))

    assert new_run_id(elsewhere, 7) == new_run_id(BEGINNING, 7)


def test_a_run_owes_every_repeat_of_every_sample() -> None:
    """Samples add up over datasets, repeats multiply."""
    run = Run(
        run_id="0abcdefgh",
        created_at=BEGINNING,
        name="",
        origin="submit",
        package_version="1",
        prompt=None,
        parameters=None,
        epochs=3,
        datasets=(RunDataset("a", "f", 10, 4), RunDataset("b", "g", 1, 0)),
        models=(),
    )

    assert (run.samples, run.planned_per_model) == (11, 33)
