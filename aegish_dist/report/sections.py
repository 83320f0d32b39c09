"""From a snapshot to a report: its sections in order, its legend, and its few sentences."""

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain

from aegish_dist.core.metric import LEVEL, Difference
from aegish_dist.core.text import counted
from aegish_dist.findings.comparison import differs
from aegish_dist.findings.recommendation import Why
from aegish_dist.opinions.opinion import DRAFT_AUTHOR
from aegish_dist.opinions.scoring import Composite
from aegish_dist.report import operations, quality
from aegish_dist.report.data import ReportData
from aegish_dist.report.first_screen import PILOT, details, first_screen, state_line, to_plan
from aegish_dist.report.layout import (
    COMPARED_TITLES,
    HEADLINES,
    INTERVAL,
    SIMULATED,
    Cell,
    Fact,
    Report,
    Section,
    TableCell,
    marked,
    number_cell,
)
from aegish_dist.report.provenance import INTERVALS, caption, command_line, head, provenance, source
from aegish_dist.report.thresholds import threshold_sections
from aegish_dist.report.writing import (
    NAME_WIDTH,
    UNDEFINED,
    format_count,
    format_difference,
    format_interval,
    format_p,
    listed,
    short_names,
)


def differences(data: ReportData) -> Section | None:
    """Return each model minus the first of the ranking; None where no pairs are known."""
    comparison = data.comparison
    if comparison is None or not data.ranked:
        return None
    leader, *others = data.ranked
    found = [comparison.against(leader.model, name) for name in COMPARED_TITLES]
    scores = found[0]
    rows = [
        (
            marked(entry),
            *chain.from_iterable(_difference(by[entry.model]) for by in found),
            number_cell(scores[entry.model].n, format_count),
        )
        for entry in others
        if entry.model in scores and scores[entry.model].difference is not None
    ]
    headings = (
        (TableCell(name, INTERVAL), TableCell("p adj.", "p")) for name in COMPARED_TITLES.values()
    )
    known = [each for each in map(comparison.difference, comparison.pairs) if each]
    tested = [each for each in known if each.p_adjusted is not None]
    differ = sum(map(differs, tested))
    return Section.of(
        "Differences from the first",
        ("model", *chain.from_iterable(headings), "n"),
        rows,
        note=(
            f"Percentage points by which each model differs from {leader.model}, on the commands "
            "scored for both; an interval that holds 0 leaves open which is better. p adj. is for "
            "all pairs of models."
        ),
        remarks=(
            f"{format_count(differ)} of {format_count(len(tested))} pairs of models differ by "
            f"{COMPARED_TITLES[comparison.metric]} at an adjusted p below {LEVEL}. compare shows "
            "every pair with the difference it could have detected; the JSON report has them too.",
        )
        if rows
        else (),
    )


def _difference(found: Difference) -> tuple[Cell, Cell]:
    low, high = found.ci_low, found.ci_high
    detail = "" if low is None else format_interval(low, high, format_difference)
    return (
        number_cell(found.difference, format_difference, detail),
        number_cell(found.p_adjusted, format_p, format_p(found.p_value)),
    )


_Made = Section | Iterable[Section] | None
_SECTIONS: dict[str, Callable[[ReportData], _Made]] = {
    "leaderboard": lambda data: quality.leaderboard(data, operations.reasons(data)),
    "standard-errors": quality.standard_errors,
    "differences": differences,
    "overlay": lambda data: quality.overlay_section(data.effect),
    "categories": quality.categories,
    "category-intervals": quality.category_intervals,
    "answers": quality.answers,
    "repeats": quality.repeats,
    "errors": operations.errors,
    "failures": operations.failures,
    "failure-times": operations.failure_times,
    "bounds": quality.bounds,
    "latency": operations.latency,
    "latency-parts": operations.latency_parts,
    "cost": operations.cost,
    "scores": lambda data: () if data.scores is None else threshold_sections(data.scores),
    "calibration": quality.calibration,
    "reliability": quality.reliability,
    "provenance": provenance,
}
SECTION_NAMES = tuple(_SECTIONS)
"""Sections that a report can be made of, in its order."""
BRIEF = (
    *("leaderboard", "overlay", "categories", "answers", "repeats", "errors", "failures"),
    *("bounds", "latency", "cost", "calibration"),
)
"""Sections of a report in LaTeX, unless others are asked for."""
ON_THE_PAGE = tuple(name for name in SECTION_NAMES if name != "category-intervals")
"""Sections of the HTML report, which draws the intervals of categories into another one."""


def build_report(data: ReportData, names: Collection[str] = BRIEF) -> Report:
    """Return everything a report says about a snapshot, in those sections that say something."""
    found = named_sections(data, names)
    score, *legend = _legend(data, found)
    empty = ", ".join(name for name, sections in found.items() if not sections)
    left_out = [f"Left out, without content: {empty}."] if empty else []
    return Report(
        title=f"Report on run {data.run.run_id}",
        facts=(*_opening(data), *details(data), *head(data)),
        sections=tuple(section for sections in found.values() for section in sections),
        legend=(score, *left_out, *legend),
        source=source(data),
        caption=caption(data.run),
    )


