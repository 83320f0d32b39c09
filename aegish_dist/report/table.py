"""A report for the terminal: columns are fitted into its width, or stand below each other."""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from aegish_dist.core.text import printable
from aegish_dist.report.layout import Fact, Report, Section, TableCell

GAPS = (3, 2, 1)
"""Spaces between two columns, the most wanted first."""

MODEL_WIDTHS = (44, 28, 20)
"""Longer model ids are folded to the first of these that some gap leaves room for."""

_PARTS = re.compile(r"[^ /:]*[ /:]|[^ /:]+")
_WORDS = re.compile(r"[^ /:_-]*[ /:_-]|[^ /:_-]+")


@dataclass(frozen=True, slots=True)
class Block:
    """Columns that stand side by side."""

    columns: tuple[int, ...]
    """Indices into the section's columns; the key columns come first in every block."""
    widths: tuple[int, ...]
    gap: int


def fold(text: str, width: int) -> list[str]:
    """Break text into lines, the fewest possible: between the parts of an id, else the words.

    Words are only broken where one alone is too wide.
    """
    by_words = _pack(_WORDS.findall(text), width)
    parts = _PARTS.findall(text)
    if _longest(parts) > width:
        return by_words
    return min(_pack(parts, width), by_words, key=len)


def longest_word(text: str) -> int:
    """Return the width below which `fold` has to break words."""
    return _longest(_WORDS.findall(text))


def _longest(pieces: Sequence[str]) -> int:
    return max((cell_len(piece.rstrip()) for piece in pieces), default=0)


def _pack(pieces: Sequence[str], width: int) -> list[str]:
    lines = [""]
    for piece in pieces:
        if lines[-1] and cell_len((lines[-1] + piece).rstrip()) > width:
            lines.append("")
        lines += chop_cells(lines.pop() + piece, width)
    return [line.strip() for line in lines if line.strip()]


def fit(widths: Sequence[int], keys: int, total: int) -> list[Block]:
    """Distribute columns over blocks no wider than a total, as far as that is possible.

    Args:
        widths: What each column needs; column `keys - 1` holds the model and may be folded.
    """
    others = sum(widths) - widths[keys - 1]
    wanted = min(widths[keys - 1], MODEL_WIDTHS[0])
    for least in MODEL_WIDTHS:
        for gap in GAPS:
            room = total - others - gap * (len(widths) - 1)
            if room >= min(least, wanted):
                return [_block(range(len(widths)), widths, keys, min(room, wanted), gap)]
    return _split(widths, keys, total)


