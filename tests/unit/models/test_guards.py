"""Guards of the operator's catalog: programs, classifiers, and mappings of what they answer."""

import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from aegish_dist.core.output import Label
from aegish_dist.errors import CatalogError
from aegish_dist.models.catalog import Catalog
from aegish_dist.models.credentials import Credentials
from aegish_dist.models.entries import checked_mapping
from aegish_dist.pipeline.simulate import catalog_for
from tests.recorded import lines_of


def read(folder: Path, text: str) -> Catalog:
    path = folder / "catalog.toml"
    path.write_text(text)
    return Catalog.load(path)


GUARDS = """
[providers.hook]
wire = "exec"
command = ["/opt/hook"]
output = { kind = "hook" }
[[models]]
id = "hook/mine"

[providers.judge]
wire = "http"
base_url = "http://127.0.0.1:9/classify"
request = { text = "{command}" }
output = { kind = "score", path = "p", block_from = 0.5 }
[[models]]
id = "judge/mine"
"""


@pytest.mark.parametrize(("change", "refusal"), lines_of("destinations_of_guards.jsonl"))
def test_a_run_names_no_program_but_those_of_the_catalog(
    tmp_path: Path, change: dict[str, Any], refusal: str | None
) -> None:
    """A run is what its submitter writes into the store; no command of it is ever looked at.

    A chat model, a classifier or a baseline would answer under the name of the program.
    """
    catalog = read(tmp_path, GUARDS)
    (spec,) = catalog.resolve("hook/mine", {})
    assert "command" not in str(msgspec.to_builtins(spec))
    here = Credentials(catalog, {"OPENAI_API_KEY": "k"})
    if change.get("output"):
        change = change | {"output": checked_mapping(change["output"])}
    asked = replace(spec.destination, **change)
    assert refusal in (here.refusal(asked) or "") if refusal else here.refusal(asked) is None
    if refusal is None and asked.wire == "exec":
        program = here.program(asked)
        assert program is not None
        assert here.key(asked) is None
        assert program.command == ("/opt/hook",)
    assert Credentials(Catalog.load(), {}).refusal(spec.destination) is not None


def test_what_a_classifier_is_sent_comes_from_the_catalog(tmp_path: Path) -> None:
    catalog = read(tmp_path, GUARDS)
    (spec,) = catalog.resolve("judge/mine", {})
    here = Credentials(catalog, {})
    assert here.refusal(spec.destination) is None
    for request in ({"text": "{command}", "debug": True}, {"url": "{command}"}, None):
        said = here.refusal(replace(spec.destination, request=request))
        assert said is not None
        assert "its request is not that of the catalog here" in said
    elsewhere = replace(spec.destination, base_url="http://127.0.0.1:9/admin")
    assert "is not in the catalog here" in (here.refusal(elsewhere) or "")


@pytest.mark.parametrize(
    ("text", "problem"),
    lines_of("refused_guards.jsonl"),
)
def test_a_guard_that_is_wrong_is_refused_in_one_line(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(CatalogError, match=problem) as refused:
        read(tmp_path, text)
    assert "\n" not in str(refused.value)


def test_a_replay_reads_texts_by_the_mappings_of_here() -> None:
    patterns: Any = ((r'\A"un\\safe"\t\x7f✗', "BLOCK"),)
    output = Label(patterns=patterns, suspicion="a.0")
    written = catalog_for("http://127.0.0.1:1", ["hook/mine", "a/b"], outputs={"hook/mine": output})
    mine, other = tomllib.loads(written)["models"]
    assert checked_mapping(mine["output"]) == output
    assert "output" not in other


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (
            """
[[models]]
id = "a/b"
output = { kind = "label", patterns = [
  ["^unsafe", "BLOCK"],
  ['^(?!un)safe', "ALLOW"],
] }
""",
            "line 9: [[models]] entry 1 (a/b): key 'output.patterns[1]': ",
        ),
        (
            'output = { kind = "label", patterns = [["(a)\\\\1", "BLOCK"]] }',
            "line 4: [providers.a]: key 'output.patterns[0]': ",
        ),
        (
            """
[[models]]
id = "a/b"
[models.variants.odd]
output = { kind = "label", patterns = [["a{,9}", "WARN"]] }
""",
            "line 8: [[models]] 'a/b', variant 'odd': key 'output.patterns[0]': ",
        ),
        (
            """
[[models]]
id = "a/b"
output.kind = "label"
output.patterns = [["\\u0028?=", "WARN"]]
""",
            "[[models]] entry 1 (a/b): key 'output.patterns[0]': ",
        ),
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused_with_its_line(
    tmp_path: Path, text: str, place: str
) -> None:
    """The fourth is written in escapes, so that no line holds it as it is."""
    with pytest.raises(CatalogError) as refused:
        read(tmp_path, f'\n[providers.a]\nbase_url = "http://a"\n{text}')
    assert str(refused.value).startswith(f"{tmp_path / 'catalog.toml'}: {place}")
    assert "(a)" not in str(refused.value).removeprefix(str(tmp_path))
