"""The grid of a report, read from the store and unpacked again, against values made by hand."""

import json
import re
import zlib
from base64 import b64decode
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine, text

from aegish_dist.core.outcome import ErrorClass, Outcome
from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.core.verdict import CallError, Completion, Timing, Verdict
from aegish_dist.db.columns import TEXT_CHARS
from aegish_dist.db.engine import transaction
from aegish_dist.opinions.opinion import LabelChange, Opinion, Overlay
from aegish_dist.opinions.parsing import judge
from aegish_dist.opinions.scoring import rule_named
from aegish_dist.pipeline import report as module
from aegish_dist.pipeline.report import report_data, report_grid
from tests.integration.command_line import CommandLine
from tests.integration.samples import ALLOWED, BLOCKED, COMMANDS, CURL, DETAILED, LS, NOON, TAR
from tests.integration.stored_runs import answer, stored_run

RUN = "0abcdefgh"
CAT = Sample("cat </script> \x1b[31m", TrueLabel.HARMLESS)
MORE = Dataset("more", (CAT,))
HOSTILE = '{"action": "BLOCK", "reason": "\\ud800 \\u202e </script> \\u0000"}'
DOWN = CallError(1, ErrorClass.SERVER, 503, 2.5, "down, sk-abcdefghijklmnop123", NOON)
WHOLE = replace(
    DETAILED,
    cost_usd=Decimal("0.001250000001"),
    timing=Timing(1.2, 2.0, 3.0, 4_000.6, 4_006.8),
    attempts=2,
    worker="w@h",
    created_at=NOON + timedelta(seconds=5.9),
    call_errors=(DOWN,),
)
FAILED = Verdict(Outcome.API_ERROR, None, ErrorClass.AUTH, created_at=NOON)


def fill(engine: Engine) -> None:
    """Store two models, the second better, two epochs, two datasets; one item was retried."""
    models, datasets = ("test/a", "test/b"), (COMMANDS, MORE)
    stored = stored_run(engine, models=models, datasets=datasets, epochs=2)
    answer(
        engine,
        stored,
        {
            stored.item(TAR): FAILED,
            stored.item(TAR, generation=1): WHOLE,
            stored.item(TAR, epoch=2): BLOCKED,
            stored.item(TAR, model="test/b"): BLOCKED,
            stored.item(CURL, model="test/b", epoch=2): judge(Completion(HOSTILE)),
            stored.item(LS): judge(Completion("x" * 30_000 + "\ufffd")),
            stored.item(LS, model="test/b"): ALLOWED,
            stored.item(CAT, dataset="more"): FAILED,
        },
    )


@pytest.fixture
def filled(engine: Engine) -> Engine:
    fill(engine)
    return engine


def unpacked(content: bytes) -> Any:
    return json.loads(zlib.decompress(content, 31))


def gathered(engine: Engine, opinion: Opinion) -> Any:
    grid = report_grid(engine, report_data(engine, RUN, opinion))
    assert grid.columns is not None
    assert grid.notes == []
    return unpacked(grid.columns), list(map(unpacked, grid.texts))


def by_cell(columns: Any, name: str) -> dict[str, Any]:
    """Return the known values of a column by model, first word of the command and epoch."""
    words = [text.split()[0] for text in columns["commands"]["text"]]
    cells = [
        f"{model} {word} {epoch + 1}"
        for model in columns["models"]
        for word in words
        for epoch in range(columns["epochs"])
    ]
    found = dict(zip(cells, columns["cells"][name], strict=True))
    return {cell: value for cell, value in found.items() if value != -1}


def test_the_newest_verdict_of_each_item_stands_in_its_cell(filled: Engine) -> None:
    """Models by rank, commands by dataset; what is not there is unknown."""
    columns, _ = gathered(filled, Opinion())
    assert columns["models"] == ["test/b", "test/a"]
    assert columns["asked"] == [["commands", "more"]] * 2
    assert columns["commands"]["text"][:3] == [TAR.command, CURL.command, LS.command]
    assert columns["commands"]["id"][3] == CAT.sample_id
    labels, correct = by_cell(columns, "label"), by_cell(columns, "correct")
    found = [f"{c} {columns['labels'][at]} {correct.get(c)}" for c, at in labels.items()]
    assert found == [
        "test/b tar 1 BLOCK 1", "test/b curl 2 BLOCK 1", "test/b ls 1 ALLOW 1",
        "test/a tar 1 ALLOW 0", "test/a tar 2 BLOCK 1", "test/a ls 1 FORMAT_ERROR 0",
        "test/a cat 1 API_ERROR None",
    ]  # fmt: skip
    assert by_cell(columns, "generation")["test/a tar 1"] == 1
    assert columns["errorClasses"][by_cell(columns, "error_class")["test/a cat 1"]] == "auth"


def test_numbers_are_in_the_units_of_the_grid(filled: Engine) -> None:
    """Whole milliseconds, 1/1000 of confidence, 1e-9 USD; unknown is not 0."""
    columns, _ = gathered(filled, Opinion())
    found = {name: by_cell(columns, name) for name in columns["cells"]}
    cell = "test/a tar 1"
    for name, value in {"confidence": 750, "service_ms": 4_001, "cost_nano_usd": 1_250_000}.items():
        assert found[name] == {cell: value}
    assert [found[name][cell] for name in ("queue_ms", "limiter_ms", "backoff_ms")] == [1, 2, 3]
    tokens = ("input_tokens", "output_tokens", "reasoning_tokens", "cache_read_tokens")
    assert [found[name][cell] for name in tokens] == [1_400, 41, 7, 1_024]
    assert found["attempts"][cell] == 2
    assert found["created_s"] == {cell: 5, "test/a cat 1": 0}
    assert columns["since"] == NOON.timestamp()


