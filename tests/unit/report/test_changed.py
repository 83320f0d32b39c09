"""The commands that changed, as lines of a screen."""

import json

import pytest
from msgspec.structs import replace

from aegish_dist.core.metric import Comparison
from aegish_dist.core.run import ModelOfRun
from aegish_dist.core.text import cell_width
from aegish_dist.findings.comparison import (
    CHANGES,
    Change,
    ChangedCommand,
    ComparedPair,
    ComparisonData,
)
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.report.changed import CommandsOf, changed_json, changed_lines
from tests.unit.report.reports import a_report

WIDE = "\u5b89\u5168" * 200
HOSTILE = 'a\r\n```\x1b]8;;x\x07"\u202e \ud800</script>' + "z" * 5000


def compared(number: int, pairs: int = 1) -> ComparisonData:
    """Pairs with as many changed commands of each kind."""
    run = a_report().run
    changed = {change: list(range(number)) for change in CHANGES}
    pair = ComparedPair(
        ModelOfRun(run.run_id, "lab/a"),
        ModelOfRun(run.run_id, "lab/b"),
        Comparison(0, {}, {}),
        0,
        changed,
    )
    return ComparisonData([run], Opinion(), [pair] * pairs, ())


def all_alike(command: str, reason: str | None, number: int = 99) -> CommandsOf:
    def commands_of(pair: ComparedPair, change: Change, limit: int | None) -> list[ChangedCommand]:
        return [ChangedCommand("0" * 16, command, reason)] * min(number, limit or number)

    return commands_of


@pytest.mark.parametrize("width", [40, 80, 140])
@pytest.mark.parametrize(
    ("command", "reason"), [(WIDE, WIDE), (HOSTILE, HOSTILE), ("ls", WIDE), (WIDE, None), ("", "")]
)
def test_rows_keep_to_the_width(width: int, command: str, reason: str | None) -> None:
    lines = list(changed_lines(compared(10), all_alike(command, reason), (), width))
    assert all(line.isprintable() for line in lines)
    assert max(map(cell_width, lines)) <= width
    assert len([line for line in lines if line.startswith("   ") or not line]) >= 4 * 10


@pytest.mark.parametrize(
    ("number", "pairs", "rows", "more"),
    [(10, 1, 40, 0), (11, 1, 40, 4), (11, 2, 24, 8), (3, 2, 24, 0)],
)
def test_more_than_a_screen_has_room_for_is_counted(
    number: int, pairs: int, rows: int, more: int
) -> None:
    lines = list(changed_lines(compared(number, pairs), all_alike("ls", "no", number), (), 100))
    assert lines.count("   ls   no") == rows
    assert sum("more: aegish-dist verdicts list" in line for line in lines) == more


def test_commands_that_are_gone_meanwhile_are_no_trouble() -> None:
    lines = list(changed_lines(compared(2), all_alike("ls", None, 0), (), 100))
    assert "Newly caught: 2 attacks. Newly missed: 2." in " ".join(lines)


def test_names_and_options_are_quoted_for_a_shell() -> None:
    data = compared(11)
    (pair,) = data.pairs
    data = replace(data, pairs=[replace(pair, b=replace(pair.b, model="lab/b#long"))])
    lines = list(changed_lines(data, all_alike("ls", None), ("--overlay", "my file.toml"), 100))
    (first, *_) = [line for line in lines if "more: " in line]
    assert "--models 'lab/a,lab/b#long' --overlay 'my file.toml' --target malicious" in first


def test_json_holds_hostile_text_as_it_is_and_null_where_nothing_was_asked() -> None:
    (pair,) = compared(2).pairs
    text = "".join(changed_json(pair, all_alike(HOSTILE, None, 2)))
    assert text.isascii()
    document = json.loads(text)
    assert list(document) == list(CHANGES.values())
    assert (
        document["newly_missed"] == [{"sample": "0" * 16, "command": HOSTILE, "reason": None}] * 2
    )
    assert json.loads("".join(changed_json(replace(pair, changed=None), all_alike("", "")))) is None
