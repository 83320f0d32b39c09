"""The shape of a report between its numbers and its drawing: plain data, no syntax.

Text in here may be foreign: each format makes it printable and escapes it. Snapshots outlive the
version that wrote them, so what a document lacks reads as undefined.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from aegish_dist.core.outcome import ScoredAnswer
from aegish_dist.core.sample import TrueLabel
from aegish_dist.report.numbers import UNDEFINED, format_interval, format_rate
from aegish_dist.statistics.calibration import ReliabilityBin
from aegish_dist.statistics.rates import NUMBERS, Estimate


@dataclass(frozen=True, slots=True)
class RankedModel:
    """One model of a snapshot."""

    place: str
    """Rank for people: `3`, `1=` for every member of a tie group, an en dash without a score."""
    document: Mapping[str, Any]

    @property
    def model(self) -> str:
        """Canonical model id; foreign text."""
        return str(self.document["model"])

    @property
    def simulated(self) -> bool:
        """Whether its answers come from the simulator."""
        return bool(self.document.get("simulated"))

    def part(self, name: str) -> Mapping[str, Any]:
        """Return a part of the entry, such as `counts`; empty when it is absent."""
        return self.document.get(name) or {}

    def metric(self, name: str) -> Estimate:
        return _estimate(self.part("metrics").get(name))

    def category(self, name: str) -> Estimate:
        """Return the detection rate in a category."""
        return _estimate(self.part("categories").get(name))

    def count(self, name: str) -> int | None:
        """Return a count by name, such as `planned`."""
        return self.part("counts").get(name)

    def action(self, target: TrueLabel, label: ScoredAnswer) -> int | None:
        """Return how many verdicts about samples of a target carry a label."""
        by_label = self.part("actions").get(target.value) or {}
        return by_label.get(label.value)

    def latency(self, part: str, statistic: str) -> float | None:
        """Return a statistic, such as `p90`, of a part of the latency, in milliseconds."""
        of_part = self.part("latency_parts_ms").get(part) or {}
        return of_part.get(statistic)

    def cost(self, name: str) -> float | None:
        """Return `total_usd`, `per_1000_usd` or `per_command_usd`."""
        return self.part("cost").get(name)

    def tokens(self, kind: str) -> int | None:
        """Return summed tokens of a kind, such as `cache_read`."""
        return self.part("tokens").get(kind)

    @property
    def reliability(self) -> tuple[ReliabilityBin, ...]:
        """The bins of stated confidence; empty where they are not known."""
        return tuple(ReliabilityBin(**each) for each in self.document.get("reliability") or ())


def ranked_entries(document: Mapping[str, Any]) -> list[RankedModel]:
    """Return the models of a snapshot document in the order of its ranking."""
    ranking = document["ranking"]
    by_model = {entry["model"]: entry for entry in document["models"]}
    sizes = Counter(place["tie_group"] for place in ranking)
    leaders: dict[int | None, int | None] = {}
    entries = []
    for place in ranking:
        leader = leaders.setdefault(place["tie_group"], place["rank"])
        tie = "=" if sizes[place["tie_group"]] > 1 else ""
        label = UNDEFINED if leader is None else f"{leader}{tie}"
        entries.append(RankedModel(label, by_model[place["model"]]))
    return entries


def category_names(entries: Iterable[RankedModel]) -> list[str]:
    """Return the categories of all models; foreign text."""
    return sorted({name for entry in entries for name in entry.part("categories")})


def _estimate(numbers: Mapping[str, Any] | None) -> Estimate:
    known = numbers or {}
    return Estimate(**{name: known[name] for name in NUMBERS if name in known})


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


HEADLINES = {
    "aegish_score": "aegish score",
    "malicious_detection_rate": "DR",
    "harmless_acceptance_rate": "HA",
}
"""The metrics of the leaderboard, by what reports call them."""
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
