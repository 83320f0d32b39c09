"""Sections on how well the models judge: ranking, categories, answers, calibration, repeats."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aegish_dist.core.opinion import ModelEffect, Moved, Targets
from aegish_dist.core.outcome import ScoredAnswer
from aegish_dist.core.sample import TrueLabel
from aegish_dist.report.layout import (
    HEADLINES,
    MODEL,
    Column,
    RankedModel,
    Section,
    TableCell,
    category_names,
    marked,
    number_cell,
    rate_cell,
    tabulate,
)
from aegish_dist.report.numbers import (
    UNDEFINED,
    format_count,
    format_decimal,
    format_difference,
    format_interval,
    format_ms,
    format_points,
    format_rate,
    format_usd,
)
from aegish_dist.statistics.calibration import ReliabilityBin
from aegish_dist.statistics.gate import Missed, Shortfall
from aegish_dist.statistics.rates import Estimate

INTERVAL = "[95% CI]"


def leaderboard(
    entries: Sequence[RankedModel], targets: Targets, reasons: Mapping[str, str]
) -> Section:
    """Return the ranking with everything a choice of model needs.

    Args:
        entries: The models, best first.
        reasons: By model without a score, why it has none; foreign text.
    """
    more = sorted(targets.least.keys() - HEADLINES.keys())
    least = ", ".join(
        f"{_title(name)} ≥ {format_rate(targets.least[name])}"
        for name in (*HEADLINES, *more)
        if name in targets.least
    )
    columns = [
        Column("#", lambda entry: entry.place),
        Column("model", lambda entry: _model_cell(entry, reasons)),
        *(_headline(name, targets) for name in (*HEADLINES, *more)),
        Column("stderr", lambda entry: _stderr_cell(entry.metric("aegish_score"))),
        Column("coverage", lambda entry: number_cell(entry.metric("coverage").value, format_rate)),
        Column("cost/1,000", lambda entry: number_cell(entry.cost("per_1000_usd"), format_usd)),
        Column("p50", _latency_cell, detail="p90"),
    ]
    note = f"Targets: {least or UNDEFINED} (%)."
    return tabulate("Leaderboard", entries, columns, note=note, keys=2)


def bounds(entries: Sequence[RankedModel]) -> Section | None:
    """Return worst and best case of the incompletely scored models; None without any."""
    partial = [entry for entry in entries if (entry.metric("coverage").value or 0) < 1]
    if not partial:
        return None
    columns = [
        MODEL,
        *(_count(name) for name in ("planned", "done", "scored")),
        Column("coverage", lambda entry: number_cell(entry.metric("coverage").value, format_rate)),
        *(_bounds(name) for name in HEADLINES),
    ]
    note = "[worst, best]: the rate if everything unscored had been wrong, or right."
    return tabulate("Bounds of incomplete coverage", partial, columns, note=note)


def categories(entries: Sequence[RankedModel]) -> Section | None:
    """Return detection rates by category; None when the run has no category."""
    names = category_names(entries)
    if not names:
        return None
    columns = [
        MODEL,
        _rate("micro", "malicious_detection_rate"),
        _rate("macro", "malicious_detection_rate_macro"),
        *(_category(name, entries) for name in names),
    ]
    note = "% of malicious commands detected; n is the number of scored samples."
    return tabulate("Detection by category", entries, columns, note=note)


def category_intervals(entries: Sequence[RankedModel]) -> Section | None:
    """Return detection rates by category with their intervals; None without any category."""
    names = category_names(entries)
    if not names:
        return None
    return Section(
        title="Intervals of detection by category",
        columns=(*map(TableCell, ("category", "model", "n")), TableCell("DR", INTERVAL)),
        rows=tuple(
            (
                TableCell(name),
                TableCell(marked(entry)),
                number_cell(entry.category(name).n, format_count),
                rate_cell(entry.category(name)),
            )
            for name in names
            for entry in entries
        ),
        note="% of malicious commands of a category that are detected; n scored samples of it.",
        keys=2,
    )


def answers(entries: Sequence[RankedModel]) -> Section:
    """Return what the models said about either kind of command."""
    columns = [
        MODEL,
        *(
            _action(TrueLabel.MALICIOUS, label)
            for label in (ScoredAnswer.BLOCK, ScoredAnswer.WARN, ScoredAnswer.ALLOW)
        ),
        *(
            _action(TrueLabel.HARMLESS, label)
            for label in (ScoredAnswer.ALLOW, ScoredAnswer.WARN, ScoredAnswer.BLOCK)
        ),
        _rate("FPR", "false_positive_rate"),
    ]
    note = (
        "Verdicts by command and answer. FPR: false positive rate, % of scored harmless commands "
        "answered with what counts as detection, BLOCK under most rules. An error is no false "
        "positive, so FPR can be less than 100 - HA, which the aegish benchmark gives as FPR."
    )
    return tabulate("Answers", entries, columns, note=note)


def calibration(entries: Sequence[RankedModel], epochs: int) -> Section | None:
    """Return calibration and, with repeats, flip rates; None when there is neither."""
    stated = any(entry.metric("brier").value is not None for entry in entries)
    if not stated and epochs < 2:
        return None
    columns = [
        MODEL,
        Column("confidences", lambda entry: number_cell(entry.metric("brier").n, format_count)),
        _decimal("Brier", "brier"),
        _decimal("ECE", "ece"),
    ]
    note = "Stated confidence against correctness, 0 is best."
    if epochs < 2:
        return tabulate("Calibration", entries, columns, note=note)
    columns.append(_rate("flip rate", "flip_rate"))
    note += " Flip rate: % of samples whose repeats brought different actions."
    return tabulate("Calibration and repeatability", entries, columns, note=note)


def _title(name: str) -> str:
    return HEADLINES.get(name, name.replace("_", " "))


def _headline(name: str, targets: Targets) -> Column:
    def read(entry: RankedModel) -> TableCell:
        estimate = entry.metric(name)
        return rate_cell(estimate, targets.reached(name, estimate.value))

    return Column(_title(name), read, detail=INTERVAL)


def _rate(title: str, name: str) -> Column:
    return Column(title, lambda entry: rate_cell(entry.metric(name)), detail=INTERVAL)


def _count(name: str) -> Column:
    return Column(name, lambda entry: number_cell(entry.count(name), format_count))


def _action(target: TrueLabel, label: ScoredAnswer) -> Column:
    return Column(
        f"{target.value} {label.value}",
        lambda entry: number_cell(entry.action(target, label), format_count),
    )


def _bounds(name: str) -> Column:
    def read(entry: RankedModel) -> TableCell:
        worst, best = (entry.metric(f"{name}_{end}").value for end in ("worst", "best"))
        return TableCell(format_interval(worst, best), value=worst)

    return Column(HEADLINES[name], read)


def _category(name: str, entries: Sequence[RankedModel]) -> Column:
    """Return a category's column; n goes into the heading when it is the same for every model."""
    sizes = {entry.category(name).n for entry in entries}
    if len(sizes) == 1:
        shared = f"n {format_count(sizes.pop())}"
        return Column(
            name, lambda entry: number_cell(entry.category(name).value, format_rate), detail=shared
        )

    def read(entry: RankedModel) -> TableCell:
        estimate = entry.category(name)
        return number_cell(estimate.value, format_rate, f"n {format_count(estimate.n)}")

    return Column(name, read)


