"""The shape of a report between its numbers and its drawing: plain data, no syntax.

Text in here may be foreign: each format makes it printable and escapes it. Snapshots outlive the
version that wrote them, so what a document lacks reads as undefined.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

from msgspec import Struct

from aegish_dist.core.metric import Difference, Estimate, Metric
from aegish_dist.findings.snapshot import RankedModel
from aegish_dist.report.writing import format_difference, format_interval, format_p, format_rate


def category_names(entries: Iterable[RankedModel]) -> list[str]:
    """Return the categories of all models; foreign text."""
    names: set[str] = set()
    for entry in entries:
        names |= entry.categories.keys()
    return sorted(names)


class TableCell(Struct, frozen=True):
    """One field of a table, on up to two lines."""

    text: str
    detail: str = ""  # second line, such as an interval; empty when there is none
    mark: str = ""  # a `Judgement`, whether a target is reached; empty when there is none
    value: float | None = None
    """The unrounded number of the first line, to sort by; None where there is none."""


Cell = TableCell | str  # A cell, or the text of one that has nothing else
Row = tuple[Cell, ...]


class Section(Struct, frozen=True):
    title: str
    columns: tuple[TableCell, ...]  # headings; the detail says what the second line of the cells is
    rows: tuple[tuple[TableCell, ...], ...]  # as many cells in each as there are columns
    note: str = ""
    keys: int = 1
    """How many leading columns say what a row is about; the last of them holds the model."""
    remarks: tuple[str, ...] = ()  # lines below the table, for what is too long for a column

    @classmethod
    def of(
        cls,
        title: str,
        columns: Iterable[Cell],
        rows: Iterable[Iterable[Cell]],
        *,
        note: str = "",
        keys: int = 1,
        remarks: Iterable[str] = (),
    ) -> Self:
        """Return a table of cells or their texts."""
        return cls(title, _row(columns), tuple(map(_row, rows)), note, keys, tuple(remarks))


def _row(cells: Iterable[Cell]) -> tuple[TableCell, ...]:
    return tuple(TableCell(cell) if isinstance(cell, str) else cell for cell in cells)


class Fact(Struct, frozen=True):
    label: str
    text: str


class Report(Struct, frozen=True):
    title: str
    facts: tuple[Fact, ...]  # the head: about the run and the snapshot
    sections: tuple[Section, ...]
    legend: tuple[str, ...]
    source: tuple[Fact, ...] = ()
    """Run, snapshot and rule set in few words: columns where tables of several reports are
    stacked."""
    caption: str = ""
    """Sentences for captions: how many commands there are, and how intervals are made."""


# What published tables, bounds and the page's pairs are in, by what reports call it.
SCORE_AND_RATES: dict[str, str] = {
    Metric.SCORE: "aegish score",
    Metric.DETECTION_RATE: "DR",
    Metric.ACCEPTANCE_RATE: "HA",
}
# The metrics of the leaderboard, by what reports call them.
HEADLINES: dict[str, str] = {
    **SCORE_AND_RATES,
}


def metric_title(name: str) -> str:
    """Return what reports call a metric."""
    titles = HEADLINES | {Metric.AUROC: "AUROC"}
    return titles.get(name, name.replace("_", " "))


def titles_in_words(names: Iterable[str]) -> str:
    """Say what titles mean, as `DR: malicious detection rate.`; the score's formula varies."""
    return " ".join(
        f"{HEADLINES[name]}: {name.replace('_', ' ')}."
        for name in names
        if name in HEADLINES and name != Metric.SCORE
    )


SIMULATED = "†"  # marks a simulated model wherever there is no room for the word


NOT_EVIDENCE = f"{SIMULATED}: answers made up by the simulator; no evidence about any real model."


def with_mark(model: str, simulated: bool) -> str:
    """Name a model, with a mark where its answers are made up."""
    return f"{model} {SIMULATED}" if simulated else model


def marked(entry: RankedModel) -> str:
    return with_mark(entry.model, entry.simulated)


class Column(Struct, frozen=True):
    """A column, and how its cells are made of a model's entry."""

    title: str
    read: Callable[
        [RankedModel], Any
    ]  # returns a cell or its text; with `write`, the number to write
    write: Callable[[Any], str] | None = None
    detail: str = ""  # second line of the heading; empty when there is none

    def cell(self, entry: RankedModel) -> Cell:
        value: Any = self.read(entry)
        return value if self.write is None else number_cell(value, self.write)


def named_column(
    field: str,
    name: str,
    title: str,
    write: Callable[[Any], str],
) -> Column:
    """Return the column of a number that models hold by name: a count, a cost, tokens."""
    return Column(title, lambda entry: getattr(entry, field).get(name), write)


MODEL = Column("model", marked)
INTERVAL = "[95% CI]"


def tabulate(
    title: str,
    entries: Iterable[RankedModel],
    columns: Sequence[Column],
    *,
    note: str = "",
    keys: int = 1,
) -> Section:
    """Return a section with one row per model."""
    headings = (TableCell(column.title, column.detail) for column in columns)
    rows = ((column.cell(entry) for column in columns) for entry in entries)
    return Section.of(title, headings, rows, note=note, keys=keys)


def number_cell(value: Any, write: Callable[[Any], str], detail: str = "") -> TableCell:
    """Return the cell of a number, which is None where it is undefined."""
    return TableCell(write(value), detail, value=value)


def difference_cell(difference: Difference) -> TableCell:
    """Return a difference in percentage points, and below it its interval."""
    return number_cell(difference.difference, format_difference, points_interval(difference))


def points_interval(difference: Difference) -> str:
    return format_interval(difference.ci_low, difference.ci_high, format_difference)


def difference_in_words(difference: Difference) -> str:
    """Write a difference with its interval: `+1.2 points [-0.3, +2.7]`."""
    return f"{format_difference(difference.difference)} points {points_interval(difference)}"


def p_cell(difference: Difference) -> TableCell:
    """Return the p adjusted for all pairs, and below it the p of the pair alone."""
    return number_cell(difference.p_adjusted, format_p, format_p(difference.p_value))


def estimate_cell(
    estimate: Estimate,
    write: Callable[[float | None], str] = format_rate,
    mark: str = "",
) -> TableCell:
    """Return an estimate, and below it its interval if it has one."""
    detail = ""
    if estimate.ci_low is not None:
        detail = format_interval(estimate.ci_low, estimate.ci_high, write)
    return TableCell(write(estimate.value), detail, mark, estimate.value)


def with_interval(estimate: Estimate, write: Callable[[float | None], str] = format_rate) -> str:
    """Write an estimate and its interval on one line, such as `94.9 [92.3, 96.7]`."""
    cell = estimate_cell(estimate, write)
    return f"{cell.text} {cell.detail}".rstrip()
