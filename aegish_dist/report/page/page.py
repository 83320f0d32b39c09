"""The page: its head, its navigation, its sections in order, each drawn in the way of its content.

Charts are figures beside the tables that they belong to. A chart is an image, not a part of the
document: drawn inline, the charts of twenty models have more elements than all the rest of the
page. Within an image the policy of the page does not apply, and its own style sheet follows light
and dark screens; paper is light.
"""

import base64
import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from importlib.util import find_spec
from itertools import chain

from msgspec.structs import replace

from aegish_dist.core.metric import LEVEL, Difference, Estimate, Metric
from aegish_dist.core.run import Prompt
from aegish_dist.core.secrets import mask_key_shapes
from aegish_dist.core.text import counted, printable
from aegish_dist.errors import ConfigError
from aegish_dist.findings.comparison import ComparisonData, DirectedDifference, result_of
from aegish_dist.report.charts import roc, scatter
from aegish_dist.report.charts.vega_lite import Chart, converter, themed_svg
from aegish_dist.report.data import ReportData
from aegish_dist.report.first_screen import details, first_screen, state
from aegish_dist.report.layout import (
    INTERVAL,
    SCORE_AND_RATES,
    Row,
    Section,
    TableCell,
    difference_cell,
    marked,
    number_cell,
    with_mark,
)
from aegish_dist.report.page.grid import Grid, as_json, grid_section
from aegish_dist.report.page.tables import (
    BarScale,
    CellStyle,
    TableStyle,
    anchor,
    bars_note,
    breakable,
    bulleted,
    heat_map,
    heat_style,
    interval_bar,
    leaderboard_style,
    lines,
    table_section,
    text,
)
from aegish_dist.report.provenance import head, reproduction
from aegish_dist.report.sections import (
    ON_THE_PAGE,
    build_report,
    named_sections,
    score_in_words,
    warnings,
)
from aegish_dist.report.writing import (
    UNDEFINED,
    format_difference,
    format_p,
    short_names,
)

DIFFERENCES = "Differences"
_STYLES = ("style.css", "tables.css", "grid.css")
# In this order: a file uses what those before it define.
_SCRIPTS = (
    "dom.js",
    "tables.js",
    "differences.js",
    "sections.js",
    "grid_data.js",
    "grid_query.js",
    "grid_filters.js",
    "grid.js",
    "detail_verdict.js",
    "detail.js",
    "grid_route.js",
)


def _assets(*names: str) -> str:
    folder = files(__package__) / "assets"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


