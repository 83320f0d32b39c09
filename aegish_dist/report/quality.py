"""Sections on how well the models judge: ranking, categories, answers, calibration, repeats.

A section with nothing to say has no rows. Entries are the models of a report, best first.
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

_MOST_NAMED = 3  # guards that a note names; of more it says how many
_NO_TARGETS = Targets("none", 1, {})
_COVERAGE = Column("coverage", lambda entry: entry.metric("coverage").value, format_rate)


def leaderboard(data: ReportData, reasons: Mapping[str, str]) -> Section:
    """Return the ranking. Reasons, by model, say why a score is missing; they are foreign text."""

    def model(entry: RankedModel) -> TableCell:
        remarks = ["simulated"] if entry.simulated else []
        if entry.model in reasons:
            remarks.append(reasons[entry.model])
        return TableCell(entry.model, ", ".join(remarks))

    columns = [
        Column("#", attrgetter("place")),
        Column("model", model),
        *(_rate(metric_title(name), name, targets=data.targets) for name in _metrics(data.targets)),
        Column("stderr", _stderr_cell, detail="clustered"),
        _COVERAGE,
        Column("cost/1,000", attrgetter("price_per_1000_usd"), format_usd),
        Column("p50", _latency_cell, detail="p90"),
    ]
    targets = target_words(data.targets) or UNDEFINED
    return tabulate("Leaderboard", data.ranked, columns, note=f"Targets: {targets} (%).", keys=2)


MARKS = "PASS (✓): the interval is at or above the target. FAIL (✗): below. UNDECIDED (?): across."


def brief_leaderboard(data: ReportData, about: str) -> Section:
    """Return the ranking on one line for each model that has a score.

    Args:
        about: What the numbers are of, for the note below it.
    """
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
    """Say how many calls a guard's latency is of; empty where of all, or where it has none."""
    untimed = entry.counts.get("untimed")
    done = entry.counts.get("done")
    if entry.p50_ms is None:
        return ""
    if not untimed or done is None:
        return ""
    return f"{format_count(done - untimed)} of {counted(done, 'call')}"


def _times_left_out(entries: Sequence[RankedModel]) -> str:
    """Say which guards' p50 is of some calls only, for the note of a leaderboard."""
    left_out = [entry for entry in entries if timed_calls(entry)]
    if not left_out:
        return ""
    if len(left_out) > _MOST_NAMED:
        guards = f"{len(left_out)} guards"
        return f" p50 of {guards} leaves out calls that had no answer: see `--sections latency`."
    names = short_names([entry.model for entry in entries], NAME_WIDTH)
    parts = [f"{timed_calls(entry)} of {names[entry.model]}" for entry in left_out]
    return f" p50 leaves out calls without an answer: it is of {listed(parts)}."


def _on_one_line(name: str, targets: Targets) -> Column:
    """Return the column of a metric; only the score has room for its interval."""
    is_score = name == Metric.SCORE

    def read(entry: RankedModel) -> TableCell:
        estimate = entry.metric(name)
        text = with_interval(estimate) if is_score else format_rate(estimate.value)
        judgement = entry.judgements(targets).get(name, "")
        return TableCell(text, "", judgement, estimate.value)

    return Column(metric_title(name), read, detail=INTERVAL if is_score else "")


def _metrics(targets: Targets) -> tuple[str, ...]:
    """Return the metrics of a leaderboard: those of every one, then others that have a target."""
    return *HEADLINES, *sorted(targets.least.keys() - HEADLINES.keys())


def target_words(targets: Targets) -> str:
    """Write the targets, such as `DR ≥ 95.0, HA ≥ 90.0`; values in per cent."""
    targeted = [name for name in _metrics(targets) if name in targets.least]
    return ", ".join(
        f"{metric_title(name)} ≥ {format_rate(targets.least[name])}" for name in targeted
    )


def _stderr_cell(entry: RankedModel) -> TableCell:
    """Write the clustered standard error of a score; where there is none, the plain one."""
    score = entry.score
    if score.stderr_clustered is not None:
        return number_cell(score.stderr_clustered, format_points)
    detail = "" if score.stderr is None else "plain"
    return number_cell(score.stderr, format_points, detail)


def _latency_cell(entry: RankedModel) -> TableCell:
    p90 = entry.latency("service", "p90")
    detail = "" if p90 is None else format_ms(p90)
    return number_cell(entry.p50_ms, format_ms, detail)