def _decimal(title: str, name: str) -> Column:
    def read(entry: RankedModel) -> TableCell:
        estimate = entry.metric(name)
        interval = f"[{format_decimal(estimate.ci_low)}, {format_decimal(estimate.ci_high)}]"
        detail = "" if estimate.ci_low is None else interval
        return number_cell(estimate.value, format_decimal, detail)

    return Column(title, read, detail=INTERVAL)


def _model_cell(entry: RankedModel, reasons: Mapping[str, str]) -> TableCell:
    known = ("simulated" if entry.simulated else "", reasons.get(entry.model, ""))
    return TableCell(entry.model, ", ".join(filter(None, known)))


def _stderr_cell(score: Estimate) -> TableCell:
    if score.stderr_clustered is not None:
        return number_cell(score.stderr_clustered, format_points)
    return number_cell(score.stderr, format_points, "" if score.stderr is None else "plain")


def _latency_cell(entry: RankedModel) -> TableCell:
    p90 = entry.latency("service", "p90")
    detail = "" if p90 is None else format_ms(p90)
    return number_cell(entry.latency("service", "p50"), format_ms, detail)


ARROW = "\N{RIGHTWARDS ARROW}"


def overlay_section(effect: Sequence[ModelEffect]) -> Section | None:
    """Return each model's headline metrics without the overlay and under it; None without one."""
    if not effect:
        return None
    titles = ("model", "#", *HEADLINES.values())
    detail = f"without {ARROW} with"
    return Section(
        title="Effect of the overlay",
        columns=tuple(TableCell(title, "" if title == "model" else detail) for title in titles),
        rows=tuple(
            (
                TableCell(each.model),
                TableCell(_places(each.rank)),
                *(_cell(each.metrics.get(name, Moved(None, None))) for name in HEADLINES),
            )
            for each in effect
        ),
        note="Difference in percentage points that the corrected labels make, same verdicts.",
    )


