"""The quantities that plots show, and the words around plots: names, captions, small print."""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache

from msgspec import Struct

from aegish_dist.core.metric import Estimate
from aegish_dist.core.model import is_baseline
from aegish_dist.core.text import counted, printable, shortened
from aegish_dist.findings.snapshot import RankedModel
from aegish_dist.opinions.opinion import Targets
from aegish_dist.report.charts.vega_lite import TEXT_PX, text_width
from aegish_dist.report.data import ReportData
from aegish_dist.report.layout import SIMULATED, with_mark
from aegish_dist.report.writing import (
    format_count,
    format_span,
    format_time,
    format_usd,
    short_names,
)

RATE_INTERVAL = (
    "Wilson with an effective sample size, clustered by binary; exact where events are few"
)


class Measure(Struct, frozen=True):
    """A quantity that an axis can show: a rate in per cent, or without a metric the cost."""

    name: str
    axis: str
    metric: str = ""  # that a target may be set for
    interval: str = RATE_INTERVAL  # the method of its intervals, of a rate

    @property
    def form(self) -> str:
        """How ticks are written, in d3's words."""
        return "~r" if self.metric else "$,~r"

    def read(self, entry: RankedModel) -> Estimate:
        """Return the quantity of a model, in the unit of the axis."""
        if self.metric:
            return percent(entry.metric(self.metric))
        return Estimate(entry.price_per_1000_usd)

    def aims(self, targets: Targets) -> list[float]:
        """Return the value that is to be reached, in per cent; none where no target is set."""
        if self.metric not in targets.least:
            return []
        return [100 * targets.least[self.metric]]

    def words(self, entry: RankedModel) -> str:
        """Return the quantity of a model with its interval, in a sentence."""
        estimate = self.read(entry)
        if estimate.value is None:
            return f"{self.name} undefined"
        if not self.metric:
            return f"{format_usd(estimate.value)} per 1,000 commands"
        words = f"{self.name} {estimate.value:.1f} %"
        if estimate.ci_low is None:
            return words
        return f"{words} [{estimate.ci_low:.1f}, {estimate.ci_high:.1f}]"


def percent(estimate: Estimate) -> Estimate:
    """Return a rate in per cent, its interval cut to what a rate can be."""
    low, high = estimate.ci_low, estimate.ci_high
    return Estimate(
        value=None if estimate.value is None else 100 * estimate.value,
        ci_low=None if low is None else 100 * max(low, 0.0),
        ci_high=None if high is None else 100 * min(high, 1.0),
        n=estimate.n or 0,
    )


SCORE = Measure(
    "aegish score",
    "aegish score (%)",
    "aegish_score",
    "MOVER of both rates, clustered by binary",
)
DETECTION = Measure(
    "detection rate",
    "malicious commands detected (%)",
    "malicious_detection_rate",
)
ACCEPTANCE = Measure(
    "acceptance rate",
    "harmless commands accepted (%)",
    "harmless_acceptance_rate",
)
FALSE_POSITIVES = Measure(
    "false positive rate",
    "harmless commands stopped (%), square root scale",
    "false_positive_rate",
)
COST = Measure("cost", "cost (USD per 1,000 commands)")
LABEL_PX, ROW_PX = 190.0, 270.0
_VERSION = re.compile(r"\d+\.\d+\.\d")


def point_names(entries: Sequence[RankedModel]) -> list[str]:
    """Return names for labels of points: without provider, which colour and shape say.

    A version alone, as of `sh-guard/0.1.10`, is no name.
    """
    names = [_without_provider(entry.model) for entry in entries]
    if len({*names}) < len(names):
        names = [entry.model for entry in entries]
    return _marked(entries, names, LABEL_PX)


def _without_provider(model: str) -> str:
    last = model.rstrip("/").rpartition("/")[2]
    return model if _VERSION.match(last) else last


def row_names(entries: Sequence[RankedModel]) -> list[str]:
    """Return names for rows: the canonical ids, as far as they fit."""
    return _marked(entries, [entry.model for entry in entries], ROW_PX)


def _marked(entries: Sequence[RankedModel], names: Sequence[str], width: float) -> list[str]:
    """Return names in so many pixels, with the mark of simulated models."""
    if any(entry.simulated for entry in entries):
        width -= in_pixels(f" {SIMULATED}")
    short = fitted_names(names, width)
    return [
        with_mark(short[name], entry.simulated) for entry, name in zip(entries, names, strict=True)
    ]


