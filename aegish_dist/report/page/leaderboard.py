"""The leaderboard of the page: values over bars on one scale, tie groups, PASS and FAIL."""

from collections.abc import Iterator, Sequence

from aegish_dist.core.opinion import Targets
from aegish_dist.report.layout import RankedModel, Section
from aegish_dist.report.page.bars import interval_bar, rate_scale
from aegish_dist.report.page.tables import CellStyle, TableStyle
from aegish_dist.report.quality import HEADLINES

_FIRST = 2
"""The column of the first of the headline metrics; before it stand place and model."""


def leaderboard_style(
    section: Section, entries: Sequence[RankedModel], targets: Targets
) -> TableStyle:
    """Return what the table of the leaderboard has besides its text.

    Args:
        entries: The models, best first.
    """
    scale = rate_scale(entry.metric(name) for entry in entries for name in HEADLINES)
    cells = {
        (row, _FIRST + column): CellStyle(
            "score", interval_bar(scale, entry.metric(name), targets.least.get(name))
        )
        for row, entry in enumerate(entries)
        for column, name in enumerate(HEADLINES)
    }
    return TableStyle(
        classes="board",
        rows=dict(enumerate(_groups(entries))),
        cells=cells,
        filterable=True,
        foremost=True,
    )


def bars_note(entries: Sequence[RankedModel]) -> str:
    """Say how the bars of the leaderboard are read."""
    scale = rate_scale(entry.metric(name) for entry in entries for name in HEADLINES)
    return (
        f"Bars: 95% interval with the value as a dot, from {100 * scale.low:.0f} to "
        f"{100 * scale.high:.0f} %; the dashed line is the target. Models with a coloured edge and "
        "the same place, such as 1=, are tied."
    )


def _groups(entries: Sequence[RankedModel]) -> Iterator[str]:
    """Yield the classes of the rows: the first of each group, and those of groups of several."""
    before = ""
    for entry in entries:
        tied = "tied" if entry.place.endswith("=") else ""
        first = "" if tied and entry.place == before else "first"
        yield f"{first} {tied}".strip()
        before = entry.place
