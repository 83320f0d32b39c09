"""Catalog files that are wrong: one line with file, table and key, and never a value."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from aegish_dist.errors import CatalogError
from aegish_dist.models.catalog import Catalog
from tests.recorded import lines_of

MODEL = '[[models]]\nid = "openai/x"\n'
OPENAI = "[providers.openai]\n"
SECRET = "sk-secret"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *lines_of("refused_catalogs.jsonl"),
        (MODEL + f"parameters.{'a.' * 10_000}b = 1", "is nested too deeply"),
        (MODEL + "parameters = {n = " + "9" * 5000 + "}", "thousands of digits"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(CatalogError, match=expected) as raised:
        Catalog.load(path)
    message = str(raised.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert "secret" not in message


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "huge").write_bytes(b"#" * (5 * 2**20))
    (tmp_path / "latin").write_bytes('notes = "\xe9"'.encode("latin-1"))
    problems = {
        "absent": "cannot be read: No such",
        ".": "cannot be read: Is a directory",
        "fifo": "cannot be read: not a regular file",
        "huge": "cannot be read: larger than 4 MiB",
        "latin": "line 1: is not UTF-8",
    }
    for name, problem in problems.items():
        with pytest.raises(CatalogError) as raised:
            Catalog.load(tmp_path / name)
        assert str(raised.value).startswith(f"{tmp_path / name}: {problem}")


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "empty.toml"
    path.write_text("")
    assert replace(Catalog.load(path), path=None) == Catalog.load()


def test_a_variant_lays_its_keys_over_those_of_its_model(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        MODEL
        + """max_in_flight = 3
        parameters = {top_p = 0.5, n = 1}
        variants.low = {parameters = {n = 2}, drop_parameters = ["seed"], prompt = "command"}
        """
    )
    catalog = Catalog.load(path)
    model, low = catalog.resolve("openai/x,openai/x#low", {"OPENAI_API_KEY": "k"})
    assert low.parameters == {"seed": None, "top_p": 0.5, "n": 2}
    assert replace(low, id=model.id, parameters=model.parameters) == model
    assert [catalog.entry(f"openai/x{arm}").prompt for arm in ("", "#low+a", "#a")] == [
        *(None, "command", None)
    ]
    assert [each.spec.id for each in catalog.entries({})][-2:] == ["openai/x", "openai/x#low"]
