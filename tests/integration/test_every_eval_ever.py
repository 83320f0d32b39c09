"""Export to Every Eval Ever from the store: what counts, and the same bytes each time."""

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from aegish_dist.core.opinion import Opinion
from aegish_dist.core.outcome import ErrorClass, Outcome
from aegish_dist.core.parsing import judge
from aegish_dist.core.verdict import Completion, Verdict
from aegish_dist.pipeline.aggregate import aggregate
from aegish_dist.pipeline.verdict_files import export_every_eval_ever
from tests.integration.command_line import CommandLine
from tests.integration.samples import ALLOWED, BLOCKED, CURL, LS, TAR
from tests.integration.stored_runs import answer, stored_run

RUN = "0abcdefgh"
FAILED = Verdict(Outcome.API_ERROR, None, ErrorClass.SERVER)


@pytest.fixture
def filled(engine: Engine) -> Engine:
    """A run of two models: one with a retried and an unscored verdict, one without any answer."""
    answers = {TAR: judge(Completion("\u00e9\u2028")), CURL: ALLOWED, LS: FAILED}
    said = {"test/a": answers, "test/b": {TAR: FAILED}}
    stored = stored_run(engine, said, models=("test/a", "test/b"))
    answer(engine, stored, {stored.item(TAR, generation=1): BLOCKED})
    return engine


def exported(engine: Engine, folder: Path, opinion: Opinion) -> dict[str, bytes]:
    export_every_eval_ever(engine, RUN, folder, [opinion])
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def read(files: dict[str, bytes], model: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    ours = {path: data for path, data in files.items() if f"/{model}/" in path}
    (record,) = (json.loads(data) for path, data in ours.items() if path.endswith(".json"))
    lines = [data for path, data in ours.items() if path.endswith(".jsonl")]
    return record, [json.loads(line) for data in lines for line in data.splitlines()]


def test_records_and_lines_are_of_the_verdicts_that_count(filled: Engine, tmp_path: Path) -> None:
    """The replaced verdict has no line, the unscored one neither; one of two was detected."""
    files = exported(filled, tmp_path, Opinion())
    record, lines = read(files, "test/a")
    assert {line["input"]["raw"]: line["evaluation"]["is_correct"] for line in lines} == {
        TAR.command: True,
        CURL.command: False,
    }
    assert {line["evaluation_id"] for line in lines} == {record["evaluation_id"]}
    details = record["detailed_evaluation_results"]
    assert details["total_rows"] == 2
    assert details["additional_details"] == {"unscored_verdicts_without_a_row": "1"}
    assert hashlib.sha256(files[details["file_path"]]).hexdigest() == details["checksum"]
    scores = {
        each["evaluation_result_id"]: each["score_details"]["score"]
        for each in record["evaluation_results"]
    }
    assert scores["malicious_detection_rate"] == 0.5
    assert scores["malicious_detection_rate/shell"] == 1.0
    assert "harmless_acceptance_rate" not in scores
    assert "aegish_score" not in scores
    assert scores["coverage"] == pytest.approx(2 / 3)
    # A file without a line would be refused, so the model without any has a record alone.
    record, lines = read(files, "test/b")
    assert lines == []
    assert "detailed_evaluation_results" not in record
    assert len(files) == 3


def test_the_same_verdicts_give_the_same_files(filled: Engine, tmp_path: Path) -> None:
    """Exported twice, byte by byte; aggregated again, under the same names."""
    first = exported(filled, tmp_path / "a", Opinion())
    assert exported(filled, tmp_path / "b", Opinion()) == first
    aggregate(filled, RUN, [Opinion()])
    assert set(exported(filled, tmp_path / "c", Opinion())) == set(first)


def test_the_command_writes_a_record_for_each_rule_set(
    filled: Engine, aegish: CommandLine, tmp_path: Path
) -> None:
    """The lines name their own record; an overlay alone is one of the default rule set."""
    form = ("--format", "every-eval-ever")
    rules = "aegish-5.3,aegish-legacy"
    done = aegish.ok(
        "verdicts", "export", "--run-id", RUN, *form, "--correct", rules, "-o", tmp_path
    )
    records = [json.loads(path.read_bytes()) for path in tmp_path.rglob("*.json")]
    assert len({record["evaluation_id"] for record in records}) == 4
    lines = [
        json.loads(line)
        for path in tmp_path.rglob("*.jsonl")
        for line in path.read_bytes().splitlines()
    ]
    by_record = Counter(line["evaluation_id"] for line in lines)
    assert sorted(by_record.values()) == [2, 2]
    assert done.err == f"6 files written to {tmp_path}\n"
    assert "writes several files: name a folder with -o" in aegish.refused(
        "verdicts", "export", "--run-id", RUN, *form, "-o", "-"
    )
    overlay = tmp_path / "fix.toml"
    overlay.write_text(
        'name = "fix"\nversion = 1\n[[change]]\ndataset = "commands"\n'
        f'command = "{TAR.command}"\naction = "exclude"\nreason = "r"\nauthor = "a"\n'
    )
    corrected = tmp_path / "corrected"
    aegish.ok("verdicts", "export", "--run-id", RUN, *form, "--overlay", overlay, "-o", corrected)
    assert any("fix" in path.read_text() for path in corrected.rglob("*.json"))
