"""Guards as scores: what a threshold would make of each model, in words, tables and JSON."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from aegish_dist.core.opinion import Opinion
from aegish_dist.core.outcome import Outcome
from aegish_dist.core.run import Run
from aegish_dist.core.suspicion import Level, SuspicionRule
from aegish_dist.core.text import counted, printable_json
from aegish_dist.report.decision import NAME_WIDTH, listed
from aegish_dist.report.layout import INTERVAL, Cell, Fact, Report, Section, TableCell
from aegish_dist.report.names import short_names
from aegish_dist.report.numbers import UNDEFINED, format_interval, format_points, format_rate
from aegish_dist.report.quality import with_interval
from aegish_dist.report.table import draw_table
from aegish_dist.statistics.inference import LEVEL
from aegish_dist.statistics.paired_difference import Difference
from aegish_dist.statistics.rates import Estimate
from aegish_dist.statistics.roc import GuardDifference, OperatingPoint
from aegish_dist.statistics.thresholds import (
    Criterion,
    FittedGuard,
    PerTenThousand,
    harmless_needed,
    per_10000,
)


class CalibratedModel(Struct, frozen=True):
    """A model at any threshold; undefined numbers are None."""

    model: str
    score: Estimate
    """As it stands, of its own actions."""
    dangerous: int
    """Scored decisions, as `harmless`: samples in an epoch."""
    harmless: int
    unreadable: int
    """Those without an action."""
    distinct: int
    """Values of suspicion."""
    auroc: Estimate
    partial_fpr: float
    """Up to where the partial AUROC looks."""
    partial_auroc: Estimate
    average_precision: Estimate
    at_fpr: Sequence[OperatingPoint]
    """Empty where a label has no scored decision."""
    fitted: FittedGuard

    @property
    def merit(self) -> float:
        """By how much its fitted threshold is good, out of fold; -inf where nothing is fitted."""
        detected, stopped = self.fitted.detection_rate.value, self.fitted.false_positive_rate.value
        if detected is None or stopped is None:
            return -math.inf
        return self.fitted.criterion.miss * detected - self.fitted.criterion.stop * stopped


class CalibratedPair(Struct, frozen=True):
    """How two models differ, b minus a, on what both have scored."""

    a: str
    b: str
    score: Difference
    """As they stand."""
    auroc: GuardDifference
    fitted: Difference

    @property
    def contradicts(self) -> bool:
        """Whether score and AUROC differ in opposite directions, and both surely."""
        return _sign(self.score) * _sign(self.auroc) < 0


class CalibrationData(Struct, frozen=True):
    run: Run
    opinion: Opinion
    rule: SuspicionRule
    criterion: Criterion
    prevalence: float | None
    folds: int
    models: Sequence[CalibratedModel]
    """The best with its fitted threshold first; at the end those where nothing could be fitted."""
    pairs: Sequence[CalibratedPair]

    def in_use(self, model: CalibratedModel) -> PerTenThousand | None:
        """Return what to expect of a fitted guard; None where no prevalence was named."""
        if self.prevalence is None:
            return None
        fitted = model.fitted
        return per_10000(fitted.detection_rate, fitted.false_positive_rate, self.prevalence)

    def against(self, model: str) -> dict[str, CalibratedPair]:
        """Return by model the pairs that one is part of."""
        pairs = (pair for pair in self.pairs if model in (pair.a, pair.b))
        return {pair.b if pair.a == model else pair.a: pair for pair in pairs}


def _sign(found: Difference | GuardDifference) -> int:
    """Return on which side of zero the interval of a difference lies; 0: it holds zero."""
    if found.ci_low is None or found.ci_high is None:
        return 0
    return (found.ci_low > 0) - (found.ci_high < 0)


def threshold_in_words(rule: SuspicionRule, threshold: float) -> str:
    """Say what a caller has to do who stops what is at or above a threshold."""
    if math.isinf(threshold):
        return "block everything" if threshold < 0 else "block nothing"
    if rule.levels is None:
        return f"block from a suspicion of {threshold:.4g} on"
    parts = _parts_at(rule.levels, threshold, "with confidence {} {:.4g}", ("up to", "from"))
    if not parts:
        return "block nothing"
    wide = parts[0] == Outcome.BLOCK and len(parts) > 1  # else a plain BLOCK is not blocked
    return f"block {'' if wide else 'nothing but '}{_and(parts[1:] if wide else parts)}"


def _and(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def _in_short(rule: SuspicionRule, threshold: float | None) -> str:
    """Write what a threshold stops for a cell: `WARN, ALLOW ≤ 0.935`."""
    if threshold is None:
        return UNDEFINED
    if math.isinf(threshold):
        return "everything" if threshold < 0 else "nothing"
    if rule.levels is None:
        return f"≥ {threshold:.4g}"
    parts = _parts_at(rule.levels, threshold, "{} {:.4g}", ("≤", "≥"))
    return ", ".join(parts) or "nothing"


def _parts_at(
    levels: Mapping[Outcome, Level], threshold: float, limit: str, ends: tuple[str, str]
) -> list[str]:
    """Return what lies at or above a finite threshold: actions, some up to or from a confidence."""
    parts = []
    for action in (Outcome.BLOCK, Outcome.WARN, Outcome.ALLOW):
        level = levels[action]
        unsure, sure = (level.base + level.slope * c >= threshold for c in (0.0, 1.0))
        if unsure and sure:
            parts.append(action.value)
        elif unsure or sure:
            confidence = abs((threshold - level.base) / level.slope)  # in [0, 1]: never -0
            parts.append(f"{action.value} {limit.format(ends[sure], confidence)}")
    return parts


def build_scores(data: CalibrationData) -> Report:
    """Return what is best, with and without a threshold, and the tables that say so."""
    sections = [_thresholds(data), _roc(data)]
    if data.prevalence is not None:
        sections.append(_in_use(data))
    name = f" ({data.run.name})" if data.run.name else ""
    return Report(
        title=f"Thresholds for run {data.run.run_id}{name}",
        facts=tuple(_facts(data)),
        sections=tuple(sections),
        legend=tuple(_legend(data)),
    )


def _names(data: CalibrationData) -> dict[str, str]:
    return short_names([each.model for each in data.models], NAME_WIDTH)


def _facts(data: CalibrationData) -> Iterator[Fact]:
    names, known = _names(data), _of_both_labels(data)
    stand, area = (
        max(known, key=lambda each: read(each).value or 0) for read in (_score_of, _auroc_of)
    )
    several = len(known) > 1
    said = "has the best score" if several else "has a score"
    yield Fact("As it stands", f"{names[stand.model]} {said}: {with_interval(stand.score)}.")
    if known[0].fitted.problem is None:
        yield Fact("With a threshold", " ".join(_best(data, known[0], stand)))
    said = " best" if several else ""
    said = f"{names[area.model]} tells commands apart{said}: AUROC {with_interval(area.auroc)}."
    if stand is not area:
        above = sum((each.auroc.value or 0) > (stand.auroc.value or 0) for each in known)
        said += f" {names[stand.model]} is number {above + 1} with {with_interval(stand.auroc)}."
    yield Fact("At any threshold", said)
    yield from _contradictions(data, stand.model)
    if data.criterion.max_fpr < 1:
        yield Fact("Needed", _needed(data))
    problems = {each.fitted.problem for each in data.models} - {None}
    for problem in sorted(filter(None, problems)):
        models = [names[each.model] for each in data.models if each.fitted.problem == problem]
        yield Fact("Not fitted", f"{listed(models)}: {problem}.")


def _score_of(each: CalibratedModel) -> Estimate:
    return each.score


def _auroc_of(each: CalibratedModel) -> Estimate:
    return each.auroc


def _of_both_labels(data: CalibrationData) -> Sequence[CalibratedModel]:
    """Return the models that have scored commands of both labels."""
    return [each for each in data.models if each.auroc.value is not None]


def _best(data: CalibrationData, best: CalibratedModel, stand: CalibratedModel) -> Iterator[str]:
    """Say what the best guard with a threshold is, what it does in use, and who may be as good."""
    names, fitted = _names(data), best.fitted
    threshold = math.inf if fitted.threshold is None else fitted.threshold
    is_best = "would be best" if best is not stand else "is best, too" if data.pairs else "would do"
    yield (
        f"{names[best.model]} {is_best}, if its caller were to"
        f" {threshold_in_words(data.rule, threshold)}: score {with_interval(fitted.score)},"
        f" {format_rate(best.score.value)} as it stands; DR {with_interval(fitted.detection_rate)},"
        f" FPR {with_interval(fitted.false_positive_rate)}."
    )
    if found := data.in_use(best):
        yield (
            f"Of 10,000 actions it would stop {_actions(found.alarms)}, rightly"
            f" {format_rate(found.precision.value)} % of them, and miss {_actions(found.misses)}."
        )
    alike = [
        names[model]
        for model, pair in data.against(best.model).items()
        if pair.fitted.p_adjusted is not None and pair.fitted.p_adjusted >= LEVEL
    ]
    if alike:
        yield f"With their own thresholds, {listed(alike)} cannot be distinguished from it."


def _needed(data: CalibrationData) -> str:
    bound = data.criterion.max_fpr
    asked = max(each.harmless for each in data.models)
    return (
        f"To show a false positive rate of at most {100 * bound:g} % takes"
        f" {harmless_needed(bound):,} harmless commands without an error; {asked:,} verdicts about"
        " such are scored. The threshold keeps to it on the commands that it is fitted on."
    )


MOST_SENTENCES = 2


def _contradictions(data: CalibrationData, best: str) -> Iterator[Fact]:
    """Name pairs whose score and AUROC differ in opposite directions, the best model's first."""
    names = _names(data)
    found = [pair for pair in data.pairs if pair.contradicts]
    found.sort(key=lambda pair: (best not in (pair.a, pair.b), -abs(pair.auroc.difference or 0)))
    for pair in found[:MOST_SENTENCES]:
        sign = _sign(pair.score)
        more, less = (pair.b, pair.a) if sign > 0 else (pair.a, pair.b)
        yield Fact(
            "Opposite",
            f"The score of {names[more]} is above that of {names[less]} by"
            f" {_distance(pair.score, sign)} points, its AUROC below by"
            f" {_distance(pair.auroc, -sign)}: the scores show where both put their thresholds.",
        )
    if len(found) > MOST_SENTENCES:
        yield Fact("Opposite", f"{len(found) - MOST_SENTENCES} more in --json.")


