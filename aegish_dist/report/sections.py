"""From a snapshot to a report: its sections in order, its legend, and its few sentences."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain

from aegish_dist.core.metric import LEVEL
from aegish_dist.core.text import counted
from aegish_dist.findings.comparison import ComparisonData, differs
from aegish_dist.findings.recommendation import Why
from aegish_dist.opinions.opinion import DRAFT_AUTHOR
from aegish_dist.opinions.policy import may_be_judged
from aegish_dist.opinions.scoring import Composite
from aegish_dist.report import operations, quality
from aegish_dist.report.data import ReportData
from aegish_dist.report.first_screen import PILOT, details, first_screen, state_line, to_plan
from aegish_dist.report.layout import (
    HEADLINES,
    INTERVAL,
    SCORE_AND_RATES,
    SIMULATED,
    Cell,
    Fact,
    Report,
    Row,
    Section,
    TableCell,
    marked,
    number_cell,
    p_cell,
    points_interval,
    titles_in_words,
)
from aegish_dist.report.provenance import INTERVALS, caption, command_line, head, provenance, source
from aegish_dist.report.thresholds import threshold_sections
from aegish_dist.report.writing import (
    NAME_WIDTH,
    UNDEFINED,
    format_count,
    format_difference,
    listed,
    short_names,
)


def differences(data: ReportData) -> Section | None:
    """Return each model minus the first of the ranking; None where no pairs are known."""
    comparison = data.comparison
    if comparison is None or not data.ranked:
        return None
    leader, *others = data.ranked
    differences = [comparison.against(leader.model, name) for name in SCORE_AND_RATES]
    scores = differences[0]
    rows: list[Row] = []
    for entry in others:
        score = scores.get(entry.model)
        if score is None or score.difference is None or not may_be_judged(entry.origin):
            continue
        cells: list[Cell] = [marked(entry)]
        for by_model in differences:
            found = by_model[entry.model]
            interval = "" if found.ci_low is None else points_interval(found)
            cells.append(number_cell(found.difference, format_difference, interval))
            cells.append(p_cell(found))
        rows.append((*cells, number_cell(score.n, format_count)))
    headings: list[Cell] = ["model"]
    for title in SCORE_AND_RATES.values():
        headings.append(TableCell(title, INTERVAL))
        headings.append(TableCell("p adj.", "p"))
    return Section.of(
        "Differences from the first",
        (*headings, "n"),
        rows,
        note=(
            f"Percentage points by which each model differs from {leader.model}, on the commands "
            "scored for both; an interval that holds 0 leaves open which is better. p adj. is for "
            "all pairs of models."
        ),
        remarks=[_pairs_in_words(comparison)] if rows else (),
    )


def _pairs_in_words(comparison: ComparisonData) -> str:
    known = [comparison.difference(pair) for pair in comparison.pairs]
    tested = [found for found in known if found and found.p_adjusted is not None]
    differ = sum(map(differs, tested))
    return (
        f"{format_count(differ)} of {format_count(len(tested))} pairs of models differ by "
        f"{SCORE_AND_RATES[comparison.metric]} at an adjusted p below {LEVEL}. compare shows "
        "every pair with the difference it could have detected; the JSON report has them too."
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
# Sections that a report can be made of, in its order.
SECTION_NAMES = tuple(_SECTIONS)
# Sections of a report in LaTeX, unless others are asked for.
BRIEF = (
    "leaderboard",
    "overlay",
    "categories",
    "answers",
    "repeats",
    "errors",
    "failures",
    "bounds",
    "latency",
    "cost",
    "calibration",
)
# Sections of the HTML report, which draws the intervals of categories into another one.
ON_THE_PAGE = tuple(name for name in SECTION_NAMES if name != "category-intervals")


def build_report(data: ReportData, names: Collection[str] = BRIEF) -> Report:
    """Return everything a report says about a snapshot, in those sections that say something."""
    by_name = named_sections(data, names)
    legend = list(_legend(data, by_name))
    empty = [name for name, sections in by_name.items() if not sections]
    if empty:
        legend.insert(1, f"Left out, without content: {', '.join(empty)}.")
    return Report(
        title=f"Report on run {data.run.run_id}",
        facts=(*_opening(data), *details(data), *head(data)),
        sections=tuple(chain.from_iterable(by_name.values())),
        legend=tuple(legend),
        source=source(data),
        caption=caption(data.run),
    )


def one_screen(data: ReportData, *, commands: bool = True) -> Report:
    """Return what a decision needs, in few enough lines for one screen of a terminal.

    Args:
        commands: Whether those that show more stand below.
    """
    failed = operations.failures(data, brief=True).remarks[:2]
    below = [f"{fact.label}: {fact.text}" for fact in details(data)]
    if commands:
        below += [f"{purpose}: {command_line(*words)}" for purpose, words in _steps(data)]
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


def _steps(data: ReportData) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield what a reader of one screen may want to see next, and the words that show it."""
    run = ("--run-id", data.run.run_id)
    judged = (*run, *data.opinion_words)
    report = ("report", *run, *data.report_words, *data.policy_options)
    advice = data.recommendation
    yield "Everything", (*report, "--sections", "all")
    yield "A page with every answer", (*report, "--open")
    if len(data.ranked) > 1 and advice.why is not Why.NO_SCORE:
        yield "Several guards as one", ("policies", "search", *judged)
    # `plan` takes no policies, and the first screen plans itself for what is undecided.
    if data.run.samples < PILOT and not data.policy_options and not advice.undecided:
        models = to_plan(data)
        if models:
            plan = ("plan", *judged, "--models", ",".join(models), "--margin", "0.02")
            yield "How many commands would decide", plan


