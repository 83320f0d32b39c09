"""Thresholds in words, tables and JSON: how a caller acts on one, and which is shown to help."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from aegish_dist.core.metric import Difference, Estimate, FittedGuard, PerTenThousand
from aegish_dist.core.model import is_baseline
from aegish_dist.core.outcome import Outcome
from aegish_dist.core.text import JsonObject, counted
from aegish_dist.findings.fitted import CalibratedModel, CalibrationData, harmless_needed
from aegish_dist.opinions.opinion import run_and_opinion
from aegish_dist.opinions.policy import POLICY_PREFIX
from aegish_dist.opinions.scoring import Level, SuspicionRule
from aegish_dist.report.layout import (
    INTERVAL,
    MODEL,
    NOT_EVIDENCE,
    Cell,
    Fact,
    Report,
    Section,
    TableCell,
    with_interval,
    with_mark,
)
from aegish_dist.report.origins import origins_in_words, policies_document
from aegish_dist.report.quality import more_commands
from aegish_dist.report.writing import (
    NAME_WIDTH,
    UNDEFINED,
    format_interval,
    format_points,
    format_rate,
    listed,
    short_names,
)

EVERYTHING, NOTHING = "everything", "nothing"


def threshold_in_words(rule: SuspicionRule, threshold: float) -> str:
    """Say which answers a caller blocks at who uses a threshold of suspicion."""
    if math.isinf(threshold):
        return f"block {_everything_or_nothing(threshold)}"
    if rule.levels is None:
        return f"block when its suspicion is ≥ {threshold:.4g}"
    answers = []
    for action, limit in _stopped(rule.levels, threshold):
        answers.append(f"{action} with confidence {limit}" if limit else action)
    if not answers:
        return f"block {NOTHING}"
    *others, last = answers
    if not others:
        return f"block only when it says {last}"
    return f"block when it says {', '.join(others)} or {last}"


def threshold_notation(rule: SuspicionRule, threshold: float) -> str:
    """Write a threshold for a narrow column: `BLOCK ≥ 0.71`, `WARN, ALLOW ≤ 0.8` or `≥ 0.3`."""
    if math.isinf(threshold):
        return _everything_or_nothing(threshold)
    if rule.levels is None:
        return f"≥ {threshold:.4g}"
    parts = _stopped(rule.levels, threshold)  # actions, each with a limit or an empty text
    if len(parts) > 1 and parts[0][0] == Outcome.BLOCK:
        # A threshold that stops some WARN stops every BLOCK: that goes without saying.
        parts = parts[1:]
    return ", ".join(f"{action} {limit}".rstrip() for action, limit in parts) or NOTHING


def _everything_or_nothing(threshold: float) -> str:
    """Say what an infinite threshold stops: every suspicion is above -∞, and none above ∞."""
    return EVERYTHING if threshold < 0 else NOTHING


def _stopped(levels: Mapping[Outcome, Level], threshold: float) -> list[tuple[str, str]]:
    """Return the actions that a finite threshold stops, each with the confidence that it takes.

    The confidence is empty where an action is stopped at any.
    """
    parts = []
    for action in (Outcome.BLOCK, Outcome.WARN, Outcome.ALLOW):
        level = levels[action]
        # Suspicion is linear in confidence, so its ends at 0 and 1 tell what lies between.
        stopped_at_0 = level.base >= threshold
        stopped_at_1 = level.base + level.slope >= threshold
        if stopped_at_0 and stopped_at_1:
            parts.append((action.value, ""))
        elif stopped_at_0 or stopped_at_1:
            sign = "≥" if stopped_at_1 else "≤"
            limit = abs((threshold - level.base) / level.slope)  # in [0, 1]; abs turns -0 into 0
            parts.append((action.value, f"{sign} {limit:.4g}"))
    return parts


def threshold_fact(data: CalibrationData, names: Mapping[str, str]) -> Fact | None:
    """Say which guard's threshold is shown to help, or that none is; None where none is ranked."""
    leader = data.leader
    best = data.recommended
    if leader is None:
        return None
    leader_as_is = f"{names[leader.model]} as it stands"
    if best is not None:
        gain = data.gains[best.model]
        interval = format_interval(gain.ci_low, gain.ci_high, format_points)
        points = f"{format_points(gain.difference)} {interval} points"
        better = f"{names[best.model]} with one is better than {leader_as_is}, by {points}"
        return Fact("With a threshold", f"{better}: {_fitted_in_words(data, best)}.")
    score = with_interval(leader.aegish_score)
    sentences = [
        f"None is shown to help: no guard with one is surely better than {leader_as_is}, {score}."
    ]
    promising = data.most_promising
    if promising is not None:
        needed = data.commands_to_show(promising)
        asked = data.gains[promising].n
        aim = f"{names[promising]} with one is better"
        sentences.append(more_commands(needed, asked, "commands", aim))
    # A bound or a cost has a best threshold too, even where none makes the score better.
    first = data.ranked[0]
    if not data.criterion.fits_score and first.fitted.threshold is not None:
        criterion = f"For the criterion ({data.criterion.name}) {names[first.model]} is best"
        sentences.append(f"{criterion}: {_fitted_in_words(data, first)}.")
    return Fact("With a threshold", " ".join(sentences))