def _split(widths: Sequence[int], keys: int, total: int) -> list[Block]:
    gap = GAPS[1]
    model_width = min(widths[keys - 1], max(MODEL_WIDTHS[-1], total // 3))
    key_width = sum(widths[: keys - 1]) + gap * (keys - 1) + model_width
    groups: list[list[int]] = [[]]
    used = key_width
    for column in range(keys, len(widths)):
        if groups[-1] and used + gap + widths[column] > total:
            groups.append([])
            used = key_width
        groups[-1].append(column)
        used += gap + widths[column]
    return [_block((*range(keys), *group), widths, keys, model_width, gap) for group in groups]


def _block(
    columns: Sequence[int], widths: Sequence[int], keys: int, model_width: int, gap: int
) -> Block:
    chosen = (model_width if column == keys - 1 else widths[column] for column in columns)
    return Block(tuple(columns), tuple(chosen), gap)


DEFAULT_WIDTH = 100
LEAST_WIDTH = 40
GREATEST_WIDTH = 500
"""Rules are as wide as the terminal says it is, and `COLUMNS` may say anything."""
WIDEST_HEADING = 20
"""Longer words in headings are broken; categories are foreign text of any length."""

_MARK_STYLES = {"PASS": "bold green", "FAIL": "bold red"}  # nosec B105 # no secret


def draw_table(report: Report, width: int | None = None, color: bool = False) -> str:
    """Return sections as aligned text.

    Args:
        width: Columns to fit into; 100 when None.
    """
    target = io.StringIO()
    console = _console(target, min(max(width or DEFAULT_WIDTH, LEAST_WIDTH), GREATEST_WIDTH), color)
    console.rule(Text(printable(report.title), "bold"), characters="═", style="cyan")
    console.print(_head(report.facts))
    for section in report.sections:
        _print_section(console, section)
    _print_title(console, "Legend")
    for line in report.legend:
        _print_small(console, line)
    return "".join(f"{line.rstrip()}\n" for line in target.getvalue().splitlines())


def _console(target: io.StringIO, width: int, color: bool) -> Console:
    """Return a console that depends on nothing but its arguments."""
    return Console(
        file=target,
        width=width,
        height=100,
        color_system="standard" if color else None,
        force_terminal=color,
        force_jupyter=False,
        no_color=not color,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
        _environ={},
    )


def _head(facts: Sequence[Fact]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="cyan", no_wrap=True)
    grid.add_column(overflow="fold")
    for fact in facts:
        grid.add_row(Text(f" {fact.label}"), Text(printable(fact.text)))
    return grid


def _print_section(console: Console, section: Section) -> None:
    _print_title(console, section.title)
    if section.note:
        _print_small(console, printable(section.note))
    widths = [_needed(section, column) for column in range(len(section.columns))]
    for block in fit(widths, section.keys, console.width - 1):
        console.print()
        console.print(Padding(_table(section, block), (0, 0, 0, 1)))
    if section.remarks:
        console.print()
    for remark in section.remarks:
        _print_small(console, printable(remark))


def _print_title(console: Console, title: str) -> None:
    console.print()
    console.rule(Text(title, "bold"), align="left", style="cyan")


def _print_small(console: Console, text: str) -> None:
    console.print(Padding(Text(text, "dim"), (0, 0, 0, 1)))


def _needed(section: Section, column: int) -> int:
    """Return the width of a column's widest line; of a heading, of its longest word in reason."""
    heading = section.columns[column]
    in_heading = min(longest_word(printable(heading.text)), WIDEST_HEADING)
    in_cells = [
        max(cell_len(_first_line(row[column])), cell_len(row[column].detail))
        for row in section.rows
    ]
    return max(in_heading, cell_len(heading.detail), *in_cells, 1)


def _table(section: Section, block: Block) -> Table:
    table = Table(
        box=SIMPLE_HEAD,
        show_edge=False,
        padding=(0, block.gap - 1, 0, 0),
        pad_edge=False,
        header_style="bold",
    )
    sized = list(zip(block.columns, block.widths, strict=True))
    headings = [_lines(section.columns[column], width) for column, width in sized]
    tallest = max(len(lines) for lines in headings)
    for (column, width), lines in zip(sized, headings, strict=True):
        # All headings end on the line above the rule, however many lines they have.
        lowered = Text("\n" * (tallest - len(lines))) + Text("\n").join(lines)
        table.add_column(
            lowered,
            width=width,
            justify="left" if column < section.keys else "right",
            no_wrap=True,
        )
    for row in section.rows:
        table.add_row(*(Text("\n").join(_lines(row[column], width)) for column, width in sized))
    return table


def _lines(cell: TableCell, width: int) -> list[Text]:
    """Return the drawn lines of a cell."""
    first = _first_line(cell)
    lines = [Text(line) for line in fold(first, width)] or [Text()]
    if cell.mark:
        lines[0].stylize(_MARK_STYLES[cell.mark], 0, len(cell.mark))
    detail = fold(printable(cell.detail), width) if cell.detail else []
    return lines + [Text(line, "dim") for line in detail]


def _first_line(cell: TableCell) -> str:
    text = printable(cell.text)
    return f"{cell.mark} {text:>5}" if cell.mark else text
