"""Overlays in files."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aegish_dist.core.opinion import LabelChange, Overlay
from aegish_dist.core.sample import Target
from aegish_dist.errors import OpinionError
from aegish_dist.opinions.files import read_overlay, render_overlay, toml_text

HOSTILE = 'echo "\\x" \'\'\' """ \n[[change]]\r\t\x1b[31m\x7f\u202e\u2028\U000e0101 é 漢'
EXCLUDED = LabelChange("d", "0" * 16, HOSTILE, None, None, "twice in the set", "Ada")
RELABELLED = LabelChange("d", None, "cat x", Target.MALICIOUS, "file-read", "it reads", "Bob")
HEAD = 'name = "mine"\nversion = 1\nauthor = "Ada"\n'
CHANGE = '[[change]]\ndataset = "d"\ncommand = "ls"\nreason = "because"\n'
EXCLUDE, RELABEL = CHANGE + 'action = "exclude"\n', CHANGE + 'action = "relabel"\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mine.toml"


def test_a_written_overlay_reads_back(path: Path) -> None:
    """Hostile commands stay within their string, and nothing invisible is written."""
    overlay = Overlay("mine", 3, (EXCLUDED, RELABELLED))
    text = render_overlay(overlay)
    path.write_text(text, encoding="utf-8")
    assert read_overlay(path) == overlay
    assert text.isprintable() or set(filter(lambda c: not c.isprintable(), text)) == {"\n"}


@given(st.text(st.characters(codec="utf-8")))
def test_every_text_survives(text: str) -> None:
    """The standard parser reads what was written, on one line."""
    written = toml_text(text)
    assert tomllib.loads(f"a = {written}") == {"a": text}
    assert written.isprintable()


def test_the_author_at_the_top_is_the_default(path: Path) -> None:
    """A change may name another one."""
    path.write_text(f'{HEAD}{EXCLUDE}{EXCLUDE.replace("ls", "pwd")}author = "Bob"\n')
    assert [change.author for change in read_overlay(path).changes] == ["Ada", "Bob"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (HEAD + "changes = []", "key 'changes': unknown key; known are name, version, author, ch"),
        (HEAD + "change = 1", "key 'change': must be a list, not a whole number"),
        (HEAD + "change = [1]", "entry 1: must be a table, not a whole number"),
        (HEAD + EXCLUDE + EXCLUDE, "entries 1 and 2 are of one sample, command 'ls' of dataset"),
        (HEAD + CHANGE, "entry 1: key 'action': is missing"),
        (HEAD + EXCLUDE.replace("exclude", "x"), "entry 1: key 'action': must be one of 'exclude"),
        (HEAD + EXCLUDE.replace("command", "who"), "entry 1: key 'who': unknown key; known are"),
        (HEAD + EXCLUDE.replace('command = "ls"', ""), "entry 1: key 'sample': is missing; give t"),
        (HEAD + EXCLUDE + 'sample = "ab"', "entry 1: key 'sample': must be an id, 16 hexadecimal"),
        (HEAD + EXCLUDE + 'target = "harmless"', "entry 1: key 'target': must not be given"),
        (HEAD + RELABEL, "entry 1: key 'target': is missing; give the right label"),
        (HEAD + RELABEL + 'target = "evil"', "entry 1: key 'target': must be one of 'malicious'"),
        (HEAD + RELABEL + 'target = "harmless"\ncategory = "x"', "'category': may be given of mal"),
        (HEAD + EXCLUDE.replace("because", " "), "entry 1: key 'reason': must not be empty"),
        (HEAD + EXCLUDE.replace("reason", "#"), "entry 1: key 'reason': is missing"),
        (HEAD.replace("Ada", " ") + EXCLUDE, "entry 1: key 'author': is missing; give it here"),
        (HEAD.replace("author", "#") + EXCLUDE, "entry 1: key 'author': is missing; give it here"),
        (HEAD + EXCLUDE.replace("ls", "l\\u0000"), "holds a NUL character"),
    ],
)
def test_what_cannot_be_used_is_refused(text: str, complaint: str, path: Path) -> None:
    """The message names the file, the change and the key."""
    path.write_text(text)
    with pytest.raises(OpinionError, match=f"mine.toml: .*{complaint}"):
        read_overlay(path)


def test_a_file_that_is_not_there_is_named(path: Path) -> None:
    """As is one that is no UTF-8."""
    with pytest.raises(OpinionError, match=r"mine.toml: cannot be read: No such file"):
        read_overlay(path)
    path.write_bytes(b"name = '\xff'")
    with pytest.raises(OpinionError, match=r"mine.toml: line 1: is not UTF-8"):
        read_overlay(path)
