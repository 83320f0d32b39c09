"""Tables for notebooks and spreadsheets: data frames, wide CSV, verdicts as CSV and Parquet."""

import sys
from pathlib import Path

import pyarrow.parquet
import pytest
from sqlalchemy import Engine

from aegish_dist import api
from aegish_dist.core.outcome import ErrorClass, Outcome
from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.core.verdict import Completion, Verdict
from aegish_dist.opinions.parsing import judge
from aegish_dist.report.formats import COLUMNS
from tests.integration.command_line import CommandLine
from tests.integration.samples import ALLOWED, BLOCKED
from tests.integration.stored_runs import stored_run
from tests.oracles import pandas

pytestmark = pytest.mark.long
ODD = Sample("=cmd|'/c calc'!A0,\"x\"\nrm -rf /", TrueLabel.MALICIOUS, "delete", "rm")
LS = Sample("ls -l", TrueLabel.HARMLESS)
FAILED = Verdict(Outcome.API_ERROR, None, ErrorClass.SERVER)
WARNED = judge(Completion('{"action": "WARN", "confidence": 0.5}', suspicion=0.75))


def fill(engine: Engine) -> str:
    """Store a run: test/a is right once and warns once, test/b failed about the one attack."""
    said = {"test/a": {ODD: BLOCKED, LS: WARNED}, "test/b": {ODD: FAILED, LS: ALLOWED}}
    dataset = Dataset("d", (ODD, LS))
    return stored_run(engine, said, models=tuple(said), datasets=(dataset,)).run_id


def test_a_frame_of_verdicts(engine: Engine) -> None:
    """Texts are exact, and what is unknown is NA in columns that keep their types."""
    run = fill(engine)
    frame = api.verdicts_frame(engine, run)
    unknown = pandas.NA
    for column, cells in {
        "model": ["test/a", "test/b"] * 2,
        "command": [ODD.command] * 2 + [LS.command] * 2,
        "correct": [True, unknown, True, True],
        "error_class": [unknown, "server", unknown, unknown],
        "confidence": [unknown, unknown, 0.5, unknown],
        "suspicion": [unknown, unknown, 0.75, unknown],
    }.items():
        assert frame[column].tolist() == cells, column
    assert frame["created_at"].isna().all()
    legacy = api.verdicts_frame(engine, run, api.load_opinion("aegish-legacy"))
    assert legacy["correct"].tolist() == [True, unknown, False, True]
    wanted = api.VerdictFilter(models=("test/b",))
    assert api.verdicts_frame(engine, run, chosen=wanted, limit=1)["model"].tolist() == ["test/b"]
    with pytest.raises(api.AegishError, match="not -1"):
        api.verdicts_frame(engine, run, limit=-1)
    types = {"cost_usd": "Float64", "input_tokens": "Int64", "created_at": "datetime64[us, UTC]"}
    assert {name: str(frame.dtypes[name]) for name in types} == types
    empty = api.verdicts_frame(engine, stored_run(engine, run_id="0empty000").run_id)
    assert (len(empty), empty.dtypes.equals(frame.dtypes)) == (0, True)


def test_a_frame_of_metrics(engine: Engine) -> None:
    """A rate of no command is NA, not NaN and not 0."""
    frame = api.metrics_frame(engine, fill(engine)[:8])  # as find_run takes it
    assert list(frame.columns) == list(COLUMNS)
    values = frame[frame["category"].isna()].set_index(["model", "metric"])["value"]
    assert values["test/a", "malicious_detection_rate"] == 1
    assert values["test/b", "malicious_detection_rate"] is pandas.NA
    assert values["test/b", "harmless_acceptance_rate"] == 1
    with pytest.raises(api.AegishError, match="has no verdict yet"):
        api.metrics_frame(engine, stored_run(engine, run_id="0empty000").run_id)


def test_the_extra_is_named_where_it_is_missing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    for frame in (api.verdicts_frame, api.metrics_frame):
        with pytest.raises(api.AegishError, match=r"pip install 'aegish-dist\[frames\]'"):
            frame(engine, "0abcdefgh")


def test_wide_csv_has_a_row_for_each_model(aegish: CommandLine, engine: Engine) -> None:
    fill(engine)
    long = aegish.ok("report --format csv").rows
    wide = {row["model"]: row for row in aegish.ok("report --format csv-wide").rows}
    assert list(wide) == list(dict.fromkeys(row["model"] for row in long))
    for row in long:
        model = wide[row["model"]]
        end = row["category"] and f".{row['category']}"
        assert model[f"{row['metric']}{end}"] == row["value"]
        for number in ("stderr", "stderr_clustered", "ci_low", "ci_high", "n"):
            assert model.get(f"{row['metric']}_{number}{end}", "") == row[number]
    assert {row["aegish_score_message"] for row in wide.values()} > {""}


def test_verdicts_as_csv_and_parquet(aegish: CommandLine, engine: Engine, tmp_path: Path) -> None:
    """The CSV is safe to open in a spreadsheet; both say of which run and sample a row is."""
    run, table, text = fill(engine), tmp_path / "v.parquet", tmp_path / "v.csv"
    export = f"verdicts export --run-id {run}"
    rows = aegish.ok(f"{export} --format csv").rows
    assert rows[0]["command"] == "'=cmd|'/c calc'!A0,\"x\"\\nrm -rf /"
    assert [row["correct"] for row in rows] == ["true", "", "true", "true"]
    legacy = aegish.ok(f"{export} --correct aegish-legacy -o", text)
    assert legacy.err == f"written to {text}\n"
    assert text.read_text().splitlines()[3].endswith(",aegish-legacy,1")
    assert aegish(f"{export} --format csv --correct all").code == 2
    aegish.ok(f"{export} -o", table)
    for written in (rows, pyarrow.parquet.read_table(table).to_pylist()):
        ids = {(row["run_id"], row["sample_id"]) for row in written}
        assert ids == {(run, ODD.sample_id), (run, LS.sample_id)}
