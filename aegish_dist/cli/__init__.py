"""The command line: parse options, call one pipeline function, print.

Results go to standard output, logs and progress to standard error. Exit codes: 0 done, 1 an
expected failure in one clear line, 2 wrong usage, 3 a bug, 4 a gate or a threshold is missed, 5 a
gate or a threshold cannot be decided, 130 interrupted. Commands are imported when they are called,
so that help stays fast.
"""

import gc
import sys
from importlib import import_module
from typing import Any, NoReturn

import click
from click.exceptions import NoArgsIsHelpError
from click.shell_completion import CompletionItem

from aegish_dist import __version__
from aegish_dist.cli.command import Group
from aegish_dist.cli.printing import (
    checked_output,
    discard_unwritten,
    note,
    note_lines,
    note_usage,
    prepare_output,
    say_rendered,
)
from aegish_dist.errors import AegishError, ClosedOutputError, interrupt_in

EXIT_EXPECTED = 1
EXIT_BUG = 3
EXIT_WORSE = 4
EXIT_INCONCLUSIVE = 5
EXIT_INTERRUPTED = 130

SECTIONS: dict[str, dict[str, str]] = {
    "Run": {
        "demo": "One keyless run from dataset to leaderboard, on this machine.",
        "init": "Write a first run file from the keys and servers that are here.",
        "submit": "Ask models about commands: start a run.",
        "worker": "Start a worker process of a fleet.",
        "status": "Show how far a run is.",
        "resume": "Continue a run after a pause, a crash or a cap.",
        "retry": "Ask items again that ended in the given outcomes.",
        "extend": "Add models, repeats or datasets to a run.",
        "pause": "Stop asking a run's models for a while.",
        "cancel": "Stop asking a run's models.",
        "reparse": "Apply today's parser to the stored answers.",
        "runs": "List, rename, archive and delete runs.",
    },
    "Results": {
        "aggregate": "Score a run's verdicts and store a snapshot of the metrics.",
        "report": "Print a run's leaderboard and details.",
        "plots": "Draw a run's plots: SVG, PNG, PDF or specifications to edit.",
        "scoring": "List the rule sets, and print one as a file to edit.",
        "compare": "Compare guards on the same commands, and gate a new one.",
        "calibrate": "Tell which threshold makes which model the best guard.",
        "policies": "Find and explain systems made of several guards.",
        "audit": "List the commands and labels that deserve a second look.",
        "reproduce": "Tell what a published table says, and whether a run agrees.",
        "plan": "Estimate from a pilot how many commands and epochs decide.",
        "verdicts": "List, show, import and export verdicts.",
        "errors": "Show when and why calls failed.",
    },
    "What is asked, of whom": {
        "models": "List the models, and check that they answer.",
        "prompts": "List and show the prompts.",
        "datasets": "List, show, import, validate and export datasets.",
    },
    "Operation": {
        "db": "Migrate the database.",
        "exporter": "Serve measures of the fleet to Prometheus.",
        "doctor": "Tell what is configured, reachable and wrong.",
        "simulate-provider": "Serve the fake LLM provider for trials and tests.",
    },
}


# Modules of commands that share one; every other command has a module of its name.
MODULES = {
    "extend": "submit",
    "pause": "submit",
    "cancel": "submit",
    "resume": "submit",
    "retry": "submit",
    "reparse": "verdicts",
    "errors": "verdicts",
    "demo": "simulation",
    "simulate-provider": "simulation",
    "models": "catalog",
    "prompts": "catalog",
    "scoring": "catalog",
    "db": "operation",
    "exporter": "operation",
    "doctor": "operation",
}


class LazyGroup(Group):
    """A group that imports the module of a command only when that command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for commands in SECTIONS.values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        name = cmd_name.replace("-", "_")
        # What is imported stays: looking for garbage in it takes a fifth of the time.
        gc.disable()
        module = import_module(f"aegish_dist.cli.{MODULES.get(cmd_name, name)}")
        command: click.Command = getattr(module, name)
        gc.freeze()
        gc.enable()
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete commands without importing them."""
        items = []
        for commands in SECTIONS.values():
            for name, does in commands.items():
                if name.startswith(incomplete):
                    items.append(CompletionItem(name, help=does))
        # That of a group would import every command for its help.
        return items + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    examples=("aegish-dist demo",),
    epilog="Start with `aegish-dist demo`. Then `init` writes a run file. With"
    " AEGISH_DIST_DATABASE_URL and AEGISH_DIST_BROKER_URL set, the same commands run on a fleet.",
)
@click.version_option(__version__, prog_name="aegish-dist")
def cli() -> None:
    """Which LLM can be trusted to guard a shell?

    Shows commands to language models that answer ALLOW, WARN or BLOCK, and measures how often they
    are right, how sure we can be, at what price and latency.
    """


def main(arguments: list[str] | None = None) -> NoReturn:
    prepare_output()
    code = run(arguments)
    discard_unwritten()
    sys.exit(code)


def run(arguments: list[str] | None) -> int:
    """Run words of a command line, None for the process's own, and return the exit code."""
    try:
        with checked_output():
            result = _result(arguments)
    except click.ClickException as error:
        note_usage(error)
        return error.exit_code
    except ClosedOutputError:
        return EXIT_EXPECTED
    except (Exception, KeyboardInterrupt) as error:
        interrupt = interrupt_in(error)
        if interrupt or isinstance(error, click.Abort):
            # It may say in words what was interrupted.
            words = interrupt or ""
            note(f"interrupted {words}".rstrip())
            return EXIT_INTERRUPTED
        if not isinstance(error, AegishError):
            return _unforeseen(error)
        note(f"error: {' '.join(str(error).split())}")
        return EXIT_EXPECTED
    return result if isinstance(result, int) else 0


def _result(arguments: list[str] | None) -> Any:
    try:
        return cli.main(arguments, prog_name="aegish-dist", standalone_mode=False)
    except NoArgsIsHelpError as error:
        # A group without the name of a command: the help is its result, not a note.
        say_rendered(f"{error.format_message()}\n")
        return error.exit_code


def _unforeseen(error: BaseException) -> int:
    """Say that an error is a bug: whatever may fail raises an error of its own."""
    import traceback  # noqa: PLC0415

    note_lines("".join(traceback.format_exception(error)))
    note(
        f"bug: {type(error).__name__}: this should not happen; please report it with the lines "
        "above"
    )
    return EXIT_BUG
