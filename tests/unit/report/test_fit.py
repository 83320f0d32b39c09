"""Fitting tables into a width."""

import pytest

from aegish_dist.report.fit import Block, fit, fold


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("openai/gpt-5.1", 20, ["openai/gpt-5.1"]),
        ("google/gemini-3-pro-preview", 22, ["google/", "gemini-3-pro-preview"]),
        ("anthropic/claude-sonnet-4-5", 17, ["anthropic/", "claude-sonnet-4-5"]),
        ("a-b/claude-sonnet-4-5", 14, ["a-b/claude-", "sonnet-4-5"]),
        ("abcdefgh", 3, ["abc", "def", "gh"]),
        ("aegish score", 6, ["aegish", "score"]),
        ("検査検査", 4, ["検査", "検査"]),
        ("", 5, []),
    ],
)
def test_ids_break_at_their_joints(text: str, width: int, lines: list[str]) -> None:
    """Text is broken into as few lines as possible, in mid-word only when it must be."""
    assert fold(text, width) == lines


def test_a_wide_screen_gets_wide_gaps() -> None:
    """A table that fits with the widest gap stays in one block: 10 + 5 + 5 + 2 gaps of 3 = 26."""
    assert fit([10, 5, 5], keys=1, total=26) == [Block((0, 1, 2), (10, 5, 5), 3)]


def test_gaps_shrink_before_the_model_does() -> None:
    """One column less takes a gap of 2, which needs 24."""
    assert fit([10, 5, 5], keys=1, total=25) == [Block((0, 1, 2), (10, 5, 5), 2)]


def test_a_long_model_id_is_folded_before_the_table_is_split() -> None:
    """40 + 5 + 5 wants 52 even with gaps of 1; folded to 28 it has room for gaps of 3."""
    assert fit([40, 5, 5], keys=1, total=45) == [Block((0, 1, 2), (29, 5, 5), 3)]


def test_columns_that_do_not_fit_go_to_another_block() -> None:
    """Every block repeats the key columns: 2 + 2 + 20 + 2 + 10 = 36, another 12 is too much."""
    blocks = fit([2, 20, 10, 10, 10], keys=2, total=40)
    assert [block.columns for block in blocks] == [(0, 1, 2), (0, 1, 3), (0, 1, 4)]
    assert {block.widths for block in blocks} == {(2, 20, 10)}
