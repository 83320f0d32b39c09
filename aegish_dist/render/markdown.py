"""A report as GitHub-flavoured Markdown."""

import re
from collections.abc import Iterable
from html import escape

from aegish_dist.core.printable import printable
from aegish_dist.render.layout import Report, Section, TableCell

_SYNTAX = re.compile(r"[\\`*_|~]|\](?=[(\[])")
_LINK = re.compile(r"(?<=[a-z]):(?=//)|(?<=\bwww)(?=\.)|@", re.IGNORECASE)
"""Where a bare address, which GitHub turns into a link, or a mention has to be interrupted."""
_INTERRUPTED = r"\g<0><!-- -->"


def draw_markdown(report: Report) -> str:
    """Return sections as Markdown."""
    parts = [
        f"# {_text(report.title)}",
        "\n".join(f"- **{fact.label}:** {_text(fact.text)}" for fact in report.facts),
        *(section_markdown(section) for section in report.sections),
        "## Legend",
        "\n".join(f"- {_text(line)}" for line in report.legend),
    ]
    return "\n\n".join(parts) + "\n"


def section_markdown(section: Section) -> str:
    """Return one table with its heading, note and remarks."""
    rules = [":--" if column < section.keys else "--:" for column in range(len(section.columns))]
    table = [_row(map(_cell, section.columns)), _row(rules)]
    table += [_row(map(_cell, row)) for row in section.rows]
    note = [_text(section.note)] if section.note else []
    remarks = ["\n".join(f"- {_text(remark)}" for remark in section.remarks)]
    parts = [f"## {section.title}", *note, "\n".join(table), *filter(None, remarks)]
    return "\n\n".join(parts)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: TableCell) -> str:
    first = f"{_text(cell.text)} {cell.mark}".rstrip()
    return f"{first}<br>{_text(cell.detail)}" if cell.detail else first


def _text(text: str) -> str:
    """Return text that Markdown shows as it stands, without links."""
    shown = _SYNTAX.sub(r"\\\g<0>", escape(printable(text), quote=False))
    return _LINK.sub(_INTERRUPTED, shown)
