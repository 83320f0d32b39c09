"""The shape of a report between its numbers and its drawing: plain data, no syntax.

Text in here may be foreign: each format makes it printable and escapes it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from aegish_dist.core.estimates import Estimate
from aegish_dist.report.entries import RankedModel
from aegish_dist.report.numbers import format_interval, format_rate

_N = TypeVar("_N", int, float)


@dataclass(frozen=True, slots=True)
class TableCell:
    """One field of a table, on up to two lines."""

    text: str
    detail: str = ""
    """Second line, such as an interval; empty when there is none."""
    passed: bool | None = None
    """Whether a target is reached; None when there is none."""
    value: float | None = field(default=None, compare=False)
    """The unrounded number of the first line, to sort by; None where there is none. Cells that read
    alike are equal."""

    @property
    def mark(self) -> str:
        """`PASS`, `FAIL` or nothing."""
        if self.passed is None:
            return ""
        return "PASS" if self.passed else "FAIL"


@dataclass(frozen=True, slots=True)
class Section:
    """One table of a report."""

    title: str
    columns: tuple[TableCell, ...]
    """Headings; the detail says what the second line of the cells is."""
    rows: tuple[tuple[TableCell, ...], ...]
    """As many cells in each as there are columns."""
    note: str = ""
    keys: int = 1
    """How many leading columns say what a row is about; the last of them holds the model."""
    remarks: tuple[str, ...] = ()
    """Lines below the table, for what is too long for a column."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of a report's head."""

    label: str
    text: str


@dataclass(frozen=True, slots=True)
class Report:
    """All that a report says, ready to be drawn."""

    title: str
    facts: tuple[Fact, ...]
    """The head: about the run and the snapshot."""
    sections: tuple[Section, ...]
    """Tables, in order."""
    legend: tuple[str, ...]
    source: tuple[Fact, ...] = ()
    """Run, snapshot and rule set in few words: columns where tables of several reports are
    stacked."""
    caption: str = ""
    """Sentences for captions: how many commands there are, and how intervals are made."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column and how its cells are read."""

    title: str
    read: Callable[[RankedModel], TableCell | str]
    detail: str = ""
    """Second line of the heading; empty when there is none."""


SIMULATED = "†"
"""Marks a simulated model wherever there is no room for the word."""


def marked(entry: RankedModel) -> str:
    """Name a model, with a mark where its answers are made up."""
    return f"{entry.model} {SIMULATED}" if entry.simulated else entry.model


MODEL = Column("model", marked)


def tabulate(
    title: str,
    entries: Iterable[RankedModel],
    columns: Sequence[Column],
    *,
    note: str = "",
    keys: int = 1,
) -> Section:
    """Return a section with one row per model.

    Args:
        entries: The models, in the order of the rows.
        keys: How many leading columns say what a row is about; at least 1.
    """
    return Section(
        title=title,
        columns=tuple(TableCell(column.title, column.detail) for column in columns),
        rows=tuple(tuple(_cell(column.read(entry)) for column in columns) for entry in entries),
        note=note,
        keys=keys,
    )


def rate_cell(estimate: Estimate, passed: bool | None = None) -> TableCell:
    """Return a rate over its interval, as percentages."""
    interval = format_interval(estimate.ci_low, estimate.ci_high)
    detail = "" if estimate.ci_low is None else interval
    return TableCell(format_rate(estimate.value), detail, passed, estimate.value)


def number_cell(value: _N | None, write: Callable[[_N | None], str], detail: str = "") -> TableCell:
    """Return a number as its writer shows it.

    Args:
        value: The number; None when undefined.
        detail: Second line; empty when there is none.
    """
    return TableCell(write(value), detail, value=value)


def _cell(content: TableCell | str) -> TableCell:
    return TableCell(content) if isinstance(content, str) else content


def stackable(report: Report) -> Report:
    """Return a report whose rows begin with its source, so that files of reports can be stacked."""
    names = tuple(TableCell(fact.label) for fact in report.source)
    values = tuple(TableCell(fact.text) for fact in report.source)
    sections = tuple(
        replace(
            section,
            columns=(*names, *section.columns),
            rows=tuple((*values, *row) for row in section.rows),
            keys=len(names) + section.keys,
        )
        for section in report.sections
    )
    return replace(report, sections=sections)
