"""The ranked models, a row each: interval of the score, its target, both rates."""

from collections.abc import Sequence

from aegish_dist.core.text import JsonObject
from aegish_dist.findings.snapshot import RankedModel
from aegish_dist.opinions.opinion import Targets
from aegish_dist.report.charts.vega_lite import (
    Chart,
    NoChart,
    provider_of,
    provider_styles,
    view,
    widest,
)
from aegish_dist.report.charts.words import (
    ACCEPTANCE,
    DETECTION,
    SCORE,
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
from aegish_dist.report.layout import with_interval

NAME = "ranking"
# Between places, names and the area; of the area; and of the columns at its right.
_GAP_PX, _AREA_PX, _COLUMNS_PX = 10.0, 260.0, 518.0


def chart(data: ReportData) -> Chart | NoChart:
    """Return the ranked models, by tie groups: interval of the score, its target, both rates."""
    entries, baselines = apart(data)
    known = [entry for entry in entries if SCORE.read(entry).value is not None]
    if not known:
        return NoChart(NAME, "no model has a score")
    names = row_names(known)
    rows = _ranking_rows(known, names, data.targets)
    places = [entry.place for entry in known]
    groups = ["", *dict.fromkeys(places)]
    shaded, numbered = [], []
    for name, place in zip(names, places, strict=True):
        numbered.append({"row": name, "key": place})
        # Every second of the tie groups is shaded.
        if groups.index(place) % 2:
            shaded.append({"row": name})
    aims = [{"x": aim, "text": f"target {aim:g} %"} for aim in SCORE.aims(data.targets)]
    left = widest(places) + widest(names) + 2 * _GAP_PX + 8
    body = view(
        "ranking",
        names=names,
        rows=rows,
        intervals=[row for row in rows if row["low"] is not None],
        shaded=shaded,
        target=aims or None,
        baselines=_floors(baselines, min(row["x"] for row in rows)),
        numbered=numbered,
        left=-left,
        left_of_keys=8 - left,
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
    description = described(known, _MEASURES)
    width = left + _AREA_PX + _COLUMNS_PX
    return Chart(NAME, "Ranking by aegish score", caption, description, body, left, width)


_MEASURES = (SCORE, DETECTION, ACCEPTANCE)


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
        for measure in _MEASURES:
            row[measure.metric] = with_interval(entry.metric(measure.metric))
        for measure in _MEASURES:
            row[f"{measure.metric} judged"] = judgements.get(measure.metric, "")
        rows.append(row)
    return rows


def _floors(baselines: Sequence[RankedModel], least: float) -> list[JsonObject]:
    """Return the scores of baselines, as far as the axis reaches."""
    scores = [SCORE.read(baseline).value or 0.0 for baseline in baselines]
    return [{"x": score} for score in scores if score >= least]
