"""Help: every command explains itself."""

import inspect
from collections.abc import Iterator

import click
import pytest

from aegish_dist import __version__
from aegish_dist.cli import SECTIONS, cli, run
from aegish_dist.cli.command import Advanced, Command


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:  # fmt: skip
    """Yield every command below a group with the words that call it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """Help goes to stdout with a description, and with a text for every option."""
    for path, command in commands(cli):
        assert run([*path, "--help"]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        assert out.startswith(f"Usage: aegish-dist {' '.join(path)}")
        assert "\\b" not in out
        options = [each for each in command.params if isinstance(each, click.Option)]
        assert [each.name for each in options if not each.help] == []
        lists = [each for each in options if "[," in (each.metavar or "")]
        assert [each.name for each in lists if not each.multiple] == []  # repeated, both count


def test_summaries_are_whole_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    for path, command in commands(cli):
        if isinstance(command, click.Group):
            run([*path, "--help"])
            _, _, listed = capsys.readouterr().out.partition("Commands:\n")
            summaries = listed.partition("\n\n")[0].splitlines()
            assert summaries
            assert all(line.endswith(".") and not line.endswith("...") for line in summaries)


def test_the_top_lists_every_command_and_where_to_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    for section, summaries in SECTIONS.items():
        assert f"{section}:" in out
        for name, summary in summaries.items():
            assert f"  {name} " in out
            assert summary in out
    assert "Start with `aegish-dist demo`." in out
    assert run(["-h"]) == 0
    assert capsys.readouterr().out == out


def test_every_command_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    """Each stands on a line of its own below `Examples:`, and is of this command or its group."""
    for path, command in commands(cli):
        assert isinstance(command, Command), path
        assert command.examples, path
        run([*path, "--help"])
        _, _, shown = capsys.readouterr().out.partition("\nExamples:\n")
        assert shown.splitlines() == [f"  {example}" for example in command.examples]
        assert f"aegish-dist {' '.join(path)}" in shown


@pytest.mark.parametrize(
    "group",
    [path for path, command in [((), cli), *commands(cli)] if isinstance(command, click.Group)],
)
def test_a_group_alone_prints_its_help(
    capsys: pytest.CaptureFixture[str], group: tuple[str, ...]
) -> None:
    """On standard output, as `--help` does; only `runs` has something to do without a word."""
    if group == ("runs",):
        return
    assert run([*group, "--help"]) == 0
    asked = capsys.readouterr()
    assert run([*group]) == 2
    assert capsys.readouterr() == asked


def test_the_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"aegish-dist, version {__version__}\n"


def test_one_way_to_ask_for_json_and_to_name_a_run() -> None:
    """`--json` wherever a format can be json, and `--run-id` wherever a run is named."""
    for path, command in commands(cli):
        found = {each.name: each for each in command.params}
        formats = getattr(getattr(found.get("form"), "type", None), "choices", ())
        assert "json" not in formats or "as_json" in found, path
        assert "run" not in found, path
        assert path[:1] != ("runs",) or "words" not in found or "run_id" in found, path
        if (limit := found.get("limit")) and path not in (("submit",), ("plan",)):
            assert isinstance(limit.type, click.IntRange), path
            assert (limit.type.min, "0" in (limit.help or "")) == (0, True), path


def test_a_help_is_short_and_advanced_options_stand_last(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A line says what the command does, at most five more how; the examples end the page."""
    for path, command in commands(cli):
        lines = [line for line in inspect.cleandoc(command.help or "").splitlines() if line]
        assert len(lines) <= 6, path
        assert lines[0].endswith("."), path
        run([*path, "--help"])
        out = capsys.readouterr().out
        assert "e-0" not in out  # bounds as people write numbers
        usual, heading, advanced = out.partition("\nAdvanced options:\n")
        for each in command.params:
            if isinstance(each, click.Option):
                assert (f" {each.opts[0]} " in (advanced or usual)) or not isinstance(
                    each, Advanced
                )
        assert bool(heading) == any(isinstance(each, Advanced) for each in command.params)
