"""The quantities that plots show, and the words around plots: names, captions, small print."""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct

from aegish_dist.core.opinion import Targets
from aegish_dist.core.text import counted, printable, shortened
from aegish_dist.report.charts.spec import TEXT_PX, text_width
from aegish_dist.report.data import ReportData
from aegish_dist.report.decision import BASELINE
from aegish_dist.report.layout import SIMULATED, RankedModel, ranked_entries
from aegish_dist.report.names import short_names
from aegish_dist.report.numbers import format_count, format_span, format_time, format_usd
from aegish_dist.statistics.rates import Estimate

RATE_INTERVAL = (
    "Wilson with an effective sample size, clustered by binary; exact where events are few"
)


class Measure(Struct, frozen=True):
    """A quantity that an axis can show."""

    name: str
    axis: str
    form: str  # how ticks are written, in d3's words
    read: Callable[[RankedModel], Estimate]  # in the unit of the axis
    metric: str = ""  # that a target may be set for; empty without one
    interval: str = ""  # the method of its intervals; empty without them
    words: Callable[[float], str] | None = None  # in a sentence; None: name and per cent

    def aims(self, targets: Targets) -> list[float]:
        """Return the value that is to be reached, in per cent; none where no target is set."""
        return [100 * targets.least[self.metric]] if self.metric in targets.least else []


def percent(estimate: Estimate) -> Estimate:
    """Return a rate in per cent, its interval cut to what a rate can be."""
    low, high = estimate.ci_low, estimate.ci_high
    return Estimate(
        value=None if estimate.value is None else 100 * estimate.value,
        ci_low=None if low is None else 100 * min(max(low, 0.0), 1.0),
        ci_high=None if high is None else 100 * min(max(high, 0.0), 1.0),
        n=estimate.n or 0,
    )


def _rate(name: str, axis: str, metric: str, interval: str) -> Measure:
    def read(entry: RankedModel) -> Estimate:
        return percent(entry.metric(metric))

    return Measure(name, axis, "~r", read, metric, interval)


SCORE = _rate(
    *("aegish score", "aegish score (%)", "aegish_score"),
    "MOVER of both rates, clustered by binary",
)
DETECTION, ACCEPTANCE, FALSE_POSITIVES = (
    _rate(name, axis, metric, RATE_INTERVAL)
    for name, axis, metric in (
        ("detection rate", "malicious commands detected (%)", "malicious_detection_rate"),
        ("acceptance rate", "harmless commands accepted (%)", "harmless_acceptance_rate"),
        (
            "false positive rate",
            "harmless commands stopped (%), square root scale",
            "false_positive_rate",
        ),
    )
)
COST = Measure(
    *("cost", "cost (USD per 1,000 commands)", "$,~r"),
    read=lambda entry: Estimate(entry.cost("per_1000_usd")),
    words=lambda usd: f"{format_usd(usd)} per 1,000 commands",
)
LABEL_PX = 190.0
_VERSION = re.compile(r"\d+\.\d+\.\d")


def point_names(entries: Sequence[RankedModel]) -> list[str]:
    """Return names for labels of points: without provider, which colour and shape say.

    A version alone, as of `sh-guard/0.1.10`, is no name.
    """
    parts = {each.model: each.model.rstrip("/").rpartition("/")[2] for each in entries}
    parts = {m: m if _VERSION.match(part) else part for m, part in parts.items()}
    unique = len({*parts.values()}) == len(parts)
    return _names(entries, parts if unique else {each: each for each in parts}, LABEL_PX)


def row_names(entries: Sequence[RankedModel], width: float = 270.0) -> list[str]:
    """Return names for rows: the canonical ids, as far as they fit."""
    return _names(entries, {each.model: each.model for each in entries}, width)


def _names(entries: Sequence[RankedModel], texts: Mapping[str, str], width: float) -> list[str]:
    marks = [f" {SIMULATED}" if each.simulated else "" for each in entries]
    names = fitted_names(list(texts.values()), width - max(map(in_pixels, marks), default=0))
    return [f"{names[texts[e.model]]}{mark}" for e, mark in zip(entries, marks, strict=True)]


def fitted_names(ids: Sequence[str], width: float) -> dict[str, str]:
    """Return a name for each of some foreign ids, at most so many pixels wide if it can be."""
    names = short_names(ids, width, measure=in_pixels)
    return {each: names[each] or "(no name)" for each in ids}


@lru_cache(1024)  # of letters, above all
def in_pixels(text: str) -> float:
    """Return the width of a label."""
    return text_width(text, TEXT_PX)


