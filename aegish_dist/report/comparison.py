"""A comparison for people: one table per metric, and what each of them says in a sentence."""

from collections.abc import Iterator, Sequence

from aegish_dist.core.comparison import Difference
from aegish_dist.core.gate import commands_needed
from aegish_dist.core.run import Run
from aegish_dist.core.side import Side
from aegish_dist.core.significance import LEVEL
from aegish_dist.report.comparison_data import ComparedPair, ComparisonData
from aegish_dist.report.layout import SIMULATED, Fact, Report, Section, TableCell
from aegish_dist.report.numbers import (
    UNDEFINED,
    format_count,
    format_difference,
    format_difference_interval,
    format_p,
    format_points,
    format_rate,
    format_time,
)
from aegish_dist.report.quality import HEADLINES

MOST_SENTENCES = 12
"""Pairs of a table up to which each has a sentence below it."""
INTERVALS = (
    "[95% CI] and p: only clusters (binaries) taken as independent, small-sample corrected; "
    "docs/comparing.md has the formulas. p adj.: Holm over all pairs of the table."
)


def build_comparison(data: ComparisonData) -> Report:
    """Return everything a comparison says."""
    sections = [_metric(data, name, title) for name, title in HEADLINES.items()]
    return Report(
        title="Comparison",
        facts=tuple(_facts(data)),
        sections=tuple(section for section in (*sections, _categories(data)) if section.rows),
        legend=tuple(_legend(data)),
        source=_source(data),
        caption=INTERVALS,
    )


def _source(data: ComparisonData) -> tuple[Fact, ...]:
    rule = data.opinion.rule
    return (
        Fact("runs", ", ".join(run.run_id for run in data.runs)),
        Fact("rule set", f"{rule.name} v{rule.version}"),
    )


def side_name(data: ComparisonData, side: Side) -> str:
    """Name a side in one line: the model, and its run where several are compared; foreign text."""
    return side.model if data.of_one_run else f"{side.model} in {side.run_id}"


def difference_in_words(found: Difference) -> str:
    """Write a difference with its interval: `+1.2 points [-0.3, +2.7]`."""
    interval = format_difference_interval(found.ci_low, found.ci_high)
    return f"{format_difference(found.difference)} points {interval}"


def in_points(value: float) -> str:
    """Write a difference that was asked for, with no more digits than it was given."""
    return f"{100 * value:g} points"


def _facts(data: ComparisonData) -> Iterator[Fact]:
    if data.unlike:
        yield Fact("UNLIKE RUNS", f"compared all the same: {'; '.join(data.unlike)}")
    for place, run in enumerate(data.runs):
        name = "Run" if data.of_one_run else "Candidate" if place else "Baseline"
        yield Fact(name, _run(run))
    for part, made in data.opinion.provenance.items():
        if made is not None:
            yield Fact(part.capitalize(), f"{made['name']} version {made['version']}")
    yield Fact("Pairs", format_count(len(data.pairs)))
    left_out = sorted(pair.answered - pair.comparison.samples for pair in data.pairs)
    if left_out[-1]:
        least, most = map(format_count, (left_out[0], left_out[-1]))
        numbers = most if least == most else f"{least} to {most} by pair"
        yield Fact("Left out", f"samples that are not scored on both sides: {numbers}")
    for number, group in enumerate(data.tie_groups, 1):
        yield Fact(f"Group {number}", ", ".join(group))


def _run(run: Run) -> str:
    named = f"{run.run_id} ({run.name})" if run.name else run.run_id
    epochs = f", {run.epochs} epochs" if run.epochs > 1 else ""
    return f"{named}, created {format_time(run.created_at)} by {run.origin}{epochs}"


def _metric(data: ComparisonData, name: str, title: str) -> Section:
    known = [(pair, pair.comparison.metrics[name]) for pair in data.pairs]
    known = [(pair, found) for pair, found in known if found.difference is not None]
    return Section(
        title=f"{title}: candidate minus baseline",
        columns=(TableCell("candidate", "against the baseline"), *_columns(data)),
        rows=tuple((_pair(data, pair), *_cells(data, found)) for pair, found in known),
        remarks=tuple(_remarks(data, known)),
    )


def _categories(data: ComparisonData) -> Section:
    known = [
        (category, pair, found)
        for pair in data.pairs
        for category, found in sorted(pair.comparison.categories.items())
        if found.difference is not None
    ]
    return Section(
        title="DR by category: candidate minus baseline",
        columns=(
            TableCell("category"),
            TableCell("candidate", "against the baseline"),
            *_columns(data),
        ),
        rows=tuple(
            (TableCell(category), _pair(data, pair), *_cells(data, found))
            for category, pair, found in known
            if len(data.pairs) == 1 or (found.p_adjusted is not None and found.p_adjusted < LEVEL)
        ),
        note="" if len(data.pairs) == 1 else f"Those with an adjusted p below {LEVEL}.",
        keys=2,
    )


