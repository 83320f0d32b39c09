"""`docs/guides/add-a-data-set.md`: files of one's own and an importer, followed step by step."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.howto.walkthrough import Walkthrough

pytestmark = pytest.mark.long
PAGE = "add-a-data-set.md"

OWN_FILES = {"mine.jsonl", "mine.csv"}
IMPORTER = {"aegish_dist/datasets/atomic.py", "tests/unit/datasets/test_atomic.py"}
EDITED = {"aegish_dist/cli/datasets.py", "aegish_dist/datasets/table.py"}
TECHNIQUE = """
attack_technique: T1485
atomic_tests:
- supported_platforms: [linux, macos]
  input_arguments: {file: {default: /var/log/syslog}}
  executor: {name: sh, command: "shred -u #{file}"}
"""


def test_an_importer_is_one_module_its_test_and_two_edits(walkthrough: Walkthrough) -> None:
    assert walkthrough.created == IMPORTER | OWN_FILES
    assert walkthrough.edited == EDITED


def test_files_of_ones_own_are_validated_imported_and_asked(cli: Callable[..., str]) -> None:
    assert cli("datasets", "validate", "mine.jsonl") == ""
    cli("datasets", "import", "table", "mine.jsonl")
    cli("datasets", "import", "table", "mine.csv", "--name", "from-csv")
    mine = json.loads(cli("datasets", "show", "mine", "--samples", "3", "--json"))
    assert mine["targets"] == {"harmless": 1, "malicious": 2}
    assert mine["categories"] == {"bind-shell": 1, "file-read": 1}
    assert mine["examples"][0]["metadata"] == {"ticket": "7"}
    assert json.loads(cli("datasets", "show", "from-csv", "--json"))["licence"] == "MIT"
    cli("submit", "--models", "baseline/keyword", "--dataset", "mine")
    verdicts = map(json.loads, cli("verdicts", "export", "--run-id", "latest").splitlines())
    targets = {each["command"]: each["target"] for each in verdicts}
    assert targets["cat /etc/hostname"] == "harmless"
    assert len(targets) == 3


def test_the_importer_reads_its_format(
    walkthrough: Walkthrough, cli: Callable[..., str], tmp_path: Path
) -> None:
    """A technique's test is a sample of the stored data set, and the page's own test passes."""
    file = tmp_path / "atomics" / "T1485" / "T1485.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(TECHNIQUE)
    assert cli("datasets", "validate", str(tmp_path / "atomics")) == ""
    cli("datasets", "import", "atomic", str(tmp_path / "atomics"))
    shown = json.loads(cli("datasets", "show", "atomic", "--samples", "1", "--json"))
    assert (shown["source"], shown["categories"]) == ("Atomic Red Team", {"T1485": 1})
    assert shown["examples"][0]["command"] == "shred -u /var/log/syslog"
    walkthrough.test("tests/unit/datasets/test_atomic.py")
