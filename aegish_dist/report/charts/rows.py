"""Plots with a row for each model or pair: ranking, differences of the score."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aegish_dist.core.text import counted
from aegish_dist.findings.comparison import DirectedDifference, differs
from aegish_dist.findings.leaderboard import RankedModel
from aegish_dist.opinions.opinion import Targets
from aegish_dist.report.charts.spec import (
    INK,
    LINE,
    PALETTE,
    PAPER,
    SMALL_PX,
    SOFT,
    Chart,
    Json,
    NoChart,
    layer,
    legend,
    literal,
    number,
    provider_of,
    provider_styles,
    widest,
)
from aegish_dist.report.charts.words import (
    ACCEPTANCE,
    DETECTION,
    SCORE,
    Measure,
    apart,
    baseline_note,
    described,
    fitted_names,
    foreign_words,
    interval_note,
    left_out_note,
    row_names,
    sampled,
    sentences,
    simulated_note,
)
from aegish_dist.report.data import ReportData
from aegish_dist.report.numbers import format_difference, format_interval, format_p, format_span
from aegish_dist.statistics.paired_difference import Difference
from aegish_dist.statistics.rates import Estimate

_AXIS_PX = 430.0
_GAP_PX = 10.0
_ROW = {"field": "row", "type": "nominal"}


_Placed = tuple[Json, float, float]
"""A view, and the pixels that it takes on the left of its area and in all."""


def _rows_body(
    names: Sequence[str],
    layers: Sequence[Json],
    *,
    height: float,
    width: float = _AXIS_PX,
    right: float = 34.0,
    keys: Sequence[str] = (),
    groups: Sequence[int] = (),
) -> _Placed:
    """Return a view whose rows have names on the left.

    Args:
        right: Pixels that text on the right of the axis takes, with a margin.
        keys: Texts before the names, such as ranks; empty: none.
        groups: Number of the group of each row, every second group is shaded; empty: rows
            alternate.
    """
    left = widest(names) + _GAP_PX + 8
    if keys:
        left += widest(keys) + _GAP_PX
    axis = {
        "title": None,
        "ticks": False,
        "domain": False,
        "labelPadding": _GAP_PX,
    }
    y = _ROW | {"scale": {"domain": list(names)}, "axis": axis}
    shaded = []
    for name, group in zip(names, groups or range(len(names)), strict=True):
        if group % 2:
            shaded.append({"row": name})
    shade = layer(
        shaded,
        "rect",
        {"color": INK, "fillOpacity": 0.045},  # the lines of the axis go on behind it
        y=y,
        x={"value": -left},
        x2={"value": width + right},
    )
    shown = [shade, *layers]
    if keys:
        numbered = [{"row": name, "key": key} for name, key in zip(names, keys, strict=True)]
        shown.append(_text(numbered, "key", 8 - left))
    body = {"width": width, "height": {"step": height}, "layer": shown}
    return body, left, left + width + right


def _text(rows: Sequence[Mapping[str, Any]], field: str, at: float, **style: Any) -> Json:
    """Return a column of texts, at a number of pixels."""
    look = {"align": "left"} | style
    text = {"field": field, "type": "nominal"}
    return layer(rows, "text", look, x={"value": at}, y=_ROW, text=text)


def _intervals(rows: Sequence[Mapping[str, Any]]) -> Json:
    return layer(
        [row for row in rows if row["low"] is not None],
        "rule",
        {"strokeWidth": 2, "color": LINE},
        x=number("low"),
        x2={"field": "high"},
        y=_ROW,
    )


def ranking(name: str, data: ReportData, entries: Sequence[RankedModel]) -> Chart | NoChart:
    """Return the ranked models, by tie groups: interval of the score, its target, both rates."""
    known = [entry for entry in entries if SCORE.read(entry).value is not None]
    if not known:
        return NoChart(name, "no model has a score")
    baselines, names = apart(data)[1], row_names(known)
    rows = _ranking_rows(known, names, data.targets)
    layers = [
        _intervals(rows),
        *_target(data.targets),
        _floors(baselines, min(row["x"] for row in rows)),
        _points(rows),
    ]
    for column, (measure, title) in enumerate(_CELLS.items(), 1):
        layers += _column(rows, measure, title, _RANKING_PX + _COLUMN_PX * column - _WORD_PX)
    groups = ["", *dict.fromkeys(entry.place for entry in known)]
    placed = _rows_body(
        names,
        layers,
        height=24,
        width=_RANKING_PX,
        right=len(_CELLS) * _COLUMN_PX + 14,
        keys=[entry.place for entry in known],
        groups=[groups.index(entry.place) for entry in known],
    )
    judged = "PASS, FAIL, UNDECIDED: the interval lies above, below or on its target."
    caption = sentences(
        f"Models by aegish score{sampled(map(SCORE.read, known))}; DR: malicious commands "
        "detected; HA: harmless commands accepted. A shade holds models that cannot be "
        "distinguished from the best of them (1=), by paired tests adjusted for all pairs.",
        judged if data.targets.least else "",
        interval_note([SCORE, DETECTION], "Bars and brackets"),
        baseline_note(baselines),
        simulated_note(known),
        left_out_note(entries, known, lambda _: f"no {SCORE.name}"),
    )
    description = described(known, [SCORE, DETECTION, ACCEPTANCE])
    return Chart(name, "Ranking by aegish score", caption, description, *placed)


_RANKING_PX = 260.0
_COLUMN_PX, _WORD_PX = 168.0, 62.0
_CELLS = {SCORE: "aegish score", DETECTION: "DR", ACCEPTANCE: "HA"}


def _ranking_rows(
    entries: Sequence[RankedModel], names: Sequence[str], targets: Targets
) -> list[Json]:
    """Return each model's score, interval and look, and the texts of its columns."""
    styles = provider_styles(entry.model for entry in entries)
    rows = []
    for name, entry in zip(names, entries, strict=True):
        seen = SCORE.read(entry)
        row: Json = {"row": name, "low": seen.ci_low, "high": seen.ci_high, "x": seen.value}
        row |= styles[provider_of(entry.model)]
        judgements = entry.judgements(targets)
        row |= {measure.metric: _cell(measure.read(entry)) for measure in _CELLS}
        row |= {f"{m.metric} judged": judgements.get(m.metric, "") for m in _CELLS}
        rows.append(row)
    return rows