def _fitted_in_words(data: CalibrationData, model: CalibratedModel) -> str:
    """Say what to block with a guard's best threshold, and the rates that this brings."""
    fitted = model.fitted
    action = threshold_in_words(data.rule_of(model), fitted.threshold or 0)
    return (
        f"{action}. Score {with_interval(fitted.score)},"
        f" DR {with_interval(fitted.detection_rate)},"
        f" false positive rate (FPR) {with_interval(fitted.false_positive_rate)}"
    )


def threshold_document(data: CalibrationData) -> JsonObject | None:
    """Return the threshold that is shown to help, in JSON types; None where none is."""
    best = data.recommended
    if best is None:
        return None
    return {
        "guard": best.model,
        "block_from": threshold_notation(data.rule_of(best), best.fitted.threshold or 0.0),
        "gain": _in_json(data.gains[best.model]),
    }


def build_thresholds(data: CalibrationData) -> Report:
    """Return which guard is best with and without a threshold, and the tables of all guards."""
    return Report(
        title=f"Thresholds for run {data.run.titled}",
        facts=tuple(_facts(data)),
        sections=tuple(_tables(data)),
        legend=tuple(_legend(data)),
    )


def threshold_sections(data: CalibrationData) -> Sequence[Section]:
    """Return the tables as sections of a report, with the sentences below the first one."""
    first, *others = _tables(data)
    remarks = tuple(f"{fact.label}: {fact.text}" for fact in _facts(data))
    return replace(first, remarks=remarks), *others


def _facts(data: CalibrationData) -> Iterator[Fact]:
    names = short_names([model.model for model in data.models], NAME_WIDTH)
    yield from _leaders(data, names)
    for sentence in origins_in_words(names, data.overlaps):
        yield Fact("Policies", sentence)
    for model in data.known:
        # The whole interval is below chance.
        if (model.auroc.ci_high or 1) < 0.5:
            area = with_interval(model.auroc)
            text = f"{names[model.model]} orders commands the wrong way round: AUROC {area}."
            yield Fact("Inverted", text)
    bound = data.criterion.max_fpr
    if bound < 1:
        asked = max(model.harmless for model in data.models)
        yield Fact(
            "Needed",
            f"To show a false positive rate of at most {100 * bound:g} % takes"
            f" {harmless_needed(bound):,} harmless commands without an error; {asked:,} answers"
            " about such are scored. The threshold keeps to it on the commands that it is fitted"
            " on.",
        )
    yield from _left_out(data, names)


