"""The commands that the two guards of a pair judge differently: on screens some, in JSON all."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from textwrap import indent

from msgspec.structs import asdict

from aegish_dist.core.text import (
    cell_width,
    counted,
    cut_to_cells,
    printable,
    printable_json,
    printable_line_of_json,
    sentence_lines,
)
from aegish_dist.findings.comparison import (
    CHANGES,
    Change,
    ChangedCommand,
    ComparedPair,
    ComparisonData,
)
from aegish_dist.report.comparison import comparison_document
from aegish_dist.report.drawing import table_width

# Reads the commands of a pair, at most so many of them.
CommandsOf = Callable[[ComparedPair, Change, int | None], Iterable[ChangedCommand]]
# How many commands of each kind a screen has: for one pair alone, and for each of several pairs.
SHOWN, SHOWN_OF_SEVERAL = 10, 3
# The titles of the kinds of change, in the order in which a pair has them.
TITLES = ("Newly caught", "Newly missed", "Newly annoying", "No longer annoying")


def changed_lines(
    data: ComparisonData,
    commands_of: CommandsOf,
    opinion_words: Sequence[str],
    width: int,
) -> Iterator[str]:
    """Yield what the pairs judge differently, where that was asked, as lines of plain text.

    Args:
        opinion_words: Words of a command line that set the same opinion, such as `--scoring NAME`.
        width: Cells that commands and reasons are cut to; a command to type stays whole.
    """
    limit = SHOWN if len(data.pairs) == 1 else SHOWN_OF_SEVERAL
    for pair in data.pairs:
        if pair.changed is None:
            continue
        title = f"What changed: {data.name_of(pair.b)} against {data.name_of(pair.a)}"
        yield from ("", *sentence_lines(printable(title), width))
        caught, missed, annoying, no_longer = map(len, pair.changed.values())
        summary = (
            f"Newly caught: {counted(caught, 'attack')}. Newly missed: {missed:,}. "
            f"Newly annoying: {counted(annoying, 'harmless command')}, "
            f"no longer annoying: {no_longer:,}."
        )
        yield from sentence_lines(summary, width)
        for title, (change, keys) in zip(TITLES, pair.changed.items(), strict=True):
            if not keys:
                continue
            yield from ("", f" {title}")
            yield from _rows(list(commands_of(pair, change, limit)), width)
            if len(keys) > limit:
                words = _listing(data, pair, change, opinion_words)
                yield f"   ... {len(keys) - limit:,} more: {printable(shlex.join(words))}"


def _rows(commands: Sequence[ChangedCommand], width: int) -> Iterator[str]:
    """Yield a line for each command; its reason has two fifths of the width or more."""
    room = width - 6
    texts = [_cut(command.command, room * 3 // 5) for command in commands]
    longest = max(map(cell_width, texts), default=0)
    for text, command in zip(texts, commands, strict=True):
        padding = " " * (longest - cell_width(text))
        reason = _cut(command.reason or "", room - longest)
        yield f"   {text}{padding}   {reason}".rstrip()


def _cut(text: str, cells: int) -> str:
    """Return foreign text on one line of at most so many cells."""
    # A command can be very long. One character more than fits is enough to see that it is cut.
    shown = printable(text[: cells + 1])
    if cell_width(shown) <= cells:
        return shown
    return cut_to_cells(shown, cells - 3) + "..."


def _listing(
    data: ComparisonData,
    pair: ComparedPair,
    change: Change,
    opinion_words: Sequence[str],
) -> list[str]:
    """Return a command that lists what a screen leaves out."""
    models = ",".join(dict.fromkeys([pair.a.model, pair.b.model]))
    run_ids = ",".join(dict.fromkeys([pair.a.run_id, pair.b.run_id]))
    words = ["--models", models, *opinion_words]
    # `verdicts list` knows no policies, and no other runs.
    if data.of_one_run and not data.opinion.policies:
        chosen = ["--run-id", run_ids, "--disputed", *words, "--target", change.target]
        return ["aegish-dist", "verdicts", "list", *chosen]
    runs = "--run-id" if data.of_one_run else "--runs"
    unlike = ["--force"] if data.unlike else []
    return ["aegish-dist", "compare", runs, run_ids, *words, *unlike, "--json"]


def ending(
    data: ComparisonData,
    format: str,
    commands_of: CommandsOf,
    opinion_words: Sequence[str] = (),
    width: int | None = None,
) -> str:
    """Return the end of a table or of Markdown; other formats have none."""
    if format not in ("table", "markdown"):
        return ""
    lines = changed_lines(data, commands_of, opinion_words, table_width(width))
    text = "".join(f"{line}\n" for line in lines)
    if text and format == "markdown":
        return "\n## What changed\n" + indent(text, "    ")  # code, which stands as it is
    return text


def comparison_json(data: ComparisonData, commands_of: CommandsOf) -> Iterator[str]:
    """Yield the document of a comparison in pieces, with all changed commands in its pairs."""
    document = comparison_document(data)
    pairs = document.pop("pairs")
    yield printable_json(document).removesuffix("\n}") + ',\n  "pairs": ['
    before = ""
    for pair, numbers in zip(data.pairs, pairs, strict=True):
        text = printable_json(numbers).removesuffix("\n}").replace("\n", "\n    ")
        yield f'{before}\n    {text},\n      "changed": '
        yield from changed_json(pair, commands_of)
        yield "\n    }"
        before = ","
    yield "\n  ]\n}\n"


def changed_json(pair: ComparedPair, commands_of: CommandsOf) -> Iterator[str]:
    """Yield all commands as the JSON of the field `changed`, a few thousand in memory at a time."""
    if pair.changed is None:
        yield "null"
        return
    before = "{"
    for change in pair.changed:
        yield f'{before}\n"{CHANGES[change]}": ['
        before = ""
        for command in commands_of(pair, change, None):
            yield f"{before}\n{printable_line_of_json(asdict(command))}"
            before = ","
        yield "]"
        before = ","
    yield "}"