def _points(rows: Sequence[Json]) -> Json:
    x = number("x", SCORE.axis, scale={"zero": False, "nice": True}, tickCount=6)
    looks: Json = {"color": literal("color"), "shape": literal("shape")}
    return layer(rows, "point", {}, x=x, y=_ROW, **looks)


def _column(rows: Sequence[Json], measure: Measure, title: str, at: float) -> Iterator[Json]:
    """Yield a metric with its interval, whether it reaches its target, and the heading of both."""
    yield _text(rows, measure.metric, at, align="right")
    yield _text(rows, f"{measure.metric} judged", at + 6, fontSize=SMALL_PX)
    yield _heading({"text": f"{title} (%)"}, {"value": at}, "right")


def _heading(row: Json, x: Json, align: str) -> Json:
    """Return a text above the rows."""
    style = {"align": align, "fontSize": SMALL_PX, "color": SOFT}
    return layer(
        [row],
        "text",
        style,
        x=x,
        y={"value": -8},
        text={"field": "text"},
    )


def _target(targets: Targets) -> Iterator[Json]:
    """Yield the line of the target of the score across all rows, and its label above them."""
    for aim in SCORE.aims(targets):
        row, x = {"x": aim, "text": f"target {aim:g} %"}, number("x")
        yield layer(
            [row],
            "rule",
            {"color": SOFT, "strokeDash": [5, 3]},
            x=x,
        )
        yield _heading(row, x, "center")


def _floors(baselines: Sequence[RankedModel], least: float) -> Json:
    """Return the lines of baselines, as far as the axis reaches."""
    scores = [SCORE.read(baseline).value or 0.0 for baseline in baselines]
    rows = [{"x": score} for score in scores if score >= least]
    return layer(
        rows,
        "rule",
        {"color": SOFT, "strokeDash": [1, 3]},
        x=number("x"),
    )


def _cell(seen: Estimate) -> str:
    if seen.value is None:
        return "\N{EN DASH}"
    interval = "" if seen.ci_low is None else f" [{seen.ci_low:.1f}, {seen.ci_high:.1f}]"
    return f"{seen.value:.1f}{interval}"


