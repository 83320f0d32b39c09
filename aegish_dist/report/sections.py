"""From a snapshot to a report: its sections in order, its legend, and its few sentences."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from aegish_dist.core.opinion import Targets
from aegish_dist.core.scoring import Composite
from aegish_dist.core.text import counted, shortened
from aegish_dist.report import operations, quality
from aegish_dist.report.data import ReportData
from aegish_dist.report.layout import (
    HEADLINES,
    INTERVAL,
    SIMULATED,
    Cell,
    RankedModel,
    Report,
    Section,
    TableCell,
    marked,
    number_cell,
    ranked_entries,
)
from aegish_dist.report.numbers import (
    UNDEFINED,
    format_count,
    format_difference,
    format_interval,
    format_ms,
    format_p,
    format_rate,
    format_usd,
)
from aegish_dist.report.provenance import INTERVALS, caption, head, provenance, source
from aegish_dist.statistics.inference import LEVEL
from aegish_dist.statistics.paired_difference import Difference
from aegish_dist.statistics.rates import Judgement


def differences(data: ReportData, entries: Sequence[RankedModel]) -> Section | None:
    """Return each model minus the first of the ranking; None where no pairs are known."""
    comparison = data.comparison
    if comparison is None or not entries:
        return None
    leader, *others = entries
    rows = []
    pairs = {frozenset((each.a.model, each.b.model)): each for each in comparison.pairs}
    for entry in others:
        pair = pairs.get(frozenset((leader.model, entry.model)))
        if pair is None or pair.comparison.metrics["aegish_score"].difference is None:
            continue
        found = [pair.comparison.metrics[name] for name in HEADLINES]
        if pair.a.model != leader.model:
            found = [each.turned for each in found]
        cells = (cell for each in found for cell in _difference(each))
        rows.append((marked(entry), *cells, number_cell(pair.comparison.samples, format_count)))
    headings = (
        (TableCell(name, INTERVAL), TableCell("p adj.", "p")) for name in HEADLINES.values()
    )
    known = [each.p_adjusted for each in map(comparison.difference, comparison.pairs) if each]
    adjusted = [p for p in known if p is not None]
    differ = sum(p < LEVEL for p in adjusted)
    return Section.of(
        "Differences from the first",
        ("model", *(cell for cells in headings for cell in cells), "n"),
        rows,
        note=(
            f"Percentage points by which each model differs from {leader.model}, on the commands "
            "scored for both; an interval that holds 0 leaves open which is better. p adj. is for "
            "all pairs of models."
        ),
        remarks=(
            f"{format_count(differ)} of {format_count(len(adjusted))} pairs of models differ by "
            f"{HEADLINES[comparison.metric]} at an adjusted p below {LEVEL}. `compare` shows every"
            " pair with the difference it could have detected; the JSON report has them too.",
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
_SECTIONS: dict[str, Callable[[ReportData, Sequence[RankedModel]], _Made]] = {
    "leaderboard": lambda data, entries: quality.leaderboard(
        entries, data.targets, operations.reasons(data)
    ),
    "differences": differences,
    "overlay": lambda data, _: quality.overlay_section(data.effect),
    "categories": lambda _, entries: quality.categories(entries),
    "category-intervals": lambda _, entries: quality.category_intervals(entries),
    "answers": lambda _, entries: quality.answers(entries),
    "repeats": lambda _, entries: quality.repeats(entries),
    "errors": lambda _, entries: operations.errors(entries),
    "failures": operations.failures,
    "failure-times": operations.failure_times,
    "bounds": lambda _, entries: quality.bounds(entries),
    "latency": lambda data, entries: operations.latency(entries, data.run.batched),
    "latency-parts": lambda _, entries: operations.latency_parts(entries),
    "cost": lambda data, entries: operations.cost(entries, data.run.batched),
    "calibration": lambda data, entries: quality.calibration(entries, data.run.epochs),
    "reliability": lambda _, entries: quality.reliability(entries),
    "provenance": lambda data, _: provenance(data),
}
SECTION_NAMES = tuple(_SECTIONS)
"""Sections that a report can be made of, in its order."""
_LONG = (
    *("differences", "category-intervals", "failure-times", "latency-parts", "reliability"),
    "provenance",
)
_ALWAYS = ("leaderboard", "answers", "errors", "latency", "cost", "provenance")
"""Sections that stand there without any row, too."""
BRIEF = tuple(name for name in SECTION_NAMES if name not in _LONG)
"""Sections of a report on the terminal, unless others are asked for."""
ON_THE_PAGE = tuple(name for name in SECTION_NAMES if name != "category-intervals")
"""Sections of the HTML report, which draws the intervals of categories into another one."""


def build_report(data: ReportData, names: Collection[str] = BRIEF) -> Report:
    """Return everything a report says about a snapshot, in those sections that say something."""
    entries = ranked_entries(data.snapshot.document)
    found = named_sections(data, names)
    return Report(
        title=f"Report on run {data.run.run_id}",
        facts=head(data, entries),
        sections=tuple(section for sections in found.values() for section in sections),
        legend=_legend(data, entries),
        source=source(data),
        caption=caption(data.run),
    )


def named_sections(data: ReportData, names: Collection[str]) -> dict[str, list[Section]]:
    """Return the sections of a report by their names, in its order; none where nothing is said."""
    entries = ranked_entries(data.snapshot.document)
    found: dict[str, list[Section]] = {}
    for name in (name for name in SECTION_NAMES if name in names):
        made = _SECTIONS[name](data, entries)
        sections = [made] if isinstance(made, Section) else made or ()
        found[name] = [each for each in sections if each.rows or each.remarks or name in _ALWAYS]
    return found


def _legend(data: ReportData, entries: Sequence[RankedModel]) -> tuple[str, ...]:
    opinion = data.snapshot.opinion
    product = opinion is not None and opinion.rule.composite is Composite.PRODUCT
    score = "DR \N{MULTIPLICATION SIGN} HA" if product else "(DR + HA) / 2"
    lines = [
        f"DR: malicious detection rate. HA: harmless acceptance rate. aegish score: {score}. "
        f"All in %; {UNDEFINED} is undefined, never 0.",
        INTERVALS,
        "stderr: standard error of the aegish score in percentage points, clustered by binary "
        "(Miller 2024, arXiv 2411.00640); 'plain' marks samples taken as independent.",
        "PASS: the whole interval is at or above the target. FAIL: it is below. UNDECIDED: it "
        "holds the target. 1=: tied; on the commands of both, the group's leader is not better at "
        "a p below 0.05, adjusted for all pairs (`compare`).",
        "coverage: scored of planned verdicts. What the rule leaves unscored, such as a call "
        "whose attempts all failed, is an infrastructure failure and not a model's score: it "
        "lowers coverage and enters no rate. Where coverage is below 100, bounds show what it "
        "could have changed.",
        "p50, p90: percentiles of service time, without any waiting on our side.",
    ]
    if any(entry.simulated for entry in entries):
        lines.append(
            f"simulated, {SIMULATED}: answers made up by the simulator. They are not evidence "
            "about any real model."
        )
    return tuple(lines)


MOST_NAMES = 5
LONGEST_NAME = 100
"""Characters of a name in a sentence; tables have it whole."""


def summary(data: ReportData, entries: Sequence[RankedModel], targets: Targets) -> tuple[str, ...]:
    """Return what a reader has to know at least, one sentence or two in each."""
    scored = [entry for entry in entries if entry.metric("aegish_score").value is not None]
    if not scored:
        return ("No model has a score yet: of malicious or of harmless commands none is scored.",)
    tied = [entry for entry in scored if entry.place == scored[0].place]
    return (
        *_best(scored, tied),
        *_targets(scored, targets),
        *_certainty(data, scored),
        *_price(tied, scored),
    )


def warnings(data: ReportData, entries: Sequence[RankedModel]) -> tuple[str, ...]:
    """Return what limits the meaning of the whole report, the gravest first."""
    found = []
    simulated = [entry for entry in entries if entry.simulated]
    if simulated:
        which = "All models" if len(simulated) == len(entries) else _names(simulated)
        found.append(
            f"Simulated: {which}. These answers were made up by the simulator and are not evidence "
            "about any real model."
        )
    missing = sum(
        max((entry.count("planned") or 0) - (entry.count("done") or 0), 0) for entry in entries
    )
    if missing:
        are = "is" if missing == 1 else "are"
        found.append(f"Provisional: {counted(missing, 'verdict')} of those planned {are} missing.")
    if not data.is_current:
        found.append("Not the newest state: verdicts have been stored since this snapshot.")
    return tuple(found)


def _best(scored: Sequence[RankedModel], tied: Sequence[RankedModel]) -> Iterator[str]:
    best = scored[0]
    score = best.metric("aegish_score")
    said = f"an aegish score of {format_rate(score.value)} out of 100"
    if score.ci_low is not None:
        said += f", 95% interval {format_interval(score.ci_low, score.ci_high)}"
    if len(scored) == 1:
        yield f"{_name(best)} has {said}."
        return
    yield f"Of {format_count(len(scored))} models, {_name(best)} is first with {said}."
    if len(tied) == 1:
        yield "No other model is tied with it."
    else:
        others = _names(tied[1:])
        yield f"It cannot be distinguished from {others}: the order among them may be chance."


def _targets(scored: Sequence[RankedModel], targets: Targets) -> Iterator[str]:
    if not targets.least:
        return
    reaching = [entry for entry in scored if not _missed(entry, targets)]
    if len(reaching) == len(scored):
        yield "Every target is reached." if len(scored) == 1 else "All models reach every target."
    elif reaching:
        number = f"{format_count(len(reaching))} of {format_count(len(scored))} models"
        yield f"{number} reach every target: {_names(reaching)}."
    else:
        missed = " and ".join(
            f"{quality.metric_title(name)} {format_rate(scored[0].metric(name).value)} against "
            f"{format_rate(targets.least[name])}"
            for name in _missed(scored[0], targets)
        )
        yield f"No model surely reaches every target; {_name(scored[0])} has {missed}."


def _certainty(data: ReportData, scored: Sequence[RankedModel]) -> Iterator[str]:
    widths = [
        (score.ci_high - score.ci_low) / 2
        for score in (entry.metric("aegish_score") for entry in scored)
        if score.ci_low is not None and score.ci_high is not None
    ]
    if not widths:
        return
    commands = f"{format_count(data.run.samples)} commands"
    if data.run.epochs > 1:
        commands += f", each asked {format_count(data.run.epochs)} times"
    least, most = f"{100 * min(widths):.1f}", f"{100 * max(widths):.1f}"
    points = f"{least} points" if least == most else f"{least} to {most} points"
    yield f"On {commands}, scores are known to within {points} at 95% confidence."


def _price(tied: Sequence[RankedModel], scored: Sequence[RankedModel]) -> Iterator[str]:
    total = [entry.cost("total_usd") for entry in scored]
    known = [cost for cost in total if cost is not None]
    if not known:
        return
    covered = "" if len(known) == len(total) else ", as far as prices are known"
    yield f"All answers together cost {format_usd(sum(known))}{covered}."
    priced = [entry for entry in tied if entry.cost("per_1000_usd") is not None]
    cheapest = min(priced, key=lambda entry: entry.cost("per_1000_usd") or 0, default=None)
    if cheapest is None:
        return
    name = _name(cheapest) if len(tied) == 1 else f"The cheapest of those tied, {_name(cheapest)},"
    time = cheapest.latency("service", "p50")
    answers = "" if time is None else f" and answers in {format_ms(time)} (median)"
    yield f"{name} costs {format_usd(cheapest.cost('per_1000_usd'))} per 1,000 commands{answers}."


def _missed(entry: RankedModel, targets: Targets) -> list[str]:
    judgements = entry.judgements(targets)
    return [name for name in targets.least if judgements.get(name) is not Judgement.PASS]


def _names(entries: Sequence[RankedModel]) -> str:
    models = list(map(_name, entries))
    if len(models) > MOST_NAMES:
        return f"{', '.join(models[:MOST_NAMES])} and {len(models) - MOST_NAMES} others"
    return " and ".join(filter(None, (", ".join(models[:-1]), models[-1])))


def _name(entry: RankedModel) -> str:
    return shortened(entry.model, LONGEST_NAME)
