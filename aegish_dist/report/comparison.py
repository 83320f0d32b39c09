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

    Up to three models are compared in pairs; more of them each with the best one only, unless
    `all_pairs` is set.
    """
    ranked = list(chain.from_iterable(data.tie_groups))
    facts = list(_facts(data))
    # Four models have six pairs already, more than a reader can take in at once.
    in_pairs = all_pairs or len(ranked) <= 3
    if in_pairs:
        title = metric_title(data.metric)
        sentences = [Fact(title, sentence) for sentence in _sentences(data, data.metric)]
        facts = [*sentences, *facts]
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
    """Return the metrics, which are the same for every pair, in the order of documents."""
    return data.pairs[0].comparison.metrics


def in_points(value: float) -> str:
    """Write a difference that a user chose, such as a margin, with as many digits as it has."""
    number = f"{100 * value:g}"
    return f"{number} point" if number == "1" else f"{number} points"


def _facts(data: ComparisonData) -> Iterator[Fact]:
    if data.unlike:
        yield Fact("UNLIKE RUNS", f"compared all the same: {'; '.join(data.unlike)}")
    # The first run is the base; all others are compared with it.
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
    """Yield how many commands are left out, and which clusters make intervals too narrow."""
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
    """Yield which models are best and which are tied, then the models without a score."""
    # A dictionary for its order: models as they come, each once.
    models: dict[str, None] = {}
    for pair in data.pairs:
        models |= dict.fromkeys((pair.a.model, pair.b.model))
    names = short_names(list(models), NAME_WIDTH)
    groups = []
    for group in data.tie_groups:
        *tied, last = [names[model] for model in group]
        if tied:
            groups.append(f"{', '.join(tied)} and {last} (tied)")
        else:
            groups.append(last)
    yield Fact("Best first", "; then ".join(groups))
    placed = {*chain.from_iterable(data.tie_groups), *data.overlaps}
    unplaced = [names[model] for model in models if model not in placed]
    if unplaced:
        yield Fact("Undefined", f"{metric_title(data.metric)} of {', '.join(unplaced)}")


def _against_best(data: ComparisonData, ranked: Sequence[str]) -> Section:
    """Return how each model differs from the first one, in all metrics."""
    best, *others = ranked
    # By metric, then by model.
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
    """Return what to call the two of a pair, and whether they are guards or runs.

    A difference is always the second one minus the first.
    """
    return ("first", "second", "guard") if data.of_one_run else ("base", "new", "run")


def _direction(data: ComparisonData) -> str:
    first, second, kind = _terms(data)
    return f"{second} {kind} minus {first}"


def _metric(data: ComparisonData, name: str) -> Section:
    return Section.of(
        f"{metric_title(name)}: {_direction(data)}",
        _columns(data),
        (_cells(data, pair, difference) for pair, difference in _defined(data, name)),
        # The sentences of the deciding metric stand above all tables.
        remarks=() if name == data.metric else _sentences(data, name),
    )


def _defined(data: ComparisonData, name: str) -> list[tuple[ComparedPair, Difference]]:
    """Return the pairs that have a difference in a metric, with it."""
    defined = []
    for pair in data.pairs:
        difference = pair.comparison.metrics[name]
        if difference.difference is not None:
            defined.append((pair, difference))
    return defined


def _categories(data: ComparisonData) -> Section:
    """Return the differences by category; for several pairs only the significant ones."""
    one_pair = len(data.pairs) == 1
    rows = []
    for pair in data.pairs:
        for category, difference in sorted(pair.comparison.categories.items()):
            if difference.difference is None:
                continue
            if one_pair or differs(difference):
                rows.append((category, *_cells(data, pair, difference)))
    return Section.of(
        f"DR by category: {_direction(data)}",
        ("category", *_columns(data)),
        rows,
        note="" if one_pair else f"Those with an adjusted p below {LEVEL}.",
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


def _cells(data: ComparisonData, pair: ComparedPair, difference: Difference) -> Row:
    # No difference of rates is above 100 points, so none at all would be found.
    unreachable = difference.mde is not None and difference.mde > 1
    return (
        _pair(data, pair),
        TableCell(format_rate(difference.b), format_rate(difference.a)),
        difference_cell(difference),
        p_cell(difference),
        f"{format_count(difference.a_only)}, {format_count(difference.b_only)}",
        format_p(difference.mcnemar_p),
        "> 100" if unreachable else format_points(difference.mde),
        format_count(commands_needed(difference, data.margin)),
        TableCell(format_count(difference.n), format_count(difference.clusters)),
    )


def _pair(data: ComparisonData, pair: ComparedPair) -> TableCell:
    beside = ""
    if data.of_one_run:
        beside = f"against {_marked(data, pair.a)}"
    elif len(data.runs) > 2:
        beside = f"in {pair.b.run_id}"
    return TableCell(_marked(data, pair.b), beside)


def _sentences(data: ComparisonData, name: str) -> Iterator[str]:
    pairs = _defined(data, name)
    if len(pairs) > 1:
        differ = sum(differs(difference) for _, difference in pairs)
        yield f"{differ} of {len(pairs)} pairs differ at an adjusted p below {LEVEL}."
    if len(pairs) <= 12:  # more of them do not fit a screen
        for pair, difference in pairs:
            yield _sentence(data, pair, difference)


def _sentence(data: ComparisonData, pair: ComparedPair, difference: Difference) -> str:
    a = data.name_of(pair.a)
    b = data.name_of(pair.b)
    in_words = difference_in_words(difference)
    # Commands that a policy was chosen on make it look too good.
    if pair.fitted:
        return f"{b} and {a} are not judged: {in_words} on commands that a policy was chosen on."
    if differs(difference):
        return f"{b} is {result_of(difference)} than {a}: {in_words}."
    more = _to_separate(data, difference)
    return f"{b} and {a} cannot be distinguished: {in_words}.{more}"


def _to_separate(data: ComparisonData, difference: Difference) -> str:
    """Say how many commands would tell two guards apart; empty where no number is known."""
    margin = in_points(data.margin)
    size = abs(difference.difference or 0)
    needed_for_size = commands_needed(difference, size) or 0
    needed_for_margin = commands_needed(difference, data.margin)
    about = f" {difference.n:,} were asked. About"
    # Otherwise there were enough commands for this size, and it is clusters that are too few.
    if needed_for_size > difference.n:
        more = "" if needed_for_margin is None else f", {needed_for_margin:,} one of {margin}"
        return f"{about} {needed_for_size:,} would settle a difference of this size{more}."
    if needed_for_margin is None:
        return ""
    return f"{about} {needed_for_margin:,} would settle a difference of {margin}."


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


# The fields of a difference that are exported under their own names, in this order.
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
    for name, difference in differences.items():
        numbers = asdict(difference)
        # The two counts of discordant commands stand together in a document of their own.
        discordant = {side: numbers.pop(side) for side in ("a_only", "b_only")}
        needed = commands_needed(difference, data.margin)
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
    """Yield a row for each pair and metric, and for each pair and category."""
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
        for metric, difference in pair.comparison.metrics.items():
            yield about | _csv_row(data, difference, metric)
        for category, difference in sorted(pair.comparison.categories.items()):
            row = _csv_row(data, difference, Metric.DETECTION_RATE)
            yield about | row | {"category": category}


def _csv_row(data: ComparisonData, difference: Difference, metric: str) -> JsonObject:
    needed = commands_needed(difference, data.margin)
    return asdict(difference) | {"metric": metric, "commands_needed": needed}


# Characters that XML 1.0 cannot hold, not even as references.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def gate_line(data: ComparisonData) -> str:
    """Return the answer in one line: the worst result with its reasons, then a count of others."""
    worst = data.worst_gate
    reasons = []
    counts = dict.fromkeys(GateVerdict, 0)
    for gate in data.gates:
        if gate.verdict is worst:
            reasons.append(gate_in_words(data, gate))
        else:
            counts[gate.verdict] += 1
    line = f"{worst.value}: {'; '.join(reasons)}"
    others = [f"{count} {verdict.value}" for verdict, count in counts.items() if count]
    if others:
        line += f" (of {len(data.gates)} guards also {', '.join(others)})"
    return printable(line + _caveat(data))


def _names(data: ComparisonData, gate: PairGate) -> str:
    return f"{data.name_of(gate.pair.b)} against {data.name_of(gate.pair.a)}"


def gate_in_words(data: ComparisonData, gate: PairGate) -> str:
    """Say how a guard does, and what is missing to decide; foreign text."""
    difference = gate.difference
    about = f"{_names(data, gate)}: {data.metric}"
    commands = counted(difference.n, "command")
    if difference.difference is None:
        return f"{about} is undefined on {commands} of both"
    caution = _missing(gate)
    # A policy that was chosen on these commands is not judged, however many there are.
    if gate.pair.fitted:
        caution = f"; {fitted_in_words(gate.pair.fitted)}"
    in_words = difference_in_words(difference)
    return f"{about} {in_words}, margin {in_points(data.margin)}, {commands}{caution}"


def _missing(gate: PairGate) -> str:
    """Say how many more commands would decide; empty where the gate has decided."""
    if gate.verdict is not GateVerdict.INCONCLUSIVE:
        return ""
    if gate.needed is None or gate.missing is None:
        return ", no number of commands is known to decide"
    if gate.missing == 0:
        # Their variance would do; but with K clusters that differ no p is below 2^(1 - K).
        return ", too few clusters differ to decide"
    more = f", about {format_count(gate.missing)} more would decide"
    asked = gate.difference.n
    if gate.needed > most_in_reach(asked):
        more += f": out of reach, as there are {asked:,}"
    return more


def _caveat(data: ComparisonData) -> str:
    return f" [unlike runs: {'; '.join(data.unlike)}]" if data.unlike else ""


def junit_xml(data: ComparisonData) -> str:
    """Return JUnit XML with a test case for each gate.

    A guard that is worse is a failure. An inconclusive gate is an error: the test did not come to
    a result.
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

    JSON and CSV have every pair. Tables and Markdown compare more than three models each with the
    best one, unless all pairs are asked for.
    """
    if format not in COMPARISON_FORMATS:
        formats = ", ".join(COMPARISON_FORMATS)
        raise ReportError(f"unknown format of a comparison '{format}': choose one of {formats}")
    if format == "csv":
        return csv_text(COLUMNS, _csv_rows(data))
    if format == "json":
        return printable_json(comparison_document(data)) + "\n"
    return drawn(build_comparison(data, all_pairs=all_pairs), format, width, color)
