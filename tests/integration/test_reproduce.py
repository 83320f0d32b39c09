"""`reproduce` on the command line: without a store, and with a run beside the table."""

from pathlib import Path

import pytest
from sqlalchemy import Engine

from tests.integration.command_line import CommandLine
from tests.integration.stored_runs import imported_run, verdict_line

TABLE = """name = "t"\nsource = "s"\npublished = 2026-01-02\nlicence = "l"
malicious = 10\nharmless = 10
[[row]]
name = "sharp"
figures = { malicious_detection_rate = 0.8, false_positive_rate = 0.1 }
[[row]]
name = "B"
guard = "lab/blunt"
figures = { malicious_detection_rate = 0.9, false_positive_rate = 0.0 }
[[row]]
name = "odd"
figures = { malicious_detection_rate = 0.50, precision = 0.50, f1 = 0.60 }
"""


def test_a_table_of_the_package_needs_no_store(
    aegish: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AEGISH_DIST_DATABASE_URL", "postgresql://nowhere.invalid/none")
    ranked = "reproduce shellrisk-bench --metric malicious_detection_rate"
    assert "1,612 to 1,660" in aegish.ok(ranked).out
    groups = [place["tie_group"] for place in aegish.ok(ranked, "--json").json["ranking"]]
    assert groups == [1, *[2] * 7, 3, 3]
    assert "lancet-bench-1" in aegish.ok("reproduce --list").out
    assert "tables of the package are lancet-bench-1" in aegish.refused("reproduce shellrisk")
    aegish.misused("reproduce")
    aegish.misused("reproduce t --list")


def test_a_run_stands_beside_the_guards_of_its_name(
    aegish: CommandLine, engine: Engine, tmp_path: Path
) -> None:
    """Of ten each, sharp detects 8 and accepts 9 as published; blunt detects 0 instead of 9."""
    lines = []
    for model, detected, accepted in (("lab/sharp", 8, 9), ("lab/blunt", 0, 10)):
        for n in range(10):
            action = "BLOCK" if n < detected else "ALLOW"
            lines.append(verdict_line(model, f"evil {n}", "malicious", action))
            action = "ALLOW" if n < accepted else "BLOCK"
            lines.append(verdict_line(model, f"fine {n}", "harmless", action))
    path = tmp_path / "t.toml"
    path.write_text(TABLE)
    beside_run = f"reproduce --run-id {imported_run(engine, tmp_path, lines)}"
    found = aegish.ok(beside_run, path, "--json").json
    beside = {each["model"]: each["beside"] for each in found["models"]}
    assert {each["verdict"] for each in beside["sharp"]["metrics"].values()} == {"equal"}
    detection = beside["B"]["metrics"]["malicious_detection_rate"]
    assert (detection["verdict"], detection["difference"]) == ("differs", -0.9)
    assert "differs -90.0" in aegish.ok(beside_run, path).out
    path.write_text(TABLE.replace('"sharp"', '"blunt"\nguard = "lab/sharp"'))
    found = aegish.ok(beside_run, path, "--json").json
    names = [each["beside"] and each["beside"]["model"] for each in found["models"]]
    assert names == ["lab/sharp", "lab/blunt", None]
    path.write_text(TABLE.replace("sharp", "x").replace("lab/blunt", "y"))
    assert "has no model of this table" in aegish.refused(beside_run, path)
