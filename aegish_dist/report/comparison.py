"""A comparison in each of its formats, and the answer of its gate."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from html import escape
from typing import Any

from aegish_dist.core.run import ModelOfRun, Run
from aegish_dist.core.snapshot import CATEGORY_METRIC
from aegish_dist.core.text import counted, printable, printable_json
from aegish_dist.errors import ReportError
from aegish_dist.report.csv import csv_text
from aegish_dist.report.data import ComparedPair, ComparisonData, PairGate
from aegish_dist.report.layout import (
    HEADLINES,
    SIMULATED,
    Fact,
    Report,
    Section,
    TableCell,
    stackable,
)
from aegish_dist.report.markdown import draw_markdown
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
from aegish_dist.statistics.gate import GateVerdict, commands_needed
from aegish_dist.statistics.paired_difference import Difference
from aegish_dist.statistics.paired_test import LEVEL

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


def side_name(data: ComparisonData, side: ModelOfRun) -> str:
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


def _marked(data: ComparisonData, side: ModelOfRun) -> str:
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


JsonObject = dict[str, Any]

NUMBERS = tuple(
    field.name for field in fields(Difference) if field.name not in ("a_only", "b_only")
)
"""The plain numbers of a difference, in the order of exports."""


def render_comparison_json(data: ComparisonData) -> str:
    """Return a comparison as JSON in ASCII; absent numbers are null."""
    return printable_json(comparison_document(data)) + "\n"


def comparison_document(data: ComparisonData) -> JsonObject:
    rule = data.opinion.rule
    return {
        "scoring": rule.name,
        "scoring_version": rule.version,
        "opinion": data.opinion.provenance,
        "runs": [{"run_id": run.run_id, "name": run.name} for run in data.runs],
        "unlike": list(data.unlike),
        "metric": data.metric,
        "margin": data.margin,
        "pairs": [_pair_document(data, pair) for pair in data.pairs],
        "tie_groups": [list(group) for group in data.tie_groups],
        "gate": [_gate(each) for each in data.gates] or None,
    }


def _pair_document(data: ComparisonData, pair: ComparedPair) -> JsonObject:
    compared = pair.comparison
    return {
        **_sides(pair),
        "samples": compared.samples,
        "verdict": data.verdict(pair),
        "metrics": {name: _numbers(data, each) for name, each in compared.metrics.items()},
        "categories": {name: _numbers(data, each) for name, each in compared.categories.items()},
    }


def _sides(pair: ComparedPair) -> JsonObject:
    return {"a": asdict(pair.a), "b": asdict(pair.b)}


def _numbers(data: ComparisonData, found: Difference) -> JsonObject:
    known = asdict(found)
    discordant = {name: known.pop(name) for name in ("a_only", "b_only")}
    needed = commands_needed(found, data.margin)
    return {**known, "discordant": discordant, "commands_needed": needed}


def _gate(gate: PairGate) -> JsonObject:
    return {
        **_sides(gate.pair),
        "verdict": gate.verdict.value,
        "commands_needed": gate.needed,
        "commands_missing": gate.missing,
    }


COLUMNS = (
    *("scoring", "scoring_version", "unlike", "a_run_id", "a_model", "b_run_id", "b_model"),
    *("samples", "verdict", "metric", "category", *NUMBERS),
    *("a_only", "b_only", "margin", "commands_needed"),
)


def render_comparison_csv(data: ComparisonData) -> str:
    """Return a comparison as CSV; what is undefined is empty."""
    return csv_text(
        COLUMNS, (_about(data, pair) | row for pair in data.pairs for row in _rows(data, pair))
    )


def _about(data: ComparisonData, pair: ComparedPair) -> dict[str, Any]:
    return {
        "scoring": data.opinion.rule.name,
        "scoring_version": data.opinion.rule.version,
        "unlike": "; ".join(data.unlike),
        "a_run_id": pair.a.run_id,
        "a_model": pair.a.model,
        "b_run_id": pair.b.run_id,
        "b_model": pair.b.model,
        "samples": pair.comparison.samples,
        "verdict": data.verdict(pair),
        "margin": data.margin,
    }


def _rows(data: ComparisonData, pair: ComparedPair) -> Iterator[dict[str, Any]]:
    found = [(name, "", each) for name, each in pair.comparison.metrics.items()]
    found += [
        (CATEGORY_METRIC, category, each)
        for category, each in sorted(pair.comparison.categories.items())
    ]
    for metric, category, each in found:
        yield {
            "metric": metric,
            "category": category,
            **asdict(each),
            "commands_needed": commands_needed(each, data.margin),
        }


_WORST_FIRST = (GateVerdict.WORSE, GateVerdict.INCONCLUSIVE, GateVerdict.SHIPS)
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, not even as references."""


def worst(data: ComparisonData) -> GateVerdict:
    """Return the verdict that decides for all candidates together."""
    found = {gate.verdict for gate in data.gates}
    return next(verdict for verdict in _WORST_FIRST if verdict in found)