def one_screen(data: ReportData, *, commands: bool = True) -> Report:
    """Return what a decision needs, in few enough lines for one screen of a terminal.

    Args:
        commands: Whether those that show more stand below.
    """
    run = ("--run-id", data.run.run_id)
    judged = (*run, *data.opinion_words)
    report = ("report", *run, *data.report_words, *data.policy_options)
    steps = {
        "Everything": (*report, "--sections", "all"),
        "A page with every answer": (*report, "--open"),
    }
    if len(data.ranked) > 1 and data.recommendation.why is not Why.NO_SCORE:
        steps["Several guards as one"] = ("policies", "search", *judged)
    advice = data.recommendation
    if data.run.samples < PILOT and not data.policy_options and not advice.undecided:
        models = ",".join(to_plan(data))
        if models:
            plan = ("plan", *judged, "--models", models, "--margin", "0.02")
            steps["How many commands would decide"] = plan
    failed = operations.failures(data, brief=True).remarks[:2]
    below = [f"{fact.label}: {fact.text}" for fact in details(data)]
    if commands:
        below += [f"{purpose}: {command_line(*words)}" for purpose, words in steps.items()]
    sections = (
        quality.brief_leaderboard(data, score_in_words(data)),
        quality.overlay_section(data.effect),
        Section.of("Details", (), (), remarks=below),
    )
    return Report(
        title=f"Report on run {data.run.run_id}",
        facts=(*_opening(data), *(Fact("Warning", each) for each in failed)),
        sections=tuple(filter(_says_something, sections)),
        legend=(),
    )


def _opening(data: ReportData) -> Iterator[Fact]:
    """Yield what every form of a report begins with."""
    yield Fact("Run", state_line(data))
    yield from first_screen(data)
    for warning in warnings(data):
        yield Fact("Warning", warning)


def named_sections(data: ReportData, names: Collection[str]) -> dict[str, list[Section]]:
    """Return the sections of a report by their names, in its order; none where nothing is said."""
    found: dict[str, list[Section]] = {}
    for name in (name for name in SECTION_NAMES if name in names):
        always = name in ("leaderboard", "provenance")
        made = _SECTIONS[name](data)
        sections = [made] if isinstance(made, Section) else made or ()
        found[name] = [each for each in sections if always or _says_something(each)]
    return found


def _says_something(section: Section) -> bool:
    """Return whether there is more in a section than dashes; a zero is a finding."""
    cells = (cell.text for row in section.rows for cell in row[section.keys :])
    return bool(section.remarks) or any(text not in ("", UNDEFINED) for text in cells)


def score_in_words(data: ReportData) -> str:
    opinion = data.snapshot.opinion
    product = opinion is not None and opinion.rule.composite is Composite.PRODUCT
    score = "DR \N{MULTIPLICATION SIGN} HA" if product else "(DR + HA) / 2"
    meanings = [
        "DR: malicious detection rate.",
        "HA: harmless acceptance rate.",
        f"aegish score: {score}.",
    ]
    for metric, title in HEADLINES.items():
        if metric not in COMPARED_TITLES:
            meanings.append(f"{title}: {metric.replace('_', ' ')}.")
    return " ".join([*meanings, "In %."])


def _legend(data: ReportData, names: Collection[str]) -> tuple[str, ...]:
    lines = [f"{score_in_words(data)} {UNDEFINED} is undefined, never 0.", INTERVALS]
    if "leaderboard" in names:
        lines += [
            "stderr: standard error of the aegish score in percentage points, clustered by binary "
            "(Miller 2024, arXiv 2411.00640): stderr_clustered in JSON and CSV. 'plain' marks "
            "samples taken as independent: stderr there.",
            f"{quality.MARKS} =: tied; on the commands of both, the group's leader is not better "
            "at a p below 0.05, adjusted for all pairs, as in compare.",
            "coverage: scored of planned verdicts. What the rule leaves unscored, such as a call "
            "whose attempts all failed, is an infrastructure failure and not a model's score: it "
            "lowers coverage and enters no rate. Where coverage is below 100, bounds show what it "
            "could have changed.",
            "p50, p90: percentiles of service time, without any waiting on our side.",
        ]
    if any(entry.simulated for entry in data.ranked):
        lines.append(
            f"simulated, {SIMULATED}: answers made up by the simulator. They are not evidence "
            "about any real model."
        )
    return tuple(lines)


def warnings(data: ReportData) -> tuple[str, ...]:
    """Return what limits the meaning of the whole report, the gravest first."""
    found = []
    simulated = [entry for entry in data.ranked if entry.simulated]
    if simulated:
        names = short_names([entry.model for entry in simulated], NAME_WIDTH)
        some = listed([names[entry.model] for entry in simulated])
        which = "All models" if len(simulated) == len(data.ranked) else some
        found.append(
            f"Simulated: {which}. These answers were made up by the simulator and are not evidence "
            "about any real model."
        )
    overlay = None if data.snapshot.opinion is None else data.snapshot.opinion.overlay
    if overlay and (drafted := sum(each.author == DRAFT_AUTHOR for each in overlay.changes)):
        by = f"in overlay '{overlay.name}' by author '{DRAFT_AUTHOR}', which no person has reviewed"
        found.append(f"Draft: {counted(drafted, 'changed label')} {by}.")
    if not data.is_current:
        found.append(
            "Not the newest state: verdicts have been stored since this snapshot. A report without "
            "--snapshot shows them."
        )
    return tuple(found)
