"""Sections on how well the models judge: ranking, categories, answers, calibration, repeats.

A section of which there is nothing to say has no rows; entries are the models, best first.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from operator import attrgetter

from aegish_dist.core.metric import Judgement, Metric
from aegish_dist.core.outcome import ScoredAnswer
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.text import JsonObject, counted
from aegish_dist.findings.comparison import most_in_reach
from aegish_dist.findings.snapshot import Gated, RankedModel, moved
from aegish_dist.opinions.opinion import Targets
from aegish_dist.opinions.policy import Overlap, may_be_judged
from aegish_dist.report.data import ReportData
from aegish_dist.report.layout import (
    HEADLINES,
    INTERVAL,
    MODEL,
    SCORE_AND_RATES,
    SIMULATED,
    Column,
    Row,
    Section,
    TableCell,
    category_names,
    estimate_cell,
    marked,
    metric_title,
    named_column,
    number_cell,
    tabulate,
    with_interval,
)
from aegish_dist.report.origins import fitted_in_words
from aegish_dist.report.writing import (
    NAME_WIDTH,
    UNDEFINED,
    format_count,
    format_decimal,
    format_difference,
    format_interval,
    format_ms,
    format_points,
    format_rate,
    format_span,
    format_usd,
    listed,
    short_names,
)

_NAMED = 3  # guards whose calls without an answer the first screen counts
_NO_TARGETS = Targets("none", 1, {})
_COVERAGE = Column("coverage", lambda entry: entry.metric("coverage").value, format_rate)


def leaderboard(data: ReportData, reasons: Mapping[str, str]) -> Section:
    """Return the ranking; of models without a score it names the reason, foreign text."""

    def model(entry: RankedModel) -> TableCell:
        words = [reasons[entry.model]] if entry.model in reasons else []
        if entry.simulated:
            words.insert(0, "simulated")
        return TableCell(entry.model, ", ".join(words))

    columns = [
        Column("#", attrgetter("place")),
        Column("model", model),
        *(_rate(metric_title(name), name, targets=data.targets) for name in _metrics(data.targets)),
        Column("stderr", _stderr_cell, detail="clustered"),
        _COVERAGE,
        Column("cost/1,000", attrgetter("price_per_1000_usd"), format_usd),
        Column("p50", _latency_cell, detail="p90"),
    ]
    named = target_words(data.targets) or UNDEFINED
    return tabulate("Leaderboard", data.ranked, columns, note=f"Targets: {named} (%).", keys=2)


MARKS = "PASS (✓): the interval is at or above the target. FAIL (✗): below. UNDECIDED (?): across."


def brief_leaderboard(data: ReportData, about: str) -> Section:
    """Return the ranking of the models that have a score, a line for each, and what it is about."""
    columns = [
        Column("#", attrgetter("place")),
        MODEL,
        *(_on_one_line(name, data.targets) for name in _metrics(data.targets)),
        Column("$/1,000", attrgetter("price_per_1000_usd"), format_usd),
        Column("p50", attrgetter("p50_ms"), format_ms),
    ]
    scored = [entry for entry in data.ranked if entry.has_score]
    note = f"{about} {MARKS} =: tied."
    if any(entry.simulated for entry in scored):
        note += f" {SIMULATED}: simulated."
    note += _times_left_out(scored)
    return tabulate("Leaderboard", scored, columns, note=note, keys=2)


def timed_calls(entry: RankedModel) -> str:
    """Say of how many calls a guard's latency is; empty where of all, or where it has none."""
    untimed, done = entry.counts.get("untimed"), entry.counts.get("done")
    if not untimed or done is None or entry.p50_ms is None:
        return ""
    return f"{format_count(done - untimed)} of {counted(done, 'call')}"


