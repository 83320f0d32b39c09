"""The packed grid, unpacked again and compared with what was put in."""

import base64
import json
import re
import zlib
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from aegish_dist.core.sample import TrueLabel
from aegish_dist.opinions.verdict_query import NUMBERS, TEXTS, GridAttempt, GridCommand, GridPart
from aegish_dist.report.page.grid import (
    Grid,
    GridShape,
    grid_section,
    most_missed,
    pack_columns,
    pack_part,
)

HOSTILE = "</script><!-- \ud800 \x00 \u202e \x1b[31m"
SHOWN = r"</script><!-- \ud800 \x00 \u202e \x1b[31m"
SHAPE = GridShape(models=2, epochs=2, commands_per_blob=2)


def a_command(word: str, **changes: Any) -> GridCommand:
    fields: dict[str, Any] = {
        "sample_id": f"id-{word}",
        "dataset": "first",
        "command": word,
        "target": TrueLabel.MALICIOUS,
        "category": "shell",
        "cluster": None,
        "excluded": False,
    }
    return GridCommand(**fields | changes)


def numbers(verdicts: int, **columns: list[int]) -> dict[str, list[int]]:
    """Return columns of numbers; 7 where nothing else is said."""
    return {name: columns.get(name, [7] * verdicts) for name in NUMBERS}


def unpacked(content: bytes) -> Any:
    """Read gzip and JSON; the header of gzip holds no time."""
    assert content[4:8] == bytes(4)
    return json.loads(zlib.decompress(content, 31))


FIRST = GridPart(
    (a_command("tar"), a_command("curl", cluster="curl"), a_command("ls")),
    model=(0, 0, 1, 1),
    command=(0, 2, 1, 0),
    epoch=(1, 2, 2, 1),
    numbers=numbers(4, label=[2, 0, 1, 5], correct=[1, 0, 0, -1], created_s=[100, 1_000, -1, 160]),
    texts={name: [None] * 4 for name in TEXTS}
    | {"completion": ["yes", HOSTILE, "yes", None], "reason": [None, "a\nb", "", "yes"]},
    lengths={1: 30_000},
    attempts=(
        GridAttempt(0, 1, "server", 500, None, "down", 90),
        GridAttempt(2, 1, "rate_limit", 429, 2.5, "later", 95),
        GridAttempt(2, 2, "connection", -1, None, "down", 96),
    ),
)
"""Two models about three commands in two epochs; four of twelve verdicts are there."""
SECOND = GridPart(
    (a_command(HOSTILE, dataset="second", target=TrueLabel.HARMLESS, category=None, excluded=True),)
)
"""A command of another dataset without a verdict."""


def packed_columns() -> Any:
    parts = [pack_part(FIRST, SHAPE), pack_part(SECOND, SHAPE)]
    return unpacked(pack_columns(parts, SHAPE, {"run": "r"}))


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
    parts = [pack_part(FIRST, SHAPE), pack_part(SECOND, SHAPE)]
    found = most_missed(parts, SHAPE, ["best", "next"])
    texts = [[cell.text for cell in row] for row in found.rows]
    assert texts == [["ls", "malicious", "1", "best"], ["curl", "malicious", "1", "next"]]
    both = replace(FIRST, numbers=numbers(4, correct=[0, 1, 0, 0]))
    found = most_missed([pack_part(both, SHAPE)], SHAPE, ["best", "next"])
    assert [cell.text for cell in found.rows[0]] == ["tar", "malicious", "2", "best, next"]
    shown = "".join(grid_section(Grid(b"", missed=found)))
    assert ">tar</th>" in shown
    assert shown.index(">tar</th>") < shown.index("grid-state")


def test_texts_are_packed_by_command() -> None:
    part = pack_part(FIRST, SHAPE)
    first, second = map(unpacked, part.texts)
    assert first["at"] == [0, 2, 7]  # tar by both models, curl by the second one in epoch 2
    assert second["at"] == [1]
    assert shown(first, "completion") == ["yes", None, "yes"]
    assert shown(first, "reason") == [None, "yes", ""]
    assert first["attempts"] == [
        [0, 1, "server", 500, None, first["texts"].index("down"), 90],
        [7, 1, "rate_limit", 429, 2.5, first["texts"].index("later"), 95],
        [7, 2, "connection", -1, None, first["texts"].index("down"), 96],
    ]
    assert len(first["texts"]) == len(set(first["texts"]))
    assert shown(second, "completion") == [SHOWN]
    assert shown(second, "reason") == ["a\nb"]
    assert (first["lengths"], second["lengths"]) == ({}, {"1": 30_000})
    assert packed_columns()["blobs"] == [0, 2]


def test_blobs_begin_where_their_commands_begin() -> None:
    """The last blob of each part may hold less: of 5 commands by 4 the second begins at 4."""
    shape = GridShape(models=1, epochs=1, commands_per_blob=4)
    parts = []
    for dataset, count in (("first", 5), ("second", 9)):
        words = [f"{dataset}-{number}" for number in range(count)]
        texts = {name: [None] * count for name in TEXTS} | {"completion": words}
        parts.append(
            pack_part(
                GridPart(
                    [a_command(word, dataset=dataset) for word in words],
                    model=[0] * count,
                    command=range(count),
                    epoch=[1] * count,
                    numbers=numbers(count),
                    texts=texts,
                ),
                shape,
            )
        )
    found = unpacked(pack_columns(parts, shape, {}))
    assert found["blobs"] == [0, 4, 5, 9, 13]
    blobs = [unpacked(blob) for part in parts for blob in part.texts]
    for first, blob in zip(found["blobs"], blobs, strict=True):
        about = [found["commands"]["text"][first + place] for place in blob["at"]]
        assert shown(blob, "completion") == about


def shown(blob: Mapping[str, Any], column: str) -> list[str | None]:
    return [None if place == -1 else blob["texts"][place] for place in blob[column]]


def test_without_texts_there_is_no_blob() -> None:
    alone = GridPart(FIRST.commands, FIRST.model, FIRST.command, FIRST.epoch, FIRST.numbers)
    assert pack_part(alone, SHAPE).texts == []
    assert pack_part(alone, SHAPE).numbers == pack_part(FIRST, SHAPE).numbers


def test_a_grid_without_commands_can_be_packed() -> None:
    found = unpacked(pack_columns([], SHAPE, {}))
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
