"""How reports write numbers and names: short names of models never look alike."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aegish_dist.core.text import cell_width
from aegish_dist.report.writing import (
    format_count,
    format_decimal,
    format_difference,
    format_interval,
    format_ms,
    format_points,
    format_rate,
    format_time,
    format_usd,
    short_names,
)

DASH = "\N{EN DASH}"
RATES = ((0.957, "95.7"), (1.0, "100.0"), (0.0, "0.0"), (None, DASH))
AMOUNTS = (
    *((0.0, "$0.00"), (0.00195, "$0.00195"), (0.0312, "$0.0312"), (0.585, "$0.585")),
    *((1.0, "$1.00"), (1234.567, "$1,234.57"), (0.0000000012, "$0.00000000120"), (None, DASH)),
)
"""Three significant digits below a dollar, cents from one dollar on."""
TIMES = (
    *((0.0, "0.0 ms"), (0.42, "0.4 ms"), (9.96, "10 ms"), (812.4, "812 ms"), (999.6, "1.00 s")),
    *((2310.0, "2.31 s"), (9996.0, "10.0 s"), (23100.0, "23.1 s"), (231000.0, "231 s")),
    (None, DASH),
)
"""About three digits, without a rounding step like 1000 ms."""


DIFFERENCES = [
    (0.012, "+1.2"),
    (-0.012, "-1.2"),
    (0.0, "0.0"),
    (-0.0, "0.0"),
    (-0.0004, "0.0"),
    (0.0004, "0.0"),
    (-0.0006, "-0.1"),
    (None, DASH),
]


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        *((format_rate, *case) for case in RATES),
        *((format_points, *case) for case in ((0.0078, "0.78"), (-1e-9, "0.00"), (None, DASH))),
        *((format_rate, value, "0.0") for value in (0.0, -0.0, -0.0004)),
        *((format_decimal, value, "0.000") for value in (-0.0, -0.0004)),
        *((format_difference, *case) for case in DIFFERENCES),
        *((format_usd, *case) for case in AMOUNTS),
        *((format_ms, *case) for case in TIMES),
        *((format_count, *case) for case in ((1234567, "1,234,567"), (0, "0"), (None, DASH))),
        *((format_decimal, *case) for case in ((0.0412, "0.041"), (None, DASH))),
    ],
)
def test_a_number_is_written_for_people(write: Callable[[Any], str], value: Any, text: str) -> None:
    assert write(value) == text


def test_half_an_interval_is_undefined() -> None:
    assert format_interval(0.939, 0.97) == "[93.9, 97.0]"
    assert format_interval(0.9, None) == format_interval(None, 0.9) == DASH


def test_times_of_day_are_in_utc() -> None:
    moment = datetime(2026, 11, 20, 15, 3, tzinfo=timezone(timedelta(hours=1)))
    assert format_time(moment) == "2026-11-20 14:03 UTC"
    assert format_time(moment.astimezone(UTC)) == "2026-11-20 14:03 UTC"


PRIMUS = "hf-inference-providers/trendmicro-ailab/Llama-Primus-Reasoning:featherless-ai"
BASE = PRIMUS.replace("Reasoning", "Base")
SEC = "hf-inference-providers/fdtn-ai/Foundation-Sec-8B-Instruct:featherless-ai"


@pytest.mark.parametrize(
    ("ids", "width", "names"),
    [
        (["openai/gpt-5.1"], 14, ["openai/gpt-5.1"]),
        (["openai/gpt-5.1", "openai/gpt-5-mini"], 17, ["openai/gpt-5.1", "openai/gpt-5-mini"]),
        (["openai/gpt-5.1", "openai/gpt-5-mini"], 16, ["gpt-5.1", "gpt-5-mini"]),
        (["openai/gpt-5.1", "openai/gpt-5-mini"], None, ["gpt-5.1", "gpt-5-mini"]),
        (["a/m", "a/m/b", "a/"], None, ["a/m", "a/m/b", "a/"]),
        ([PRIMUS], 44, ["hf-in…/Llama-Primus-Reasoning:featherless-ai"]),
        ([PRIMUS, SEC], 28, ["Llama-Primus-…featherless-ai", "Foundation-Se…featherless-ai"]),
        ([PRIMUS, BASE], 28, ["Llama-Primus-R…eatherless-ai", "Llama-Primus-B…eatherless-ai"]),
        (["a" * 20 + "1" + "b" * 20, "a" * 20 + "2" + "b" * 20], 8, ["a…aaa1…b", "a…aaa2…b"]),
        (["x" * 40, "x" * 40 + "-mini"], 8, ["xxx…xxxx", "xxx…mini"]),
        (["\x1b", r"\x1b"], 9, [r"\x1b", r"\\x1b"]),
        ([], 9, []),
    ],
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