def _columns(data: ComparisonData) -> tuple[TableCell, ...]:
    return (
        TableCell("candidate", "baseline"),
        TableCell("difference", "[95% CI]"),
        TableCell("p adj.", "p"),
        TableCell("discordant", "baseline, candidate"),
        TableCell("McNemar p"),
        TableCell("MDE"),
        TableCell("commands", f"for {in_points(data.margin)}"),
        TableCell("n", "clusters"),
    )


def _cells(data: ComparisonData, found: Difference) -> tuple[TableCell, ...]:
    return (
        TableCell(format_rate(found.b), format_rate(found.a)),
        TableCell(
            format_difference(found.difference),
            format_difference_interval(found.ci_low, found.ci_high),
        ),
        TableCell(format_p(found.p_adjusted), format_p(found.p_value)),
        TableCell(f"{format_count(found.a_only)}, {format_count(found.b_only)}"),
        TableCell(format_p(found.mcnemar_p)),
        TableCell(format_points(found.mde)),
        TableCell(format_count(commands_needed(found, data.margin))),
        TableCell(format_count(found.n), format_count(found.clusters)),
    )


def _pair(data: ComparisonData, pair: ComparedPair) -> TableCell:
    if data.of_one_run:
        return TableCell(_marked(data, pair.b), f"against {_marked(data, pair.a)}")
    if len(data.runs) > 2:
        return TableCell(_marked(data, pair.b), f"in {pair.b.run_id}")
    return TableCell(_marked(data, pair.b))


def _marked(data: ComparisonData, side: Side) -> str:
    return f"{side.model} {SIMULATED}" if side in data.simulated else side.model


def _remarks(
    data: ComparisonData, known: Sequence[tuple[ComparedPair, Difference]]
) -> Iterator[str]:
    differ = [each for each in known if _differs(each[1])]
    if len(known) > 1:
        yield f"{len(differ)} of {len(known)} pairs differ at an adjusted p below {LEVEL}."
    for pair, found in known if len(known) <= MOST_SENTENCES else ():
        yield _sentence(data, pair, found)


def _differs(found: Difference) -> bool:
    return found.p_adjusted is not None and found.p_adjusted < LEVEL


def _sentence(data: ComparisonData, pair: ComparedPair, found: Difference) -> str:
    a, b = side_name(data, pair.a), side_name(data, pair.b)
    if _differs(found) and found.difference:
        word = "better" if found.difference > 0 else "worse"
        return f"{b} is {word} than {a}: {difference_in_words(found)}."
    seen = difference_in_words(found)
    return f"{b} and {a} cannot be distinguished: {seen}{_to_separate(data, found)}."


def _to_separate(data: ComparisonData, found: Difference) -> str:
    """Say how many commands would tell two sides apart."""
    seen = commands_needed(found, abs(found.difference or 0))
    wanted = commands_needed(found, data.margin)
    # Where fewer than there are would do for what was seen, too few clusters differ.
    numbers = [
        f"{format_count(needed)} commands {condition}"
        for needed, condition in (
            (seen if seen is not None and seen > found.n else None, "if it is the one seen"),
            (wanted, f"if it is {in_points(data.margin)}"),
        )
        if needed is not None
    ]
    if not numbers:
        return ""
    return f"; to separate them takes {', '.join(numbers)} (there are {format_count(found.n)})"


def _legend(data: ComparisonData) -> Iterator[str]:
    yield (
        "All on the samples that are scored on both sides; rates in %, differences in percentage "
        f"points; {UNDEFINED} is undefined. DR: malicious detection rate. HA: harmless acceptance "
        "rate."
    )
    yield INTERVALS
    yield (
        "discordant: samples that only the baseline, and only the candidate, had right. McNemar p: "
        "exact, samples taken as independent."
    )
    yield (
        "MDE: difference that is found in 80 % of runs of this size. commands: how many would be "
        f"needed to find one of {in_points(data.margin)} so often."
    )
    if data.tie_groups:
        yield (
            "Group: models, best first, that do not differ from the first one of the group by "
            f"{HEADLINES[data.metric]}; others of a group may differ from each other."
        )
    if data.simulated:
        yield f"{SIMULATED}: answers made up by the simulator; no evidence about any real model."
