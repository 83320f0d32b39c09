"""Differences of the score between models, with their intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

from aegish_dist.core.text import printable
from aegish_dist.report.charts import theme
from aegish_dist.report.charts.boxes import PixelLine
from aegish_dist.report.charts.captions import counted, foreign_words, sentences
from aegish_dist.report.charts.chart import Chart, Layer, LegendItem, NoChart
from aegish_dist.report.charts.layers import beside, lines, pixels, spans, symbols, text_row, texts
from aegish_dist.report.charts.naming import last_part
from aegish_dist.report.charts.rows import AXIS_PX, RowChart, RowPlan
from aegish_dist.report.charts.scales import AxisScale, linear_scale
from aegish_dist.report.charts.text_width import distinct
from aegish_dist.report.data import ComparedPair, ComparisonData, ReportData
from aegish_dist.report.layout import RankedModel, ranked_entries
from aegish_dist.report.numbers import format_p
from aegish_dist.statistics.paired_test import LEVEL

_MOST_PAIRS = 28
"""With more pairs, those of eight models, the models are compared with the best one alone."""
_NAME_PX = 330.0
_METHOD = "paired, cluster-robust, not adjusted for the number of pairs"


@dataclass(frozen=True, slots=True)
class _Gap:
    """A difference in percentage points, of one model minus another."""

    better: str
    other: str
    value: float
    low: float | None
    high: float | None
    p_adjusted: float | None
    n: int

    @property
    def differs(self) -> bool:
        return self.p_adjusted is not None and self.p_adjusted < LEVEL


def differences(name: str, data: ReportData) -> Chart | NoChart:
    """Return the differences of all pairs, or of all models to the best one."""
    comparison = data.comparison
    if comparison is None:
        return NoChart(name, "there are no two models to compare")
    entries = ranked_entries(data.snapshot.document)
    places = {entry.model: place for place, entry in enumerate(entries)}
    gaps = [gap for pair in comparison.pairs for gap in _gap(pair, comparison, places)]
    if not gaps:
        return NoChart(name, "no two models have a score on the same commands")
    to_leader = len(gaps) > _MOST_PAIRS
    if to_leader:
        leader = min(places, key=lambda model: places[model])
        gaps = [gap for gap in gaps if gap.better == leader]
    gaps.sort(key=lambda gap: (-gap.value, places[gap.better], places[gap.other]))
    return _drawn(name, gaps, entries, data, to_leader=to_leader)


def _gap(pair: ComparedPair, comparison: ComparisonData, places: dict[str, int]) -> list[_Gap]:
    """Return the difference of a pair, the better ranked model first; none where undefined."""
    found = comparison.difference(pair)
    if found is None:
        return []
    better, other, last = pair.b.model, pair.a.model, len(places)
    if places.get(better, last) > places.get(other, last):
        better, other, found = other, better, found.turned
    if found.difference is None:
        return []
    low, high = (None if end is None else 100 * end for end in (found.ci_low, found.ci_high))
    return [_Gap(better, other, 100 * found.difference, low, high, found.p_adjusted, found.n)]


def _drawn(
    name: str,
    gaps: Sequence[_Gap],
    entries: Sequence[RankedModel],
    data: ReportData,
    *,
    to_leader: bool,
) -> Chart:
    values = [v for gap in gaps for v in (gap.value, gap.low, gap.high) if v is not None]
    scale = linear_scale([0.0, *values], AXIS_PX)
    plan = RowPlan(_names(gaps, to_leader=to_leader), 22.0)
    zero = scale.along(0.0)
    bars = [
        {"low": gap.low, "high": gap.high, "y": plan.y(row)}
        for row, gap in enumerate(gaps)
        if gap.low is not None
    ]
    chart = RowChart(
        name=name,
        title=_title(gaps, to_leader=to_leader),
        caption=_caption(gaps, data, to_leader=to_leader),
        description=_description(gaps),
        axis="difference of the aegish score (percentage points)",
        form="~r",
        right=104.0,
    )
    marks = [
        lines([PixelLine(zero, 0, zero, plan.total)], theme.INK),
        spans(bars, scale, 2.0, theme.LINE),
        *_points(gaps, plan, scale),
        _p_values(gaps, plan),
    ]
    legend = [
        LegendItem("differs (adjusted p < 0.05)", theme.PALETTE[0], "circle"),
        LegendItem("not distinguishable", theme.PALETTE[0], "circle", filled=False),
    ]
    return chart.drawn(plan, scale, marks, legend)


def _names(gaps: Sequence[_Gap], *, to_leader: bool) -> list[str]:
    if to_leader:
        return distinct([printable(gap.other) for gap in gaps], theme.TEXT_PX, _NAME_PX)
    pairs = [f"{_short(gap.better)} \N{MINUS SIGN} {_short(gap.other)}" for gap in gaps]
    return distinct(pairs, theme.TEXT_PX, _NAME_PX)


def _short(model: str) -> str:
    return printable(last_part(model))


def _title(gaps: Sequence[_Gap], *, to_leader: bool) -> str:
    if to_leader:
        return f"Lead of {_short(gaps[0].better)} over each other model"
    return "Differences of the aegish score between models"


def _points(gaps: Sequence[_Gap], plan: RowPlan, scale: AxisScale) -> list[Layer]:
    """Return filled points for what differs, and hollow ones for the rest."""
    found = []
    for differs, fill in ((True, theme.PALETTE[0]), (False, theme.PAPER)):
        rows = [
            {"x": gap.value, "y": plan.y(row), "color": fill, "shape": "circle"}
            for row, gap in enumerate(gaps)
            if gap.differs is differs
        ]  # fmt: skip
        if rows:
            drawn = symbols(rows, beside("x", scale), pixels("y"), size=60)
            drawn["mark"] |= {"stroke": theme.PALETTE[0], "strokeWidth": 1.5}
            found.append(drawn)
    return found


def _p_values(gaps: Sequence[_Gap], plan: RowPlan) -> Layer:
    rows = [text_row(AXIS_PX + 14, plan.y(row), _number(gap)) for row, gap in enumerate(gaps)]
    return texts(rows, size=theme.SMALL_PX)


def _number(gap: _Gap) -> str:
    p = format_p(gap.p_adjusted)
    return f"{gap.value:+.1f}, p {'' if p.startswith('<') else '= '}{p}"


def _caption(gaps: Sequence[_Gap], data: ReportData, *, to_leader: bool) -> str:
    sizes = sorted({gap.n for gap in gaps})
    most = "" if len(sizes) == 1 else f" to {sizes[-1]:,}"
    pairs = counted(len(gaps), "pair")
    what = f"{pairs} of the best model and another one" if to_leader else f"{pairs} of models"
    return sentences(
        f"{what}, the better ranked one minus the other, on the {sizes[0]:,}{most} commands scored "
        f"of both. Bars: 95 % confidence intervals ({_METHOD}). p: adjusted by Holm over all pairs "
        "of the run.",
        "" if data.is_current else "Of the verdicts as they are now, not those of the snapshot.",
    )


def _description(gaps: Sequence[_Gap]) -> str:
    def interval(gap: _Gap) -> str:
        return "" if gap.low is None else f" [{gap.low:+.1f}, {gap.high:+.1f}]"

    return "; ".join(
        f"{foreign_words(gap.better)} minus {foreign_words(gap.other)}: {gap.value:+.1f} "
        f"percentage points{interval(gap)}"
        for gap in gaps
    )