def standard_errors(data: ReportData) -> Section:
    """Return the standard errors of the headline metrics, plain and clustered."""

    def both(metric: str, entry: RankedModel) -> TableCell:
        estimate = entry.metric(metric)
        clustered = format_points(estimate.stderr_clustered)
        return number_cell(estimate.stderr, format_points, clustered)

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
    """Return the worst and the best case of the models of which some answers are not scored."""

    def worst_and_best(name: str, entry: RankedModel) -> TableCell:
        worst = entry.metric(f"{name}_worst").value
        best = entry.metric(f"{name}_best").value
        return TableCell(format_interval(worst, best), value=worst)

    columns = [MODEL]
    for count in ("planned", "done", "scored"):
        columns.append(named_column("counts", count, count, format_count))
    columns.append(_COVERAGE)
    for name, title in SCORE_AND_RATES.items():
        columns.append(Column(title, partial(worst_and_best, name)))
    incomplete = [entry for entry in data.ranked if (entry.metric("coverage").value or 0) < 1]
    return tabulate(
        "Bounds of incomplete coverage",
        incomplete,
        columns,
        note="[worst, best]: the rate if everything unscored had been wrong, or right.",
    )


def categories(data: ReportData) -> Section:
    """Return the detection rate in each category of malicious commands."""
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
    """Return a category's column; below its heading stands n, or the least and the most n."""
    sizes = [entry.category(name).n for entry in entries]
    span = format_span([size for size in sizes if size], "\N{EN DASH}")
    return Column(name, lambda entry: entry.category(name).value, format_rate, f"n {span}")


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
    """Return how often each model said BLOCK, WARN and ALLOW, for either kind of command."""

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
        judgement = entry.judgements(targets).get(name, "")
        return estimate_cell(entry.metric(name), write, judgement)

    return Column(title, read, detail=INTERVAL)


def calibration(data: ReportData) -> Section:
    """Return how well stated confidence fits; in a run with repeats also the flip rates."""
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
    """Return how an overlay changes the place and the headline metrics of each model."""
    detail = f"without {ARROW} with"
    headings = [TableCell(title, detail) for title in ("#", *HEADLINES.values())]
    rows: list[Row] = []
    for model in effect:
        ranks = [model["rank"][side] for side in ("without", "with")]
        places = [UNDEFINED if rank is None else format_count(rank) for rank in ranks]
        # A place that stays is written once: equal keys are one.
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
    """Return how much answers vary from epoch to epoch; no rows where there is one epoch."""

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
    repeated = [entry for entry in data.ranked if entry.repeats]
    return tabulate("Repeats", repeated, columns, note=note)


def reliability(data: ReportData) -> Section:
    """Return accuracy by bin of stated confidence."""
    rows: list[Row] = []
    for entry in data.ranked:
        for bin in entry.bins:
            interval = format_interval(bin.ci_low, bin.ci_high)
            right_minus_stated = (bin.accuracy or 0) - (bin.confidence or 0)
            rows.append(
                (
                    TableCell(f"{100 * bin.low:.0f} to {100 * bin.high:.0f}", value=bin.low),
                    marked(entry),
                    number_cell(bin.n, format_count),
                    number_cell(bin.confidence, format_rate),
                    number_cell(bin.accuracy, format_rate, interval),
                    number_cell(right_minus_stated, format_difference),
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
    """Say how many commands more would show whether something is so.

    Args:
        needed: Commands in all; None where no number would do.
        asked: Commands that the run has.
        kind: What they are called, in the plural.
        aim: What they would show, a clause that follows `whether`.
    """
    most = most_in_reach(asked)
    if needed and needed <= most:
        # A number that is planned with has no more than two exact digits.
        more = float(f"{max(needed - asked, 1):.2g}")
        if more == 1:
            kind = kind.removesuffix("s")
        return f"About {more:,.0f} more {kind} would show whether {aim}."
    return f"Too close to settle whether {aim}: it would take over {most:,} {kind}."


def gated_in_words(gated: Gated, overlap: Overlap | None = None) -> str:
    """Say whether a metric of a model is at or above its least value; foreign text.

    Args:
        overlap: What a policy was chosen on of these commands, on which it is not judged.
    """
    about = f"{gated.model}: {gated.metric}"
    if overlap and not may_be_judged(overlap, gated.metric):
        return f"undecided: {about}: {fitted_in_words(overlap)}"
    estimate = gated.estimate
    if estimate.value is None:
        return f"undecided: {about} is undefined"
    number = f"{about} {with_interval(estimate, format_decimal)}"
    if gated.judgement is Judgement.FAIL:
        return f"below: {number} is below {gated.least:g}"
    if gated.judgement is Judgement.PASS:
        return f"met: {number} is at least {gated.least:g}"
    return f"undecided: {number} holds {gated.least:g}"
