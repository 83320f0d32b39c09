"""Drawings whose colours come from a style sheet, for pages with light and dark screens."""

import re

from aegish_dist.report.charts.chart import Chart
from aegish_dist.report.charts.drawing import drawn_svg
from aegish_dist.report.charts.frame import bare_specification
from aegish_dist.report.charts.theme import PALETTE, VARIABLES

_TAG = re.compile(r"<[^<>]*>")
_COLOR = re.compile(r'="(#[0-9a-f]{6})"')
_NUMBERS = re.compile(r"(?<=[(,\sMLHV-])(\d+\.\d{2})\d+")
_EMPTY = re.compile(
    r'<path class="(?:back|fore)ground" aria-hidden="true" d="[^"]*"(?: pointer-events="none")?'
    r'(?: display="none")?/>'
)
_NAMES = VARIABLES | {color: str(place) for place, color in enumerate(PALETTE, 1)}


def themed_svg(chart: Chart) -> str:
    """Return a chart without title, caption and background.

    Each colour is a custom property such as `--chart-ink`, with the colour of paper as the value
    where a page has no style sheet for it.

    Raises:
        ConfigError: The package that draws is not installed.
    """
    svg = drawn_svg(bare_specification(chart), chart.title, chart.description)
    return _TAG.sub(lambda tag: _themed_tag(tag[0]), _EMPTY.sub("", svg))


def _themed_tag(tag: str) -> str:
    """Change attributes alone: a foreign name may look like one."""
    shorter = _NUMBERS.sub(r"\1", tag)
    return _COLOR.sub(lambda found: f'="var(--chart-{_NAMES[found[1]]}, {found[1]})"', shorter)
