"""Reports as LaTeX; what was typeset from them was looked at by hand."""

import re

import pytest

from aegish_dist.core.text import printable
from aegish_dist.report.data import ReportData
from aegish_dist.report.formats import render
from aegish_dist.report.latex import latex_text
from tests.recorded import lines_of
from tests.unit.report.reports import HOSTILE, a_model, a_report, a_silent_model

COMMANDS = re.compile(r"\\[A-Za-z]+")
OURS = {
    *(r"\begin", r"\end", r"\centering", r"\footnotesize", r"\setlength", r"\tabcolsep"),
    *(r"\caption", r"\label", r"\smallskip", r"\toprule", r"\midrule", r"\bottomrule"),
    *(r"\scriptsize", r"\par", r"\raggedright", r"\geq", r"\textdagger"),
}


def body(text: str) -> str:
    """Return LaTeX without comments."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("%"))


@pytest.mark.parametrize(("text", "expected"), lines_of("latex_texts.jsonl"))
def test_no_character_is_a_command(text: str, expected: str) -> None:
    """Each is typeset as it stands, or as its number where TeX's fonts may lack it."""
    assert latex_text(text) == expected


def test_tables_are_of_booktabs_and_complete() -> None:
    text = render(a_report(a_model(), a_silent_model()), "latex")
    assert text.count(r"\begin{table*}") == text.count(r"\end{table*}") > 5
    for table in re.findall(r"\\begin\{tabular\}.*?\\end\{tabular\}", text, re.DOTALL):
        head, *rows, bottom, end = table.splitlines()
        (columns,) = re.findall(r"@\{\}([lr]+)@\{\}", head)
        assert (rows[0], bottom, end) == (r"\toprule", r"\bottomrule", r"\end{tabular}")
        for row in rows:
            if row.startswith(("\\toprule", "\\midrule")):
                continue
            assert row.endswith(r" \\")
            assert len(re.findall(r"(?<!\\)&", row)) == len(columns) - 1


def test_a_value_stands_above_its_interval() -> None:
    text = render(a_report(), "latex")
    assert "1 & acme/guard-1 & 95.7$^{+}$ & 94.4$^{?}$ & 97.0$^{+}$ &" in text
    assert r" &  & \scriptsize {[}93.9, 97.0] & \scriptsize {[}90.5, 96.8] &" in text


def test_a_caption_names_run_snapshot_rule_set_commands_and_interval() -> None:
    text = render(a_report(), "latex")
    (caption,) = re.findall(r"\\caption\{(Leaderboard\..*)\}", text)
    assert "Run 0a1b2c3d4 (nightly), snapshot 12, rule set aegish-5.3 v1." in caption
    assert "Commands: 300: mixed (200 malicious, 100 harmless)." in caption
    assert r"{[}low, high]: 95\% confidence interval; Wilson" in caption
    assert "the interval is above the target, below it, or holds it" in caption


def test_labels_are_distinct_and_plain(hostile_report: ReportData) -> None:
    texts = (render(a_report(), "latex"), render(a_report(name="b", snapshot_id=13), "latex"))
    labels = [label for text in texts for label in re.findall(r"\\label\{(.*?)\}", text)]
    assert "tab:0a1b2c3d4-nightly-12-leaderboard" in labels
    assert len(set(labels)) == len(labels)
    for label in re.findall(r"\\label\{(.*?)\}", render(hostile_report, "latex")):
        assert re.fullmatch(r"tab:[a-z0-9-]+", label)


def test_hostile_text_brings_no_command(hostile_report: ReportData) -> None:
    text = render(hostile_report, "latex")
    assert body(text).isascii()
    foreign = set(COMMANDS.findall(latex_text(HOSTILE)))
    assert set(COMMANDS.findall(body(text))) <= OURS | foreign
    assert latex_text(printable(HOSTILE).split()[0]) in text


def test_a_wide_table_becomes_several(fourteen: ReportData) -> None:
    text = render(fourteen, "latex")
    assert "Detection by category (part 1 of 2)." in text
    assert "Detection by category (part 2 of 2)." in text


def test_a_long_table_becomes_several() -> None:
    text = render(a_report(*(a_model(f"acme/guard-{n}") for n in range(30))), "latex")
    assert "Leaderboard (part 1 of 2)." in text
    assert len(re.findall(r"^\d+ & acme/guard-\d+ &", text, re.MULTILINE)) == 30


def test_an_endless_message_is_cut(failed_report: ReportData) -> None:
    (failure, *_) = failed_report.failures
    endless = type(failure)(
        failure.model, failure.error_class, 6, 6, (), "x" * 10**6, failure.last_at
    )
    assert len(render(a_report(failures=(endless,)), "latex")) < 20_000