def _left_out(data: CalibrationData, names: Mapping[str, str]) -> Iterator[Fact]:
    """Yield the guards without a threshold and those without a rank, with the reason."""
    unfitted: dict[str, list[str]] = {}
    for model in data.models:
        if model.fitted.problem is not None:
            unfitted.setdefault(model.fitted.problem, []).append(names[model.model])
    for problem, guards in unfitted.items():
        yield Fact("Not fitted", f"{listed(guards)}: {problem}.")
    ranked = {model.model for model in data.ranked}
    unranked = []
    for model in data.models:
        # Baselines and policies are not ranked whatever they have scored.
        if is_baseline(model.model) or model.model.startswith(POLICY_PREFIX):
            continue
        if model.model not in ranked:
            scored = model.malicious + model.harmless
            unranked.append(f"{names[model.model]} with {scored} of {sum(data.asked)} scored")
    if unranked:
        why = "under half of the malicious or of the harmless commands, or no interval"
        yield Fact("Not ranked", f"{listed(unranked)}: {why}.")


def _leaders(data: CalibrationData, names: Mapping[str, str]) -> Iterator[Fact]:
    """Say which guard is best as it stands, and whether a threshold makes one better."""
    leader = data.leader
    threshold = threshold_fact(data, names)
    if leader is None or threshold is None:
        yield Fact("As it stands", "No guard takes part that is no baseline and no policy.")
        return
    text = f"{names[leader.model]} has the best score: {with_interval(leader.aegish_score)}."
    alike = [names[guard] for guard in data.alike]
    if alike:
        text += f" {listed(alike)} cannot be distinguished from it."
    yield Fact("As it stands", text)
    yield threshold


def _tables(data: CalibrationData) -> Iterator[Section]:
    """Yield guards at their best threshold, at any threshold and, with a prevalence, in use."""
    yield _table(
        data,
        "Best threshold of each model",
        (
            TableCell("score", f"as it stands {INTERVAL}"),
            TableCell("score with it", f"out of fold {INTERVAL}"),
            "DR",
            "FPR",
            TableCell("in sample", "score"),
            "block",
        ),
        [_fitted(data.rule_of(model), model) for model in data.known],
        f"Criterion: {data.criterion.name}. Binaries are in {data.folds} folds: fitted on all but"
        " one, judged on that one, for each.",
    )
    # Every guard has the same bounds of the false positive rate.
    titles = ["AUROC", *(f"DR at {100 * point.max_fpr:g}%" for point in data.known[0].at_fpr)]
    at_any: list[list[Cell]] = []
    for model in data.known:
        rates = [model.auroc, *(point.detection_rate for point in model.at_fpr)]
        at_any.append([*map(_cell, rates), str(model.distinct)])
    yield _table(
        data,
        "At any threshold",
        [*(TableCell(title, INTERVAL) for title in titles), "values"],
        at_any,
        "DR at a false positive rate of at most so much; values: distinct ones of suspicion.",
    )
    if data.prevalence is not None:
        expected = [data.in_use(model) or PerTenThousand() for model in data.known]
        yield _table(
            data,
            f"Per 10,000 commands, {data.prevalence:g} of them dangerous",
            [TableCell(name, INTERVAL) for name in ("alarms", "misses", "precision")],
            map(_in_use, expected),
            "With the thresholds above, out of fold. alarms: right and wrong ones.",
        )


def _table(
    data: CalibrationData,
    title: str,
    headings: Iterable[Cell],
    cells: Iterable[Iterable[Cell]],
    note: str,
) -> Section:
    """Return a table whose first column names the guards."""
    names = [with_mark(model.model, model.simulated) for model in data.known]
    rows = ((name, *row) for name, row in zip(names, cells, strict=True))
    return Section.of(title, (MODEL.title, *headings), rows, note=note)


def _fitted(rule: SuspicionRule, model: CalibratedModel) -> Iterator[Cell]:
    """Yield a guard's cells of the table of best thresholds."""
    fitted = model.fitted
    yield _cell(model.aegish_score)
    yield _cell(fitted.score)
    yield format_rate(fitted.detection_rate.value)
    yield format_rate(fitted.false_positive_rate.value)
    yield format_rate(fitted.in_sample_score)
    yield UNDEFINED if fitted.threshold is None else threshold_notation(rule, fitted.threshold)


