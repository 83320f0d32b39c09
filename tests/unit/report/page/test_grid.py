"""The packed grid, unpacked again and compared with what was put in."""

import base64
import json
import re
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from aegish_dist.core.columns import (
    NUMBERS,
    TEXTS,
    GridAttempt,
    GridCommand,
    GridNumbers,
    GridTexts,
    Ints,
)
from aegish_dist.report.page.grid import (
    Grid,
    grid_section,
    most_missed,
    pack_columns,
    pack_texts,
)

HOSTILE = "</script><!-- \ud800 \x00 \u202e \x1b[31m"
SHOWN = r"</script><!-- \ud800 \x00 \u202e \x1b[31m"


def a_command(word: str, **changes: Any) -> GridCommand:
    fields: dict[str, Any] = {
        "key": 1,
        "dataset": "first",
        "sample_id": f"id-{word}",
        "command": word,
        "target": "malicious",
        "category": "shell",
        "cluster": None,
        "excluded": False,
    }
    return GridCommand(**fields | changes)


COMMANDS = (
    a_command("tar"),
    a_command("curl", cluster="curl"),
    a_command("ls"),
    a_command(HOSTILE, dataset="second", target="harmless", category=None, excluded=True),
)
VERDICTS = ((0, 0, 0), (0, 2, 1), (1, 1, 1), (1, 0, 0))
"""Of two models about four commands in two epochs: model, command and epoch, from 0."""


def numbers(**columns: list[int]) -> GridNumbers:
    """Return the numbers of these verdicts; 7 where nothing else is said."""
    arrays: dict[str, Ints] = {}
    for name in NUMBERS:
        arrays[name] = np.full((2, len(COMMANDS), 2), -1)
        for place, number in zip(VERDICTS, columns.get(name, [7] * 4), strict=True):
            arrays[name][place] = number
    return GridNumbers(COMMANDS, arrays)


NUMBERED = numbers(label=[2, 0, 1, 5], correct=[1, 0, 0, -1], created_s=[100, 1_000, -1, 160])


def unpacked(content: bytes) -> Any:
    """Read gzip and JSON; the header of gzip holds no time."""
    assert content[4:8] == bytes(4)
    return json.loads(zlib.decompress(content, 31))


def packed_columns() -> Any:
    return unpacked(pack_columns(NUMBERED, [0, 2], {"run": "r"}))


def test_verdicts_stand_model_by_model() -> None:
    """At (model x 4 + command) x 2 + epoch; -1 where there is none."""
    cells = packed_columns()["cells"]
    assert list(cells) == list(NUMBERS)
    assert cells["label"] == [2, -1, -1, -1, -1, 0, -1, -1, 5, -1, -1, 1, -1, -1, -1, -1]
    assert cells["correct"] == [1, -1, -1, -1, -1, 0, -1, -1, -1, -1, -1, 0, -1, -1, -1, -1]
    assert cells["attempts"] == [7, -1, -1, -1, -1, 7, -1, -1, 7, -1, -1, 7, -1, -1, -1, -1]


def test_times_count_from_the_first() -> None:
    """The earliest one is at 100 s; an unknown one stays unknown."""
    found = packed_columns()
    assert found["since"] == 100
    assert found["cells"]["created_s"][:8] == [0, -1, -1, -1, -1, 900, -1, -1]
    assert found["cells"]["created_s"][8:12] == [60, -1, -1, -1]


def test_commands_are_dictionary_coded() -> None:
    """Names stand once, sorted; what a command has not is -1. Hostile text is made visible."""
    found = packed_columns()
    assert found["names"] == {
        "dataset": ["first", "second"], "category": ["shell"], "cluster": ["curl"],
    }  # fmt: skip
    assert found["commands"] == {
        "id": ["id-tar", "id-curl", "id-ls", f"id-{HOSTILE}"],
        "text": ["tar", "curl", "ls", SHOWN],
        "excluded": [0, 0, 0, 1],
        "malicious": [1, 1, 1, 0],
        "dataset": [0, 0, 0, 1],
        "category": [0, 0, 0, -1],
        "cluster": [-1, 0, -1, -1],
    }
    assert (found["run"], found["epochs"]) == ("r", 2)


