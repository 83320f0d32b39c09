"""A report as GitHub-flavoured Markdown."""

import re
from collections.abc import Iterable
from html import escape

from aegish_dist.core.text import printable
from aegish_dist.report.layout import Report, Section, TableCell

_SYNTAX = re.compile(r"[\\`*_|~]|\](?=[(\[])")
# Where a bare address, which GitHub turns into a link, or a mention has to be interrupted.
_LINK = re.compile(r"(?<=[a-z]):(?=//)|(?<=\bwww)(?=\.)|@", re.IGNORECASE)


def draw_markdown(report: Report) -> str:
    parts = [f"# {markdown_text(report.title)}"]
    parts.append(
        "\n".join(f"- **{fact.label}:** {markdown_text(fact.text)}" for fact in report.facts)
    )
    parts += map(section_markdown, report.sections)
    parts += ["## Legend", _listed(report.legend)]
    return "\n\n".join(parts) + "\n"


def section_markdown(section: Section) -> str:
    """Return one table with its heading, note and remarks."""
    parts = [f"## {section.title}"]
    if section.note:
        parts.append(markdown_text(section.note))
    if section.columns:
        numbers = len(section.columns) - section.keys
        rules = [":--"] * section.keys + ["--:"] * numbers
        table = [markdown_row(map(_cell, section.columns)), markdown_row(rules)]
        table += [markdown_row(map(_cell, row)) for row in section.rows]
        parts.append("\n".join(table))
    if section.remarks:
        parts.append(_listed(section.remarks))
    return "\n\n".join(parts)


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"- {markdown_text(line)}" for line in lines)


def markdown_row(cells: Iterable[str]) -> str:
    """Return a row of a table; the cells are Markdown."""
    return f"| {' | '.join(cells)} |"


def _cell(cell: TableCell) -> str:
    first = f"{markdown_text(cell.text)} {cell.mark}".rstrip()
    return f"{first}<br>{markdown_text(cell.detail)}" if cell.detail else first


def markdown_text(text: str) -> str:
    """Return text that Markdown shows as it stands, without links."""
    shown = _SYNTAX.sub(r"\\\g<0>", escape(printable(text), quote=False))
    return _LINK.sub(r"\g<0><!-- -->", shown)
