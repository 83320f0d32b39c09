"""`docs/guides/opinions.md`: its files and commands, as a reader would follow them."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aegish_dist.core.columns import FINDINGS, GuardColumns
from aegish_dist.core.outcome import OutcomeDetail
from aegish_dist.opinions.guards import suspicion_of
from aegish_dist.opinions.scoring import DEFAULT_RULE
from aegish_dist.pipeline.opinions import load_suspicion_rule
from tests.guards import column, listed
from tests.integration.command_line import CommandLine

PAGE = (Path(__file__).parents[2] / "docs/guides/opinions.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```\w+ file=(\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
COMMANDS = re.findall(r"^```bash\naegish-dist (.*?)\n```$", PAGE, re.MULTILINE)


@pytest.fixture
def reader(aegish: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """The command line in a folder with the files of the page, the run imported."""
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        Path(name).write_text(content, encoding="utf-8")
    aegish.ok("verdicts import verdicts.jsonl --name demo")
    return aegish


def metrics(aegish: CommandLine, options: str = "") -> dict[str, float]:
    (model,) = aegish.ok(f"aggregate --json {options}").json["models"]
    return {name: numbers["value"] for name, numbers in model["metrics"].items()}


def report(aegish: CommandLine, options: str) -> Any:
    return aegish.ok(f"report --format json {options}").json


def test_every_command_of_the_page_works(reader: CommandLine) -> None:
    assert len(COMMANDS) == 4
    shown = [reader.ok(command).unwrapped for command in COMMANDS]
    assert "judged by ask-the-user v1." in shown[0]
    assert "aegish score \N{GREATER-THAN OR EQUAL TO} 60.0, accuracy" in shown[1]
    assert "Effect of the overlay" in shown[2]
    assert ", overlay labels-checked v1." in shown[2]


def test_a_rule_set_of_a_file_scores(reader: CommandLine) -> None:
    """WARN detects under it, and under the one it is based on it does not."""
    assert metrics(reader)["malicious_detection_rate"] == 1 / 3
    own = metrics(reader, "--scoring ask-the-user.toml")
    assert own["malicious_detection_rate"] == pytest.approx(2 / 3)


def test_a_shown_rule_set_is_a_file(reader: CommandLine) -> None:
    Path("whole.toml").write_text(reader.ok("scoring show ask-the-user.toml").out)
    whole, own = (report(reader, f"--scoring {n}.toml") for n in ("whole", "ask-the-user"))
    assert whole["snapshot"] == own["snapshot"]


@pytest.mark.usefixtures("reader")
def test_the_suspicion_rule_of_the_page_is_one() -> None:
    """WARN lies between ALLOW, at most 0, and BLOCK, at least 2."""
    rule = load_suspicion_rule("suspicion.toml")
    finding = np.array(
        [[FINDINGS.index(OutcomeDetail.WARN)], [FINDINGS.index(OutcomeDetail.UNREADABLE)]]
    )
    unknown = column([None, None])
    read = GuardColumns(finding.astype(np.int8), column([0.9, None]), unknown, unknown, unknown)
    assert listed(suspicion_of(read, rule, DEFAULT_RULE)) == [pytest.approx(1.4), 2.5]


def test_the_effect_of_the_overlay_is_that_of_the_page(reader: CommandLine) -> None:
    """(1/3 + 1/2) / 2 becomes (1/2 + 1) / 2."""
    shown = report(reader, "--overlay labels.toml")
    (effect,) = shown["overlay_effect"]
    assert effect["model"] == "acme/guard"
    assert effect["rank"] == {"without": 1, "with": 1, "difference": 0}
    assert effect["metrics"]["malicious_detection_rate"] == {
        "without": pytest.approx(1 / 3),
        "with": 1 / 2,
        "difference": pytest.approx(1 / 6),
    }
    score = effect["metrics"]["aegish_score"]
    assert (round(100 * score["without"], 1), score["with"]) == (41.7, 0.75)
    identity = shown["snapshot"]["opinion"]["overlay"]
    assert (identity["name"], identity["version"], identity["changes"]) == ("labels-checked", 1, 2)
    stored = report(reader, f"--snapshot {shown['snapshot']['id']}")
    assert stored["overlay_effect"] == shown["overlay_effect"]


def test_a_snapshot_has_its_own_opinion(reader: CommandLine) -> None:
    snapshot = reader.ok("aggregate --json").json["snapshot_id"]
    said = reader.misused("report --overlay labels.toml --snapshot", snapshot)
    assert "leave out --overlay" in said


def test_changes_of_other_datasets_are_noted(reader: CommandLine) -> None:
    text = Path("labels.toml").read_text(encoding="utf-8")
    Path("labels.toml").write_text(text.replace('"shell"', '"other"', 1), encoding="utf-8")
    done = reader.ok("aggregate --overlay labels.toml")
    assert "1 of 2 changes is of samples that run" in done.err
    assert "and overlay 'labels-checked' version 1" in done.out


def test_rule_sets_are_listed(aegish: CommandLine) -> None:
    listed = aegish.ok("scoring list --json").json
    assert [each["name"] for each in listed][:2] == ["aegish-5.3", "aegish-refined"]
    text = aegish.ok("scoring list").out
    assert all(each["fingerprint"] in text for each in listed)
