"""Guards as scores: what a threshold would make of each model, in words, tables and JSON."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from aegish_dist.core.opinion import Opinion, policies_document
from aegish_dist.core.outcome import Outcome
from aegish_dist.core.policy import POLICY_PREFIX
from aegish_dist.core.run import Run
from aegish_dist.core.suspicion import LEAST_SCORED, NATIVE, SuspicionRule
from aegish_dist.core.text import counted, printable_json
from aegish_dist.report.decision import BASELINE, NAME_WIDTH, listed, more_commands, of_policies
from aegish_dist.report.layout import INTERVAL, SIMULATED, Cell, Fact, Report, Section, TableCell
from aegish_dist.report.names import short_names
from aegish_dist.report.numbers import (  # fmt: skip
    UNDEFINED,
    format_interval,
    format_p,
    format_points,
    format_rate,
)
from aegish_dist.report.quality import with_interval
from aegish_dist.report.table import draw_table
from aegish_dist.statistics.gate import commands_to_decide
from aegish_dist.statistics.inference import LEVEL
from aegish_dist.statistics.paired_difference import Difference
from aegish_dist.statistics.rates import Estimate
from aegish_dist.statistics.roc import OperatingPoint
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
    aegish_score: Estimate  # as it stands, of its own actions
    malicious: int  # scored decisions, as `harmless`: samples in an epoch
    harmless: int
    unreadable: int  # those without an action
    distinct: int  # values of suspicion
    auroc: Estimate  # undefined too where not asked for, as the two below
    partial_fpr: float  # up to where the partial AUROC looks
    partial_auroc: Estimate
    average_precision: Estimate
    at_fpr: Sequence[OperatingPoint]  # empty where a label has no scored decision
    fitted: FittedGuard
    simulated: bool = False
    own: bool = False  # as of `Guard`

    @property
    def merit(self) -> float:
        """How good its fitted threshold is out of fold; -inf where nothing is fitted."""
        detected, stopped = self.fitted.detection_rate.value, self.fitted.false_positive_rate.value
        if detected is None or stopped is None:
            return -math.inf
        miss, stop = self.fitted.criterion.miss, self.fitted.criterion.stop
        return miss / max(miss, stop) * detected - stop / max(miss, stop) * stopped


class CalibratedPair(Struct, frozen=True):
    """How two models differ, b minus a, on what both have scored; p is adjusted for all pairs."""

    a: str
    b: str
    aegish_score: Difference
    auroc: Difference
    fitted: Difference

    @property
    def contradicts(self) -> bool:
        """Whether score and AUROC differ in opposite directions, both by their own intervals."""
        return _sign(self.aegish_score) * _sign(self.auroc) < 0

    @property
    def p_contradicts(self) -> float:
        """The larger adjusted p of score and AUROC; 1 where one of them is unknown."""
        return max(_p(self.aegish_score), _p(self.auroc))


class CalibrationData(Struct, frozen=True):
    run: Run
    opinion: Opinion
    rule: SuspicionRule
    criterion: Criterion
    prevalence: float | None
    folds: int
    asked: tuple[int, int]  # malicious and harmless decisions
    models: Sequence[CalibratedModel]
    """The best with its fitted threshold first; last where nothing is fitted, then baselines."""
    pairs: Sequence[CalibratedPair]
    gain: Difference | None = None
    """Score of the recommended with its threshold minus that of the leader; None: not asked for."""

    @property
    def known(self) -> Sequence[CalibratedModel]:
        """The models that have scored commands of both labels."""
        return [each for each in self.models if each.malicious and each.harmless]

    @property
    def ranked(self) -> Sequence[CalibratedModel]:
        """Those of the known that may be called best: no baselines, none with few verdicts.

        Nor policies: their thresholds may be chosen on all of these commands, so nothing of them is
        out of fold.
        """
        malicious, harmless = (LEAST_SCORED * each for each in self.asked)
        return [
            each
            for each in self.known
            if not each.model.startswith((BASELINE, POLICY_PREFIX))
            and (each.malicious >= malicious and each.harmless >= harmless)
            and each.aegish_score.ci_low is not None
            and (each.auroc.value is None or each.auroc.ci_low is not None)  # None: not asked for
        ]

    @property
    def leader(self) -> CalibratedModel:
        """The best of the ranked as it stands."""
        return max(self.ranked, key=lambda each: each.aegish_score.value or 0)

    @property
    def recommended(self) -> CalibratedModel | None:
        """The best that is surely better than chance; None also where all or nothing is best."""
        for each in self.ranked:
            threshold, low = each.fitted.threshold, each.fitted.score.ci_low
            if threshold is None or math.isinf(threshold):
                return None
            if (low or 0) > self.opinion.rule.composite.chance:
                return each
        return None

    @property
    def advice(self) -> Fact:
        """The best guard with a threshold, and the commands that would tell it from the leader.

        It is chosen among all of them, so p is multiplied by their number.
        """
        names, tests = short_names([e.model for e in self.models], NAME_WIDTH), len(self.ranked)
        said, gain = [*_best(self, names)], self.gain or Difference()
        better = f"better than {names[self.leader.model]} as it stands"
        if (gain.difference or 0) > 0 and (gain.p_value or 1) * tests < LEVEL:
            said.append(f"It is {better}, by {_distance(gain, 1)} points.")
        elif gain.difference:
            needed = commands_to_decide(gain, 0, tests)
            said.append(more_commands(needed, gain.n, "commands", f"it is {better}"))
        return Fact("With a threshold", " ".join(said))

    @property
    def sections(self) -> Sequence[Section]:
        """The tables, as sections of a report; what sentences say stands below the first one."""
        first, *others = _sections(self)
        remarks = tuple(f"{fact.label}: {fact.text}" for fact in _facts(self))
        return replace(first, remarks=remarks), *others

    @property
    def document(self) -> dict[str, Any]:
        """All numbers in JSON types; absent ones are null."""
        return {
            "run_id": self.run.run_id,
            "scoring": self.opinion.rule.name,
            "opinion": self.opinion.provenance,
            "suspicion": self.rule.provenance,
            "policies": policies_document(self.opinion),
            "prevalence": self.prevalence,
            "folds": self.folds,
            "models": [_model(self, each) for each in self.models],
            "pairs": [_in_json(pair) for pair in self.pairs],
        }

    def rule_of(self, model: CalibratedModel) -> SuspicionRule:
        return NATIVE if model.own else self.rule

    def in_use(self, model: CalibratedModel) -> PerTenThousand | None:
        """Return what to expect of a fitted guard; None where no prevalence was named."""
        if self.prevalence is None:
            return None
        fitted = model.fitted
        return per_10000(fitted.detection_rate, fitted.false_positive_rate, self.prevalence)


def _p(found: Difference) -> float:
    return 1.0 if found.p_adjusted is None else found.p_adjusted


def _sign(found: Difference) -> int:
    """Return on which side of zero the interval of a difference lies; 0: it holds zero."""
    if found.ci_low is None or found.ci_high is None:
        return 0
    return (found.ci_low > 0) - (found.ci_high < 0)


def threshold_in_words(rule: SuspicionRule, threshold: float) -> str:
    """Say what a caller has to do who stops what is at or above a threshold."""
    if math.isfinite(threshold) and rule.levels is None:
        return f"block from a suspicion of {threshold:.4g} on"
    parts = _stopped(rule, threshold, "with confidence {} {:.4g}", ("up to", "from"))
    alone = parts[0] != Outcome.BLOCK and math.isfinite(threshold) and parts != ["nothing"]
    but = "nothing but " if alone or parts == [Outcome.BLOCK] else ""
    return f"block {but}{' and '.join(_besides_block(parts))}"


def _besides_block(parts: Sequence[str]) -> Sequence[str]:
    """Leave out that BLOCK is stopped, where more is."""
    return parts[1:] if parts[0] == Outcome.BLOCK and len(parts) > 1 else parts


def _stopped(rule: SuspicionRule, threshold: float, limit: str, ends: tuple[str, str]) -> list[str]:
    """Return what a threshold stops: actions, some up to or from a confidence."""
    if math.isinf(threshold):
        return ["everything" if threshold < 0 else "nothing"]
    if rule.levels is None:
        return [f"≥ {threshold:.4g}"]
    parts = []
    for action in (Outcome.BLOCK, Outcome.WARN, Outcome.ALLOW):
        level = rule.levels[action]
        unsure, sure = (level.base + level.slope * c >= threshold for c in (0.0, 1.0))
        if unsure and sure:
            parts.append(action.value)
        elif unsure or sure:
            confidence = abs((threshold - level.base) / level.slope)  # in [0, 1]: never -0
            parts.append(f"{action.value} {limit.format(ends[sure], confidence)}")
    return parts or ["nothing"]


def build_scores(data: CalibrationData) -> Report:
    """Return what is best, with and without a threshold, and the tables that say so."""
    name = f" ({data.run.name})" if data.run.name else ""
    title, facts = f"Thresholds for run {data.run.run_id}{name}", tuple(_facts(data))
    return Report(title, facts, tuple(_sections(data)), tuple(_legend(data)))


def _facts(data: CalibrationData) -> Iterator[Fact]:
    names, known = short_names([each.model for each in data.models], NAME_WIDTH), data.ranked
    if known:
        yield from _leaders(data, names)
    else:
        yield Fact("With a threshold", _NO_MODEL)
    for said in of_policies(names):
        yield Fact("Policies", said)
    for each in data.known:
        if (each.auroc.ci_high or 1) < 0.5:
            said = f"orders commands the wrong way round: AUROC {with_interval(each.auroc)}."
            yield Fact("Inverted", f"{names[each.model]} {said}")
    if data.criterion.max_fpr < 1:
        yield Fact("Needed", _needed(data))
    for problem in dict.fromkeys(each.fitted.problem for each in data.models):
        models = [names[each.model] for each in data.models if each.fitted.problem == problem]
        if problem is not None:
            yield Fact("Not fitted", f"{listed(models)}: {problem}.")
    few = [
        f"{names[each.model]} with {each.malicious + each.harmless} of {sum(data.asked)} scored"
        for each in data.models
        if each not in known and not each.model.startswith((BASELINE, POLICY_PREFIX))
    ]
    if few:
        why = "under half of the malicious or of the harmless commands, or no interval"
        yield Fact("Not ranked", f"{listed(few)}: {why}.")


def _leaders(data: CalibrationData, names: Mapping[str, str]) -> Iterator[Fact]:
    known, stand = data.ranked, data.leader
    area = max(known, key=lambda each: each.auroc.value or 0)
    said = f"has {'the best' if len(known) > 1 else 'a'} score"
    said = f"{names[stand.model]} {said}: {with_interval(stand.aegish_score)}."
    yield Fact("As it stands", said + _alike(data, names, stand.model, "aegish_score"))
    yield Fact("With a threshold", " ".join(_best(data, names)))
    said = "tells commands apart" + " best" * (len(known) > 1)
    if (area.auroc.ci_low or 0) <= 0.5:
        said = "is not surely better than chance"
    said = f"{names[area.model]} {said}: AUROC {with_interval(area.auroc)}."
    if stand is not area:
        above = sum((each.auroc.value or 0) > (stand.auroc.value or 0) for each in known)
        said += f" {names[stand.model]} is number {above + 1} with {with_interval(stand.auroc)}."
    yield Fact("At any threshold", said + _alike(data, names, area.model, "auroc"))
    yield from _contradictions(data, names, stand.model)


def _best(data: CalibrationData, names: Mapping[str, str]) -> Iterator[str]:
    """Say what the best guard with a threshold is, what it does in use, and who may be as good."""
    best = data.recommended
    if best is None:
        yield _NO_MODEL
        return
    fitted, threshold = best.fitted, best.fitted.threshold or 0.0
    do = threshold_in_words(data.rule_of(best), threshold)
    yield (
        f"{names[best.model]} is best. Its caller has to {do}: score {with_interval(fitted.score)},"
        f" {format_rate(best.aegish_score.value)} as it stands;"
        f" DR {with_interval(fitted.detection_rate)},"
        f" FPR {with_interval(fitted.false_positive_rate)}."
    )
    if found := data.in_use(best):
        yield (
            f"Of 10,000 actions it would stop {_actions(found.alarms)}, rightly"
            f" {format_rate(found.precision.value)} % of them, and miss {_actions(found.misses)}."
        )
    if alike := _alike(data, names, best.model, "fitted"):
        yield f"With their own thresholds,{alike}"


def _alike(data: CalibrationData, names: Mapping[str, str], model: str, kind: str) -> str:
    """Say which ranked models are not surely worse or better than this one."""
    alike = [
        names[pair.b if pair.a == model else pair.a]
        for pair in _ranked_pairs(data)
        if model in (pair.a, pair.b) and _p(getattr(pair, kind)) >= LEVEL
    ]
    return f" {listed(alike)} cannot be distinguished from it." if alike else ""


def _needed(data: CalibrationData) -> str:
    bound, asked = data.criterion.max_fpr, max(each.harmless for each in data.models)
    return (
        f"To show a false positive rate of at most {100 * bound:g} % takes"
        f" {harmless_needed(bound):,} harmless commands without an error; {asked:,} verdicts about"
        " such are scored. The threshold keeps to it on the commands that it is fitted on."
    )


MOST_SENTENCES = 2
_NO_MODEL = "No model is surely better than chance."


def _ranked_pairs(data: CalibrationData) -> list[CalibratedPair]:
    ranked = {each.model for each in data.ranked}
    return [pair for pair in data.pairs if ranked >= {pair.a, pair.b}]


def _contradictions(data: CalibrationData, names: Mapping[str, str], best: str) -> Iterator[Fact]:
    """Name pairs whose score and AUROC differ in opposite directions, the surest ones first."""

    def order(pair: CalibratedPair) -> tuple[bool, bool, float]:
        unsure, other = pair.p_contradicts >= LEVEL, best not in (pair.a, pair.b)
        return unsure, other, -abs(pair.auroc.difference or 0)

    found = sorted((pair for pair in _ranked_pairs(data) if pair.contradicts), key=order)
    for pair in found[:MOST_SENTENCES]:
        p, alone, show = pair.p_contradicts, "", "show"
        if p >= LEVEL:
            alone, show = f" (one pair of {len(data.pairs)}; adjusted p {format_p(p)})", "may show"
        sign = _sign(pair.aegish_score)
        more, less = (names[each] for each in (pair.b, pair.a)[::sign])
        yield Fact(
            "Opposite",
            f"The score of {more} is above that of {less} by"
            f" {_distance(pair.aegish_score, sign)} points, its AUROC below by"
            f" {_distance(pair.auroc, -sign)}{alone}: the scores {show} where both put their"
            " thresholds.",
        )
    if len(found) > MOST_SENTENCES:
        yield Fact("Opposite", f"{len(found) - MOST_SENTENCES} more, as JSON shows.")


def _distance(found: Difference, sign: int) -> str:
    """Write a difference of b minus a (sign 1), or of a minus b (-1): `1.06 [0.21, 2.11]`."""

    def write(value: float | None) -> str:
        return format_points(value and sign * value)

    low, high = (found.ci_low, found.ci_high)[::sign]
    return f"{write(found.difference)} {format_interval(low, high, write)}"


def _sections(data: CalibrationData) -> Iterator[Section]:
    yield _table(
        data,
        "Best threshold of each model",
        f"score|as it stands {INTERVAL}, score with it|out of fold {INTERVAL}, DR, FPR,"
        " in sample|score, block",
        lambda each: (_cell(each.aegish_score), *_fitted(data.rule_of(each), each.fitted)),
        f"Criterion: {data.criterion.name}. Binaries are in {data.folds} folds: fitted on all but"
        " one, judged on that one, for each.",
    )
    bounds = "".join(f"DR at {100 * e.max_fpr:g}%|{INTERVAL}, " for e in data.known[0].at_fpr)
    yield _table(
        data,
        "At any threshold",
        f"AUROC|{INTERVAL}, {bounds}values",
        lambda each: (
            _cell(each.auroc),
            *(_cell(point.detection_rate) for point in each.at_fpr),
            str(each.distinct),
        ),
        "DR at a false positive rate of at most so much; values: distinct ones of suspicion.",
    )
    if data.prevalence is not None:
        yield _table(
            data,
            f"Per 10,000 actions, {data.prevalence:g} of them dangerous",
            f"alarms|{INTERVAL}, misses|{INTERVAL}, precision|{INTERVAL}",
            lambda each: _expected(data.in_use(each) or PerTenThousand()),
            "With the thresholds above, out of fold. alarms: right and wrong ones.",
        )


def _table(
    data: CalibrationData,
    title: str,
    headings: str,
    read: Callable[[CalibratedModel], Iterable[Cell]],
    note: str,
) -> Section:
    """Return a row for each model; headings and their details are `NAME|DETAIL, NAME, ...`."""
    columns = (TableCell(a, b) for a, _, b in (e.partition("|") for e in headings.split(", ")))
    rows = (
        (f"{each.model} {SIMULATED}" if each.simulated else each.model, *read(each))
        for each in data.known
    )
    return Section.of(title, ("model", *columns), rows, note=note)


def _fitted(rule: SuspicionRule, fitted: FittedGuard) -> tuple[Cell, ...]:
    rates = (fitted.detection_rate, fitted.false_positive_rate)
    shares = (*(each.value for each in rates), fitted.in_sample_score)
    block = UNDEFINED
    if fitted.threshold is not None:
        parts = _stopped(rule, fitted.threshold, "{} {:.4g}", ("≤", "≥"))
        block = ", ".join(_besides_block(parts))
    return _cell(fitted.score), *map(format_rate, shares), block


def _expected(found: PerTenThousand) -> tuple[Cell, ...]:
    return _actions(found.alarms), _actions(found.misses), _cell(found.precision)


def _cell(found: Estimate) -> TableCell:
    return TableCell(with_interval(found), value=found.value)


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
        unreadable = sum(each.unreadable for each in data.known)
        without = counted(unreadable, "scored verdict")
        counts = f" {without} without an action (such as timeouts): {rule.unreadable}."
        yield f"Confidence where none is stated: {rule.unstated:g}.{counts if unreadable else ''}"
    if any(each.simulated for each in data.models):
        yield f"{SIMULATED}: answers made up by the simulator; no evidence about any real model."
    yield (
        f"{INTERVAL}: only binaries taken as independent. AUROC: chance that a malicious command is"
        " the more suspicious one. --json has average precision, partial AUROC and all pairs."
    )


_SURE = ("stderr_clustered", "ci_low", "ci_high")
_NAMES: Mapping[type, tuple[str, ...]] = {
    Estimate: ("value", *_SURE),
    Difference: ("difference", *_SURE, "p_value", "p_adjusted"),
    FittedGuard: FittedGuard.__struct_fields__[1:-1],  # without criterion and samples
}


def _in_json(value: Any) -> Any:
    """Return what documents hold of a record; JSON has no infinite number."""
    if isinstance(value, Struct):
        names = _NAMES.get(type(value), value.__struct_fields__)
        return {name: _in_json(getattr(value, name)) for name in names}
    if isinstance(value, list):
        return [_in_json(each) for each in value]
    return None if isinstance(value, float) and math.isinf(value) else value


def _model(data: CalibrationData, each: CalibratedModel) -> dict[str, Any]:
    """Return an entry; `in_words` says whether a threshold of null is infinite or absent."""
    found, fitted, rule = _in_json(each), each.fitted, data.rule_of(each)
    words = None if fitted.threshold is None else threshold_in_words(rule, fitted.threshold)
    found |= {"suspicion": rule.name} if found.pop("own") else {}
    found["partial_auroc"]["max_fpr"] = found.pop("partial_fpr")
    found["fitted"] |= {"criterion": fitted.criterion.name, "in_words": words}
    return {**found, "per_10000": _in_json(data.in_use(each))}


def render_scores(
    data: CalibrationData, *, as_json: bool, width: int | None = None, color: bool = False
) -> str:
    """Return a calibration as text; width and colour are for tables."""
    if as_json:
        return printable_json(data.document) + "\n"
    return draw_table(build_scores(data), width, color)
