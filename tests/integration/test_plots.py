"""The command `plots` on stored runs."""

import json
import sys
from pathlib import Path

import pytest
from sqlalchemy import Engine

from tests.integration.command_line import CommandLine, write_lines
from tests.integration.stored_runs import row_counts, verdict_line
from tests.unit.report.reports import HOSTILE


@pytest.fixture
def aegish(aegish: CommandLine, tmp_path: Path) -> CommandLine:
    """A command line whose store holds one run of two models, one with a hostile name."""
    lines = [
        verdict_line(model, f"cat {n}", target, "block", 0.9, latency_ms=900 + n)
        for model in ("acme/guard", HOSTILE)
        for n, target in enumerate(["malicious"] * 4 + ["harmless"] * 4)
    ]
    aegish.ok("verdicts import", write_lines(tmp_path / "v.jsonl", *lines), "--name", HOSTILE)
    return aegish


def test_each_plot_is_a_file_in_each_format(aegish: CommandLine, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "figures"
    asked = "plots --format vega,svg,pdf,png --only ranking,roc,score-by-cost -o"
    done = aegish.ok(asked, folder)
    ends = ("svg", "png", "pdf", "vl.json")
    names = [f"{name}.{end}" for name in ("ranking", "roc") for end in ends]
    assert done.out.splitlines() == [str(folder / name) for name in names]
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    assert "no plot score-by-cost: no model has both cost and aegish score" in done.err
    assert (folder / "ranking.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "ranking.pdf").read_bytes().startswith(b"%PDF")
    assert (folder / "ranking.svg").read_text().startswith("<svg")
    schema = json.loads((folder / "ranking.vl.json").read_text())["$schema"]
    assert "vega-lite/v6" in schema


def test_plots_are_listed_without_a_store(aegish: CommandLine) -> None:
    listed = aegish.ok("plots --list").out.splitlines()
    assert len(listed) == 4
    assert all("  " in line and line.endswith(".") for line in listed)


def test_nothing_is_stored_for_a_folder_that_cannot_be_made(
    aegish: CommandLine, engine: Engine, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    stored = row_counts(engine)
    said = aegish.refused("plots --only ranking -o", tmp_path / "file" / "below")
    assert "below cannot be written" in said
    assert row_counts(engine) == stored


def test_wrong_words_are_refused(aegish: CommandLine, tmp_path: Path) -> None:
    said = aegish.misused("plots --only pie")
    assert "'pie' is no plot: choose from ranking, score-by-cost" in said
    replaced = "score-by-latency detection-by-acceptance systems reliability differences"
    for name in replaced.split():
        assert f"'{name}' is no plot" in aegish.misused(f"plots --only {name}")
    aegish.misused("plots --format gif")
    aegish.misused("plots --snapshot 1 --scoring aegish-legacy")
    said = aegish.refused("plots --only score-by-cost -o", tmp_path / "none")
    assert "has no data for these plots: score-by-cost: no model has both cost and" in said
    assert not (tmp_path / "none").exists()
    (tmp_path / "file").touch()
    aegish.misused("plots -o", tmp_path / "file")


def test_without_the_package_specifications_are_written_all_the_same(
    aegish: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    done = aegish("plots -o", tmp_path / "figures")
    assert done.code == 1
    assert "pip install 'aegish-dist[plots]'" in done.err
    assert not (tmp_path / "figures").exists()
    aegish.ok("plots --format vega --only ranking -o", tmp_path / "figures")


def test_a_policy_is_drawn_among_the_models(aegish: CommandLine, tmp_path: Path) -> None:
    policy = tmp_path / "any.toml"
    policy.write_text('name = "both"\nversion = 1\ncombine = "any"\nguards = ["acme/guard"]\n')
    aegish.ok("plots --only ranking --format vega --policy", policy, "-o", tmp_path)
    assert "policy/both" in (tmp_path / "ranking.vl.json").read_text()
