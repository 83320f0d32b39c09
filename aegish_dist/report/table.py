"""A report for the terminal: columns are fitted into its width, or stand below each other."""

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from msgspec import Struct
from msgspec.structs import replace

from aegish_dist.core.text import cell_width, cut_to_cells, filled, printable, sentence_lines
from aegish_dist.report.layout import MODEL, SIMULATED, Report, Section, TableCell
from aegish_dist.report.names import short_names

GAPS = (3, 2, 1)  # spaces between two columns, the most wanted first

MODEL_WIDTHS = (44, 28, 20)
"""Longer names of models are shortened to the first of these that some gap leaves room for."""
WIDEST_HEADING = 20
"""Longer words in headings are broken; categories are foreign text of any length."""

_PARTS = re.compile(r"[^ /:]*[ /:]|[^ /:]+")
_WORDS = re.compile(r"[^ /:_-]*[ /:_-]|[^ /:_-]+")


class Block(Struct, frozen=True):
    """Columns that stand side by side."""

    columns: tuple[int, ...]
    """Indices into the section's columns; the key columns come first in every block."""
    widths: tuple[int, ...]
    gap: int


def fold(text: str, width: int) -> list[str]:
    """Break text into lines, the fewest possible: between the parts of an id, else the words.

    Words are only broken where one alone is too wide.
    """
    by_words = filled(_WORDS.findall(text), width)
    parts = _PARTS.findall(text)
    if _longest(parts) > width:
        return by_words
    return min(filled(parts, width), by_words, key=len)


def _longest(pieces: Sequence[str]) -> int:
    """Return the width below which pieces have to be broken."""
    return max((cell_width(piece.rstrip()) for piece in pieces), default=0)


def fit(widths: Sequence[int], keys: int, total: int) -> list[Block]:
    """Distribute columns over blocks no wider than a total; the last key holds the model."""
    others = sum(widths) - widths[keys - 1]
    wanted = min(widths[keys - 1], MODEL_WIDTHS[0])
    for least in MODEL_WIDTHS:
        for gap in GAPS:
            room = total - others - gap * (len(widths) - 1)
            if room >= min(least, wanted):
                chosen = (*widths[: keys - 1], min(room, wanted), *widths[keys:])
                return [Block(tuple(range(len(widths))), chosen, gap)]
    return _split(widths, keys, total)


