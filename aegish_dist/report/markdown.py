"""A report as GitHub-flavoured Markdown."""

import re
from collections.abc import Iterable
from html import escape

from aegish_dist.core.text import printable
from aegish_dist.report.layout import Report, Section, TableCell

_SYNTAX = re.compile(r"[\\`*_|~]|\](?=[(\[])")
_LINK = re.compile(r"(?<=[a-z]):(?=//)|(?<=\bwww)(?=\.)|@", re.IGNORECASE)
"""Where a bare address, which GitHub turns into a link, or a mention has to be interrupted."""


def draw_markdown(report: Report) -> str:
    parts = [
        f"# {markdown_text(report.title)}",
        "\n".join(f"- **{fact.label}:** {markdown_text(fact.text)}" for fact in report.facts),
        *(section_markdown(section) for section in report.sections),
        "## Legend",
        "\n".join(f"- {markdown_text(line)}" for line in report.legend),
    ]
    return "\n\n".join(parts) + "\n"


def section_markdown(section: Section) -> str:
    """Return one table with its heading, note and remarks."""
    rules = [":--" if column < section.keys else "--:" for column in range(len(section.columns))]
    table = [markdown_row(map(_cell, section.columns)), markdown_row(rules)]
    table += [markdown_row(map(_cell, row)) for row in section.rows]
    note = [markdown_text(section.note)] if section.note else []
    remarks = ["\n".join(f"- {markdown_text(remark)}" for remark in section.remarks)]
    parts = [f"## {section.title}", *note, "\n".join(table) if section.columns else "", *remarks]
    return "\n\n".join(filter(None, parts))


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