_NAME_PX = 330.0
_MOST_PAIRS = 28
"""Those of eight models; of more models only pairs with the best one are drawn."""
_DIFFERS, _ALIKE = "differs (adjusted p < 0.05)", "not distinguishable"


def differences(name: str, data: ReportData, entries: Sequence[RankedModel]) -> Chart | NoChart:
    """Return the differences of all pairs, or of all models to the best one."""
    comparison = data.comparison
    if comparison is None:
        return NoChart(name, "there are no two models to compare")
    places = {entry.model: place for place, entry in enumerate(entries)}
    gaps = []
    for gap in comparison.directed(comparison.metric):
        if gap.found.difference is not None and {gap.model, gap.against} <= places.keys():
            is_turned = places[gap.model] > places[gap.against]
            gaps.append(gap.turned if is_turned else gap)
    if not gaps:
        return NoChart(name, "no two models have a score on the same commands")
    gaps.sort(key=lambda gap: (places[gap.model], places[gap.against]))
    gaps.sort(key=lambda gap: gap.found.difference or 0, reverse=True)
    if len(gaps) <= _MOST_PAIRS:
        title = "Differences of the aegish score between models"
        names = fitted_names(list(places), _NAME_PX / 2)
        rows = [f"{names[e.model]} \N{MINUS SIGN} {names[e.against]}" for e in gaps]
        pairs = f"{counted(len(gaps), 'pair')} of models"
    else:
        best = entries[0].model
        gaps = [gap for gap in gaps if gap.model == best]
        names = fitted_names(list(places), _NAME_PX)
        title = f"Lead of {names[best]} over each other model"
        rows = [names[gap.against] for gap in gaps]
        pairs = f"{counted(len(gaps), 'pair')} of the best model and another one"
    caption = sentences(
        f"{pairs}, the better ranked one minus the other, on the"
        f" {format_span(gap.found.n for gap in gaps)} commands scored"
        " of both. Bars: 95 % confidence intervals (paired, cluster-robust, not adjusted for the"
        " number of pairs). p: adjusted by Holm over all pairs of the run.",
        "" if data.is_current else "Of the verdicts as they are now, not those of the snapshot.",
    )
    placed = _differences_body(rows, gaps)
    return Chart(
        name,
        title,
        caption,
        "; ".join(map(_gap_in_words, gaps)),
        *placed,
    )


def _differences_body(names: Sequence[str], gaps: Sequence[DirectedDifference]) -> _Placed:
    rows = [_difference_row(name, gap.found) for name, gap in zip(names, gaps, strict=True)]
    x = number("x", "difference of the aegish score (percentage points)", scale={"nice": True})
    fills = {_DIFFERS: PALETTE[0], _ALIKE: PAPER}
    look = {"symbolStrokeColor": PALETTE[0], "symbolStrokeWidth": 1.5}
    fill = legend({"field": "answer"}, fills, **look)
    style = {"size": 60, "stroke": PALETTE[0], "strokeWidth": 1.5}
    layers = [
        layer(
            [{"x": 0}],
            "rule",
            {"color": INK, "strokeWidth": 1},
            x=number("x"),
        ),
        _intervals(rows),
        layer(rows, "point", style, x=x, y=_ROW, fill=fill),
        _text(rows, "text", _AXIS_PX + 14, fontSize=SMALL_PX),
    ]
    return _rows_body(names, layers, height=22, right=104)


def _difference_row(name: str, found: Difference) -> Json:
    p = format_p(found.p_adjusted)
    equals = "" if p.startswith("<") else "= "
    row: Json = {
        "row": name,
        "text": f"{format_difference(found.difference)}, p {equals}{p}",
        "answer": _DIFFERS if differs(found) else _ALIKE,
    }
    ends = {"x": found.difference, "low": found.ci_low, "high": found.ci_high}
    for end, value in ends.items():
        row[end] = None if value is None else 100 * value
    return row


def _gap_in_words(gap: DirectedDifference) -> str:
    found = gap.found
    pair = f"{foreign_words(gap.model)} minus {foreign_words(gap.against)}"
    words = f"{pair}: {format_difference(found.difference)} percentage points"
    if found.ci_low is None:
        return words
    return f"{words} {format_interval(found.ci_low, found.ci_high, format_difference)}"
