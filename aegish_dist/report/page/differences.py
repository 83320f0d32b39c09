"""Differences between models: a dot with its interval for each pair, and a verdict in words.

The page shows the differences from the first model, and has those of all pairs as data, from which
the script draws what a reader chooses.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from aegish_dist.core.text import printable
from aegish_dist.report.data import ComparisonData, DirectedDifference, verdict_of
from aegish_dist.report.layout import (
    HEADLINES,
    INTERVAL,
    SIMULATED,
    Cell,
    Section,
    TableCell,
    number_cell,
)
from aegish_dist.report.numbers import UNDEFINED, format_difference, format_interval, format_p
from aegish_dist.report.page.grid import as_json
from aegish_dist.report.page.tables import (
    BarScale,
    CellStyle,
    TableStyle,
    interval_bar,
    table_section,
)
from aegish_dist.statistics.inference import LEVEL
from aegish_dist.statistics.rates import Estimate

MOST_MODELS = 8
"""Models up to which a reader can choose all pairs: 28."""
TITLE = "Differences"


def differences_section(
    data: ComparisonData, order: Sequence[str], names: Mapping[str, str], below: str = ""
) -> str:
    """Return the section on the differences between models, which stand in their order."""
    pairs = data.directed("aegish_score")
    shown = _shown(data, order)
    scale = _scale(pairs)
    section = Section.of(
        TITLE,
        ("model", "against", TableCell("difference", INTERVAL), "p adj.", "verdict"),
        (_cells(data, each) for each in shown),
        note=f"Aegish score minus that of {order[0]}, on the commands that both models answered, "
        f"in percentage points with 95% intervals, drawn from {100 * scale.low:+.0f} to "
        f"{100 * scale.high:+.0f}; the line is 0. p is adjusted for all {len(pairs)} pairs (Holm); "
        f"tied: it is not below {LEVEL:g}.",
    )
    style = TableStyle("pairs against-one", cells=dict(_styles(scale, shown)), names=names)
    return table_section(section, style, below=_data(data, order, names) + below)


def _shown(data: ComparisonData, order: Sequence[str]) -> list[DirectedDifference]:
    """Return the known differences from the first model, the greatest first."""
    found = data.against(order[0], "aegish_score")
    known = [
        (-each.difference, name)
        for name, each in found.items()
        if name in order and each.difference is not None
    ]
    return [DirectedDifference(name, order[0], found[name]) for _, name in sorted(known)]


def _scale(pairs: Iterable[DirectedDifference]) -> BarScale:
    """Return a scale with 0 in its middle that holds every interval, in whole points."""
    ends = [abs(end) for each in pairs for end in (each.found.ci_low, each.found.ci_high) if end]
    widest = math.ceil(round(100 * max(ends, default=0.01), 3)) / 100
    return BarScale(-widest, widest)


def _cells(data: ComparisonData, each: DirectedDifference) -> tuple[Cell, ...]:
    found = each.found
    interval = format_interval(found.ci_low, found.ci_high, format_difference)
    return (
        _marked(data, each.model),
        _marked(data, each.against),
        number_cell(found.difference, format_difference, interval),
        number_cell(found.p_adjusted, format_p),
        verdict_of(found) or UNDEFINED,
    )


def _marked(data: ComparisonData, model: str) -> str:
    simulated = any(side.model == model for side in data.simulated)
    return f"{model} {SIMULATED}" if simulated else model


def _styles(
    scale: BarScale, shown: Sequence[DirectedDifference]
) -> Iterator[tuple[tuple[int, int], CellStyle]]:
    for row, each in enumerate(shown):
        found = each.found
        drawn = Estimate(found.difference, ci_low=found.ci_low, ci_high=found.ci_high)
        yield (row, 1), CellStyle("other")
        yield (row, 2), CellStyle("score", interval_bar(scale, drawn, 0))
        yield (row, 4), CellStyle(f"words {verdict_of(found) or ''}".strip())


def _data(data: ComparisonData, order: Sequence[str], names: Mapping[str, str]) -> str:
    """Return all pairs as inert JSON, which no text in it can end."""
    places = {model: place for place, model in enumerate(order)}
    models = [_marked(data, model) for model in order]
    document = {
        "models": list(map(printable, models)),
        "names": [printable(names.get(model, model)) for model in models],
        "all": len(order) <= MOST_MODELS,
        "metrics": [
            {
                "title": title,
                "pairs": [
                    [places[each.model], places[each.against], *_numbers(each)]
                    for each in data.directed(name)
                    if each.model in places and each.against in places
                ],
            }
            for name, title in HEADLINES.items()
        ],
    }
    content = as_json(document).replace("<", "\\u003c")
    return f'<script type="application/json" id="pairs">{content}</script>\n'


def _numbers(each: DirectedDifference) -> list[object]:
    """Return a difference as numbers to draw and as the texts of the report."""
    found = each.found
    drawn = (found.difference, found.ci_low, found.ci_high)
    return [
        *(None if value is None else round(100 * value, 3) for value in drawn),
        *(format_difference(value) for value in drawn),
        format_p(found.p_adjusted),
        verdict_of(found) or UNDEFINED,
    ]