def _distance(found: Difference | GuardDifference, sign: int) -> str:
    """Write a difference of b minus a (sign 1), or of a minus b (-1): `1.06 [0.21, 2.11]`."""

    def write(value: float | None) -> str:
        return format_points(value and sign * value)

    ends = (found.ci_low, found.ci_high) if sign > 0 else (found.ci_high, found.ci_low)
    return f"{write(found.difference)} {format_interval(*ends, write)}"


def _rows(
    data: CalibrationData, read: Callable[[CalibratedModel], tuple[Cell, ...]]
) -> Iterator[tuple[Cell, ...]]:
    return ((each.model, *read(each)) for each in _of_both_labels(data))


def _thresholds(data: CalibrationData) -> Section:
    columns = (
        *("model", TableCell("score", f"as it stands {INTERVAL}")),
        TableCell("score with it", f"out of fold {INTERVAL}"),
        *("DR", "FPR", TableCell("in sample", "score"), "block"),
    )
    return Section.of(
        "Best threshold of each model",
        columns,
        _rows(
            data,
            lambda each: (
                with_interval(each.score),
                with_interval(each.fitted.score),
                format_rate(each.fitted.detection_rate.value),
                format_rate(each.fitted.false_positive_rate.value),
                format_rate(each.fitted.in_sample_score),
                _in_short(data.rule, each.fitted.threshold),
            ),
        ),
        note=f"Criterion: {data.criterion.name}. Binaries are in {data.folds} folds: fitted on all"
        " but one, judged on that one, for each.",
    )