def test_texts_come_with_their_verdicts(filled: Engine) -> None:
    columns, blobs = gathered(filled, Opinion())
    assert columns["blobs"] == [0, 3]
    first, second = blobs
    tar = first["at"].index(2)  # the second model, epoch 1
    texts = {
        "completion": '{"action": "ALLOW", "reason": "fine", "confidence": 0.75}',
        "reason": "fine", "refusal": "no refusal", "stop_reason": "end_turn", "worker": "w@h",
        "returned_model": "a-2026", "upstream": "host.example", "request_id": "req-1",
    }  # fmt: skip
    assert {name: of(first, name, tar) for name in texts} == texts
    ((at, attempt, error_class, status, wait, message, time),) = first["attempts"]
    assert (at, attempt, error_class, status, wait) == (2, 1, "server", 503, 2.5)
    assert first["texts"][message] == "down, [key]"
    assert time == NOON.timestamp()
    curl = first["at"].index(4 + 1)
    assert of(first, "reason", curl) == "\ufffd \\u202e </script> \ufffd"
    ls = 2 * 4 + 2
    assert of(first, "completion", first["at"].index(ls)) == "x" * TEXT_CHARS
    assert first["lengths"] == {str(ls): 30_001}
    assert second["at"] == [2]
    assert of(second, "completion", 0) is None


def test_blobs_begin_where_their_commands_begin(
    filled: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three commands by two the second blob begins at 2, and that of the next dataset at 3."""
    monkeypatch.setattr(module, "BLOB_VERDICTS", 8)  # of 2 commands, as each has 4 verdicts
    columns, blobs = gathered(filled, Opinion())
    assert columns["blobs"] == [0, 2, 3]
    assert [blob["at"] for blob in blobs] == [[0, 2, 3, 5], [0, 2], [2]]


def of(blob: Any, name: str, place: int) -> str | None:
    at = blob[name][place]
    return None if at == -1 else blob["texts"][at]


def test_the_opinion_of_the_snapshot_judges(filled: Engine) -> None:
    changes = (
        LabelChange("commands", TAR.sample_id, None, TrueLabel.HARMLESS, None, "fine", "me"),
        LabelChange("commands", LS.sample_id, None, None, None, "unclear", "me"),
    )
    opinion = Opinion(rule_named("aegish-legacy"), overlay=Overlay("mine", 1, changes))
    columns, _ = gathered(filled, opinion)
    assert by_cell(columns, "correct") == {
        "test/b tar 1": 0, "test/b curl 2": 1, "test/a tar 1": 1, "test/a tar 2": 0,
    }  # fmt: skip
    assert columns["commands"]["malicious"] == [0, 1, 0, 0]
    assert columns["commands"]["excluded"] == [0, 0, 1, 0]
    label = by_cell(columns, "label")["test/a ls 1"]
    assert columns["labels"][label] == "PARSE_ERROR"


def test_an_old_snapshot_says_that_verdicts_have_changed(filled: Engine) -> None:
    data = report_data(filled, RUN, Opinion())
    with transaction(filled) as session:
        session.execute(text("DELETE FROM verdicts WHERE outcome = 'FORMAT_ERROR'"))
    old = report_data(filled, RUN, Opinion(), data.snapshot.snapshot_id)
    grid = report_grid(filled, old)
    assert ["count now" in note for note in grid.notes] == [True]


@pytest.mark.parametrize(
    ("bound", "columns", "said"),
    [
        ("MAX_WITH_TEXTS", True, "Completions and other texts are not in this file"),
        ("MAX_VERDICTS", False, "Single verdicts are not in this file: the run plans 16"),
        ("MAX_TEXT_BYTES", True, "Texts of the last commands are left out"),
    ],
)
def test_too_much_is_left_out_with_a_note(
    filled: Engine, monkeypatch: pytest.MonkeyPatch, bound: str, columns: bool, said: str
) -> None:
    monkeypatch.setattr(module, bound, 0 if bound == "MAX_TEXT_BYTES" else 15)  # of 16 verdicts
    grid = report_grid(filled, report_data(filled, RUN, Opinion()))
    assert (grid.columns is not None, len(grid.texts)) == (columns, 0)
    assert [note.startswith(said) for note in grid.notes] == [True]


ELEMENT = re.compile(r'<script type="text/plain" id="([\w-]+)">([\w+/=]*)</script>')


@pytest.mark.usefixtures("filled")
def test_the_command_line_writes_details_as_asked(aegish: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "report.html"

    def elements(options: str = "") -> dict[str, bytes]:
        aegish.ok(f"report --format html {options} -o", path)
        return {name: b64decode(content) for name, content in ELEMENT.findall(path.read_text())}

    assert list(elements()) == ["grid-columns", "grid-texts-0", "grid-texts-1"]
    before = path.read_bytes()
    elements("--details completions")
    assert path.read_bytes() == before
    assert elements("--details none") == {}
    assert 'id="commands"' not in path.read_text()
    assert "--details goes with --format html" in aegish.misused("report --details none")