def fitted_names(ids: Sequence[str], width: float) -> dict[str, str]:
    """Return a name for each of some foreign ids, at most so many pixels wide if it can be."""
    names = short_names(ids, width, measure=in_pixels)
    return {each: names[each] or "(no name)" for each in ids}


@lru_cache(1024)  # of letters, above all
def in_pixels(text: str) -> float:
    """Return the width of a label."""
    return text_width(text, TEXT_PX)


# The most names in a list; the others are counted.
LISTED = 12


def small_print(data: ReportData) -> str:
    """Say which run, snapshot and opinion a plot shows."""
    run, snapshot = data.run, data.snapshot
    name = f"{foreign_words(run.name)} ({run.run_id})" if run.name else run.run_id
    datasets = []
    for dataset in run.datasets[:LISTED]:
        commands = counted(dataset.samples, "command")
        datasets.append(f"{foreign_words(dataset.name)} {dataset.fingerprint[:12]} ({commands})")
    opinion = f"rule set {foreign_words(snapshot.scoring)} version {snapshot.scoring_version}"
    if snapshot.opinion is not None:
        opinion += f", targets {foreign_words(snapshot.opinion.targets.name)}"
    if snapshot.overlay is not None:
        opinion += f", overlay {foreign_words(snapshot.overlay.name)}"
    parts = [
        f"Run {name} of {format_time(run.created_at)}",
        ", ".join(datasets),
        f"snapshot {snapshot.snapshot_id} of {format_time(snapshot.created_at)},"
        f" {format_count(snapshot.verdicts)} verdicts",
        opinion,
        f"aegish-dist {snapshot.code_version}.",
    ]
    return "; ".join(parts)


def foreign_words(text: str) -> str:
    """Return a foreign name for a sentence: printable, and not too long."""
    return shortened(printable(text), 80)


def listed(names: Sequence[str]) -> str:
    """Return names with commas; of many the first ones and how many follow."""
    shown = ", ".join(map(foreign_words, names[:LISTED]))
    more = len(names) - LISTED
    if more <= 0:
        return shown
    return f"{shown} and {format_count(more)} more"


def named(label: str, names: Sequence[str]) -> str:
    """Return `Label: names.`; empty without any."""
    return f"{label}: {listed(names)}." if names else ""


def sampled(estimates: Iterable[Estimate]) -> str:
    """Return such as `; n = 741 commands`, from least to greatest; empty if not kept."""
    known = format_span(estimate.n for estimate in estimates if estimate.n)
    return f"; n = {known} commands" if known else ""


def interval_note(measures: Iterable[Measure], marks: str = "Bars") -> str:
    """Name the method of the intervals of some quantities."""
    methods = "; ".join(dict.fromkeys(measure.interval for measure in measures))
    return f"{marks}: 95 % confidence intervals ({methods})."


def apart(data: ReportData) -> tuple[list[RankedModel], list[RankedModel]]:
    """Return the models of a report, and the baselines, which charts draw as lines.

    Baselines alone count as models.
    """
    ranked = data.ranked
    models = [entry for entry in ranked if not is_baseline(entry.model)] or ranked
    return models, [entry for entry in ranked if entry not in models]


def baseline_note(baselines: Sequence[RankedModel]) -> str:
    """Name the baselines with their scores, where there are any."""
    if not baselines:
        return ""
    return f"Dotted, as far as the axis reaches: {described(baselines, [SCORE])}"


def simulated_note(entries: Iterable[RankedModel]) -> str:
    """Explain the mark of simulated models, where there are any."""
    if not any(entry.simulated for entry in entries):
        return ""
    return f"{SIMULATED} answers of the simulator, not of a model."


def described(entries: Iterable[RankedModel], measures: Sequence[Measure]) -> str:
    """Return some quantities of each model in words."""
    models = []
    for entry in entries:
        quantities = ", ".join(measure.words(entry) for measure in measures)
        models.append(f"{foreign_words(entry.model)}: {quantities}")
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
    reasons = [f"{listed(models)} ({reason})" for reason, models in by_reason.items()]
    return f"Not drawn: {'; '.join(reasons)}." if reasons else ""


def sentences(*parts: str) -> str:
    """Return the sentences of a caption, without empty ones."""
    return " ".join(part for part in parts if part)