def _times_left_out(entries: Sequence[RankedModel]) -> str:
    """Say beside the p50 of a leaderboard whose calls it leaves out."""
    left_out = [entry for entry in entries if timed_calls(entry)]
    if not left_out:
        return ""
    if len(left_out) > _NAMED:
        guards = f"{len(left_out)} guards"
        return f" p50 of {guards} leaves out calls that had no answer: see `--sections latency`."
    names = short_names([entry.model for entry in entries], NAME_WIDTH)
    parts = [f"{timed_calls(entry)} of {names[entry.model]}" for entry in left_out]
    return f" p50 leaves out calls without an answer: it is of {listed(parts)}."


def _on_one_line(name: str, targets: Targets) -> Column:
    """Return the column of a metric, of the score with its interval."""
    of_score = name == Metric.SCORE

    def read(entry: RankedModel) -> TableCell:
        seen = entry.metric(name)
        shown = with_interval(seen) if of_score else format_rate(seen.value)
        return TableCell(shown, "", entry.judgements(targets).get(name, ""), seen.value)

    return Column(metric_title(name), read, detail=INTERVAL if of_score else "")


def _metrics(targets: Targets) -> tuple[str, ...]:
    return *HEADLINES, *sorted(targets.least.keys() - HEADLINES.keys())


def target_words(targets: Targets) -> str:
    """Name the metrics that have a target with their least values, in per cent."""
    named = [name for name in _metrics(targets) if name in targets.least]
    return ", ".join(f"{metric_title(name)} ≥ {format_rate(targets.least[name])}" for name in named)


def _stderr_cell(entry: RankedModel) -> TableCell:
    score = entry.score
    if score.stderr_clustered is not None:
        return number_cell(score.stderr_clustered, format_points)
    return number_cell(score.stderr, format_points, "" if score.stderr is None else "plain")


def _latency_cell(entry: RankedModel) -> TableCell:
    p90 = entry.latency("service", "p90")
    return number_cell(entry.p50_ms, format_ms, "" if p90 is None else format_ms(p90))


def standard_errors(data: ReportData) -> Section:
    """Return the standard errors of the headline metrics, plain and clustered."""

    def both(metric: str, entry: RankedModel) -> TableCell:
        found = entry.metric(metric)
        return number_cell(found.stderr, format_points, format_points(found.stderr_clustered))

    titles = {**HEADLINES, Metric.DETECTION_RATE_MACRO: "DR macro"}
    columns = [MODEL]
    for metric, title in titles.items():
        columns.append(Column(title, partial(both, metric), detail="clustered"))
    note = (
        "Percentage points. Above: samples taken as independent, `stderr` in JSON and CSV. Below:"
        " clustered by binary, `stderr_clustered`."
    )
    return tabulate("Standard errors", data.ranked, columns, note=note)


def bounds(data: ReportData) -> Section:
    """Return worst and best case of the incompletely scored models."""

    def ends(name: str, entry: RankedModel) -> TableCell:
        worst, best = (entry.metric(f"{name}_{end}").value for end in ("worst", "best"))
        return TableCell(format_interval(worst, best), value=worst)

    columns = [MODEL]
    for count in ("planned", "done", "scored"):
        columns.append(named_column("counts", count, count, format_count))
    columns.append(_COVERAGE)
    columns += [Column(title, partial(ends, name)) for name, title in SCORE_AND_RATES.items()]
    return tabulate(
        "Bounds of incomplete coverage",
        [entry for entry in data.ranked if (entry.metric("coverage").value or 0) < 1],
        columns,
        note="[worst, best]: the rate if everything unscored had been wrong, or right.",
    )


def categories(data: ReportData) -> Section:
    """Return detection rates by category."""
    entries = data.ranked
    names = category_names(entries)
    columns = [
        MODEL,
        _rate("micro", "malicious_detection_rate"),
        _rate("macro", "malicious_detection_rate_macro"),
        *(_category(name, entries) for name in names),
    ]
    note = "% of malicious commands detected; n is the number of scored samples."
    return tabulate("Detection by category", entries if names else (), columns, note=note)


