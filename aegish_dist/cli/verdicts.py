"""`aegish-dist verdicts`: one by one, in and out.

A command's module is imported when the command is called: the list needs none of the readers.
"""

from importlib import import_module

import click

COMMANDS = {
    "list": "verdict_list.list_",
    "show": "verdict_show.show",
    "import": "verdict_files.import_",
    "export": "verdict_files.export",
    "recover": "verdict_files.recover_",
}


class LazyVerdicts(click.Group):
    """The group of these commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order above."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(".")
        command: click.Command = getattr(import_module(f"aegish_dist.cli.{module}"), name)
        return command


@click.group(cls=LazyVerdicts)
def verdicts() -> None:
    """List, show, import and export verdicts."""
