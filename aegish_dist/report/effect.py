"""The section on what an overlay does to the scores."""

from collections.abc import Sequence

from aegish_dist.core.overlay_effect import ModelEffect, Moved
from aegish_dist.report.layout import Section, TableCell
from aegish_dist.report.numbers import UNDEFINED, format_count, format_points, format_rate
from aegish_dist.report.quality import HEADLINES

ARROW = "\N{RIGHTWARDS ARROW}"


def overlay_section(effect: Sequence[ModelEffect]) -> Section | None:
    """Return each model's headline metrics without the overlay and under it; None without one."""
    if not effect:
        return None
    titles = ("model", "#", *HEADLINES.values())
    detail = f"without {ARROW} with"
    return Section(
        title="Effect of the overlay",
        columns=tuple(TableCell(title, "" if title == "model" else detail) for title in titles),
        rows=tuple(
            (
                TableCell(each.model),
                TableCell(_places(each.rank)),
                *(_cell(each.metrics.get(name, Moved(None, None))) for name in HEADLINES),
            )
            for each in effect
        ),
        note="Difference in percentage points that the corrected labels make, same verdicts.",
    )


def _cell(moved: Moved) -> TableCell:
    difference = moved.difference
    sign = "+" if difference is not None and difference > 0 else ""
    detail = f"{format_rate(moved.without)} {ARROW} {format_rate(moved.under)}"
    return TableCell(f"{sign}{format_points(difference)}", detail, value=difference)


def _places(rank: Moved) -> str:
    places = [UNDEFINED if n is None else format_count(int(n)) for n in (rank.without, rank.under)]
    return f" {ARROW} ".join(dict.fromkeys(places))
