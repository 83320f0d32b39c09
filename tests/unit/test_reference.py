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
from aegish_dist.providers.baselines import BASELINES, DENYLIST

ROOT = Path(__file__).parents[2]
MADE = ROOT / "docs/reference/commands"
WRITTEN = {ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")}
PAGES = sorted(WRITTEN - {*MADE.iterdir()})
ADDED = {"datasets import tldr-pages tldr"}
"""What a how-to page has its reader add."""
README = (ROOT / "README.md").read_text(encoding="utf-8")
pages: Callable[[], dict[Path, str]] = runpy.run_path(str(ROOT / ".ci/reference.py"))["pages"]

_BLOCK = re.compile(r"^( *)(`{3,})[^`\n]*\n(.*?)^\1\2$", re.MULTILINE | re.DOTALL)
_CALL = re.compile(r"(?:^|[ (])aegish-dist ([a-z-].*)")


def test_made_pages_are_what_the_program_says() -> None:
    """`make reference` would change nothing."""
    made = pages()
    assert {path for path in made if path.read_text(encoding="utf-8") != made[path]} == set()
    assert {*MADE.iterdir()} == {path for path in made if path.parent == MADE}


PURE = (click.Choice, click.types.IntParamType, click.types.FloatParamType)
"""Types whose values are checked by looking at them alone."""


def calls(page: str) -> Iterator[str]:
    """Yield what follows `aegish-dist` in lines of code blocks and in code within text.

    What a shell or a workflow would put in place of `$(…)` and `${{…}}` is a word.
    """
    text = "\n".join(block.replace("\\\n", " ") for _, _, block in _BLOCK.findall(page))
    text = re.sub(r"\$\{\{.*?\}\}", "VALUE", text)
    text = re.sub(r'"?\$\(', "VALUE\n", text)
    code = re.findall(r"`(aegish-dist [^`\n]+)`", _BLOCK.sub("", page))
    for line in (*text.splitlines(), *code):
        if found := _CALL.search(re.split(r"(?:^|\s+)# ", line)[0]):
            yield re.split(r" [|&>;]|\)|…", found[1])[0].strip()


def problem(call: str) -> str | None:
    """Return why a call cannot be one: its command, an option, a value, or an argument too many.

    A value in capitals, or with `…`, stands for one; what a call leaves out is not missed.
    """
    words = shlex.split(call)
    command: click.Command = cli
    context = click.Context(cli, info_name="aegish-dist", **cli.context_settings)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        if found is None:
            return f"no command {words[0]}"
        command = found
        context = click.Context(command, info_name=words.pop(0), parent=context)
    try:
        values, too_many, _ = command.make_parser(context).parse_args(words)
        if too_many and not isinstance(command, click.Group):
            return f"no argument {too_many}"
        for parameter in command.get_params(context):
            check(parameter, values.get(parameter.name or ""), context)
    except click.UsageError as error:
        return error.format_message()
    return None


def check(parameter: click.Parameter, value: object, context: click.Context) -> None:
    """Refuse a value that is none of a choice, or out of a range."""
    given = value if isinstance(value, list) else [value]
    for each in given:
        if not isinstance(each, str) or each == each.upper() != each.lower():
            continue
        convert: Callable[..., object] = parameter.type.convert
        if isinstance(parameter.type, PURE):
            convert(each, parameter, context)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_a_page_exist(page: Path) -> None:
    said = set(calls(page.read_text(encoding="utf-8"))) - ADDED
    found = {call: problem(call) for call in said}
    assert {call: why for call, why in found.items() if why} == {}


@pytest.mark.parametrize(
    "line",
    [
        "aegish-dist raport",
        "x | aegish-dist report --sektions all",
        "aegish-dist runs lst",
        "aegish-dist status now",
        "aegish-dist datasets show a b",
        "aegish-dist report --run-id",
        "aegish-dist report --format worde",
        "aegish-dist runs list --limit few",
        'for run in "$(aegish-dist runs lst --json)"; do',
        "run: aegish-dist status ${{ steps.ask.outputs.run }}",
    ],
)
def test_a_command_that_is_none_is_found(line: str) -> None:
    (call,) = calls(f"```sh name=x\n{line}\n```\n")
    assert problem(call) is not None


def test_readme_is_short_and_its_example_true() -> None:
    """The command is malicious and bundled, and the denylist is as long, and answers, as it says."""
    assert len(README.splitlines()) <= 180
    block = _BLOCK.findall(README)[0][2]
    command = block.split("  ")[0]
    (answer,) = re.findall(r"baseline/keyword +(\w+)", block)
    assert BASELINES["keyword"](command)[0] == answer
    assert command in {sample.command for sample in load_bundled("malicious").samples}
    assert f"A denylist of {len(DENYLIST)} patterns" in README
