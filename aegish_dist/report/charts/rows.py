"""Plots with a row for each model or pair: ranking, differences of the score."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aegish_dist.core.opinion import Targets
from aegish_dist.core.text import counted
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
from aegish_dist.report.data import DirectedDifference, ReportData
from aegish_dist.report.layout import RankedModel
from aegish_dist.report.numbers import format_difference, format_interval, format_p, format_span
from aegish_dist.statistics.inference import LEVEL
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
    left = widest(names) + _GAP_PX + (widest(keys) + _GAP_PX if keys else 0.0) + 8
    axis = {"title": None, "ticks": False, "domain": False, "labelPadding": _GAP_PX}
    y = _ROW | {"scale": {"domain": list(names)}, "axis": axis}
    shaded = [
        {"row": name}
        for name, group in zip(names, groups or range(len(names)), strict=True)
        if group % 2
    ]
    ends: Json = {"x": {"value": -left}, "x2": {"value": width + right}}
    shade = {"color": INK, "fillOpacity": 0.045}  # the lines of the axis go on behind it
    numbered = [{"row": name, "key": key} for name, key in zip(names, keys, strict=False)]
    shown = [
        layer(shaded, "rect", shade, y=y, **ends),
        *layers,
        *([_text(numbered, "key", 8 - left)] if keys else []),
    ]
    body = {"width": width, "height": {"step": height}, "layer": shown}
    return body, left, left + width + right


def _text(rows: Sequence[Mapping[str, Any]], field: str, at: float | Json, **style: Any) -> Json:
    """Return a column of texts, at a number of pixels or on the axis."""
    x = at if isinstance(at, dict) else {"value": at}
    look = {"align": "left"} | style
    return layer(rows, "text", look, x=x, y=_ROW, text={"field": field, "type": "nominal"})


def _intervals(rows: Sequence[Mapping[str, Any]]) -> Json:
    known = [each for each in rows if each["low"] is not None]
    style = {"strokeWidth": 2, "color": LINE}
    return layer(known, "rule", style, x=number("low"), x2={"field": "high"}, y=_ROW)


def ranking(name: str, data: ReportData, entries: Sequence[RankedModel]) -> Chart | NoChart:
    """Return the ranked models, by tie groups: interval of the score, its target, both rates."""
    targets, baselines = data.targets, apart(data)[1]
    known = [entry for entry in entries if SCORE.read(entry).value is not None]
    if not known:
        return NoChart(name, "no model has a score")
    groups = ["", *dict.fromkeys(entry.place for entry in known)]
    names, styles = row_names(known), provider_styles(entry.model for entry in known)
    rows = []
    for row, entry in zip(names, known, strict=True):
        seen = SCORE.read(entry)
        shown: Json = {"row": row, "low": seen.ci_low, "high": seen.ci_high, "x": seen.value}
        judged = {f"{m.metric} judged": entry.judgements(targets).get(m.metric, "") for m in _CELLS}
        cells = {m.metric: _cell(m.read(entry)) for m in _CELLS} | judged
        rows.append(shown | styles[provider_of(entry.model)] | cells)
    x = number("x", SCORE.axis, scale={"zero": False, "nice": True}, tickCount=6)
    layers = [
        _intervals(rows),
        *_target(targets),
        layer(
            [
                {"x": e}
                for e in (SCORE.read(each).value or 0.0 for each in baselines)
                if e >= min(row["x"] for row in rows)
            ],
            "rule",
            {"color": SOFT, "strokeDash": [1, 3]},
            x=number("x"),
        ),
        layer(rows, "point", {}, x=x, y=_ROW, color=literal("color"), shape=literal("shape")),
    ]
    for column, (measure, title) in enumerate(_CELLS.items(), 1):
        place, heading = _RANKING_PX + _COLUMN_PX * column - _WORD_PX, {"text": f"{title} (%)"}
        word = _text(rows, f"{measure.metric} judged", place + 6, fontSize=SMALL_PX)
        layers += [_text(rows, measure.metric, place, align="right"), word]
        layers.append(_heading(heading, place, "right"))
    placed = _rows_body(
        names,
        layers,
        height=24,
        width=_RANKING_PX,
        right=len(_CELLS) * _COLUMN_PX + 14,
        keys=[entry.place for entry in known],
        groups=[groups.index(entry.place) for entry in known],
    )
    caption = sentences(
        f"Models by aegish score{sampled(map(SCORE.read, known))}; DR: malicious commands "
        "detected; HA: harmless commands accepted. A shade holds models that cannot be "
        "distinguished from the best of them (1=), by paired tests adjusted for all pairs.",
        "PASS, FAIL, UNDECIDED: the interval lies above, below or on its target."
        if targets.least
        else "",
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


def _heading(row: Json, at: float | Json, align: str) -> Json:
    """Return a text above the rows."""
    x = at if isinstance(at, dict) else {"value": at}
    style = {"align": align, "fontSize": SMALL_PX, "color": SOFT}
    return layer([row], "text", style, x=x, y={"value": -8}, text={"field": "text"})


def _target(targets: Targets) -> Iterator[Json]:
    """Yield the line of the target of the score across all rows, and its label above them."""
    for aim in SCORE.aims(targets):
        row, x = {"x": aim, "text": f"target {aim:g} %"}, number("x")
        yield layer([row], "rule", {"color": SOFT, "strokeDash": [5, 3]}, x=x)
        yield _heading(row, x, "center")


def _cell(seen: Estimate) -> str:
    if seen.value is None:
        return "\N{EN DASH}"
    interval = "" if seen.ci_low is None else f" [{seen.ci_low:.1f}, {seen.ci_high:.1f}]"
    return f"{seen.value:.1f}{interval}"


_NAME_PX = 330.0
_DIFFERS, _ALIKE = "differs (adjusted p < 0.05)", "not distinguishable"


def differences(name: str, data: ReportData, entries: Sequence[RankedModel]) -> Chart | NoChart:
    """Return the differences of all pairs, or of all models to the best one."""
    comparison = data.comparison
    if comparison is None:
        return NoChart(name, "there are no two models to compare")
    places = {entry.model: at for at, entry in enumerate(entries)}
    gaps = [
        each.turned if places[each.model] > places[each.against] else each
        for each in comparison.directed(comparison.metric)
        if each.found.difference is not None and {each.model, each.against} <= places.keys()
    ]
    if not gaps:
        return NoChart(name, "no two models have a score on the same commands")
    title = "Differences of the aegish score between models"
    to_leader = len(gaps) > 28  # pairs of eight models
    names = fitted_names(list(places), _NAME_PX if to_leader else _NAME_PX / 2)
    if to_leader:
        gaps = [gap for gap in gaps if gap.model == entries[0].model]
        title = f"Lead of {names[entries[0].model]} over each other model"
    gaps.sort(key=lambda gap: (places[gap.model], places[gap.against]))
    gaps.sort(key=lambda gap: gap.found.difference or 0, reverse=True)
    called = [
        names[gap.against]
        if to_leader
        else f"{names[gap.model]} \N{MINUS SIGN} {names[gap.against]}"
        for gap in gaps
    ]
    placed = _differences_body(called, gaps)
    caption = _differences_caption(gaps, data, to_leader=to_leader)
    return Chart(name, title, caption, "; ".join(map(_gap_in_words, gaps)), *placed)


def _differences_body(names: Sequence[str], gaps: Sequence[DirectedDifference]) -> _Placed:
    rows: list[Json] = []
    for row, found in zip(names, (gap.found for gap in gaps), strict=True):
        ends = {"x": found.difference, "low": found.ci_low, "high": found.ci_high}
        p = format_p(found.p_adjusted)
        differs = found.p_adjusted is not None and found.p_adjusted < LEVEL
        text = f"{format_difference(found.difference)}, p {'' if p.startswith('<') else '= '}{p}"
        rows.append(
            {"row": row, "text": text, "answer": _DIFFERS if differs else _ALIKE}
            | {end: None if value is None else 100 * value for end, value in ends.items()}
        )
    x = number("x", "difference of the aegish score (percentage points)", scale={"nice": True})
    fills = {_DIFFERS: PALETTE[0], _ALIKE: PAPER}
    look = {"symbolStrokeColor": PALETTE[0], "symbolStrokeWidth": 1.5}
    fill = legend({"field": "answer"}, fills, **look)
    style = {"size": 60, "stroke": PALETTE[0], "strokeWidth": 1.5}
    layers = [
        layer([{"x": 0}], "rule", {"color": INK, "strokeWidth": 1}, x=number("x")),
        _intervals(rows),
        layer(rows, "point", style, x=x, y=_ROW, fill=fill),
        _text(rows, "text", _AXIS_PX + 14, fontSize=SMALL_PX),
    ]
    return _rows_body(names, layers, height=22, right=104)


def _differences_caption(
    gaps: Sequence[DirectedDifference], data: ReportData, *, to_leader: bool
) -> str:
    sizes = format_span(gap.found.n for gap in gaps)
    pairs = counted(len(gaps), "pair")
    what = f"{pairs} of the best model and another one" if to_leader else f"{pairs} of models"
    return sentences(
        f"{what}, the better ranked one minus the other, on the {sizes} commands scored "
        "of both. Bars: 95 % confidence intervals (paired, cluster-robust, not adjusted for the "
        "number of pairs). p: adjusted by Holm over all pairs of the run.",
        "" if data.is_current else "Of the verdicts as they are now, not those of the snapshot.",
    )


def _gap_in_words(gap: DirectedDifference) -> str:
    found = gap.found
    interval = format_interval(found.ci_low, found.ci_high, format_difference)
    return (
        f"{foreign_words(gap.model)} minus {foreign_words(gap.against)}: "
        f"{format_difference(found.difference)} percentage points"
        f"{'' if found.ci_low is None else f' {interval}'}"
    )