LISTED = 12
"""The most names in a list; the others are counted."""


def small_print(data: ReportData) -> str:
    """Say which run, snapshot and opinion a plot shows."""
    run, snapshot = data.run, data.snapshot
    name = f"{foreign_words(run.name)} ({run.run_id})" if run.name else run.run_id
    datasets = ", ".join(
        f"{foreign_words(each.name)} {each.fingerprint[:12]} ({counted(each.samples, 'command')})"
        for each in run.datasets[:LISTED]
    )
    opinion = f"rule set {foreign_words(snapshot.scoring)} version {snapshot.scoring_version}"
    if snapshot.opinion is not None:
        opinion += f", targets {foreign_words(snapshot.opinion.targets.name)}"
        overlay = snapshot.opinion.overlay
        opinion += "" if overlay is None else f", overlay {foreign_words(overlay.name)}"
    return (
        f"Run {name} of {format_time(run.created_at)}; {datasets}; snapshot "
        f"{snapshot.snapshot_id} of {format_time(snapshot.created_at)}, "
        f"{format_count(snapshot.verdicts)} verdicts; {opinion}; aegish-dist "
        f"{snapshot.code_version}."
    )


def foreign_words(text: str) -> str:
    """Return a foreign name for a sentence: printable, and not too long."""
    return shortened(printable(text), 80)


def listed(names: Sequence[str]) -> str:
    """Return names with commas; of many the first ones and how many follow."""
    shown = ", ".join(map(foreign_words, names[:LISTED]))
    more = len(names) - LISTED
    return f"{shown} and {format_count(more)} more" if more > 0 else shown


def sampled(seen: Iterable[Estimate]) -> str:
    """Return such as `; n = 741 commands`, from least to greatest; empty if not kept."""
    known = format_span(each.n for each in seen if each.n)
    return f"; n = {known} commands" if known else ""


def interval_note(measures: Iterable[Measure], marks: str = "Bars") -> str:
    """Name the method of the intervals of some quantities."""
    methods = list(dict.fromkeys(each.interval for each in measures if each.interval))
    return f"{marks}: 95 % confidence intervals ({'; '.join(methods)})." if methods else ""


def apart(data: ReportData) -> tuple[list[RankedModel], list[RankedModel]]:
    """Return the models of a report, and the baselines, which charts draw as lines.

    Baselines alone count as models.
    """
    ranked = ranked_entries(data.snapshot.document)
    models = [entry for entry in ranked if not entry.model.startswith(BASELINE)] or ranked
    return models, [entry for entry in ranked if entry not in models]


def baseline_note(baselines: Sequence[RankedModel]) -> str:
    """Name the baselines with their scores, where there are any."""
    return f"Dotted, as far as the axis reaches: {described(baselines, [SCORE])}" * bool(baselines)


def simulated_note(entries: Iterable[RankedModel]) -> str:
    """Explain the mark of simulated models, where there are any."""
    found = any(entry.simulated for entry in entries)
    return f"{SIMULATED} answers of the simulator, not of a model." if found else ""


def in_words(measure: Measure, seen: Estimate) -> str:
    """Return a quantity with its value and interval."""
    if seen.value is None:
        return f"{measure.name} undefined"
    if measure.words is not None:
        return measure.words(seen.value)
    interval = "" if seen.ci_low is None else f" [{seen.ci_low:.1f}, {seen.ci_high:.1f}]"
    return f"{measure.name} {seen.value:.1f} %{interval}"


def described(entries: Iterable[RankedModel], measures: Sequence[Measure]) -> str:
    """Return some quantities of each model in words."""
    models = (
        f"{foreign_words(entry.model)}: {', '.join(in_words(m, m.read(entry)) for m in measures)}"
        for entry in entries
    )
    return "; ".join(models) + "."


def left_out_note(
    entries: Iterable[RankedModel],
    drawn: Collection[RankedModel],
    why: Callable[[RankedModel], str],
) -> str:
    """Name the models that a plot leaves out, by the reason."""
    by_reason = defaultdict[str, list[str]](list)
    for entry in entries:
        if entry not in drawn:
            by_reason[why(entry)].append(entry.model)
    found = "; ".join(f"{listed(models)} ({reason})" for reason, models in by_reason.items())
    return f"Not drawn: {found}." if found else ""


def sentences(*found: str) -> str:
    """Return the sentences of a caption, without empty ones."""
    return " ".join(each for each in found if each)
