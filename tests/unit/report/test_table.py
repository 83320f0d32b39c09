"""Reports for the terminal, and columns fitted into its width."""

import re

import pytest
from rich.cells import cell_len

from aegish_dist.report.data import ReportData
from aegish_dist.report.drawing import Block, fit, fold
from aegish_dist.report.formats import render
from aegish_dist.report.layout import HEADLINES
from aegish_dist.report.sections import BRIEF, SECTION_NAMES
from tests.recorded import lines_of
from tests.unit.report.reports import a_difference, a_model, a_report, a_silent_model, compared

DASH = "\N{EN DASH}"


def widest(text: str) -> int:
    return max(cell_len(line) for line in text.splitlines())


@pytest.mark.parametrize("width", [40, 60, 70, 80, 100, 140, 200])
def test_fourteen_models_fit_any_width(fourteen: ReportData, width: int) -> None:
    """Columns that do not fit beside the names are folded; only names of models are shortened."""
    data = compared(fourteen, lambda *_: a_difference())
    text = render(data, "table", sections=SECTION_NAMES, width=width)
    assert widest(text) <= width
    assert "14" in text
    assert all("Guard-" in line for line in text.splitlines() if "…" in line)


def test_the_leaderboard_of_fourteen_models_is_one_table_at_100(fourteen: ReportData) -> None:
    """Each further headline takes a column."""
    further = len(HEADLINES) - 3
    text = render(fourteen, "table", sections=BRIEF, width=100 + 15 * further)
    heading = next(line for line in text.splitlines() if line.lstrip().startswith("#"))
    intervals = ["[95%", "CI]"] * len(HEADLINES)
    assert heading.split() == ["#", "model", *intervals, "clustered", "coverage", "1,000", "p90"]


def test_values_stand_over_their_intervals() -> None:
    lines = render(a_report(), "table", sections=BRIEF, width=140).splitlines()
    row = next(index for index, line in enumerate(lines) if line.startswith(" 1 "))
    marks = re.findall(r"[✓✗?]\s+[\d.]+", lines[row])
    assert marks == ["✓  95.7", "?  94.4", "✓  97.0"]
    intervals = re.findall(r"\[.*?\]", lines[row + 1])
    assert intervals == ["[93.9, 97.0]", "[90.5, 96.8]", "[91.5, 99.0]"]


def test_hostile_text_moves_no_cursor(hostile_report: ReportData) -> None:
    text = render(hostile_report, "table", sections=BRIEF, width=140)
    assert text.replace("\n", "").isprintable()
    assert "[red]b[/red]" in text
    assert r"\x1b[31m\x9b2J\x7f\u202e\n" in text


def test_long_words_break_no_table() -> None:
    entry = a_model("m" * 300)
    entry["categories"] = {"c" * 300: entry["categories"]["shell"]}
    text = render(a_report(entry), "table", sections=BRIEF, width=80)
    assert widest(text) <= 80
    assert text.count("c") > 300
    assert f"{'m' * 13}…{'m' * 14}" in text


def test_colour_is_ours_alone(hostile_report: ReportData) -> None:
    text = render(hostile_report, "table", sections=BRIEF, color=True)
    assert "\x1b[1;32m✓\x1b[0m" in text
    assert "\x1b[33m?\x1b[0m" in text
    assert re.sub(r"\x1b\[[\d;]*m", "", text).replace("\n", "").isprintable()


def test_the_environment_has_no_say(monkeypatch: pytest.MonkeyPatch) -> None:
    before = render(a_report(), "table"), render(a_report(), "table", color=True)
    changed = {"TERM": "dumb", "COLUMNS": "33", "NO_COLOR": "1", "FORCE_COLOR": "1"}
    for name, value in changed.items():
        monkeypatch.setenv(name, value)
    assert (render(a_report(), "table"), render(a_report(), "table", color=True)) == before


def test_a_run_without_verdicts_is_all_dashes() -> None:
    text = render(a_report(a_silent_model(), verdicts=0), "table", sections=BRIEF)
    assert "0 of 300 planned" in text
    assert "✓ " not in text.split("Legend")[0]
    assert DASH in text
    assert "Leaderboard" in render(a_report(document={"models": [], "ranking": []}), "latex")


def test_without_a_terminal_lines_have_100_columns_and_end_in_text(fourteen: ReportData) -> None:
    text = render(fourteen, "table")
    assert text == render(fourteen, "table", width=100)
    assert not [line for line in text.splitlines() if line != line.rstrip()]
    assert widest(render(a_report(), "table", width=100_000_000)) <= 500


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    lines_of("folded_texts.jsonl"),
)
def test_ids_break_at_their_joints(text: str, width: int, lines: list[str]) -> None:
    assert fold(text, width) == lines


@pytest.mark.parametrize(
    ("widths", "total", "block"),
    [
        ([10, 5, 5], 26, Block((0, 1, 2), (10, 5, 5), 3)),  # 10 + 5 + 5 + 2 gaps of 3
        ([10, 5, 5], 25, Block((0, 1, 2), (10, 5, 5), 2)),  # gaps shrink before the model does
        ([40, 5, 5], 45, Block((0, 1, 2), (29, 5, 5), 3)),  # and a long id before the table splits
    ],
)
def test_columns_stay_side_by_side_as_long_as_they_fit(
    widths: list[int], total: int, block: Block
) -> None:
    assert fit(widths, keys=1, total=total) == [block]


def test_columns_that_do_not_fit_go_to_another_block() -> None:
    """Every block repeats the key columns: 2 + 2 + 20 + 2 + 10 = 36, another 12 is too much."""
    blocks = fit([2, 20, 10, 10, 10], keys=2, total=40)
    assert [block.columns for block in blocks] == [(0, 1, 2), (0, 1, 3), (0, 1, 4)]
    assert {block.widths for block in blocks} == {(2, 20, 10)}
