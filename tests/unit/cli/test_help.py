"""Help: every command explains itself."""

from collections.abc import Iterator

import click
import pytest

from aegish_dist import __version__
from aegish_dist.cli import SECTIONS, cli, run


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


def test_summaries_are_whole_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    for path, command in commands(cli):
        if isinstance(command, click.Group):
            run([*path, "--help"])
            _, _, listed = capsys.readouterr().out.partition("Commands:")
            summaries = [line for line in listed.splitlines() if line.strip()]
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


def test_examples_keep_their_lines(capsys: pytest.CaptureFixture[str]) -> None:
    run(["submit", "--help"])
    out = capsys.readouterr().out
    assert "\n    aegish-dist submit --models all --epochs 3 --dry-run\n" in out


def test_the_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"aegish-dist, version {__version__}\n"
