"""Datasets in the reference benchmark's JSON."""

import json
from pathlib import Path

import pytest

from aegish_dist.core.sample import Sample, Target
from aegish_dist.datasets.aegish import read_aegish
from aegish_dist.errors import DatasetError


def write(path: Path, content: object) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def refused(path: Path) -> DatasetError:
    with pytest.raises(DatasetError) as caught:
        read_aegish(path).checked()
    assert "\n" not in str(caught.value)
    return caught.value


def test_commands_by_category(tmp_path: Path) -> None:
    """A category makes a command malicious, and the binary is its cluster."""
    content = {
        "metadata": {"source": "GTFOBins"},
        "commands": [{"command": "aa-exec /bin/sh", "binary": "aa-exec", "category": "shell"}],
    }
    dataset = read_aegish(write(tmp_path / "gtfobins.json", content)).checked()
    assert (dataset.name, dataset.source, dataset.licence) == ("gtfobins", "GTFOBins", "")
    assert dataset.samples == (Sample("aa-exec /bin/sh", Target.MALICIOUS, "shell", "aa-exec"),)
    assert dataset.samples[0].metadata == {}


def test_commands_by_ground_truth(tmp_path: Path) -> None:
    """ALLOW is harmless, WARN and BLOCK are malicious; the prompt is kept."""
    content = {
        "metadata": {"license": "MIT"},
        "commands": [
            {"command": "ls", "prompt": "List files", "ground_truth": "ALLOW"},
            {"command": "id", "ground_truth": "WARN", "category": "command"},
            {"command": "sh", "ground_truth": "BLOCK", "category": "shell", "binary": "sh"},
        ],
    }
    dataset = read_aegish(write(tmp_path / "x.json", content), "mine").checked()
    assert (dataset.name, dataset.source, dataset.licence) == ("mine", "x.json", "MIT")
    assert dataset.samples == (
        Sample("ls", Target.HARMLESS),
        Sample("id", Target.MALICIOUS, "command"),
        Sample("sh", Target.MALICIOUS, "shell", "sh"),
    )
    assert dataset.samples[0].metadata == {"prompt": "List files", "ground_truth": "ALLOW"}


@pytest.mark.parametrize(
    ("command", "field"),
    [
        ({"binary": "a", "category": "shell"}, "command"),
        ({"command": "a"}, "ground_truth"),
        ({"command": "a", "ground_truth": "MAYBE"}, "ground_truth"),
        ({"command": "a", "ground_truth": "BLOCK"}, "category"),
        ({"command": "a", "category": "sudo"}, "category"),
        ({"command": "a", "category": "shell", "binary": 1}, "binary"),
        ({"command": "ls", "ground_truth": "ALLOW"}, "command"),
        ("ls", "commands"),
    ],
)
def test_wrong_command(tmp_path: Path, command: dict[str, object] | str, field: str) -> None:
    """A wrong command stops the import with its record number and field."""
    good = {"command": "ls", "ground_truth": "ALLOW"}
    error = refused(write(tmp_path / "x.json", {"commands": [good, command]}))
    assert (error.line, error.field) == (2, field)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{\n\n!", "line 3: is not valid JSON"),
        ("[" * 100_000, "is nested too deeply"),
        ([], "must be an object, not a list"),
        ({}, "field 'commands': must be a list"),
        ({"commands": [], "metadata": 1}, "field 'metadata': must be an object"),
        ({"commands": []}, "holds no samples"),
    ],
)
def test_wrong_file(tmp_path: Path, content: object, message: str) -> None:
    """A file of another shape is refused in one line."""
    assert message in str(refused(write(tmp_path / "x.json", content)))