def _category(name: str, entries: Sequence[RankedModel]) -> Column:
    """Return a category's column; its heading has n, from the least to the most of any model."""
    sizes = [entry.category(name).n for entry in entries]
    shown = "n " + format_span([size for size in sizes if size], "\N{EN DASH}")
    return Column(name, lambda entry: entry.category(name).value, format_rate, shown)


def category_intervals(data: ReportData) -> Section:
    """Return detection rates by category with their intervals."""
    rows: list[Row] = []
    for name, entry in product(category_names(data.ranked), data.ranked):
        rate = entry.category(name)
        rows.append((name, marked(entry), number_cell(rate.n, format_count), estimate_cell(rate)))
    return Section.of(
        "Intervals of detection by category",
        ("category", "model", "n", TableCell("DR", INTERVAL)),
        rows,
        note="% of malicious commands of a category that are detected; n scored samples of it.",
        keys=2,
    )


def answers(data: ReportData) -> Section:
    """Return what the models said about either kind of command."""

    def verdicts(target: TrueLabel, label: ScoredAnswer, entry: RankedModel) -> float | None:
        return entry.actions.get(target, {}).get(label)

    # Of either kind of command the right answer stands first.
    labels = (ScoredAnswer.BLOCK, ScoredAnswer.WARN, ScoredAnswer.ALLOW)
    kinds = [(TrueLabel.MALICIOUS, label) for label in labels]
    kinds += [(TrueLabel.HARMLESS, label) for label in reversed(labels)]
    columns = [MODEL]
    for target, label in kinds:
        columns.append(Column(f"{target} {label}", partial(verdicts, target, label), format_count))
    columns.append(_rate("FPR", "false_positive_rate"))
    note = (
        "Verdicts by command and answer. FPR: false positive rate, % of scored harmless commands "
        "answered with what counts as detection, BLOCK under most rules. An error is no false "
        "positive, so FPR can be less than 100 - HA, which the aegish benchmark gives as FPR."
    )
    return tabulate("Answers", data.ranked, columns, note=note)


def _rate(
    title: str,
    name: str,
    write: Callable[[float | None], str] = format_rate,
    targets: Targets = _NO_TARGETS,
) -> Column:
    """Return the column of a metric with its interval, and whether it reaches its target."""

    def read(entry: RankedModel) -> TableCell:
        return estimate_cell(entry.metric(name), write, entry.judgements(targets).get(name, ""))

    return Column(title, read, detail=INTERVAL)


def calibration(data: ReportData) -> Section:
    """Return calibration and, with repeats, flip rates."""
    entries = data.ranked
    columns = [
        MODEL,
        Column("confidences", lambda entry: entry.metric("brier").n, format_count),
        _rate("Brier", "brier", format_decimal),
        _rate("ECE", "ece", format_decimal),
    ]
    title, note = "Calibration", "Stated confidence against correctness, 0 is best."
    if data.run.epochs > 1:
        title += " and repeatability"
        columns.append(_rate("flip rate", "flip_rate"))
        note += " Flip rate: % of samples whose repeats brought different actions."
    elif all(entry.metric("brier").value is None for entry in entries):
        entries = []
    return tabulate(title, entries, columns, note=note)


ARROW = "\N{RIGHTWARDS ARROW}"


def overlay_section(effect: Sequence[JsonObject]) -> Section:
    """Return each model's headline metrics without the overlay and under it."""
    detail = f"without {ARROW} with"
    headings = [TableCell(title, detail) for title in ("#", *HEADLINES.values())]
    rows: list[Row] = []
    for model in effect:
        ranks = [model["rank"][side] for side in ("without", "with")]
        places = [UNDEFINED if rank is None else format_count(rank) for rank in ranks]
        # A place that stays is written once.
        place = f" {ARROW} ".join(dict.fromkeys(places))
        metrics = model["metrics"]
        cells = [_moved_cell(metrics.get(name, moved(None, None))) for name in HEADLINES]
        rows.append((model["model"], place, *cells))
    return Section.of(
        "Effect of the overlay",
        ("model", *headings),
        rows,
        note="Difference in percentage points that the corrected labels make, same verdicts.",
    )


