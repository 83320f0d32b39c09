"""Writes docs/reference/commands/ and docs/reference/configuration.md from the program.

`make reference` runs it; a test compares what it makes with what is committed. A command's page is
its `--help`. Defaults and ranges of settings are those of `Settings`, keys those of the catalog.
"""

import re
import typing
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import msgspec

from aegish_dist.cli import SECTIONS, cli
from aegish_dist.models.catalog import Catalog
from aegish_dist.settings import PREFIX, Settings

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
COMMON = "README.md#common-options"
NOTE = "<!-- Made by `make reference`. -->"
OFTEN = 7
"""An option that so many commands explain in the same words is explained once, in the index."""

MEANINGS = {
    "database_url": ("PostgreSQL", "an embedded PostgreSQL 18"),
    "broker_url": ("Redis or RabbitMQ", "none: the worker runs inside `submit`"),
    "limiter_url": (
        "Redis that holds the fleet's rate limits",
        "the broker, if it is Redis; with RabbitMQ each process has its own limits",
    ),
    "home": (
        "folder of the embedded database, which only its user may enter",
        "the platform's data directory; for root `/var/lib/aegish-dist`",
    ),
    "spool": ("folder of answers that the database does not take", "`spool` in the home folder"),
    "catalog": (
        "your model catalog; for a worker it also says which key may go to which address",
        "the packaged catalog",
    ),
    "concurrency": ("calls that a worker process has in flight at most", None),
    "shutdown_grace_s": ("seconds that a stopping worker gives its calls in flight", None),
    "message_lease_s": (
        "seconds after its last sign of life until a worker's messages return to their queues",
        None,
    ),
    "batch_poll_s": ("seconds until a batch is first looked at; later pauses are longer", None),
    "queue_type": ("kind of queue in RabbitMQ, the same for a whole fleet", None),
    "metrics_port": (
        "port of a worker for Prometheus and probes; 0 takes a free one",
        "none; the exporter takes 9811",
    ),
    "metrics_host": ("address of that port; `0.0.0.0` listens on all", None),
    "log_format": ("form of the log on standard error", None),
    "log_level": ("least level that is logged", "INFO in workers, WARNING elsewhere"),
}
"""Of each setting its meaning, and its default where that is no plain value."""


EXIT_CODES = """
Exit codes: 0 done, 1 an expected error in one line with its remedy, 2 wrong usage, 3 a bug, 4 a
gate or threshold is missed, 5 a gate or threshold cannot be decided, 130 interrupted.
"""

CONFIGURATION = """\
# Configuration

Everything is read from the environment; without any variable, all runs on this machine. A variable
that begins with `AEGISH_DIST_` and is none of these is an error, so that a misspelt one is noticed.
`aegish-dist doctor` shows which keys and addresses are set, and whether the servers can be reached.

## Settings

{settings}

Workers, the exporter and the command line of one fleet need the same database, broker and limiter.

## Keys of providers

Keys are needed where workers run; a command without servers runs its worker itself.

{keys}

`OPENAI_BASE_URL` sends `openai/...` to another endpoint. Without a key: {local}.
Other addresses, keys and prices go into [a catalog of your own](../guides/add-a-provider.md), laid
over the packaged one. The header of `aegish_dist/models/catalog.toml` explains its keys.

## Of other programs

- `NO_COLOR`: no colours
- `CI`, `TERM=dumb`: progress as lines, no live view
- `HTTP_PROXY`, `HTTPS_PROXY`, `NO_PROXY`: the way to providers
- `OTEL_...`: where [traces](../guides/tracing.md) go
"""


class MarkdownFormatter(click.HelpFormatter):
    """Writes parts of a help page as Markdown: headings, paragraphs, lists of options."""

    def __init__(self, depth: int, common: Iterable[tuple[str, str]] = ()) -> None:
        super().__init__(width=100)
        self.depth = depth  # of headings
        self.common = frozenset(common)
        self.rows: list[tuple[str, str]] = []  # every option, as `option` returns it
        self.heading = ""

    def write_heading(self, heading: str) -> None:
        self.heading = heading

    def write_text(self, text: str) -> None:
        for paragraph in text.split("\n\n"):
            kept = paragraph.removeprefix("\b\n")  # lines that are not to be joined
            self.write(f"```\n{kept}\n```\n\n" if kept != paragraph else f"{cell(kept)}\n\n")

    def write_dl(self, rows: Iterable[tuple[str, str]], *_: int, **__: int) -> None:
        if "ptions" not in self.heading:
            return  # commands below this one: the page describes each
        own, shared = [], []
        for term, text in rows:
            if term == "-h, --help":
                continue
            name, meaning, default = option(term, text)
            self.rows.append((name, meaning))
            if (name, meaning) in self.common:
                shared.append(f"{name} {default}".strip())
            else:
                own.append(f"- {name}: {meaning} {default}".strip())
        if shared:
            own.append(f"- [Common]({COMMON}): {', '.join(shared)}")
        if own:
            title = "" if self.heading == "Options" else f"{self.heading}:\n\n"
            self.write(title + "\n".join(own) + "\n\n")


