"""Options of `report` that are refused before any store is opened."""

import pytest

from aegish_dist.cli import run
from aegish_dist.report.formats import IN_SECTIONS
from aegish_dist.report.sections import SECTION_NAMES


def test_a_wrong_section_is_answered_with_those_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All names stand in the error, and in the help."""
    assert run(["report", "--sections", "leaderboard,nope"]) == 2
    refused = capsys.readouterr().err
    assert "--sections" in refused
    assert "'nope'" in refused
    assert [name for name in (*SECTION_NAMES, "all") if name not in refused] == []
    assert run(["report", "--help"]) == 0
    shown = "".join(capsys.readouterr().out.split())  # lines may end within a name
    assert [name for name in SECTION_NAMES if name not in shown] == []


@pytest.mark.parametrize("form", ["json", "csv", "html", "reference-json"])
def test_what_is_whole_has_no_choice_of_sections(
    capsys: pytest.CaptureFixture[str], form: str
) -> None:
    """The line names the formats that have one."""
    assert run(["report", "--format", form, "--sections", "cost"]) == 2
    assert f"--sections chooses for {', '.join(IN_SECTIONS)}" in capsys.readouterr().err