def _moved_cell(number: JsonObject) -> TableCell:
    difference = number["difference"]
    points = format_points(difference)
    if difference is not None and difference > 0:
        points = f"+{points}"
    without, under = format_rate(number["without"]), format_rate(number["with"])
    return TableCell(points, f"{without} {ARROW} {under}", value=difference)


def repeats(data: ReportData) -> Section:
    """Return what the epochs of each model tell; nothing where there is one."""

    def variance(target: TrueLabel, part: str, entry: RankedModel) -> float | None:
        rates = entry.repeats.rates if entry.repeats else {}
        return rates.get(target, {}).get(part)

    columns = [MODEL, _rate("flips", "flip_rate")]
    for target, short in ((TrueLabel.MALICIOUS, "DR"), (TrueLabel.HARMLESS, "HA")):
        for part in ("between", "within"):
            read = partial(variance, target, part)
            columns.append(Column(f"{short} {part}", read, format_decimal))
    stderrs = {
        "stderr": "stderr now",
        "stderr_one_more": "one more epoch",
        "stderr_least": "at best",
    }
    for name, title in stderrs.items():
        columns.append(Column(title, attrgetter(f"repeats.{name}"), format_points))
    note = (
        "Flips: % of commands with different actions in different epochs. Variance of being right,"
        " between commands and within them (from epoch to epoch). Clustered stderr of the score in"
        " points: as it is, with one more epoch, and with any number of them."
    )
    known = [entry for entry in data.ranked if entry.repeats]
    return tabulate("Repeats", known, columns, note=note)


def reliability(data: ReportData) -> Section:
    """Return accuracy by bin of stated confidence."""
    rows: list[Row] = []
    for entry in data.ranked:
        for each in entry.bins:
            interval = format_interval(each.ci_low, each.ci_high)
            beyond = (each.accuracy or 0) - (each.confidence or 0)
            rows.append(
                (
                    TableCell(f"{100 * each.low:.0f} to {100 * each.high:.0f}", value=each.low),
                    marked(entry),
                    number_cell(each.n, format_count),
                    number_cell(each.confidence, format_rate),
                    number_cell(each.accuracy, format_rate, interval),
                    number_cell(beyond, format_difference),
                )
            )
    return Section.of(
        "Reliability of stated confidence",
        (
            "confidence",
            "model",
            "verdicts",
            TableCell("stated", "mean"),
            TableCell("right", INTERVAL),
            "right - stated",
        ),
        rows,
        note=(
            "Of the verdicts whose stated confidence lies in a bin, the share that is right, in %,"
            " beside the mean confidence: right far below stated is overconfident."
        ),
        keys=2,
    )


def more_commands(
    needed: int | None,
    asked: int,
    kind: str,
    aim: str,
) -> str:
    """Say how many commands would show whether something is so; None: no number would."""
    most = most_in_reach(asked)
    if needed and needed <= most:
        more = float(f"{max(needed - asked, 1):.2g}")
        if more == 1:
            kind = kind.removesuffix("s")
        return f"About {more:,.0f} more {kind} would show whether {aim}."
    return f"Too close to settle whether {aim}: it would take over {most:,} {kind}."


def gated_in_words(each: Gated, overlap: Overlap | None = None) -> str:
    """Say which model reaches or misses which threshold, and by what; foreign text."""
    if overlap and not may_be_judged(overlap, each.metric):
        return f"undecided: {each.model}: {each.metric}: {fitted_in_words(overlap)}"
    about, estimate = f"{each.model}: {each.metric}", each.estimate
    if estimate.value is None:
        return f"undecided: {about} is undefined"
    number = f"{about} {with_interval(estimate, format_decimal)}"
    if each.judgement is Judgement.FAIL:
        return f"below: {number} is below {each.least:g}"
    if each.judgement is Judgement.PASS:
        return f"met: {number} is at least {each.least:g}"
    return f"undecided: {number} holds {each.least:g}"
