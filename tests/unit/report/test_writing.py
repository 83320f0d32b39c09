"""How reports write numbers and names: short names of models never look alike."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aegish_dist.core.text import cell_width
from aegish_dist.report import writing
from aegish_dist.report.writing import (
    format_interval,
    format_time,
    short_names,
)
from tests.recorded import lines_of

DASH = "\N{EN DASH}"


@pytest.mark.parametrize(
    ("write", "value", "text"),
    lines_of("written_numbers.jsonl"),
)
def test_a_number_is_written_for_people(write: str, value: float | None, text: str) -> None:
    """Three significant digits below a dollar and of times, without a step like 1000 ms."""
    assert getattr(writing, f"format_{write}")(value) == text


def test_half_an_interval_is_undefined() -> None:
    assert format_interval(0.939, 0.97) == "[93.9, 97.0]"
    assert format_interval(0.9, None) == format_interval(None, 0.9) == DASH


def test_times_of_day_are_in_utc() -> None:
    moment = datetime(2026, 11, 20, 15, 3, tzinfo=timezone(timedelta(hours=1)))
    assert format_time(moment) == "2026-11-20 14:03 UTC"
    assert format_time(moment.astimezone(UTC)) == "2026-11-20 14:03 UTC"


@pytest.mark.parametrize(
    ("ids", "width", "names"),
    lines_of("short_names.jsonl"),
)
def test_names_keep_what_tells_models_apart(
    ids: list[str], width: int | None, names: list[str]
) -> None:
    assert short_names(ids, width) == dict(zip(ids, names, strict=True))
    assert short_names(ids[::-1], width) == short_names(ids, width)


IDS = st.lists(st.text("ab/-:1…検", max_size=24) | st.text(max_size=4), max_size=8)


@given(IDS, st.none() | st.integers(0, 24))
def test_no_two_models_have_one_name(ids: list[str], width: int | None) -> None:
    names = short_names(ids, width)
    assert names.keys() == {*ids}
    assert len({*names.values()}) == len(names)
    assert all(name.isprintable() for name in names.values())


@given(st.text("abc/-:", max_size=70), st.sets(st.integers(0, 999), min_size=1, max_size=9))
def test_ids_that_differ_at_their_ends_always_fit(same: str, numbers: set[int]) -> None:
    names = short_names([f"{same}{number:03}" for number in numbers], 9)
    assert max(map(cell_width, names.values())) <= 9
