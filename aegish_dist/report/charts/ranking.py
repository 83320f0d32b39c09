"""The ranked models, a row each: interval of the score, its target, both rates."""

from collections.abc import Iterator, Sequence
from typing import Any

from aegish_dist.core.metric import Estimate
from aegish_dist.core.text import JsonObject
from aegish_dist.findings.leaderboard import RankedModel
from aegish_dist.opinions.opinion import Targets
from aegish_dist.report.charts.vega_lite import (
    INK,
    LINE,
    SMALL_PX,
    SOFT,
    Chart,
    NoChart,
    layer,
    literal,
    nominal,
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
    interval_note,
    left_out_note,
    row_names,
    sampled,
    sentences,
    simulated_note,
)
from aegish_dist.report.data import ReportData

_GAP_PX = 10.0
_ROW = nominal("row")


# A view, and the pixels that it takes on the left of its area and in all.
_Placed = tuple[JsonObject, float, float]


def _rows_body(
    names: Sequence[str],
    keys: Sequence[str],
    groups: Sequence[int],
    layers: Sequence[JsonObject],
) -> _Placed:
    """Return a view whose rows have keys, such as ranks, and names on the left.

    Every second of the groups that the rows belong to is shaded.
    """
    left = widest(keys) + widest(names) + 2 * _GAP_PX + 8
    right = len(_CELLS) * _COLUMN_PX + 14
    axis = {
        "title": None,
        "ticks": False,
        "domain": False,
        "labelPadding": _GAP_PX,
    }
    y = _ROW | {"scale": {"domain": list(names)}, "axis": axis}
    shaded = [{"row": name} for name, group in zip(names, groups, strict=True) if group % 2]
    shade = layer(
        shaded,
        "rect",
        {"color": INK, "fillOpacity": 0.045},  # the lines of the axis go on behind it
        y=y,
        x={"value": -left},
        x2={"value": _RANKING_PX + right},
    )
    numbered = [{"row": name, "key": key} for name, key in zip(names, keys, strict=True)]
    shown = [shade, *layers, _text(numbered, "key", 8 - left)]
    body = {"width": _RANKING_PX, "height": {"step": 24}, "layer": shown}
    return body, left, left + _RANKING_PX + right


def _text(rows: Sequence[JsonObject], field: str, at: float, **style: Any) -> JsonObject:
    """Return a column of texts, at a number of pixels."""
    look = {"align": "left"} | style
    return layer(rows, "text", look, x={"value": at}, y=_ROW, text=nominal(field))


def _intervals(rows: Sequence[JsonObject]) -> JsonObject:
    return layer(
        [row for row in rows if row["low"] is not None],
        "rule",
        {"strokeWidth": 2, "color": LINE},
        x=number("low"),
        x2={"field": "high"},
        y=_ROW,
    )


NAME = "ranking"


def chart(data: ReportData) -> Chart | NoChart:
    """Return the ranked models, by tie groups: interval of the score, its target, both rates."""
    entries, baselines = apart(data)
    known = [entry for entry in entries if SCORE.read(entry).value is not None]
    if not known:
        return NoChart(NAME, "no model has a score")
    names = row_names(known)
    rows = _ranking_rows(known, names, data.targets)
    layers = [
        _intervals(rows),
        *_target(data.targets),
        _floors(baselines, min(row["x"] for row in rows)),
        _points(rows),
    ]
    for column, (measure, title) in enumerate(_CELLS.items(), 1):
        layers += _column(rows, measure, title, _RANKING_PX + _COLUMN_PX * column - _WORD_PX)
    places = [entry.place for entry in known]
    groups = ["", *dict.fromkeys(places)]
    placed = _rows_body(names, places, [groups.index(place) for place in places], layers)
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
    return Chart(NAME, "Ranking by aegish score", caption, description, *placed)


_RANKING_PX = 260.0
_COLUMN_PX, _WORD_PX = 168.0, 62.0
_CELLS = {SCORE: "aegish score", DETECTION: "DR", ACCEPTANCE: "HA"}


def _ranking_rows(
    entries: Sequence[RankedModel],
    names: Sequence[str],
    targets: Targets,
) -> list[JsonObject]:
    """Return each model's score, interval and look, and the texts of its columns."""
    styles = provider_styles(entry.model for entry in entries)
    rows = []
    for name, entry in zip(names, entries, strict=True):
        seen = SCORE.read(entry)
        row: JsonObject = {
            "row": name,
            "low": seen.ci_low,
            "high": seen.ci_high,
            "x": seen.value,
            **styles[provider_of(entry.model)],
        }
        judgements = entry.judgements(targets)
        for measure in _CELLS:
            row[measure.metric] = _cell(measure.read(entry))
        for measure in _CELLS:
            row[f"{measure.metric} judged"] = judgements.get(measure.metric, "")
        rows.append(row)
    return rows


def _points(rows: Sequence[JsonObject]) -> JsonObject:
    scale = {"zero": False, "nice": True}
    return layer(
        rows,
        "point",
        {},
        x=number("x", SCORE.axis, scale=scale, tickCount=6),
        y=_ROW,
        color=literal("color"),
        shape=literal("shape"),
    )


def _column(
    rows: Sequence[JsonObject],
    measure: Measure,
    title: str,
    at: float,
) -> Iterator[JsonObject]:
    """Yield a metric with its interval, whether it reaches its target, and the heading of both."""
    yield _text(rows, measure.metric, at, align="right")
    yield _text(rows, f"{measure.metric} judged", at + 6, fontSize=SMALL_PX)
    yield _heading({"text": f"{title} (%)"}, {"value": at}, "right")


def _heading(row: JsonObject, x: JsonObject, align: str) -> JsonObject:
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


def _target(targets: Targets) -> Iterator[JsonObject]:
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


def _floors(baselines: Sequence[RankedModel], least: float) -> JsonObject:
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