def option(term: str, text: str) -> tuple[str, str, str]:
    """Return an option as code, its meaning, and its default and range in brackets."""
    found = re.fullmatch(r"(.*?)\s*(\[[^][]*\])?", " ".join(text.split()))
    assert found is not None
    return f"`{term}`", cell(found[1]), cell(found[2] or "")


def cell(text: str) -> str:
    return " ".join(text.replace("<", "&lt;").split())


def one_blank(text: str) -> str:
    return re.sub(r"\n{3,}", "\n\n", text.strip())


def help_page(
    name: str, command: click.Command, parent: click.Context, text: MarkdownFormatter
) -> None:
    """Write what `--help` says of a command and of the commands below it."""
    context = click.Context(command, info_name=name, parent=parent)
    text.write(f"{'#' * text.depth} {context.command_path.partition(' ')[2]}\n\n")
    command.format_help_text(context, text)
    lines = list(getattr(command, "examples", ()))
    pieces = command.collect_usage_pieces(context)
    says_more = pieces != ["[OPTIONS]"] and not isinstance(command, click.Group)
    if says_more or not lines:
        lines.insert(0, " ".join([context.command_path, *pieces]))
    text.write("\n".join(["```", *lines, "```"]) + "\n\n")
    command.format_options(context, text)
    click.Command.format_epilog(command, context, text)
    if isinstance(command, click.Group):
        text.depth += 1
        for each in command.list_commands(context):
            below = command.get_command(context, each)
            assert below is not None
            help_page(each, below, context, text)
        text.depth -= 1


def described(common: Iterable[tuple[str, str]] = ()) -> dict[str, MarkdownFormatter]:
    """Return what the page of each command says, by its name."""
    program = click.Context(cli, info_name="aegish-dist", **cli.context_settings)
    found = {}
    for commands in SECTIONS.values():
        for name in commands:
            command = cli.get_command(program, name)
            assert command is not None
            found[name] = MarkdownFormatter(1, common)
            help_page(name, command, program, found[name])
    return found


def command_pages() -> Iterator[tuple[str, str]]:
    """Yield each page below docs/reference/commands, by its name, and the index."""
    explained = Counter(row for text in described().values() for row in text.rows)
    common = [row for row, times in explained.items() if times >= OFTEN]
    for name, text in described(common).items():
        yield f"commands/{name}.md", text.getvalue()
    index = "# Commands\n\n"
    index += "`aegish-dist COMMAND --help` says the same. " + " ".join(EXIT_CODES.split()) + "\n\n"
    for section, commands in SECTIONS.items():
        lines = (f"- [{name}]({name}.md): {cell(does)}\n" for name, does in commands.items())
        index += f"## {section}\n\n" + "".join(lines) + "\n"
    index += "## Common options\n\n"
    index += "".join(f"- {name}: {meaning}\n" for name, meaning in common)
    yield "commands/README.md", index


def setting_lines() -> Iterator[str]:
    hints = typing.get_type_hints(Settings, include_extras=True)
    for field in msgspec.structs.fields(Settings):
        meaning, default = MEANINGS[field.name]
        parts = [hints[field.name], *typing.get_args(hints[field.name])]
        bounds = [each for part in parts for each in getattr(part, "__metadata__", ())]
        values = [
            f"{sign} {getattr(each, bound):g}"
            for each in bounds
            for bound, sign in (("ge", "at least"), ("gt", "above"), ("le", "at most"))
            if getattr(each, bound) is not None
        ]
        for part in parts:
            if typing.get_origin(part) is typing.Literal:
                values = [", ".join(f"`{each}`" for each in typing.get_args(part))]
        if isinstance(field.default, float):
            default = default or f"`{field.default:g}`"
        default = default or f"`{field.default}`"
        allowed = f" ({', '.join(values)})" if values else ""
        yield f"- `{PREFIX}{field.name.upper()}`: {meaning}{allowed}. Default: {default}."


def configuration() -> str:
    providers = Catalog.load().providers.items()
    keys = [
        f"- `{name}/...`: `{each.key_variable}`" for name, each in providers if each.key_variable
    ]
    local = [
        f"`{name}/...` at `{each.base_url}`"
        for name, each in providers
        if each.base_url and not each.key_variable
    ]
    return CONFIGURATION.format(
        local=", ".join(local),
        settings="\n".join(setting_lines()),
        keys="\n".join(keys),
    )


def pages() -> dict[Path, str]:
    """Return every page of the reference that is made, by its path."""
    made = dict(command_pages())
    made["configuration.md"] = configuration()
    return {REFERENCE / name: f"{one_blank(text)}\n\n{NOTE}\n" for name, text in made.items()}


if __name__ == "__main__":
    for old in (REFERENCE / "commands").iterdir():
        old.unlink()
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