def _split(widths: Sequence[int], keys: int, total: int) -> list[Block]:
    gap = GAPS[1]
    model_width = min(widths[keys - 1], max(MODEL_WIDTHS[-1], total // 3))
    sized = [*widths[: keys - 1], model_width, *widths[keys:]]
    least = min(max(widths[keys:], default=0), WIDEST_HEADING // 2)
    if sum(sized[:keys]) + gap * keys + least > total:
        share = max((total - least) // keys - gap, 1)
        sized[:keys] = (min(width, share) for width in sized[:keys])
    key_width = sum(sized[:keys]) + gap * (keys - 1)
    # Where the keys leave less, what does not fit beside them is folded too.
    room = max(total - key_width - gap, 1)
    sized[keys:] = (min(width, room) for width in sized[keys:])
    groups: list[list[int]] = [[]]
    used = key_width
    for column in range(keys, len(sized)):
        if groups[-1] and used + gap + sized[column] > total:
            groups.append([])
            used = key_width
        groups[-1].append(column)
        used += gap + sized[column]
    blocks = [(*range(keys), *group) for group in groups]
    return [Block(block, tuple(sized[column] for column in block), gap) for block in blocks]


_BOLD = "1"
_DIM = "2"
_CYAN = "36"
_SIGNS = {"PASS": ("✓", "1;32"), "FAIL": ("✗", "1;31"), "UNDECIDED": ("?", "33")}
"""The sign of a judgement and its colour."""
_STYLE = re.compile(r"\x1b\[[\d;]*m")


def draw_table(report: Report, width: int | None = None, color: bool = False) -> str:
    """Return sections as aligned text, by default for 100 columns."""
    text = "".join(f"{line.rstrip()}\n" for line in _drawn(report, table_width(width)))
    if color:
        return text
    return _STYLE.sub("", text)


def table_width(width: int | None) -> int:
    return min(max(width or 100, 40), 500)  # `COLUMNS` may say anything


def _styled(text: str, style: str) -> str:
    if text:
        return f"\x1b[{style}m{text}\x1b[0m"
    return ""


def _drawn(report: Report, width: int) -> Iterator[str]:
    title = cut_to_cells(printable(report.title), width - 2)
    side = (width - len(title)) // 2 - 1
    rules = ("═" * side + " ", " " + "═" * (width - len(title) - side - 2))
    yield _styled(title, _BOLD).join(_styled(rule, _CYAN) for rule in rules)
    labels = max(len(fact.label) for fact in report.facts) + 1
    for fact in report.facts:
        lines = sentence_lines(printable(fact.text), width - labels - 2)
        for label, line in zip_longest([f" {fact.label}"], lines or [""], fillvalue=""):
            yield f"{_styled(label.ljust(labels), _CYAN)}  {line}"
    for section in report.sections:
        yield from _section(section, width)
    yield from _title("Legend", width) if report.legend else ()
    for line in report.legend:
        yield from _small(line, width)


def _title(title: str, width: int) -> Iterator[str]:
    shown = title if len(title) <= width - 2 else f"{title[: width - 3]}\u2026"
    yield ""
    yield f"{_styled(shown, _BOLD)} {_styled('─' * (width - len(shown) - 1), _CYAN)}"


def _small(text: str, width: int) -> Iterator[str]:
    for line in sentence_lines(printable(text), width - 1):
        yield f" {_styled(line, _DIM)}"


def _section(section: Section, width: int) -> Iterator[str]:
    yield from _title(section.title, width)
    yield from _small(section.note, width)
    widths = [_needed(section, column) for column in range(len(section.columns))]
    for number, block in enumerate(fit(widths, section.keys, width - 1) if widths else ()):
        yield from [""] if number else []
        for line in _table(section, block):
            yield f" {line}"
    if section.remarks and widths:
        yield ""
    for remark in section.remarks:
        yield from _small(remark, width)


def _needed(section: Section, column: int) -> int:
    """Return the width of a column's widest line; of a heading, of its longest word in reason."""
    heading = section.columns[column]
    in_heading = min(_longest(_WORDS.findall(printable(heading.text))), WIDEST_HEADING)
    in_cells = [
        max(cell_width(_first_line(row[column])), cell_width(row[column].detail))
        for row in section.rows
    ]
    return max(in_heading, cell_width(heading.detail), *in_cells, 1)


def _table(section: Section, block: Block) -> Iterator[str]:
    headings = [*_cells(section.columns, block, heading=True)]
    tallest = max(map(len, headings))
    # All headings end on the line above the rule, however many lines they have.
    yield from _row([[""] * (tallest - len(each)) + each for each in headings], section, block)
    yield "─" * (sum(block.widths) + block.gap * (len(block.widths) - 1))
    for row in _named(section, block):
        yield from _row([*_cells(row, block)], section, block)


def _named(section: Section, block: Block) -> Iterator[tuple[TableCell, ...]]:
    """Yield the rows with names of models that fit on a line."""
    key = section.keys - 1
    of_models = section.columns[key].text == MODEL.title
    mark = f" {SIMULATED}"
    ids = [row[key].text.removesuffix(mark) for row in section.rows if of_models]
    marked = any(row[key].text.endswith(mark) for row in section.rows)
    names = short_names(ids, block.widths[key] - len(mark) * marked)
    for row in section.rows:
        text = row[key].text
        for model in [text.removesuffix(mark)] if of_models else []:
            text = names[model] + text.removeprefix(model)
        yield *row[:key], replace(row[key], text=text), *row[key + 1 :]


def _row(cells: Sequence[Sequence[str]], section: Section, block: Block) -> Iterator[str]:
    for lines in zip_longest(*cells, fillvalue=""):
        padded = []
        for line, column, width in zip(lines, block.columns, block.widths, strict=True):
            space = " " * (width - cell_width(_STYLE.sub("", line)))
            padded.append(line + space if column < section.keys else space + line)
        yield (" " * block.gap).join(padded)


def _cells(row: Sequence[TableCell], block: Block, *, heading: bool = False) -> Iterator[list[str]]:
    """Yield the drawn lines of the cells of a row."""
    for column, width in zip(block.columns, block.widths, strict=True):
        cell = row[column]
        texts = fold(_first_line(cell), width) or [""]
        details = fold(printable(cell.detail), width)
        if cell.mark:
            sign, style = _SIGNS[cell.mark]
            texts[0] = _styled(sign, style) + texts[0].removeprefix(sign)
        dim = f"{_BOLD};{_DIM}" if heading else _DIM
        shown = [_styled(text, _BOLD) for text in texts] if heading else texts
        yield [*shown, *(_styled(text, dim) for text in details)]


def _first_line(cell: TableCell) -> str:
    text = printable(cell.text)
    if cell.mark:
        return f"{_SIGNS[cell.mark][0]} {text:>5}"
    return text