def _cell(estimate: Estimate) -> TableCell:
    return TableCell(with_interval(estimate), value=estimate.value)


def _in_use(expected: PerTenThousand) -> Iterator[Cell]:
    """Yield a guard's cells of the table of 10,000 commands in use."""
    yield with_interval(expected.alarms, _expected_number)
    yield with_interval(expected.misses, _expected_number)
    yield _cell(expected.precision)


def _expected_number(value: float | None) -> str:
    if value is None:
        return UNDEFINED
    # From 99.5 on two digits would be written with an exponent.
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.2g}"


def _legend(data: CalibrationData) -> Iterator[str]:
    rule, opinion = data.rule, data.opinion.rule
    yield (
        f"Rates in %, as judged by {opinion.name} v{opinion.version}; suspicion by {rule.name}"
        f" v{rule.version}. DR: malicious detection rate. FPR: false positive rate."
    )
    if rule.levels is not None:
        line = f"Confidence where none is stated: {rule.unstated:g}."
        unreadable = sum(model.unreadable for model in data.known)
        if unreadable:
            without = counted(unreadable, "scored answer")
            line += f" {without} without an action (such as timeouts): {rule.unreadable}."
        yield line
    if any(model.simulated for model in data.models):
        yield NOT_EVIDENCE
    yield (
        f"{INTERVAL}: only binaries taken as independent. AUROC: chance that a malicious command is"
        " the more suspicious one. --json has average precision, partial AUROC and all pairs."
    )


def calibration_document(data: CalibrationData) -> JsonObject:
    """Return all numbers in JSON types; absent ones are null."""
    return {
        **run_and_opinion(data.run.run_id, data.opinion),
        "suspicion": data.rule.provenance,
        "policies": policies_document(data.opinion, data.overlaps),
        "prevalence": data.prevalence,
        "folds": data.folds,
        "best_as_it_stands": data.leader and data.leader.model,
        "threshold": threshold_document(data),
        "models": [_model(data, model) for model in data.models],
        "pairs": [_in_json(pair) for pair in data.pairs],
    }


_UNCERTAINTY = ("stderr_clustered", "ci_low", "ci_high")
# The fields that documents hold of a record; of any other record they hold all.
_FIELDS: Mapping[type, tuple[str, ...]] = {
    Estimate: ("value", *_UNCERTAINTY),
    Difference: ("difference", *_UNCERTAINTY, "p_value", "p_adjusted"),
    FittedGuard: FittedGuard.__struct_fields__[1:],  # without the criterion
}


def _in_json(value: Any) -> Any:
    """Return a value in JSON types, with records by `_FIELDS`, and null for an infinite number."""
    if isinstance(value, Struct):
        names = _FIELDS.get(type(value), value.__struct_fields__)
        return {name: _in_json(getattr(value, name)) for name in names}
    if isinstance(value, list):
        return [_in_json(item) for item in value]
    # JSON has no infinite number.
    if isinstance(value, float) and math.isinf(value):
        return None
    return value


def _model(data: CalibrationData, model: CalibratedModel) -> JsonObject:
    """Return a guard's numbers.

    A threshold of null is infinite or absent: `in_words` says which, as it is null only where the
    threshold is absent.
    """
    fitted = model.fitted
    rule = data.rule_of(model)
    in_words = None
    if fitted.threshold is not None:
        in_words = threshold_in_words(rule, fitted.threshold)
    entry: JsonObject = _in_json(model)
    # A guard with a rule of suspicion of its own names it.
    if entry.pop("own"):
        entry["suspicion"] = rule.name
    entry["partial_auroc"]["max_fpr"] = entry.pop("partial_fpr")
    entry["fitted"] |= {"criterion": fitted.criterion.name, "in_words": in_words}
    entry["per_10000"] = _in_json(data.in_use(model))
    return entry