def _roc(data: CalibrationData) -> Section:
    bounds = next((each.at_fpr for each in data.models if each.at_fpr), ())
    columns = [TableCell(f"DR at {100 * each.max_fpr:g}%", INTERVAL) for each in bounds]
    return Section.of(
        "At any threshold",
        ("model", TableCell("AUROC", INTERVAL), *columns, "values"),
        _rows(
            data,
            lambda each: (
                with_interval(each.auroc),
                *(with_interval(point.detection_rate) for point in each.at_fpr),
                *[UNDEFINED] * (len(bounds) - len(each.at_fpr)),
                str(each.distinct),
            ),
        ),
        note="DR at a false positive rate of at most so much; values: distinct ones of suspicion.",
    )


def _in_use(data: CalibrationData) -> Section:
    def cells(each: CalibratedModel) -> tuple[Cell, ...]:
        found = data.in_use(each) or PerTenThousand()
        return _actions(found.alarms), _actions(found.misses), with_interval(found.precision)

    return Section.of(
        f"Per 10,000 actions, {data.prevalence:g} of them dangerous",
        ("model", *(TableCell(each, INTERVAL) for each in ("alarms", "misses", "precision, %"))),
        _rows(data, cells),
        note="With the thresholds above, out of fold. alarms: right and wrong ones.",
    )


