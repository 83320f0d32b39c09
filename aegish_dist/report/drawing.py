"""A report as plain text: drawn for the terminal, or as GitHub-flavoured Markdown.

On a terminal columns are fitted into its width, or stand below each other.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import zip_longest

from msgspec import Struct
from msgspec.structs import replace

from aegish_dist.core.text import (
    JsonObject,
    cell_width,
    cut_to_cells,
    filled,
    printable,
    printable_json,
    sentence_lines,
)
from aegish_dist.report.layout import MODEL, SIMULATED, Report, Section, TableCell
from aegish_dist.report.writing import short_names

GAPS = (3, 2, 1)  # spaces between two columns, the most wanted first

# Longer names of models are shortened to the first of these that some gap leaves room for.
MODEL_WIDTHS = (44, 28, 20)
# Longer words in headings are broken; categories are foreign text of any length.
WIDEST_HEADING = 20

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
    if cell_width(text) <= width:
        line = text.strip()
        return [line] if line else []
    by_words = filled(_WORDS.findall(text), width)
    parts = _PARTS.findall(text)
    if _longest(parts) > width:
        return by_words
    return min(filled(parts, width), by_words, key=len)


def _longest(pieces: Sequence[str]) -> int:
    """Return the width of the widest piece: in less room it has to be broken."""
    return max((cell_width(piece.rstrip()) for piece in pieces), default=0)


def fit(widths: Sequence[int], keys: int, total: int) -> list[Block]:
    """Distribute columns over blocks, none of them wider than a total.

    One block is enough if the names of models can be shortened to some width of `MODEL_WIDTHS`.

    Args:
        widths: What each column needs.
        keys: How many leading columns say what a row is about; the last of them holds the model.
    """
    chosen = list(widths)
    of_model = keys - 1
    others = sum(widths) - widths[of_model]
    wanted = min(widths[of_model], MODEL_WIDTHS[0])
    for least in MODEL_WIDTHS:
        for gap in GAPS:
            room = total - others - gap * (len(widths) - 1)
            if room >= min(least, wanted):
                chosen[of_model] = min(room, wanted)
                return [Block(tuple(range(len(widths))), tuple(chosen), gap)]
    return _split(chosen, keys, total)


def _split(widths: Sequence[int], keys: int, total: int) -> list[Block]:
    """Put columns into as many blocks as they need, and repeat the keys in front of each block."""
    gap = GAPS[1]
    of_keys = list(widths[:keys])
    of_values = widths[keys:]
    of_keys[-1] = min(of_keys[-1], max(MODEL_WIDTHS[-1], total // 3))
    least = min(max(of_values, default=0), WIDEST_HEADING // 2)
    # Keys that leave too little room for one column of values share what there is.
    if sum(of_keys) + gap * keys + least > total:
        share = max((total - least) // keys - gap, 1)
        of_keys = [min(width, share) for width in of_keys]
    key_width = sum(of_keys) + gap * (keys - 1)
    # Where the keys leave less, what does not fit beside them is folded too.
    room = max(total - key_width - gap, 1)
    groups: list[list[int]] = [[]]
    used = 0
    for column, width in enumerate(of_values, keys):
        taken = gap + min(width, room)
        if groups[-1] and key_width + used + taken > total:
            groups.append([])
            used = 0
        groups[-1].append(column)
        used += taken
    blocks = []
    for columns in groups:
        block_widths = [min(widths[column], room) for column in columns]
        blocks.append(Block((*range(keys), *columns), (*of_keys, *block_widths), gap))
    return blocks


_BOLD = "1"
_DIM = "2"
_CYAN = "36"
# The sign of a judgement and its colour.
_SIGNS = {"PASS": ("✓", "1;32"), "FAIL": ("✗", "1;31"), "UNDECIDED": ("?", "33")}
_STYLE = re.compile(r"\x1b\[[\d;]*m")


def draw_table(report: Report, width: int | None = None, color: bool = False) -> str:
    """Return sections as aligned text, by default for 100 columns."""
    text = "".join(f"{line.rstrip()}\n" for line in _drawn(report, table_width(width)))
    if color:
        return text
    return _STYLE.sub("", text)


def drawn(report: Report, form: str, width: int | None = None, color: bool = False) -> str:
    """Return a report as a table or as Markdown; width and colour are for tables."""
    if form == "table":
        return draw_table(report, width, color)
    return draw_markdown(report)


def rendered(content: Report | JsonObject, *, width: int | None = None, color: bool = False) -> str:
    """Return a report as a table, or a document as JSON."""
    if isinstance(content, Report):
        return draw_table(content, width, color)
    return printable_json(content) + "\n"


def table_width(width: int | None) -> int:
    return min(max(width or 100, 40), 500)  # `COLUMNS` may say anything


def _styled(text: str, style: str) -> str:
    if text:
        return f"\x1b[{style}m{text}\x1b[0m"
    return ""


def _drawn(report: Report, width: int) -> Iterator[str]:
    title = cut_to_cells(printable(report.title), width - 2)
    rules = width - len(title) - 2
    before = rules // 2
    left = _styled("═" * before + " ", _CYAN)
    right = _styled(" " + "═" * (rules - before), _CYAN)
    yield left + _styled(title, _BOLD) + right
    label_width = max(len(fact.label) for fact in report.facts) + 1
    for fact in report.facts:
        label = f" {fact.label}"
        lines = sentence_lines(printable(fact.text), width - label_width - 2)
        # The first line of a fact bears its label.
        for line in lines or [""]:
            yield f"{_styled(label.ljust(label_width), _CYAN)}  {line}"
            label = ""
    for section in report.sections:
        yield from _section(section, width)
    if report.legend:
        yield from _title("Legend", width)
    for line in report.legend:
        yield from _small(line, width)


def _title(title: str, width: int) -> Iterator[str]:
    if len(title) > width - 2:
        title = f"{title[: width - 3]}\u2026"
    rule = "─" * (width - len(title) - 1)
    yield ""
    yield f"{_styled(title, _BOLD)} {_styled(rule, _CYAN)}"


def _small(text: str, width: int) -> Iterator[str]:
    for line in sentence_lines(printable(text), width - 1):
        yield f" {_styled(line, _DIM)}"


def _section(section: Section, width: int) -> Iterator[str]:
    yield from _title(section.title, width)
    yield from _small(section.note, width)
    if section.columns:
        widths = [_needed(section, column) for column in range(len(section.columns))]
        first, *others = fit(widths, section.keys, width - 1)
        yield from _table(section, first)
        for block in others:
            yield ""
            yield from _table(section, block)
        if section.remarks:
            yield ""
    for remark in section.remarks:
        yield from _small(remark, width)


def _needed(section: Section, column: int) -> int:
    """Return the width that a column needs: of its cells, and of the longest word of its heading.

    Words of headings may be longer than `WIDEST_HEADING`, and are broken then.
    """
    heading = section.columns[column]
    words = _WORDS.findall(printable(heading.text))
    width = max(1, min(_longest(words), WIDEST_HEADING), cell_width(heading.detail))
    for row in section.rows:
        cell = row[column]
        width = max(width, cell_width(_first_line(cell)), cell_width(cell.detail))
    return width


def _table(section: Section, block: Block) -> Iterator[str]:
    headings = list(_cells(section.columns, block, heading=True))
    tallest = max(map(len, headings))
    # All headings end on the line above the rule, however many lines they have.
    bottom = [[""] * (tallest - len(lines)) + lines for lines in headings]
    yield from _row(bottom, section, block)
    rule = sum(block.widths) + block.gap * (len(block.widths) - 1)
    yield " " + "─" * rule
    for row in _named(section, block):
        cells = list(_cells(row, block))
        yield from _row(cells, section, block)


def _named(section: Section, block: Block) -> Iterator[tuple[TableCell, ...]]:
    """Yield the rows with names of models that fit on a line."""
    key = section.keys - 1
    if section.columns[key].text != MODEL.title:
        yield from section.rows
        return
    mark = f" {SIMULATED}"
    shown = [row[key].text for row in section.rows]
    ids = [text.removesuffix(mark) for text in shown]
    room = block.widths[key]
    # A mark keeps its place behind a name that is shortened.
    if ids != shown:
        room -= len(mark)
    names = short_names(ids, room)
    for row, model in zip(section.rows, ids, strict=True):
        cell = row[key]
        text = names[model] + cell.text.removeprefix(model)
        yield *row[:key], replace(cell, text=text), *row[key + 1 :]


def _row(cells: Sequence[Sequence[str]], section: Section, block: Block) -> Iterator[str]:
    for lines in zip_longest(*cells, fillvalue=""):
        padded = []
        for line, column, width in zip(lines, block.columns, block.widths, strict=True):
            without_style = _STYLE.sub("", line)
            space = " " * (width - cell_width(without_style))
            is_key = column < section.keys
            padded.append(line + space if is_key else space + line)
        gap = " " * block.gap
        yield " " + gap.join(padded)


def _cells(row: Sequence[TableCell], block: Block, *, heading: bool = False) -> Iterator[list[str]]:
    """Yield for each cell of a row its lines, with their colours."""
    for column, width in zip(block.columns, block.widths, strict=True):
        cell = row[column]
        texts = fold(_first_line(cell), width) or [""]
        details = fold(printable(cell.detail), width) if cell.detail else []
        dim = _DIM
        if cell.mark:
            sign, style = _SIGNS[cell.mark]
            texts[0] = _styled(sign, style) + texts[0].removeprefix(sign)
        if heading:
            texts = [_styled(text, _BOLD) for text in texts]
            dim = f"{_BOLD};{_DIM}"
        texts += [_styled(text, dim) for text in details]
        yield texts


def _first_line(cell: TableCell) -> str:
    text = printable(cell.text)
    if cell.mark:
        sign, _ = _SIGNS[cell.mark]
        return f"{sign} {text:>5}"
    return text


_MARKDOWN_SYNTAX = re.compile(r"[\\`*_|~]|\](?=[(\[])")
# Where a bare address, which GitHub turns into a link, or a mention has to be interrupted.
_MARKDOWN_LINK = re.compile(r"(?<=[a-z]):(?=//)|(?<=\bwww)(?=\.)|@", re.IGNORECASE)


def draw_markdown(report: Report) -> str:
    parts = [f"# {markdown_text(report.title)}"]
    parts.append(
        "\n".join(f"- **{fact.label}:** {markdown_text(fact.text)}" for fact in report.facts)
    )
    parts += map(section_markdown, report.sections)
    parts += ["## Legend", _bullets(report.legend)]
    return "\n\n".join(parts) + "\n"


def section_markdown(section: Section) -> str:
    """Return one table with its heading, note and remarks."""
    parts = [f"## {section.title}"]
    if section.note:
        parts.append(markdown_text(section.note))
    if section.columns:
        numbers = len(section.columns) - section.keys
        rules = [":--"] * section.keys + ["--:"] * numbers
        table = [markdown_row(map(_markdown_cell, section.columns)), markdown_row(rules)]
        table += [markdown_row(map(_markdown_cell, row)) for row in section.rows]
        parts.append("\n".join(table))
    if section.remarks:
        parts.append(_bullets(section.remarks))
    return "\n\n".join(parts)


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {markdown_text(line)}" for line in lines)


def markdown_row(cells: Iterable[str]) -> str:
    """Return a row of a table; the cells are Markdown."""
    return f"| {' | '.join(cells)} |"


def _markdown_cell(cell: TableCell) -> str:
    first = f"{markdown_text(cell.text)} {cell.mark}".rstrip()
    return f"{first}<br>{markdown_text(cell.detail)}" if cell.detail else first


def markdown_text(text: str) -> str:
    """Return text that Markdown shows as it stands, without links."""
    shown = _MARKDOWN_SYNTAX.sub(r"\\\g<0>", escape(printable(text), quote=False))
    return _MARKDOWN_LINK.sub(r"\g<0><!-- -->", shown)
