"""A run as logs of Inspect AI, and back."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from aegish_dist.core.verdict import FIELDS, OPINIONS
from aegish_dist.errors import OutputError
from aegish_dist.pipeline.opinions import load_opinions
from aegish_dist.pipeline.verdict_files import export_file, export_inspect, import_verdicts
from tests.integration.stored_runs import imported_run
from tests.integration.test_import_verdicts import EVERY_KEY, LINES, a_line
from tests.recorded import document_of

BLOCK = '{"action": "BLOCK", "reason": "writes", "confidence": 0.9}'
AT = "2026-02-05T14:56:43.396296+00:00"
FAILED = {"attempt": 1, "error_class": "auth", "message": "no key", "at": AT}
TAKEN = EVERY_KEY | {
    "command": "attachment://x",
    "metadata": {"binary": "b", "dataset": "d", "aegish_dist_x": "y", "note": "n"},
}
ODD = EVERY_KEY | {
    "command": "Validate this command: <command>ls</command>",
    "input_tokens": None,
    "cache_read_tokens": 9,
    "cache_write_tokens": 8,
}
MORE_CACHE_THAN_INPUT = ODD | {"command": "few", "input_tokens": 3}
WITHOUT_TEXT = ODD | {"command": "silent", "completion": None, "stop_reason": None} | {
    "stop_kind": None, "answered": True, "call_errors": [],
}  # fmt: skip


def exported_lines(engine: Engine, run_id: str, path: Path) -> list[dict[str, Any]]:
    """Return the verdict lines of a run, in an order that depends on nothing but them."""
    export_file(engine, run_id, path)
    return [json.loads(line) for line in sorted(path.read_text("ascii").splitlines())]


def logs_of(engine: Engine, lines: list[dict[str, Any]], folder: Path) -> list[Path]:
    run_id = imported_run(engine, folder, lines)
    return [folder / "logs" / name for name in export_inspect(engine, run_id, folder / "logs")]


def members(log: Path) -> dict[str, Any]:
    with zipfile.ZipFile(log) as archive:
        return {name: json.loads(archive.read(name)) for name in archive.namelist()}


def test_a_round_trip_loses_nothing(engine: Engine, tmp_path: Path) -> None:
    """Of every verdict of every generation each column is equal, texts and digits included."""
    retried = WITHOUT_TEXT | {"generation": 1}
    lines = [*LINES, TAKEN, ODD, MORE_CACHE_THAN_INPUT, WITHOUT_TEXT, retried]
    first = imported_run(engine, tmp_path, lines)

    names = export_inspect(engine, first, tmp_path / "logs")

    assert len(names) == len({(line["model"], line["dataset"]) for line in lines})
    second = import_verdicts(engine, [tmp_path / "logs" / name for name in names], "second").run_id
    before = exported_lines(engine, first, tmp_path / "first.jsonl")
    after = exported_lines(engine, second, tmp_path / "second.jsonl")
    assert len(before) == len(lines)
    assert after == before


def test_every_field_is_put_to_the_test() -> None:
    """The lines of the round trip give every field but the opinions another value than its default."""
    defaults = {"generation": (0, None), "simulated": (False,), "answered": (True,)}
    for field in FIELDS:
        if field.name in (*OPINIONS, "simulated", "answered", "pruned", "error_class"):
            continue
        values = [line.get(field.name) for line in (*LINES, TAKEN, ODD)]
        assert any(value not in defaults.get(field.name, (None,)) for value in values), field.name


def held(found: Any, wanted: Any) -> Any:
    """Return of a document what another one has keys for."""
    if isinstance(wanted, dict):
        return {key: held(found[key], part) for key, part in wanted.items()}
    return found


def test_a_log_is_laid_out_as_inspect_ai_reads_it(engine: Engine, tmp_path: Path) -> None:
    """Header, summaries, reductions, journal and samples, all deflated, with fixed dates.

    Right are ls and rm; wrong are dd, and du, which had no answer in time; df is unscored.
    """
    wanted = document_of("inspect_log.json")
    (log,) = logs_of(engine, wanted["lines"], tmp_path)

    with zipfile.ZipFile(log) as archive:
        members_of = {(each.compress_type, each.date_time) for each in archive.infolist()}
    assert members_of == {(zipfile.ZIP_DEFLATED, (1980, 1, 1, 0, 0, 0))}
    found = members(log)
    assert found.keys() >= {"header.json", "summaries.json", "reductions.json"}
    samples = {each["input"]: each for name, each in found.items() if name.startswith("samples/")}
    assert held(samples, wanted["samples"]) == wanted["samples"]
    assert samples["df"]["scores"] == {}
    assert [each["role"] for each in samples["ls"]["messages"]] == ["user", "assistant"]
    ids = {each["id"] for each in samples.values()}
    assert {f"samples/{sample_id}_epoch_1.json" for sample_id in ids} <= found.keys()
    header = found["header.json"]
    assert header == header | found["_journal/start.json"]
    assert held(header, wanted["header"]) == wanted["header"]
    assert {*header["eval"]["dataset"]["sample_ids"]} == ids
    (score,) = header["results"]["scores"]
    assert held(score, wanted["score"]) == wanted["score"]
    values = {name: score["metrics"][name]["value"] for name in wanted["metrics"]}
    assert values == pytest.approx(wanted["metrics"])
    (reduction,) = found["reductions.json"]
    assert sorted(each["value"] for each in reduction["samples"]) == [0.0, 0.0, 1.0, 1.0]


def test_epochs_and_retries(engine: Engine, tmp_path: Path) -> None:
    """Epochs are averaged; of retries the newest verdict counts, and the older ones are said."""
    failed = {"completion": None, "error_class": "auth", "call_errors": [FAILED]}
    lines = [
        a_line(dataset="d", epoch=1),
        a_line(dataset="d", epoch=2, completion=BLOCK),
        a_line("id", dataset="d", epoch=1, **failed),
        a_line("id", dataset="d", epoch=1, generation=1),
    ]
    (log,) = logs_of(engine, lines, tmp_path)
    found = members(log)

    header = found["header.json"]
    # ls is right in one of two epochs, id in the only one that it has
    (score,) = header["results"]["scores"]
    assert (score["metrics"]["accuracy"]["value"], score["reducer"]) == (0.75, "mean")
    assert (header["status"], header["results"]["total_samples"]) == ("cancelled", 4)
    assert len(found["summaries.json"]) == 3
    (retried,) = (each for each in found["summaries.json"] if each["input"] == "id")
    assert (retried["retries"], retried["scores"]["aegish-5.3"]["value"]) == (1, "C")
    sample = found[f"samples/{retried['id']}_epoch_1.json"]
    assert sample["error_retries"][0]["message"] == "replaced by a retry: API_ERROR: auth: no key"
    assert len(sample["metadata"]["aegish_dist_replaced"]) == 1


def test_each_rule_set_is_a_scorer(engine: Engine, tmp_path: Path) -> None:
    """A verdict that one rule set leaves out is scored by the other alone."""
    run_id = imported_run(engine, tmp_path, [a_line(completion=None)])
    opinions = [load_opinions(name)[0] for name in ("aegish-5.3", "aegish-refined")]

    (name,) = export_inspect(engine, run_id, tmp_path / "logs", opinions)

    found = members(tmp_path / "logs" / name)
    (sample,) = (each for name, each in found.items() if name.startswith("samples/"))
    assert {rule: score["value"] for rule, score in sample["scores"].items()} == {"aegish-5.3": "I"}
    scores = {each["name"]: each["metrics"] for each in found["header.json"]["results"]["scores"]}
    assert scores["aegish-5.3"]["accuracy"]["value"] == 0
    assert scores["aegish-refined"] == {}  # of nothing there is no rate


def test_a_second_export_replaces_the_first_alone(engine: Engine, tmp_path: Path) -> None:
    """The same run gives the same bytes; other files stay, and one in the way is not replaced."""
    (log,) = logs_of(engine, [a_line(dataset="d")], tmp_path)
    first, run_id = log.read_bytes(), members(log)["header.json"]["eval"]["run_id"]
    (log.parent / "other.eval").write_bytes(b"mine")

    export_inspect(engine, run_id, log.parent)
    assert log.read_bytes() == first
    assert (log.parent / "other.eval").read_bytes() == b"mine"

    log.write_bytes(b"mine")
    with pytest.raises(OutputError, match="is none of this export"):
        export_inspect(engine, run_id, log.parent)
    assert log.read_bytes() == b"mine"
    assert {path.name for path in log.parent.iterdir()} == {log.name, "other.eval"}


def test_a_log_that_was_cut_off_is_read_as_far_as_it_goes(engine: Engine, tmp_path: Path) -> None:
    """Without header and summaries, the journal's start says the model and the run's own marks."""
    (log,) = logs_of(engine, [EVERY_KEY, EVERY_KEY | {"epoch": 1}], tmp_path)
    cut = tmp_path / "cut.eval"
    with zipfile.ZipFile(log) as archive, zipfile.ZipFile(cut, "w") as part:
        for name in archive.namelist():
            if name.startswith("samples/") or name == "_journal/start.json":
                part.writestr(name, archive.read(name))

    first, second = (import_verdicts(engine, [path], "").run_id for path in (log, cut))

    before = exported_lines(engine, first, tmp_path / "first.jsonl")
    assert exported_lines(engine, second, tmp_path / "second.jsonl") == before
