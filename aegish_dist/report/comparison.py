"""A comparison in each of its formats, and the answer of its gate."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import chain

from msgspec.structs import asdict

from aegish_dist.core.metric import LEVEL, Difference, Metric
from aegish_dist.core.run import ModelOfRun, Run
from aegish_dist.core.text import JsonObject, counted, csv_text, printable, printable_json
from aegish_dist.errors import ReportError
from aegish_dist.findings.comparison import (
    ComparedPair,
    ComparisonData,
    GateVerdict,
    PairGate,
    commands_needed,
    differs,
    most_in_reach,
    result_of,
)
from aegish_dist.report.drawing import drawn
from aegish_dist.report.layout import (
    INTERVAL,
    NOT_EVIDENCE,
    Fact,
    Report,
    Row,
    Section,
    TableCell,
    difference_cell,
    difference_in_words,
    metric_title,
    p_cell,
    titles_in_words,
    with_mark,
)
from aegish_dist.report.origins import fitted_in_words, origins_in_words, policies_document
from aegish_dist.report.writing import (
    UNDEFINED,
    format_count,
    format_p,
    format_points,
    format_rate,
    format_span,
    format_time,
    short_names,
)

NAME_WIDTH = 28
INTERVALS = (
    "[95% CI] and p: only clusters (binaries) taken as independent, small-sample corrected; "
    "docs/explanation/differences.md has the formulas. p adj.: Holm over all compared pairs."
)


def build_comparison(data: ComparisonData, *, all_pairs: bool = False) -> Report:
    """Return everything a comparison says.

    With `all_pairs` more than three models are compared in pairs, and not only with the best one.
    """
    ranked = list(chain.from_iterable(data.tie_groups))
    facts = list(_facts(data))
    # Four models have six pairs already, more than a reader can take in at once.
    in_pairs = all_pairs or len(ranked) <= 3
    if in_pairs:
        sentences = _sentences(data, data.metric)
        facts = [*(Fact(metric_title(data.metric), sentence) for sentence in sentences), *facts]
        sections = [_metric(data, name) for name in _metrics(data)]
        sections.append(_categories(data))
    else:
        sections = [_against_best(data, ranked)]
    return Report(
        title="Comparison",
        facts=tuple(facts),
        sections=tuple(section for section in sections if section.rows),
        legend=tuple(_legend(data, in_pairs=in_pairs)),
    )


def _metrics(data: ComparisonData) -> Iterable[str]:
    """Return the metrics that every pair is compared in, in the order of documents."""
    return data.pairs[0].comparison.metrics


def in_points(value: float) -> str:
    """Write a difference that was asked for, with no more digits than it was given."""
    number = f"{100 * value:g}"
    return f"{number} point" if number == "1" else f"{number} points"


def _facts(data: ComparisonData) -> Iterator[Fact]:
    if data.unlike:
        yield Fact("UNLIKE RUNS", f"compared all the same: {'; '.join(data.unlike)}")
    label = "Run" if data.of_one_run else "Base run"
    for run in data.runs:
        yield Fact(label, _run(run))
        label = "New run"
    for part, made in data.opinion.provenance.items():
        if made is not None:
            yield Fact(part.capitalize(), f"{made['name']} version {made['version']}")
    yield from _cautions(data)
    if data.tie_groups:
        yield from _order(data)
    # A comparison has room for the whole names of policies.
    for sentence in origins_in_words({name: name for name in data.overlaps}, data.overlaps):
        yield Fact("Policies", sentence)


def _cautions(data: ComparisonData) -> Iterator[Fact]:
    """Yield how many commands are not compared, and clusters that make intervals too narrow."""
    left_out = [pair.answered - pair.comparison.samples for pair in data.pairs]
    if any(left_out):
        numbers = format_span(left_out)
        if min(left_out) < max(left_out):
            numbers += " by pair"
        yield Fact("Left out", f"commands that are not scored of both: {numbers}")
    # A cluster of several pairs is named once.
    large: dict[str, float] = {}
    for pair in data.pairs:
        large |= pair.comparison.large_clusters
    for name, share in sorted(large.items()):
        text = f"{name} has {100 * share:.0f} % of a label's samples: intervals may be too narrow"
        yield Fact("Large cluster", text)


def _order(data: ComparisonData) -> Iterator[Fact]:
    """Yield who is best and who is tied, in words, and the models without a score."""
    models: dict[str, None] = {}
    for pair in data.pairs:
        models |= dict.fromkeys((pair.a.model, pair.b.model))
    names = short_names(list(models), NAME_WIDTH)
    groups = []
    for group in data.tie_groups:
        *tied, last = [names[model] for model in group]
        groups.append(f"{', '.join(tied)} and {last} (tied)" if tied else last)
    yield Fact("Best first", "; then ".join(groups))
    placed = {*chain.from_iterable(data.tie_groups), *data.overlaps}
    unplaced = [names[model] for model in models if model not in placed]
    if unplaced:
        yield Fact("Undefined", f"{metric_title(data.metric)} of {', '.join(unplaced)}")


def _against_best(data: ComparisonData, ranked: Sequence[str]) -> Section:
    """Return how each model differs from the first one, in all metrics."""
    best, *others = ranked
    differences = {metric: data.against(best, metric) for metric in _metrics(data)}
    deciding = differences[data.metric]
    rows: list[Row] = []
    for model in others:
        side = ModelOfRun(data.runs[0].run_id, model)
        rows.append(
            (
                _marked(data, side),
                *(difference_cell(by_model[model]) for by_model in differences.values()),
                p_cell(deciding[model]),
                format_count(deciding[model].n),
            )
        )
    differ = sum(differs(deciding[model]) for model in others)
    intervals = [TableCell(metric_title(metric), INTERVAL) for metric in differences]
    return Section.of(
        f"Each guard minus {short_names(ranked, NAME_WIDTH)[best]}",
        ("model", *intervals, TableCell("p adj.", "p"), "n"),
        rows,
        note=f"{differ} of {len(others)} differ from the best at an adjusted p below {LEVEL} in"
        f" {metric_title(data.metric)}.",
    )


def _marked(data: ComparisonData, side: ModelOfRun) -> str:
    return with_mark(side.model, side in data.simulated)


def _run(run: Run) -> str:
    epochs = f", {run.epochs} epochs" if run.epochs > 1 else ""
    return f"{run.titled}, created {format_time(run.created_at)} by {run.origin}{epochs}"


def _terms(data: ComparisonData) -> tuple[str, str, str]:
    """Return what the two of a pair are called where their names do not stand, and what they are.

    Differences are those of the second minus the first.
    """
    return ("first", "second", "guard") if data.of_one_run else ("base", "new", "run")


def _direction(data: ComparisonData) -> str:
    first, second, kind = _terms(data)
    return f"{second} {kind} minus {first}"


def _metric(data: ComparisonData, name: str) -> Section:
    return Section.of(
        f"{metric_title(name)}: {_direction(data)}",
        _columns(data),
        (_cells(data, pair, found) for pair, found in _known(data, name)),
        # The sentences of the deciding metric stand above all tables.
        remarks=() if name == data.metric else _sentences(data, name),
    )


def _known(data: ComparisonData, name: str) -> list[tuple[ComparedPair, Difference]]:
    known = [(pair, pair.comparison.metrics[name]) for pair in data.pairs]
    return [(pair, found) for pair, found in known if found.difference is not None]


def _categories(data: ComparisonData) -> Section:
    """Return the differences by category; of several pairs those that are sure."""
    alone = len(data.pairs) == 1
    rows = []
    for pair in data.pairs:
        for category, found in sorted(pair.comparison.categories.items()):
            if found.difference is not None and (alone or differs(found)):
                rows.append((category, *_cells(data, pair, found)))
    return Section.of(
        f"DR by category: {_direction(data)}",
        ("category", *_columns(data)),
        rows,
        note="" if alone else f"Those with an adjusted p below {LEVEL}.",
        keys=2,
    )


def _columns(data: ComparisonData) -> Row:
    first, second, _ = _terms(data)
    return (
        TableCell("guard", "against" if data.of_one_run else ""),
        TableCell(second, first),
        TableCell("difference", INTERVAL),
        TableCell("p adj.", "p"),
        TableCell("discordant", f"{first}, {second}"),
        "McNemar p",
        "MDE",
        TableCell("commands", f"for {in_points(data.margin)}"),
        TableCell("n", "clusters"),
    )


def _cells(data: ComparisonData, pair: ComparedPair, found: Difference) -> Row:
    # So few commands tell nothing: a difference of rates cannot be above 100 points.
    unreachable = found.mde is not None and found.mde > 1
    return (
        _pair(data, pair),
        TableCell(format_rate(found.b), format_rate(found.a)),
        difference_cell(found),
        p_cell(found),
        f"{format_count(found.a_only)}, {format_count(found.b_only)}",
        format_p(found.mcnemar_p),
        "> 100" if unreachable else format_points(found.mde),
        format_count(commands_needed(found, data.margin)),
        TableCell(format_count(found.n), format_count(found.clusters)),
    )


def _pair(data: ComparisonData, pair: ComparedPair) -> TableCell:
    beside = ""
    if data.of_one_run:
        beside = f"against {_marked(data, pair.a)}"
    elif len(data.runs) > 2:
        beside = f"in {pair.b.run_id}"
    return TableCell(_marked(data, pair.b), beside)


def _sentences(data: ComparisonData, name: str) -> Iterator[str]:
    known = _known(data, name)
    if len(known) > 1:
        differ = sum(differs(found) for _, found in known)
        yield f"{differ} of {len(known)} pairs differ at an adjusted p below {LEVEL}."
    if len(known) <= 12:  # a screen of sentences
        for pair, found in known:
            yield _sentence(data, pair, found)


def _sentence(data: ComparisonData, pair: ComparedPair, found: Difference) -> str:
    a = data.name_of(pair.a)
    b = data.name_of(pair.b)
    seen = difference_in_words(found)
    # Commands that a policy was chosen on make it look too good.
    if pair.fitted:
        return f"{b} and {a} are not judged: {seen} on commands that a policy was chosen on."
    if differs(found):
        return f"{b} is {result_of(found)} than {a}: {seen}."
    more = _to_separate(data, found)
    return f"{b} and {a} cannot be distinguished: {seen}.{more}"


def _to_separate(data: ComparisonData, found: Difference) -> str:
    """Say how many commands would tell two guards apart."""
    margin = in_points(data.margin)
    by_margin = commands_needed(found, data.margin)
    as_seen = commands_needed(found, abs(found.difference or 0)) or 0
    about = f" {found.n:,} were asked. About"
    # Where enough commands were asked for what is seen, too few clusters differ.
    if as_seen > found.n:
        more = "" if by_margin is None else f", {by_margin:,} one of {margin}"
        return f"{about} {as_seen:,} would settle a difference of this size{more}."
    if by_margin is None:
        return ""
    return f"{about} {by_margin:,} would settle a difference of {margin}."


def _legend(data: ComparisonData, *, in_pairs: bool) -> Iterator[str]:
    first, second, kind = _terms(data)
    yield (
        "All on the commands that are scored of both; rates in %, differences in percentage "
        f"points; {UNDEFINED} is undefined. {titles_in_words(_metrics(data))}"
    )
    yield INTERVALS
    if in_pairs:
        yield (
            f"discordant: commands that only the {first} {kind}, and only the {second}, had right. "
            "McNemar p: exact, commands taken as independent."
        )
        yield (
            "MDE: difference that is found in 80 % of runs of this size. commands: how many would"
            f" be needed to find one of {in_points(data.margin)} so often."
        )
    else:
        yield "--all-pairs compares each model with each, as JSON and CSV do."
    if data.tie_groups:
        yield f"tied: not different from the first of the group in {metric_title(data.metric)}."
    if data.simulated:
        yield NOT_EVIDENCE


# The plain numbers of a difference, in the order of exports.
NUMBERS = tuple(name for name in Difference.__struct_fields__ if name not in ("a_only", "b_only"))


def comparison_document(data: ComparisonData) -> JsonObject:
    """Return a comparison in JSON types; absent numbers are null."""
    gates = []
    for gate in data.gates:
        gates.append(
            {
                **_sides(gate.pair),
                "verdict": gate.verdict.value,
                "commands_needed": gate.needed,
                "commands_missing": gate.missing,
            }
        )
    return {
        **_source(data),
        "opinion": data.opinion.provenance,
        "policies": policies_document(data.opinion, data.overlaps),
        "runs": [{"run_id": run.run_id, "name": run.name} for run in data.runs],
        "unlike": list(data.unlike),
        "metric": data.metric,
        "margin": data.margin,
        "pairs": [_pair_document(data, pair) for pair in data.pairs],
        "tie_groups": [list(group) for group in data.tie_groups],
        "gate": gates or None,
    }


def _pair_document(data: ComparisonData, pair: ComparedPair) -> JsonObject:
    compared = pair.comparison
    return {
        **_sides(pair),
        "samples": compared.samples,
        "large_clusters": dict(compared.large_clusters),
        "verdict": data.verdict(pair),
        "metrics": _numbers(data, compared.metrics),
        "categories": _numbers(data, compared.categories),
    }


def _source(data: ComparisonData) -> JsonObject:
    return {"scoring": data.opinion.rule.name, "scoring_version": data.opinion.rule.version}


def _sides(pair: ComparedPair) -> JsonObject:
    return {"a": asdict(pair.a), "b": asdict(pair.b)}


def _numbers(data: ComparisonData, differences: Mapping[str, Difference]) -> JsonObject:
    documents = {}
    for name, found in differences.items():
        numbers = asdict(found)
        discordant = {side: numbers.pop(side) for side in ("a_only", "b_only")}
        needed = commands_needed(found, data.margin)
        documents[name] = {**numbers, "discordant": discordant, "commands_needed": needed}
    return documents


COLUMNS = (
    "scoring",
    "scoring_version",
    "unlike",
    "a_run_id",
    "a_model",
    "b_run_id",
    "b_model",
    "samples",
    "verdict",
    "metric",
    "category",
    *NUMBERS,
    "a_only",
    "b_only",
    "margin",
    "commands_needed",
)


def _csv_rows(data: ComparisonData) -> Iterator[JsonObject]:
    for pair in data.pairs:
        about = {
            **_source(data),
            "unlike": "; ".join(data.unlike),
            "a_run_id": pair.a.run_id,
            "a_model": pair.a.model,
            "b_run_id": pair.b.run_id,
            "b_model": pair.b.model,
            "samples": pair.comparison.samples,
            "verdict": data.verdict(pair),
            "margin": data.margin,
        }
        for metric, found in pair.comparison.metrics.items():
            yield about | _csv_row(data, found, metric)
        for category, found in sorted(pair.comparison.categories.items()):
            row = _csv_row(data, found, Metric.DETECTION_RATE)
            yield about | row | {"category": category}


def _csv_row(data: ComparisonData, found: Difference, metric: str) -> JsonObject:
    needed = commands_needed(found, data.margin)
    return asdict(found) | {"metric": metric, "commands_needed": needed}


# Characters that XML 1.0 cannot hold, not even as references.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def gate_line(data: ComparisonData) -> str:
    """Return the answer in one line: the worst result, and why."""
    verdict = data.worst_gate
    reasons = []
    numbers = dict.fromkeys(GateVerdict, 0)
    for gate in data.gates:
        if gate.verdict is verdict:
            reasons.append(gate_in_words(data, gate))
        else:
            numbers[gate.verdict] += 1
    line = f"{verdict.value}: {'; '.join(reasons)}"
    others = [f"{number} {other.value}" for other, number in numbers.items() if number]
    if others:
        line += f" (of {len(data.gates)} guards also {', '.join(others)})"
    return printable(line + _caveat(data))


def _names(data: ComparisonData, gate: PairGate) -> str:
    return f"{data.name_of(gate.pair.b)} against {data.name_of(gate.pair.a)}"


def gate_in_words(data: ComparisonData, gate: PairGate) -> str:
    """Say how a guard does, and what is missing to decide; foreign text."""
    found = gate.difference
    about = f"{_names(data, gate)}: {data.metric}"
    commands = counted(found.n, "command")
    if found.difference is None:
        return f"{about} is undefined on {commands} of both"
    missing = _missing(gate)
    if gate.pair.fitted:
        missing = f"; {fitted_in_words(gate.pair.fitted)}"
    seen = difference_in_words(found)
    return f"{about} {seen}, margin {in_points(data.margin)}, {commands}{missing}"


def _missing(gate: PairGate) -> str:
    if gate.verdict is not GateVerdict.INCONCLUSIVE:
        return ""
    if gate.needed is None or gate.missing is None:
        return ", no number of commands is known to decide"
    there = gate.difference.n
    if gate.missing == 0:
        # The variance seen would do; but with K clusters that differ no p is below 2^(1 - K).
        return ", too few clusters differ to decide"
    more = f", about {format_count(gate.missing)} more would decide"
    if gate.needed > most_in_reach(there):
        more += f": out of reach, as there are {there:,}"
    return more


def _caveat(data: ComparisonData) -> str:
    return f" [unlike runs: {'; '.join(data.unlike)}]" if data.unlike else ""


def junit_xml(data: ComparisonData) -> str:
    """Return JUnit XML with a test case for each gate.

    One that is worse is a failure. One of which nothing can be said is an error: the test did not
    come to a result.
    """
    verdicts = [gate.verdict for gate in data.gates]
    numbers = (
        f'tests="{len(verdicts)}" failures="{verdicts.count(GateVerdict.WORSE)}" '
        f'errors="{verdicts.count(GateVerdict.INCONCLUSIVE)}"'
    )
    suite = _xml(f"{data.metric} margin {data.margin:g}")
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            f'<testsuites name="aegish-dist compare" {numbers} time="0">',
            f'  <testsuite name="{suite}" {numbers} skipped="0" time="0">',
            *(_case(data, gate) for gate in data.gates),
            "  </testsuite>",
            "</testsuites>",
            "",
        ]
    )


def _case(data: ComparisonData, gate: PairGate) -> str:
    message = gate_in_words(data, gate) + _caveat(data)
    text, quoted = _xml(message, quote=False), _xml(message)
    body = {
        GateVerdict.SHIPS: f"<system-out>{text}</system-out>",
        GateVerdict.WORSE: f'<failure message="{quoted}" type="worse">{text}</failure>',
        GateVerdict.INCONCLUSIVE: f'<error message="{quoted}" type="inconclusive">{text}</error>',
    }
    name = _xml(_names(data, gate))
    head = f'    <testcase classname="aegish-dist.gate" name="{name}" time="0">'
    return f"{head}\n      {body[gate.verdict]}\n    </testcase>"


def _xml(text: str, *, quote: bool = True) -> str:
    return escape(_NO_XML.sub("", printable(text)), quote)


COMPARISON_FORMATS = ("table", "markdown", "csv", "json")


def render_comparison(
    data: ComparisonData,
    format: str,
    *,
    all_pairs: bool = False,
    width: int | None = None,
    color: bool = False,
) -> str:
    """Return a comparison as text; width and colour are for tables.

    Of more than three models, JSON and CSV have every pair, the others each model against the best
    unless all pairs are asked for.
    """
    if format not in COMPARISON_FORMATS:
        known = ", ".join(COMPARISON_FORMATS)
        raise ReportError(f"unknown format of a comparison '{format}': choose one of {known}")
    if format == "csv":
        return csv_text(COLUMNS, _csv_rows(data))
    if format == "json":
        return printable_json(comparison_document(data)) + "\n"
    return drawn(build_comparison(data, all_pairs=all_pairs), format, width, color)