def test_commands_that_most_models_get_wrong_come_first() -> None:
    """`ls` is wrong in its one scored epoch by the best model, `curl` by the second."""
    found = most_missed(NUMBERED, ["best", "next"])
    texts = [[cell.text for cell in row] for row in found.rows]
    assert texts == [["ls", "malicious", "1", "best"], ["curl", "malicious", "1", "next"]]
    found = most_missed(numbers(correct=[0, 1, 0, 0]), ["best", "next"])
    assert [cell.text for cell in found.rows[0]] == ["tar", "malicious", "2", "best, next"]
    shown = "".join(grid_section(Grid(b"", missed=found)))
    assert ">tar</th>" in shown
    assert shown.index(">tar</th>") < shown.index("grid-state")


def test_a_text_that_verdicts_share_is_packed_once() -> None:
    columns: dict[str, list[str | None]] = {name: [None] * 4 for name in TEXTS}
    columns |= {"completion": ["yes", HOSTILE, "yes", None], "reason": [None, "a\nb", "", "yes"]}
    of = GridTexts(
        first=0,
        cells=(0, 2, 5, 7),
        columns=columns,
        lengths={2: 30_000},
        attempts=(
            GridAttempt(0, 1, "server", 500, None, "down", 90),
            GridAttempt(7, 1, "rate_limit", 429, 2.5, "later", 95),
            GridAttempt(7, 2, "connection", -1, None, "down", 96),
        ),
    )
    found = unpacked(pack_texts(of))
    assert found["at"] == [0, 2, 5, 7]
    assert shown(found, "completion") == ["yes", SHOWN, "yes", None]
    assert shown(found, "reason") == [None, "a\nb", "", "yes"]
    assert found["lengths"] == {"2": 30_000}
    assert found["attempts"] == [
        [0, 1, "server", 500, None, found["texts"].index("down"), 90],
        [7, 1, "rate_limit", 429, 2.5, found["texts"].index("later"), 95],
        [7, 2, "connection", -1, None, found["texts"].index("down"), 96],
    ]
    assert len(found["texts"]) == len(set(found["texts"]))
    assert packed_columns()["blobs"] == [0, 2]


def shown(blob: Mapping[str, Any], column: str) -> list[str | None]:
    return [None if place == -1 else blob["texts"][place] for place in blob[column]]


def test_a_grid_without_commands_can_be_packed() -> None:
    none = {name: np.empty((2, 0, 2), np.int64) for name in NUMBERS}
    found = unpacked(pack_columns(GridNumbers((), none), [], {}))
    assert found["cells"] == {name: [] for name in NUMBERS}
    assert found["since"] == 0
    assert found["blobs"] == []


def test_the_section_holds_nothing_but_base64() -> None:
    page = "".join(grid_section(Grid(b"\x1f\xff", [b"\x00\x01", b"\x02"], ["<b> \u202e"])))
    assert re.findall(r'<script type="text/plain" id="([\w-]+)">([\w+/=]+)</script>', page) == [
        ("grid-columns", base64.b64encode(b"\x1f\xff").decode()),
        ("grid-texts-0", base64.b64encode(b"\x00\x01").decode()),
        ("grid-texts-1", base64.b64encode(b"\x02").decode()),
    ]
    assert page.count("<script") == 3
    assert "<p>&lt;b&gt; \\u202e</p>" in page
    assert "<noscript>" in page


def test_a_grid_without_columns_is_its_notes() -> None:
    page = "".join(grid_section(Grid(None, notes=["Too many."])))
    assert "<p>Too many.</p>" in page
    assert 'id="commands"' in page
    assert "grid-view" not in page
    assert "<script" not in page