def _opening(data: ReportData) -> Iterator[Fact]:
    """Yield what every form of a report begins with."""
    yield Fact("Run", state_line(data))
    yield from first_screen(data)
    for warning in warnings(data):
        yield Fact("Warning", warning)


def named_sections(data: ReportData, names: Collection[str]) -> dict[str, list[Section]]:
    """Return the sections of a report by their names, in its order; none where nothing is said."""
    by_name: dict[str, list[Section]] = {}
    for name, make in _SECTIONS.items():
        if name not in names:
            continue
        made = make(data)
        sections = [made] if isinstance(made, Section) else list(made or ())
        # A run without a verdict still has a leaderboard, and comes from somewhere.
        if name not in ("leaderboard", "provenance"):
            sections = [section for section in sections if _says_something(section)]
        by_name[name] = sections
    return by_name


def _says_something(section: Section) -> bool:
    """Return whether there is more in a section than dashes; a zero is a finding."""
    if section.remarks:
        return True
    for row in section.rows:
        if any(cell.text not in ("", UNDEFINED) for cell in row[section.keys :]):
            return True
    return False


def score_in_words(data: ReportData) -> str:
    """Say what the titles of the leaderboard's metrics mean."""
    opinion = data.snapshot.opinion
    score = "(DR + HA) / 2"
    if opinion is not None and opinion.rule.composite is Composite.PRODUCT:
        score = "DR \N{MULTIPLICATION SIGN} HA"
    return f"{titles_in_words(HEADLINES)} aegish score: {score}. In %."


def _legend(data: ReportData, names: Collection[str]) -> Iterator[str]:
    yield f"{score_in_words(data)} {UNDEFINED} is undefined, never 0."
    yield INTERVALS
    if "leaderboard" in names:
        yield (
            "stderr: standard error of the aegish score in percentage points, clustered by binary "
            "(Miller 2024, arXiv 2411.00640): stderr_clustered in JSON and CSV. 'plain' marks "
            "samples taken as independent: stderr there."
        )
        yield (
            f"{quality.MARKS} =: tied; on the commands of both, the group's leader is not better "
            "at a p below 0.05, adjusted for all pairs, as in compare."
        )
        yield (
            "coverage: scored of planned verdicts. What the rule leaves unscored, such as a call "
            "whose attempts all failed, is an infrastructure failure and not a model's score: it "
            "lowers coverage and enters no rate. Where coverage is below 100, bounds show what it "
            "could have changed."
        )
        yield "p50, p90: percentiles of service time, without any waiting on our side."
    if any(entry.simulated for entry in data.ranked):
        yield (
            f"simulated, {SIMULATED}: answers made up by the simulator. They are not evidence "
            "about any real model."
        )


def warnings(data: ReportData) -> Iterator[str]:
    """Yield what limits the meaning of the whole report, the gravest first."""
    simulated = [entry.model for entry in data.ranked if entry.simulated]
    if simulated:
        which = "All models"
        if len(simulated) < len(data.ranked):
            names = short_names(simulated, NAME_WIDTH)
            which = listed([names[model] for model in simulated])
        yield (
            f"Simulated: {which}. These answers were made up by the simulator and are not evidence "
            "about any real model."
        )
    overlay = data.snapshot.overlay
    changes = overlay.changes if overlay else ()
    drafted = sum(change.author == DRAFT_AUTHOR for change in changes)
    if overlay is not None and drafted:
        yield (
            f"Draft: {counted(drafted, 'changed label')} in overlay '{overlay.name}' by author"
            f" '{DRAFT_AUTHOR}', which no person has reviewed."
        )
    if not data.is_current:
        yield (
            "Not the newest state: verdicts have been stored since this snapshot. A report without "
            "--snapshot shows them."
        )
