"""Commands that explain themselves: examples, and rarer options under a heading of their own.

Help prints both; the reference in the docs and the tests read them from `Command.examples` and
`Advanced`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from aegish_dist.core.text import did_you_mean


class Advanced(click.Option):
    """An option that few people need."""


FILE = click.Path(path_type=Path)
FOLDER = click.Path(path_type=Path, file_okay=False)

advanced = partial(click.option, cls=Advanced)
flag = partial(click.option, is_flag=True)
file_option = partial(click.option, type=FILE, metavar="FILE")
# Of programs that Prometheus reads.
metrics_host = advanced(
    "--metrics-host",
    metavar="ADDRESS",
    help="Address of this machine to serve them on.  [default: 127.0.0.1]",
)
PORT_NUMBER = click.IntRange(0, 65535)


def in_plain_words(message: str) -> str:
    """Return a message of Click with an example of the number that it wants."""
    plain = message.replace("a valid integer range", "a whole number, such as 50")
    return plain.replace("a valid float", "a plain number, such as 5")


class Command(click.Command):
    """A command with `examples`: lines for a shell, as they are typed."""

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.context_settings.setdefault("show_default", True)
        self.examples = tuple(examples)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # The parser empties the list.
        typed = tuple(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            message = in_plain_words(error.format_message())
            hint = self._hint(error, typed)
            if hint:
                message = f"{message.rstrip('.')}: {hint}"
            if message == error.format_message():
                raise
            raise click.UsageError(message, ctx) from None

    def _hint(self, error: click.UsageError, typed: Sequence[str]) -> str:
        """Return what to type instead of a word that no option takes, or of a missing option."""
        options = {option.name for option in self.params}
        if "run_file" in options and typed and typed[0].endswith(".toml"):
            return f"`--run-file {typed[0]}` takes a run file"
        if "run_file" in options and isinstance(error, click.MissingParameter):
            return "or --run-file FILE; `aegish-dist init` writes one"
        # Click has no error of its own for this one.
        extra = "extra argument" in error.message
        if extra and "--models" in typed:
            return "several models: commas, no spaces"
        if extra and "run_id" in options:
            return "a run is named by `--run-id R`"
        return ""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        parameters = self.get_params(ctx)
        options = [option for option in parameters if isinstance(option, click.Option)]
        for title, advanced in (("Options", False), ("Advanced options", True)):
            rows = []
            for option in options:
                record = option.get_help_record(ctx)
                if record is not None and isinstance(option, Advanced) is advanced:
                    rows.append(record)
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"  {line}\n")
        super().format_epilog(ctx, formatter)


class Group(Command, click.Group):
    """A group of such commands; for an unknown name it suggests the nearest ones."""

    command_class = Command
    group_class = type

    def __init__(self, *arguments: Any, advice: str = "", **more: Any) -> None:
        """Make a group; `advice` says what to do instead of giving an unknown name."""
        super().__init__(*arguments, **more)
        self._advice = advice

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            # Click knows only the commands that are imported.
            nearest = did_you_mean(error.command_name, self.list_commands(ctx))
            hint = f"{nearest} {self._advice}".strip()
            message = error.message.rstrip(".")
            if hint:
                message += f": {hint}"
            raise click.UsageError(message, ctx) from None


def command(*examples: str, **more: Any) -> Callable[[Callable[..., Any]], Command]:
    """Return what makes a function a command; `more` are arguments of `Command`."""
    return click.command(cls=Command, examples=examples, **more)


def group(*examples: str, **more: Any) -> Callable[[Callable[..., Any]], Group]:
    """Return what makes a function a group of commands."""
    return click.group(cls=Group, examples=examples, **more)