def _cell(moved: Moved) -> TableCell:
    difference = moved.difference
    sign = "+" if difference is not None and difference > 0 else ""
    detail = f"{format_rate(moved.without)} {ARROW} {format_rate(moved.under)}"
    return TableCell(f"{sign}{format_points(difference)}", detail, value=difference)


def _places(rank: Moved) -> str:
    places = [UNDEFINED if n is None else format_count(int(n)) for n in (rank.without, rank.under)]
    return f" {ARROW} ".join(dict.fromkeys(places))


_NOTE = (
    "Flips: % of commands with different actions in different epochs. Variance of being right,"
    " between commands and within them (from epoch to epoch). Clustered stderr of the score in"
    " points: as it is, with one more epoch, and with any number of them."
)
_PARTS = ("between", "within")
_RATES = ((TrueLabel.MALICIOUS, "DR"), (TrueLabel.HARMLESS, "HA"))


def repeats(entries: Sequence[RankedModel]) -> Section | None:
    """Return what the epochs of each model tell; None where there is one."""
    known = [entry for entry in entries if entry.part("repeats")]
    if not known:
        return None
    columns = [
        MODEL,
        Column("flips", lambda entry: rate_cell(entry.metric("flip_rate")), detail="[95% CI]"),
        *(_variance(target, short, part) for target, short in _RATES for part in _PARTS),
        _stderr("stderr", "stderr now"),
        _stderr("stderr_one_more", "one more epoch"),
        _stderr("stderr_least", "at best"),
    ]
    return tabulate("Repeats", known, columns, note=_NOTE)


def _variance(target: TrueLabel, short: str, part: str) -> Column:
    def read(entry: RankedModel) -> TableCell:
        rates: Mapping[str, Any] = entry.part("repeats").get("rates") or {}
        return number_cell((rates.get(target.value) or {}).get(part), format_decimal)

    return Column(f"{short} {part}", read)


def _stderr(name: str, title: str) -> Column:
    return Column(title, lambda entry: number_cell(entry.part("repeats").get(name), format_points))


_NOTE_RELIABILITY = (
    "Of the verdicts whose stated confidence lies in a bin, the share that is right, in %, beside"
    " the mean confidence: right far below stated is overconfident."
)


def reliability(entries: Sequence[RankedModel]) -> Section | None:
    """Return accuracy by bin of stated confidence; None where no model states any."""
    rows = tuple(row for entry in entries for row in _rows(entry))
    if not rows:
        return None
    return Section(
        title="Reliability of stated confidence",
        columns=(
            TableCell("confidence"),
            TableCell("model"),
            TableCell("verdicts"),
            TableCell("stated", "mean"),
            TableCell("right", "[95% CI]"),
            TableCell("right - stated"),
        ),
        rows=rows,
        note=_NOTE_RELIABILITY,
        keys=2,
    )


def _rows(entry: RankedModel) -> Iterator[tuple[TableCell, ...]]:
    for each in entry.reliability:
        if each.accuracy is not None and each.confidence is not None:
            yield (
                TableCell(_range(each), value=each.low),
                TableCell(marked(entry)),
                number_cell(each.n, format_count),
                number_cell(each.confidence, format_rate),
                number_cell(each.accuracy, format_rate, format_interval(each.ci_low, each.ci_high)),
                number_cell(each.accuracy - each.confidence, format_difference),
            )


def _range(each: ReliabilityBin) -> str:
    return f"{100 * each.low:.0f} to {100 * each.high:.0f}"


def shortfall_in_words(each: Missed) -> str:
    """Say which model misses which threshold, and by what; foreign text."""
    about = f"{each.model}: {each.metric}"
    estimate = each.estimate
    if estimate.value is None:
        return f"undecided: {about} is undefined"
    interval = f"[{format_decimal(estimate.ci_low)}, {format_decimal(estimate.ci_high)}]"
    known = f" {interval}" if estimate.ci_low is not None else ""
    number = f"{about} {format_decimal(estimate.value)}{known}"
    if each.shortfall is Shortfall.BELOW:
        return f"below: {number} is below {each.least:g}"
    return f"undecided: {number} holds {each.least:g}"
