"""Short names of models never look alike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aegish_dist.core.text import cell_width
from aegish_dist.report.names import short_names

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
