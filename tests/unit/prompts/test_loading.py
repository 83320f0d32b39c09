"""Prompts by name and from files."""

from pathlib import Path

import pytest

from aegish_dist.core.run import Prompt
from aegish_dist.errors import ConfigError, DatasetError
from aegish_dist.prompts.loading import bundled_prompts, load_prompt

TAGS = "<command>\n{command}\n</command>"


def written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_the_default_prompt_comes_first() -> None:
    assert bundled_prompts() == ("guard", "guard-sentence", "command")


def test_a_template_may_stand_without_a_system_text(tmp_path: Path) -> None:
    assert load_prompt("command") == Prompt("command", "", "{command}")
    path = written(tmp_path / "own.toml", "template = 'Safe? {command}'\n")
    assert load_prompt(path) == Prompt("own", "", "Safe? {command}")


def test_step_by_step_may_be_asked_for_by_the_name(tmp_path: Path) -> None:
    path = written(tmp_path / "mine.md", "Judge.")
    for name in ("guard", path):
        assert load_prompt(f"{name}+cot").name == f"{load_prompt(name).name}+cot"


def test_guard_puts_the_command_into_tags() -> None:
    messages = load_prompt("guard").render("awk '{print $1}' {command}")
    assert messages.user == "<command>\nawk '{print $1}' {command}\n</command>"


def test_guard_sentence_differs_in_the_template_alone() -> None:
    guard, sentence = load_prompt("guard"), load_prompt("guard-sentence")
    assert sentence.render("ls").user == "Validate this command: ls"
    assert sentence.system == guard.system
    assert sentence.fingerprint != guard.fingerprint


def test_guard_states_the_whole_decision_tree_in_order() -> None:
    system = load_prompt("guard").system
    rules = ["1a", "1b", *map(str, range(2, 14))]
    places = [system.index(f"**{rule}. ") for rule in rules]
    assert places == sorted(places)
    headings = [system.index(f"## {action}") for action in ("BLOCK", "WARN", "ALLOW")]
    assert headings[0] < places[0]
    assert places[rules.index("9")] < headings[1] < places[rules.index("10")]
    assert places[rules.index("12")] < headings[2] < places[rules.index("13")]


def test_step_by_step_makes_another_prompt() -> None:
    plain, cot = load_prompt("guard"), load_prompt("guard+cot")
    assert cot.name == "guard+cot"
    assert cot.system.startswith(plain.system + "\n\n")
    assert "step by step" in cot.system.removeprefix(plain.system)
    assert cot.template == plain.template
    assert cot.fingerprint != plain.fingerprint


def test_a_text_file_is_the_system_text(tmp_path: Path) -> None:
    path = tmp_path / "mine.md"
    path.write_bytes(b"\xef\xbb\xbfJudge.\r\nAnswer in JSON.\r\n")
    assert load_prompt(str(path)) == Prompt("mine", "Judge.\nAnswer in JSON.", TAGS)


def test_a_toml_file_may_bring_its_template(tmp_path: Path) -> None:
    full = written(tmp_path / "full.toml", "system = 'Judge.'\ntemplate = 'Is {command} safe?'\n")
    short = written(tmp_path / "short.toml", "system = 'Judge.'\n")
    assert load_prompt(full) == Prompt("full", "Judge.", "Is {command} safe?")
    assert load_prompt(f"{short}+cot").name == "short+cot"
    assert load_prompt(short).template == TAGS


@pytest.mark.parametrize(
    ("text", "field", "expected"),
    [
        ("system = 'x'\ntemplate = 'no slot'\n", "template", "0 times"),
        ("system = 'x'\ntemplate = '{command}{command}'\n", "template", "2 times"),
        ("system = ' '\n", "system", "empty"),
        ("system = 1\n", "system", "Expected `str`, got `int`"),
        ("system = 'x'\nsytem = 'y'\n", "sytem", "Object contains unknown field `sytem`"),
        ("system = \n", None, "not valid TOML: .*line 1"),
    ],
)
def test_a_wrong_toml_file_names_the_field(
    tmp_path: Path, text: str, field: str | None, expected: str
) -> None:
    path = written(tmp_path / "bad.toml", text)
    with pytest.raises(DatasetError, match=expected) as raised:
        load_prompt(path)
    assert (raised.value.source, raised.value.field) == (path, field)


@pytest.mark.parametrize(
    ("content", "line", "expected"),
    [
        (b" \n", None, "empty"),
        (b"fine\nbad \xff\n", 2, "not UTF-8"),
        (b"x" * 1_000_001, None, "larger than"),
    ],
)
def test_a_file_that_is_no_prompt_is_refused(
    tmp_path: Path, content: bytes, line: int | None, expected: str
) -> None:
    path = tmp_path / "bad.md"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=expected) as raised:
        load_prompt(str(path))
    assert raised.value.line == line
    with pytest.raises(DatasetError, match="cannot be read"):
        load_prompt(str(tmp_path))


@pytest.mark.parametrize("name", ["gaurd", "", "absent.md", "a\0b", "x" * 5000])
def test_an_unknown_name_lists_the_bundled_ones(name: str) -> None:
    hint = "did you mean 'guard'" if name == "gaurd" else "bundled are guard, guard-sentence"
    with pytest.raises(ConfigError, match=hint):
        load_prompt(name)
