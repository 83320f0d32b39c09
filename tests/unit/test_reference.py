"""Docs and program say the same: made pages are up to date, and commands in the docs exist."""

import re
import runpy
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from aegish_dist.cli import cli
from aegish_dist.datasets.bundled import load_bundled
from aegish_dist.providers.session import BASELINES, DENYLIST

ROOT = Path(__file__).parents[2]
MADE = ROOT / "docs/reference/commands"
FOLLOWED = (ROOT / "docs/guides").glob("add-*.md")  # by tests/howto: they add commands, too
PAGES = sorted({ROOT / "README.md", *(ROOT / "docs").rglob("*.md")} - {*MADE.iterdir(), *FOLLOWED})
README = (ROOT / "README.md").read_text(encoding="utf-8")
pages: Callable[[], dict[Path, str]] = runpy.run_path(str(ROOT / ".ci/reference.py"))["pages"]

_BLOCK = re.compile(r"^( *)```(?:\w+)?\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_CALL = re.compile(r"(?:^|[ (])aegish-dist ([a-z-].*)")


def test_made_pages_are_what_the_program_says() -> None:
    """`make reference` would change nothing."""
    made = pages()
    assert {path for path in made if path.read_text(encoding="utf-8") != made[path]} == set()
    assert {*MADE.iterdir()} == {path for path in made if path.parent == MADE}


def calls(page: str) -> Iterator[str]:
    """Yield what follows `aegish-dist` in lines of code blocks and in code within text."""
    text = "\n".join(block.replace("\\\n", " ") for _, block in _BLOCK.findall(page))
    code = re.findall(r"`(aegish-dist [^`\n]+)`", _BLOCK.sub("", page))
    for line in (*text.splitlines(), *code):
        if found := _CALL.search(re.split(r"(?:^|\s+)# ", line)[0]):
            yield re.split(r" [|&>;]|\)|…", found[1])[0].strip()


def problem(call: str) -> str | None:
    """Return why a call cannot be one: an unknown command, or an unknown option of a command."""
    words = shlex.split(call)
    command: click.Command = cli
    context = click.Context(cli, info_name="aegish-dist", **cli.context_settings)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        if found is None:
            return f"no command {words[0]}"
        command = found
        words.pop(0)
    known = {
        name for each in command.get_params(context) for name in (*each.opts, *each.secondary_opts)
    }
    given = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    return f"no option {given - known}" if given - known else None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_a_page_exist(page: Path) -> None:
    found = {call: problem(call) for call in calls(page.read_text(encoding="utf-8"))}
    assert {call: why for call, why in found.items() if why} == {}


@pytest.mark.parametrize(
    "line", ["aegish-dist raport", "x | aegish-dist report --sektions all", "aegish-dist runs lst"]
)
def test_a_command_that_is_none_is_found(line: str) -> None:
    (call,) = calls(f"```\n{line}\n```\n")
    assert problem(call) is not None


def test_readme_is_short_and_its_example_true() -> None:
    """The command is malicious and bundled, and the denylist is as long, and answers, as it says."""
    assert len(README.splitlines()) <= 180
    block = _BLOCK.findall(README)[0][1]
    command = block.split("  ")[0]
    (answer,) = re.findall(r"baseline/keyword +(\w+)", block)
    assert BASELINES["keyword"](command)[0] == answer
    assert command in {sample.command for sample in load_bundled("malicious").samples}
    assert f"A denylist of {len(DENYLIST)} patterns" in README