def _policy(style: str, script: str) -> str:
    """Return the policy of a page with this style sheet and this script, and nothing else."""
    return (
        f"default-src 'none'; style-src {_source(style)}; script-src {_source(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _source(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def page_charts(data: ReportData) -> list[tuple[Chart, str]]:
    """Return the plots of the HTML report with their SVG, which takes its colours from the page.

    There is none where the package that draws them, the extra `plots`, cannot be imported.
    """
    try:
        converter()
    except ConfigError:
        return []
    # The others are tables of the page, or say less there.
    made = (scatter.chart(data), roc.chart(data))
    return [(each, themed_svg(each)) for each in made if isinstance(each, Chart)]


def figure(chart: Chart, svg: str) -> str:
    """Return a chart as a figure, with its finding for those who do not see it."""
    head, end, rest = svg.partition(">")
    drawing = f"{head}{end}<style>{_assets('charts.css')}</style>{rest}"
    image = base64.b64encode(drawing.encode()).decode()
    title = text(chart.title)
    return (
        f'<figure id="chart-{text(chart.name)}">\n<h3>{title}</h3>\n'
        f'<div class="drawing" role="region" aria-label="{title}" tabindex="0">'
        f'<img role="img" alt="{text(chart.description)}" '
        f'src="data:image/svg+xml;base64,{image}"></div>\n'
        f"<figcaption>{text(chart.caption)}</figcaption>\n</figure>\n"
    )


def _commands(data: ReportData) -> Iterator[str]:
    """Yield the commands, each in a box that can be copied."""
    yield '<details class="printed" id="reproduce">\n<summary>Commands to reproduce</summary>\n'
    for purpose, command in reproduction(data):
        yield f'<p class="about">{text(purpose)}:</p>\n'
        yield f'<pre class="copied" tabindex="0">{text(command)}</pre>\n'
    yield "</details>\n"


def _prompt(prompt: Prompt) -> Iterator[str]:
    """Yield a prompt, folded."""
    name = f"Prompt {prompt.name}, fingerprint {prompt.fingerprint}"
    yield f"<details>\n<summary>{text(name)}</summary>\n"
    texts = {"System text": prompt.system, "Text for each command": prompt.template}
    for title, content in texts.items():
        yield f"<h3>{title}</h3>\n<pre>{lines(mask_key_shapes(content))}</pre>\n"
    yield "</details>\n"


# Sections that are folded however short they are.
_SECONDARY = (
    "standard-errors",
    "answers",
    "bounds",
    "repeats",
    "failure-times",
    "latency-parts",
    "reliability",
    "Models and prices",
)


def _section(
    data: ReportData,
    name: str,
    section: Section,
    *,
    names: Mapping[str, str],
    below: str,
) -> str:
    """Return a section as HTML; the models are in the order of the ranking."""
    match name:
        case "leaderboard":
            style = leaderboard_style(data.ranked, data.targets)
            note = f'<p class="about">{text(score_in_words(data))} {bars_note(data.ranked)}</p>\n'
            return table_section(section, style, below=note + below)
        case "categories":
            drawn, style, key = heat_map(section, data.ranked)
            return table_section(drawn, replace(style, names=names), above=key, below=below)
        case "differences" if data.comparison is not None:
            # The report has the differences from one model, the page those of all pairs.
            order = [entry.model for entry in data.ranked]
            return differences_section(data.comparison, order, names, below)
        case "provenance" if section.title == "Provenance":
            # The page shows the commands one by one, below.
            said = {f"{purpose}: {command}" for purpose, command in reproduction(data)}
            remarks = tuple(each for each in section.remarks if each not in said)
            prompts = chain.from_iterable(map(_prompt, data.run.asked_with))
            more = "".join((*prompts, *_commands(data)))
            return table_section(replace(section, remarks=remarks), below=more + below)
        case _:
            rows = len(section.rows)
            folds = name in _SECONDARY or section.title in _SECONDARY or rows > 12
            fold = f"Table of {counted(rows, 'row')}" if folds else ""
            return table_section(section, TableStyle(names=names, fold=fold), below=below)


# The page: what the navigation says, and which sections of a report stand there.
_GROUPS = (
    ("Leaderboard", ("leaderboard", "overlay", "standard-errors")),
    ("Categories", ("categories",)),
    ("Differences", ("differences",)),
    ("Commands", ()),
    ("Answers", ("answers", "bounds", "repeats")),
    ("Errors", ("errors", "failures", "failure-times")),
    ("Latency", ("latency", "latency-parts")),
    ("Cost", ("cost",)),
    ("Thresholds", ("scores",)),
    ("Calibration", ("calibration", "reliability")),
    ("Provenance", ("provenance",)),
)


def render_page(data: ReportData, grid: Grid | None = None) -> Iterator[str]:
    """Yield a report as one HTML file, in pieces; without a grid where there is none."""
    report = build_report(data, ())
    charts = page_charts(data)
    drawn = {chart.name: figure(chart, svg) for chart, svg in charts}
    beside = drawn.pop(scatter.NAME, "")
    items = bulleted(map(text, report.legend))
    legend = f'<section id="legend">\n<h2>Legend</h2>\n{items}\n</section>\n'
    parts = [*_parts(data, "".join(drawn.values()), grid), ("legend", "Legend", [legend])]
    title = data.run.name or report.title
    style, script = f"{_assets(*_STYLES)}\n{heat_style()}", _assets(*_SCRIPTS)
    yield _assets("head.html").format(policy=_policy(style, script), title=text(title), style=style)
    links = (f'<a href="#{name}">{text(title)}</a>' for name, title, _ in parts)
    yield f'<nav aria-label="Sections">\n{bulleted(links)}\n</nav>\n'
    yield f'<main id="main" tabindex="-1">\n<h1>{breakable(title)}</h1>\n'
    yield (
        '<noscript><p class="notice">Without JavaScript the tables cannot be sorted or\n'
        "filtered, and the single commands are not shown.</p></noscript>\n"
    )
    yield _summary(data, beside)
    if not charts and find_spec("vl_convert") is None:
        missing = "There are no charts in this report: pip install 'aegish-dist[plots]' draws them."
        yield f'<p class="about">{text(missing)}</p>\n'
    for _, _, html in parts:
        yield from html
    yield f"</main>\n<script>{script}</script>\n</body>\n</html>\n"


# Sections to which one link of the navigation leads: the id of the first, the link, the HTML.
_Part = tuple[str, str, Iterable[str]]


def _parts(
    data: ReportData,
    curves: str,
    grid: Grid | None,
) -> Iterator[_Part]:
    """Yield the parts for which there is something to show; `curves` are figures of one of them."""
    by_name = named_sections(data, ON_THE_PAGE)
    short = short_names(list(map(marked, data.ranked)), width=34)  # the leaderboard has them whole
    of_curves = "scores" if by_name["scores"] else "leaderboard"
    for title, names in _GROUPS:
        if not names and grid is not None:
            yield "commands", title, grid_section(grid)
        html: list[str] = []
        anchors = []
        for name in names:
            for section in by_name[name]:
                # The curves stand below the last section of their name.
                is_last = section is by_name[name][-1]
                below = curves if is_last and name == of_curves else ""
                html.append(_section(data, name, section, names=short, below=below))
                anchors.append(anchor(DIFFERENCES if name == "differences" else section.title))
        if html:
            yield anchors[0], title, html


def _summary(data: ReportData, chart: str) -> str:
    notices = "".join(f'<p class="notice">{text(each)}</p>\n' for each in warnings(data))
    sentences = []
    for fact in first_screen(data):
        sentences.append(f"<p><strong>{text(fact.label)}</strong> {with_code(fact.text)}</p>")
    facts = []
    for fact in (*details(data), *head(data)):
        facts.append(f"<dt>{text(fact.label)}</dt><dd>{text(fact.text)}</dd>")
    opening = "\n".join(sentences)
    about = "\n".join(facts)
    return (
        f'<p class="state">{text(state(data))}</p>\n{notices}'
        f'<div class="opening">\n<div class="summary" role="region" aria-label="Summary">\n'
        f"{opening}\n</div>\n{chart}</div>\n"
        f'<details class="facts printed">\n<summary>About this run</summary>\n'
        f"<dl>\n{about}\n</dl>\n</details>\n"
    )


def with_code(sentence: str) -> str:
    """Return a sentence as HTML, with what stands between grave accents as code."""
    return re.sub("`([^`]*)`", r"<code>\1</code>", text(sentence))


# Models up to which a reader can choose all pairs: 28.
MOST_MODELS = 8


def differences_section(
    data: ComparisonData,
    order: Sequence[str],
    names: Mapping[str, str],
    below: str = "",
) -> str:
    """Return the section on the differences between models, which stand in their order.

    A dot with its interval stands for each difference from the first model, with its result in
    words. All pairs stand there as data, from which the script draws what a reader chooses.
    """
    pairs = data.directed(Metric.SCORE)
    shown = _shown(data, order)
    scale = _scale(pairs)
    rows: list[Row] = []
    cells = {}
    for row, each in enumerate(shown):
        found = each.found
        drawn = Estimate(found.difference, ci_low=found.ci_low, ci_high=found.ci_high)
        result = result_of(found) or ""
        rows.append(
            (
                _marked(data, each.model),
                _marked(data, each.against),
                difference_cell(found),
                number_cell(found.p_adjusted, format_p),
                result or UNDEFINED,
            )
        )
        cells[row, 1] = CellStyle("other")
        cells[row, 2] = CellStyle("score", interval_bar(scale, drawn, 0))
        cells[row, 4] = CellStyle(f"words {result}".strip())
    section = Section.of(
        DIFFERENCES,
        ("model", "against", TableCell("difference", INTERVAL), "p adj.", "verdict"),
        rows,
        note=f"Aegish score minus that of {order[0]}, on the commands that both models answered, "
        f"in percentage points with 95% intervals, drawn from {100 * scale.low:+.0f} to "
        f"{100 * scale.high:+.0f}; the line is 0. p is adjusted for all {len(pairs)} pairs (Holm); "
        f"tied: it is not below {LEVEL:g}.",
    )
    style = TableStyle("pairs against-one", cells=cells, names=names)
    return table_section(section, style, below=_data(data, order, names) + below)


def _shown(data: ComparisonData, order: Sequence[str]) -> list[DirectedDifference]:
    """Return the known differences from the first model, the greatest first."""
    leader = order[0]
    known = []
    for model, found in data.against(leader, Metric.SCORE).items():
        if model in order and found.difference is not None:
            known.append(DirectedDifference(model, leader, found))
    return sorted(known, key=lambda each: (-(each.found.difference or 0), each.model))


def _scale(pairs: Iterable[DirectedDifference]) -> BarScale:
    """Return a scale with 0 in its middle that holds every interval, in whole points."""
    widest = 0.0
    for pair in pairs:
        widest = max(widest, abs(pair.found.ci_low or 0), abs(pair.found.ci_high or 0))
    end = math.ceil(round(100 * (widest or 0.01), 3)) / 100
    return BarScale(-end, end)


def _marked(data: ComparisonData, model: str) -> str:
    return with_mark(model, any(side.model == model for side in data.simulated))


def _data(data: ComparisonData, order: Sequence[str], names: Mapping[str, str]) -> str:
    """Return all pairs as inert JSON, which no text in it can end."""
    places = {model: place for place, model in enumerate(order)}
    metrics = []
    for name, title in SCORE_AND_RATES.items():
        pairs = []
        for pair in data.directed(name):
            # A model without a place, as a policy that is not judged, is on no list.
            if pair.model in places and pair.against in places:
                pairs.append([places[pair.model], places[pair.against], *_numbers(pair.found)])
        metrics.append({"title": title, "pairs": pairs})
    models = [_marked(data, model) for model in order]
    document = {
        "models": list(map(printable, models)),
        "names": [printable(names.get(model, model)) for model in models],
        "all": len(order) <= MOST_MODELS,
        "metrics": metrics,
    }
    content = as_json(document).replace("<", "\\u003c")
    return f'<script type="application/json" id="pairs">{content}</script>\n'


def _numbers(found: Difference) -> Iterator[object]:
    """Yield a difference as numbers to draw and as the texts of the report."""
    drawn = (found.difference, found.ci_low, found.ci_high)
    for value in drawn:
        yield None if value is None else round(100 * value, 3)
    for value in drawn:
        yield format_difference(value)
    yield format_p(found.p_adjusted)
    yield result_of(found) or UNDEFINED
