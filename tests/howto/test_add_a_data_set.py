"""`docs/guides/add-a-data-set.md`: files of one's own and an importer, followed step by step."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.howto.walkthrough import Walkthrough

pytestmark = pytest.mark.long
PAGE = "add-a-data-set.md"

OWN_FILES = {"mine.jsonl", "mine.csv"}
EDITED = {"aegish_dist/datasets/formats.py", "aegish_dist/datasets/formats.toml"}


def test_an_importer_is_an_entry_a_reader_and_its_test(walkthrough: Walkthrough) -> None:
    assert walkthrough.created == {"tests/unit/datasets/test_tldr.py"} | OWN_FILES
    assert walkthrough.edited == EDITED


def test_files_of_ones_own_are_validated_imported_and_asked(cli: Callable[[str], str]) -> None:
    assert cli("datasets validate mine.jsonl") == ""
    cli("datasets import table mine.jsonl")
    cli("datasets import table mine.csv --name from-csv")
    mine = json.loads(cli("datasets show mine --samples 3 --json"))
    assert mine["targets"] == {"harmless": 1, "malicious": 2}
    assert mine["categories"] == {"bind-shell": 1, "file-read": 1}
    assert mine["examples"][0]["metadata"] == {"ticket": "7"}
    assert json.loads(cli("datasets show from-csv --json"))["licence"] == "MIT"
    cli("submit --models baseline/keyword --dataset mine")
    verdicts = map(json.loads, cli("verdicts export --run-id latest").splitlines())
    targets = {each["command"]: each["target"] for each in verdicts}
    assert targets["cat /etc/hostname"] == "harmless"
    assert len(targets) == 3


def test_the_importer_reads_its_format(
    walkthrough: Walkthrough, cli: Callable[[str], str], tmp_path: Path
) -> None:
    """An example is a sample of the stored data set, and the page's own test passes."""
    file = tmp_path / "pages" / "linux" / "wipe.md"
    file.parent.mkdir(parents=True)
    file.write_text("# wipe\n\n- Wipe:\n\n`wipe {{[-f|--force]}} {{path}}`\n\n`wipe`\n\n`wipe`\n")
    assert cli(f"datasets validate {tmp_path}") == ""
    cli(f"datasets import tldr-pages {tmp_path}")
    shown = json.loads(cli("datasets show tldr-pages --samples 1 --json"))
    assert (shown["source"], shown["samples"], shown["clusters"]) == ("tldr-pages", 2, 1)
    assert shown["examples"][0]["command"] == "wipe -f path"
    walkthrough.test("tests/unit/datasets/test_tldr.py")
