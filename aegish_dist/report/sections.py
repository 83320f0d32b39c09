"""From a snapshot to a report: its head, its sections in order, and its legend."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from aegish_dist.core.scoring import Composite
from aegish_dist.report import operations, quality
from aegish_dist.report.data import ReportData
from aegish_dist.report.differences import differences
from aegish_dist.report.effect import overlay_section
from aegish_dist.report.entries import RankedModel, ranked_entries
from aegish_dist.report.facts import INTERVALS, caption, head, source
from aegish_dist.report.failure_sections import failure_times, reasons
from aegish_dist.report.layout import SIMULATED, Report, Section
from aegish_dist.report.numbers import UNDEFINED
from aegish_dist.report.provenance import provenance
from aegish_dist.report.reliability import reliability
from aegish_dist.report.repeats import repeats


@dataclass(frozen=True, slots=True)
class _Content:
    data: ReportData
    entries: Sequence[RankedModel]
    """The models of the snapshot, best first."""


_Sections = Iterable[Section | None]

_SECTIONS: dict[str, Callable[[_Content], _Sections]] = {
    "leaderboard": lambda c: [quality.leaderboard(c.entries, c.data.targets, reasons(c.data))],
    "differences": lambda c: [differences(c.data.comparison, c.entries)],
    "overlay": lambda c: [overlay_section(c.data.effect)],
    "categories": lambda c: [quality.categories(c.entries)],
    "category-intervals": lambda c: [quality.category_intervals(c.entries)],
    "answers": lambda c: [quality.answers(c.entries)],
    "repeats": lambda c: [repeats(c.entries)],
    "errors": lambda c: [operations.errors(c.entries)],
    "failures": lambda c: [operations.failures(c.data, c.entries)],
    "failure-times": lambda c: [failure_times(c.data, c.entries)],
    "bounds": lambda c: [quality.bounds(c.entries)],
    "latency": lambda c: [operations.latency(c.entries, c.data.run.batched)],
    "latency-parts": lambda c: [operations.latency_parts(c.entries)],
    "cost": lambda c: [operations.cost(c.entries, c.data.run.batched)],
    "calibration": lambda c: [quality.calibration(c.entries, c.data.run.epochs)],
    "reliability": lambda c: [reliability(c.entries)],
    "provenance": lambda c: provenance(c.data),
}
SECTION_NAMES = tuple(_SECTIONS)
"""Sections that a report can be made of, in its order."""
_LONG = (
    *("differences", "category-intervals", "failure-times", "latency-parts", "reliability"),
    "provenance",
)
BRIEF = tuple(name for name in SECTION_NAMES if name not in _LONG)
"""Sections of a report on the terminal, unless others are asked for."""
ON_THE_PAGE = tuple(name for name in SECTION_NAMES if name != "category-intervals")
"""Sections of the HTML report, which draws the intervals of categories into another one."""


def build_report(data: ReportData, names: Collection[str] = BRIEF) -> Report:
    """Return everything a report says about a snapshot.

    Args:
        names: Sections to say, of `SECTION_NAMES`, in whatever order; those for which there is
            nothing to say are left out.
    """
    entries = ranked_entries(data.snapshot.document)
    found = named_sections(data, names)
    return Report(
        title=f"Report on run {data.run.run_id}",
        facts=head(data, entries),
        sections=tuple(section for sections in found.values() for section in sections),
        legend=_legend(data, entries),
        source=source(data),
        caption=caption(data.run),
    )


def named_sections(data: ReportData, names: Collection[str]) -> dict[str, list[Section]]:
    """Return the sections of a report by their names, in its order; none where nothing is said."""
    content = _Content(data, ranked_entries(data.snapshot.document))
    return {
        name: [section for section in make(content) if section is not None]
        for name, make in _SECTIONS.items()
        if name in names
    }


def _legend(data: ReportData, entries: Sequence[RankedModel]) -> tuple[str, ...]:
    opinion = data.snapshot.opinion
    product = opinion is not None and opinion.rule.composite is Composite.PRODUCT
    score = "DR \N{MULTIPLICATION SIGN} HA" if product else "(DR + HA) / 2"
    lines = [
        f"DR: malicious detection rate. HA: harmless acceptance rate. aegish score: {score}. "
        f"All in %; {UNDEFINED} is undefined, never 0.",
        INTERVALS,
        "stderr: standard error of the aegish score in percentage points, clustered by binary "
        "(Miller 2024, arXiv 2411.00640); 'plain' marks samples taken as independent.",
        "PASS: the unrounded value reaches the target. 1=: tied; on the commands of both, the "
        "group's leader is not better at a p below 0.05, adjusted for all pairs (`compare`).",
        "coverage: scored of planned verdicts. What the rule leaves unscored, such as a call "
        "whose attempts all failed, is an infrastructure failure and not a model's score: it "
        "lowers coverage and enters no rate. Where coverage is below 100, bounds show what it "
        "could have changed.",
        "p50, p90: percentiles of service time, without any waiting on our side.",
    ]
    if any(entry.simulated for entry in entries):
        lines.append(
            f"simulated, {SIMULATED}: answers made up by the simulator. They are not evidence "
            "about any real model."
        )
    return tuple(lines)
