"""A run as logs of Inspect AI, and back."""

from pathlib import Path

from sqlalchemy import Engine

from aegish_dist.pipeline.export_inspect import export_inspect
from aegish_dist.pipeline.import_verdicts import import_verdicts
from aegish_dist.recordings import read_recordings
from tests.integration.test_import_verdicts import LINES, in_place, write_lines
from tests.recorded import export_verdicts


def test_a_round_trip_loses_nothing(engine: Engine, tmp_path: Path) -> None:
    """There is a log for each model and dataset, and reading them gives every generation as it was."""
    given = write_lines(tmp_path / "given.jsonl", LINES)
    first = import_verdicts(engine, [given], "first")

    names = export_inspect(engine, first.run_id, tmp_path / "logs")

    assert len(names) == len({(line["model"], line["dataset"]) for line in LINES})
    logs = [tmp_path / "logs" / name for name in names]
    second = import_verdicts(engine, logs, "second")
    original = in_place(read_recordings(given))
    back = in_place(export_verdicts(engine, second.run_id))
    assert back == original
    assert [each.sample.metadata for each in back] == [each.sample.metadata for each in original]
