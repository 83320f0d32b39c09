r"""A report as tables for a paper: LaTeX with booktabs, to be read in by `\input`.

A table that is too wide or too long for a page becomes several. A row has several lines where an
interval stands below its value or a long name is folded. The result is ASCII and needs no package
for its characters, so it compiles with pdfTeX in any encoding.
"""

import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from importlib.resources import files
from itertools import chain, zip_longest

from msgspec import toml

from aegish_dist.core.text import printable, shortened
from aegish_dist.report.drawing import Block, fit, fold
from aegish_dist.report.layout import Report, Section, TableCell
from aegish_dist.report.writing import UNDEFINED

# `signs` by character, and `accents` by the combining character.
_COMMANDS = toml.decode(files(__package__).joinpath("latex.toml").read_bytes())
# Characters to be escaped; hyphens, commas and spaces only where they are doubled.
_SPECIAL = re.compile(r"[^A-Za-z0-9 .:;/()=+?!@\],-]|-(?=-)|,(?=,)|(?<= ) ")


def latex_text(text: str) -> str:
    r"""Return foreign text for LaTeX, on one line and in ASCII.

    Letters with an accent become commands; a character that no font of TeX can be counted on to
    have is written as its number, such as `U+4E2D`. What is invisible is shown as in every report.
    """
    return _SPECIAL.sub(lambda found: _command(found[0]), printable(text))


def _command(character: str) -> str:
    known: str | None = _COMMANDS["signs"].get(character)
    if known is not None:
        return known
    parts = unicodedata.normalize("NFD", character)
    letter, accent = parts[0], _COMMANDS["accents"].get(parts[1:])
    if accent is not None and letter.isascii():
        return f"\\{accent}{{{letter}}}"
    return f"U+{ord(character):04X}"


WIDTH = 120  # characters of `\footnotesize` that a page of 16 cm has room for
MOST_CHARACTERS = 300  # of a remark; providers' messages have any length
_MARKS = {
    "": "",
    "PASS": "$^{+}$",
    "FAIL": "$^{-}$",
    "UNDECIDED": "$^{?}$",
}  # nosec B105 # no secret
_PREAMBLE = r"""% Tables of {title}, for \input{{}} in a document with
%   \usepackage{{booktabs}}
% and lines of 16 cm, such as \usepackage[margin=2.5cm]{{geometry}}.
"""


def draw_latex(report: Report) -> str:
    """Return sections as LaTeX: beside comments it is ASCII, and compiles with any engine."""
    parts = [_PREAMBLE.format(title=latex_text(report.title))]
    comments = [f"{fact.label}: {fact.text}" for fact in report.facts]
    for comment in (*comments, *report.legend):
        parts.append(f"% {shortened(printable(comment), MOST_CHARACTERS)}\n")
    for section in report.sections:
        parts += _tables(report, section)
    return "".join(parts)


def _tables(report: Report, section: Section) -> Iterator[str]:
    if not section.columns:
        title = latex_text(section.title)
        yield "".join(f"{title}: {_remark(remark)}\n\n" for remark in section.remarks)
        return
    widths = [_width(section, column) for column in range(len(section.columns))]
    parts = []
    for block in fit(widths, section.keys, WIDTH):
        rows = [list(_lines(row, block, section.keys)) for row in section.rows]
        parts += [(block, page) for page in _pages(rows)]
    for number, (block, rows) in enumerate(parts, 1):
        part = f" (part {number} of {len(parts)})" if len(parts) > 1 else ""
        label = _label(report, section)
        if number > 1:
            label += f"-{number}"
        lines = [
            r"\begin{table*}[htbp]",
            r"\centering\footnotesize\setlength{\tabcolsep}{3pt}",
            rf"\caption{{{_caption(report, section, part)}}}",
            rf"\label{{{label}}}\smallskip",
            *_tabular(section, block, rows),
        ]
        if number == len(parts):
            for remark in section.remarks:
                lines.append(rf"\par\smallskip\raggedright {_remark(remark)}")
        lines += [r"\end{table*}", ""]
        yield "\n".join(lines)