def _actions(found: Estimate) -> str:
    def write(value: float | None) -> str:
        return UNDEFINED if value is None else f"{value:,.0f}" if value >= 99.5 else f"{value:.2g}"

    interval = format_interval(found.ci_low, found.ci_high, write)
    return UNDEFINED if found.value is None else f"{write(found.value)} {interval}"


def _legend(data: CalibrationData) -> Iterator[str]:
    rule, opinion = data.rule, data.opinion.rule
    yield (
        f"Rates in %, as judged by {opinion.name} v{opinion.version}; suspicion by {rule.name}"
        f" v{rule.version}. DR: malicious detection rate. FPR: false positive rate."
    )
    if rule.levels is not None:
        unreadable = sum(each.unreadable for each in _of_both_labels(data))
        without = counted(unreadable, "scored verdict")
        counts = f" {without} without an action (such as timeouts): {rule.unreadable}."
        yield f"Confidence where none is stated: {rule.unstated:g}.{counts if unreadable else ''}"
    yield (
        f"{INTERVAL}: only binaries taken as independent. AUROC: chance that a malicious command is"
        " the more suspicious one. --json has average precision, partial AUROC and all pairs."
    )


_E = ("value", "stderr_clustered", "ci_low", "ci_high")
_DIFFERENCE = ("difference", "stderr_clustered", "ci_low", "ci_high", "p_value", "p_adjusted")


def scores_document(data: CalibrationData) -> dict[str, Any]:
    """Return a calibration in JSON types; absent numbers are null."""
    return {
        "run_id": data.run.run_id,
        "scoring": data.opinion.rule.name,
        "opinion": data.opinion.provenance,
        "suspicion": data.rule.provenance,
        "prevalence": data.prevalence,
        "folds": data.folds,
        "models": [_model(data, each) for each in data.models],
        "pairs": [
            {
                "a": pair.a,
                "b": pair.b,
                "aegish_score": _numbers(pair.score, _DIFFERENCE),
                "auroc": _numbers(pair.auroc, _DIFFERENCE),
                "fitted": _numbers(pair.fitted, _DIFFERENCE),
            }
            for pair in data.pairs
        ],
    }


def _model(data: CalibrationData, each: CalibratedModel) -> dict[str, Any]:
    partial = {"max_fpr": each.partial_fpr} | _numbers(each.partial_auroc)
    in_use = data.in_use(each)
    return {
        "model": each.model,
        "aegish_score": _numbers(each.score),
        "decisions": {"malicious": each.dangerous, "harmless": each.harmless},
        "auroc": _numbers(each.auroc),
        "partial_auroc": partial,
        "average_precision": _numbers(each.average_precision),
        "distinct": each.distinct,
        "unreadable": each.unreadable,
        "at_fpr": [
            {
                "max_fpr": point.max_fpr,
                "threshold": point.threshold,
                "detection_rate": _numbers(point.detection_rate),
                "false_positive_rate": _numbers(point.false_positive_rate),
            }
            for point in each.at_fpr
        ],
        "fitted": _fitted(data, each.fitted),
        "per_10000": in_use and {name: _numbers(e) for name, e in asdict(in_use).items()},
    }


def _fitted(data: CalibrationData, fitted: FittedGuard) -> dict[str, Any]:
    """Return a fitted guard; JSON has no infinite threshold, `in_words` tells the two apart."""
    threshold = fitted.threshold
    return {
        "criterion": fitted.criterion.name,
        "threshold": threshold if threshold is not None and math.isfinite(threshold) else None,
        "in_words": None if threshold is None else threshold_in_words(data.rule, threshold),
        "score": _numbers(fitted.score),
        "detection_rate": _numbers(fitted.detection_rate),
        "false_positive_rate": _numbers(fitted.false_positive_rate),
        "in_sample_score": fitted.in_sample_score,
        "problem": fitted.problem,
    }


def _numbers(found: Any, names: Sequence[str] = _E) -> dict[str, float | None]:
    return {name: getattr(found, name) for name in names}


def render_scores(
    data: CalibrationData, *, as_json: bool, width: int | None = None, color: bool = False
) -> str:
    """Return a calibration as text; width and colour are for tables."""
    if as_json:
        return printable_json(scores_document(data)) + "\n"
    return draw_table(build_scores(data), width, color)
