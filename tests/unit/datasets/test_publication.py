"""Datasets written for publication: samples, Croissant and card fit together and say the truth."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt

from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.datasets.bundled import card_of, load_bundled
from aegish_dist.datasets.table import read_table
from aegish_dist.errors import OutputError
from aegish_dist.interchange.croissant import publish_dataset
from tests.unit.report.reports import HOSTILE

TAR = Sample("tar xf a --to-command=sh", TrueLabel.MALICIOUS, "shell", "tar", {"needs_root": "no"})
LS = Sample("ls -l\u2028", TrueLabel.HARMLESS, metadata={"odd key": "x"})
BOTH = Dataset("both", (TAR, LS), "GTFOBins, commit 0123", "GPL-3.0")
FIELD = {"@type", "@id", "name", "description", "dataType", "source"}


def published(dataset: Dataset, folder: Path) -> tuple[list[str], dict[str, Any], str]:
    """Write a dataset; return the lines of its samples, its metadata, and its card."""
    lines, metadata, card = publish_dataset(dataset, folder)
    return (
        (folder / lines).read_text(encoding="utf-8").split("\n"),
        json.loads((folder / metadata).read_bytes()),
        (folder / card).read_text(encoding="utf-8"),
    )


def front_matter(card: str) -> dict[str, Any]:
    _, matter, _ = card.split("---\n", 2)
    found: dict[str, Any] = yaml.safe_load(matter)
    return found


def test_the_lines_are_the_dataset_again(tmp_path: Path) -> None:
    published(BOTH, tmp_path)
    again = read_table(tmp_path / "both.jsonl").checked()
    assert again == BOTH
    assert again.fingerprint == BOTH.fingerprint
    assert [dict(sample.metadata) for sample in again.samples] == [
        {"needs_root": "no"},
        {"odd key": "x"},
    ]


def test_croissant_has_what_version_1_1_asks_for(tmp_path: Path) -> None:
    _, metadata, _ = published(BOTH, tmp_path)
    assert metadata["@type"] == "sc:Dataset"
    assert metadata["conformsTo"] == "http://mlcommons.org/croissant/1.1"
    assert metadata["name"] == "both"
    assert metadata["license"] == "https://spdx.org/licenses/GPL-3.0.html"
    assert metadata["identifier"] == f"sha256:{BOTH.fingerprint}"
    assert metadata["description"].startswith("2 labelled shell commands: 1 malicious, 1 harmless.")
    data = (tmp_path / "both.jsonl").read_bytes()
    assert metadata["distribution"] == [
        {
            "@type": "cr:FileObject",
            "@id": "both.jsonl",
            "name": "both.jsonl",
            "contentUrl": "both.jsonl",
            "contentSize": f"{len(data)} B",
            "encodingFormat": "application/jsonlines",
            "sha256": hashlib.sha256(data).hexdigest(),
        }
    ]


def test_fields_are_the_columns_of_the_file(tmp_path: Path) -> None:
    lines, metadata, _ = published(BOTH, tmp_path)
    (records,) = metadata["recordSet"]
    fields = {field["name"]: field for field in records["field"]}
    columns = set(json.loads(lines[0])) - {"metadata"}
    assert set(fields) == columns | {"metadata.needs_root"}
    for field in fields.values():
        assert set(field) == FIELD
        assert field["source"]["fileObject"] == {"@id": "both.jsonl"}
        assert field["dataType"] == "sc:Text"
    assert fields["metadata.needs_root"]["source"]["extract"] == {"column": "metadata"}
    assert fields["metadata.needs_root"]["source"]["transform"] == {"jsonPath": "$.needs_root"}


@pytest.mark.parametrize(
    ("licence", "expected"),
    [
        ("MIT", {"license": "mit"}),
        ("gpl-3.0-only", {"license": "gpl-3.0"}),
        ("", {"license": "unknown"}),
        ("ask us: first", {"license": "other", "license_name": "ask us: first"}),
    ],
)
def test_the_front_matter_names_the_licence_as_the_hub_does(
    tmp_path: Path, licence: str, expected: dict[str, str]
) -> None:
    _, metadata, card = published(Dataset("d", (TAR,), licence=licence), tmp_path)
    matter = front_matter(card)
    assert {key: each for key, each in matter.items() if key.startswith("license")} == expected
    assert ("license" in metadata) == bool(licence)
    assert ("before you publish them" in card) == (not licence)


def test_a_card_says_where_the_commands_come_from_and_what_they_are(tmp_path: Path) -> None:
    _, _, card = published(BOTH, tmp_path)
    matter = front_matter(card)
    assert matter["size_categories"] == ["n<1K"]
    assert matter["configs"] == [{"config_name": "default", "data_files": "both.jsonl"}]
    assert "| malicious | shell | 1 | 1 |" in card
    assert "GTFOBins, commit 0123" in card
    assert "passed on under the same licence" in card
    assert BOTH.fingerprint in card
    assert "aegish-dist datasets import table both.jsonl --name both" in card
    assert "@misc{both, " in card


def test_a_dataset_of_one_label_says_that_it_is_half_a_test(tmp_path: Path) -> None:
    _, _, card = published(load_bundled("harmless-hard"), tmp_path)
    assert "All commands are harmless" in card


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    hostile = Dataset(HOSTILE, (Sample("x", TrueLabel.MALICIOUS, HOSTILE[:20]),), HOSTILE, HOSTILE)
    _, metadata, card = published(hostile, tmp_path)
    assert metadata["name"] == HOSTILE
    assert re.fullmatch(r"[A-Za-z0-9._-]+\.jsonl", metadata["distribution"][0]["name"])
    assert front_matter(card)["license_name"] == HOSTILE
    html = (
        MarkdownIt("commonmark", {"html": False}).enable("table").render(card.split("---\n", 2)[2])
    )
    assert not re.findall(r"<(?:a|em|s|script|img)\b", html)
    assert "\x1b" not in card


def test_the_same_dataset_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    for name in publish_dataset(BOTH, first):
        publish_dataset(BOTH, second)
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_nothing_is_written_where_one_file_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "README.md").mkdir()
    with pytest.raises(OutputError, match="it is a folder"):
        publish_dataset(BOTH, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


def test_the_readme_of_a_project_is_not_replaced(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("mine", encoding="utf-8")
    with pytest.raises(OutputError, match="none of this export"):
        publish_dataset(BOTH, tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["README.md"]
    assert readme.read_text(encoding="utf-8") == "mine"
    readme.unlink()
    assert published(BOTH, tmp_path) == published(BOTH, tmp_path)


def test_the_card_of_a_bundled_set_and_licences_of_samples_are_published(tmp_path: Path) -> None:
    sets = [load_bundled(name) for name in ("agent-work", "twins", "harmless")]
    cards = [card_of(each) for each in sets]
    assert [card.partition("\n")[0] for card in cards] == [
        "## About agent-work",
        "## About twins",
        "",
    ]
    assert card_of(Dataset("twins", (TAR,), "a file of that name")) == ""
    publish_dataset(sets[1], tmp_path, cards[1])
    assert cards[1].strip() in (tmp_path / "README.md").read_text("utf-8")
    licensed = [Sample(each, TrueLabel.HARMLESS, metadata={"licence": "MIT"}) for each in "abc"]
    *_, card = published(Dataset("mixed", (*licensed, TAR)), tmp_path / "mixed")
    assert "- **Licence:** MIT (3), not recorded (1)" in card