def _remark(remark: str) -> str:
    return latex_text(shortened(printable(remark), MOST_CHARACTERS))


def _tabular(
    section: Section, block: Block, rows: Sequence[Sequence[Sequence[str]]]
) -> Iterator[str]:
    keys = section.keys
    yield rf"\begin{{tabular}}{{@{{}}{'l' * keys}{'r' * (len(block.columns) - keys)}@{{}}}}"
    yield r"\toprule"
    yield from map(_row, _lines(section.columns, block, len(section.columns)))
    yield r"\midrule"
    for lines in rows:
        yield from map(_row, lines)
    yield r"\bottomrule"
    yield r"\end{tabular}"


def _row(cells: Sequence[str]) -> str:
    return f"{' & '.join(cells)} \\\\"


def _lines(row: Sequence[TableCell], block: Block, folded: int) -> Iterator[list[str]]:
    """Yield the lines of a row, details below; the first columns hold names, which are folded."""
    cells = []
    for column, width in zip(block.columns, block.widths, strict=True):
        cell = row[column]
        texts = [cell.text]
        details = [cell.detail]
        if column < folded:
            texts = fold(printable(cell.text), width)
            # Details are smaller: an eighth more of them fits.
            details = fold(printable(cell.detail), max(width * 8 // 7, 60))
        lines = [latex_text(text) for text in texts] or [""]
        lines[0] += _MARKS[cell.mark]
        lines += [rf"\scriptsize {latex_text(detail)}" for detail in details if detail]
        cells.append(lines)
    yield from map(list, zip_longest(*cells, fillvalue=""))


def _pages(rows: Sequence[list[list[str]]]) -> Iterator[list[list[list[str]]]]:
    """Cut rows into pages, which have room for 52 lines below the caption."""
    page: list[list[list[str]]] = []
    used = 0
    for row in rows:
        if page and used + len(row) > 52:
            yield page
            page, used = [], 0
        page.append(row)
        used += len(row)
    yield page


def _width(section: Section, column: int) -> int:
    """Return how much room a column needs; headings are folded to it."""
    heading = section.columns[column]
    cells = [row[column] for row in section.rows]
    words = printable(heading.text).split(" ")
    texts = [printable(cell.text) for cell in cells]
    details = [_size(printable(cell.detail)) for cell in (heading, *cells)]
    # Details are smaller, and need seven eighths.
    return max(*map(_size, words + texts), math.ceil(max(details) * 7 / 8))


def _size(text: str) -> int:
    """Return the width of a text in small letters; capital ones are wider."""
    return len(text) + sum(map(str.isupper, text)) // 3


def _caption(report: Report, section: Section, of_several: str) -> str:
    """Say which numbers these are, of which run and rule set, and how intervals are made."""
    sentences = [f"{section.title}{of_several}."]
    if section.note:
        sentences.append(section.note)
    if report.source:
        source = ", ".join(f"{fact.label} {fact.text}" for fact in report.source)
        sentences.append(f"{source[:1].upper()}{source[1:]}.")
    if report.caption and any("CI" in heading.detail for heading in section.columns):
        sentences.append(report.caption)
    caption = latex_text(" ".join(sentences))
    cells = list(chain.from_iterable(section.rows))
    if any(cell.mark for cell in cells):
        caption += " $^{+}$/$^{-}$/$^{?}$: the interval is above the target, below it, or holds it."
    if any(cell.text == UNDEFINED for cell in cells):
        caption += " --: undefined."
    return caption


def _label(report: Report, section: Section) -> str:
    r"""Return a name for `\ref` that no other table of another report has."""
    label = "tab:"
    for words in (*(fact.text for fact in report.source[:2]), section.title):
        part = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")
        if part:
            label += f"{part}-"
    return label.removesuffix("-")