def gate_line(data: ComparisonData) -> str:
    """Return the answer in one line: the worst verdict, and why."""
    verdict = worst(data)
    deciding = [gate for gate in data.gates if gate.verdict is verdict]
    reasons = "; ".join(gate_in_words(data, gate) for gate in deciding)
    verdicts = [gate.verdict for gate in data.gates]
    others = [each for each in _WORST_FIRST if each in verdicts and each is not verdict]
    also = ", ".join(f"{verdicts.count(each)} {each.value}" for each in others)
    rest = f" (of {len(verdicts)} candidates also {also})" if others else ""
    return printable(f"{verdict.value}: {reasons}{rest}{_caveat(data)}")


def gate_in_words(data: ComparisonData, gate: PairGate) -> str:
    """Say how a candidate does, and what is missing to decide; foreign text."""
    found = gate.difference
    names = f"{side_name(data, gate.pair.b)} against {side_name(data, gate.pair.a)}"
    if found.difference is None:
        return f"{names}: {data.metric} is undefined on {counted(found.n, 'command')} of both"
    return (
        f"{names}: {data.metric} {difference_in_words(found)}, margin "
        f"{in_points(data.margin)}, {counted(found.n, 'command')}{_missing(gate)}"
    )


def _missing(gate: PairGate) -> str:
    if gate.verdict is not GateVerdict.INCONCLUSIVE:
        return ""
    if gate.missing == 0:
        # The variance seen would do; but with K clusters that differ no p is below 2^(1 - K).
        return ", too few clusters differ to decide"
    if gate.missing is None:
        return ", no number of commands is known to decide"
    return f", about {format_count(gate.missing)} more would decide"


def _caveat(data: ComparisonData) -> str:
    return f" [unlike runs: {'; '.join(data.unlike)}]" if data.unlike else ""


def junit_xml(data: ComparisonData) -> str:
    """Return JUnit XML with a test case for each candidate.

    One that is worse is a failure. One of which nothing can be said is an error: the test did not
    come to a result.
    """
    verdicts = [gate.verdict for gate in data.gates]
    numbers = (
        f'tests="{len(verdicts)}" failures="{verdicts.count(GateVerdict.WORSE)}" '
        f'errors="{verdicts.count(GateVerdict.INCONCLUSIVE)}"'
    )
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            f'<testsuites name="aegish-dist compare" {numbers} time="0">',
            f'  <testsuite name="{_attribute(_suite(data))}" {numbers} skipped="0" time="0">',
            *(_case(data, gate) for gate in data.gates),
            "  </testsuite>",
            "</testsuites>",
            "",
        ]
    )


def _suite(data: ComparisonData) -> str:
    return f"{data.metric} margin {data.margin:g}"


def _case(data: ComparisonData, gate: PairGate) -> str:
    message = gate_in_words(data, gate) + _caveat(data)
    name = f"{side_name(data, gate.pair.b)} against {side_name(data, gate.pair.a)}"
    head = f'    <testcase classname="aegish-dist.gate" name="{_attribute(name)}" time="0">'
    text, quoted = _text(message), _attribute(message)
    body = {
        GateVerdict.SHIPS: f"<system-out>{text}</system-out>",
        GateVerdict.WORSE: f'<failure message="{quoted}" type="worse">{text}</failure>',
        GateVerdict.INCONCLUSIVE: f'<error message="{quoted}" type="inconclusive">{text}</error>',
    }
    return f"{head}\n      {body[gate.verdict]}\n    </testcase>"


def _text(text: str) -> str:
    return escape(_NO_XML.sub("", printable(text)), quote=False)


def _attribute(text: str) -> str:
    return escape(_NO_XML.sub("", printable(text)))


COMPARISON_FORMATS = ("table", "markdown", "latex", "csv", "json")


def in_format(
    form: str,
    report: Callable[[], Report],
    texts: Mapping[str, Callable[[], str]],
    *,
    width: int | None,
    color: bool,
) -> str:
    """Return a comparison as text that ends with a line break.

    Args:
        width: Columns of the terminal; only tables use it.
        color: Whether to emit ANSI colours; only tables use it.
    """
    if form == "table":
        from aegish_dist.report.table import draw_table  # noqa: PLC0415  with rich

        return draw_table(report(), width, color)
    if form == "markdown":
        return draw_markdown(report())
    if form == "latex":
        from aegish_dist.report.latex import draw_latex  # noqa: PLC0415  folded as rich does it

        return draw_latex(report())
    if form not in texts:
        known = ", ".join(COMPARISON_FORMATS)
        raise ReportError(f"unknown format of a comparison '{form}': choose one of {known}")
    return texts[form]()


def render_comparison(
    data: ComparisonData,
    format: str,
    *,
    run_columns: bool = False,
    width: int | None = None,
    color: bool = False,
) -> str:
    """Return a comparison as text that ends with a line break.

    Args:
        run_columns: Whether every row of a table begins with runs and rule set.
        width: Columns of the terminal; only tables use it.
        color: Whether to emit ANSI colours; only tables use it.
    """
    texts = {
        "csv": lambda: render_comparison_csv(data),
        "json": lambda: render_comparison_json(data),
    }

    def report() -> Report:
        built = build_comparison(data)
        return stackable(built) if run_columns else built

    return in_format(format, report, texts, width=width, color=color)
