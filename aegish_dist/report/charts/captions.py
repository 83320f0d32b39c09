"""The words around plots: captions, small print and descriptions for those who do not see them."""

from collections.abc import Collection, Iterable, Sequence

from aegish_dist.core.text import printable, shortened
from aegish_dist.report.charts.measures import COST, LATENCY, Measure, Measured
from aegish_dist.report.data import ReportData
from aegish_dist.report.layout import SIMULATED, RankedModel
from aegish_dist.report.numbers import format_count, format_ms, format_time, format_usd

NAME_CHARACTERS = 80
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
    return shortened(printable(text), NAME_CHARACTERS)


def counted(number: int, thing: str) -> str:
    """Return a number of things, such as `1 model` or `3 models`."""
    return f"{format_count(number)} {thing}" if number == 1 else f"{format_count(number)} {thing}s"


def listed(names: Sequence[str]) -> str:
    """Return names with commas; of many the first ones and how many follow."""
    shown = ", ".join(map(foreign_words, names[:LISTED]))
    more = len(names) - LISTED
    return f"{shown} and {format_count(more)} more" if more > 0 else shown


def sampled(measure: Measure, seen: Iterable[Measured]) -> str:
    """Return n of a quantity, from the least to the greatest where it differs between models.

    Returns:
        Such as `n = 431 malicious commands`; empty where n is not kept.
    """
    known = sorted({each.n for each in seen if each.n})
    if not known:
        return ""
    most = "" if len(known) == 1 else f" to {format_count(known[-1])}"
    return f"n = {format_count(known[0])}{most} {measure.counted}"


def interval_note(measures: Iterable[Measure], marks: str = "Bars") -> str:
    """Name the method of the intervals of some quantities."""
    methods = list(dict.fromkeys(each.interval for each in measures if each.interval))
    return f"{marks}: 95 % confidence intervals ({'; '.join(methods)})." if methods else ""


def simulated_note(entries: Iterable[RankedModel]) -> str:
    """Explain the mark of simulated models, where there are any."""
    found = any(entry.simulated for entry in entries)
    return f"{SIMULATED} answers of the simulator, not of a model." if found else ""


def in_words(measure: Measure, seen: Measured) -> str:
    """Return a quantity with its value and interval."""
    if seen.value is None:
        return f"{measure.name} undefined"
    if measure is COST:
        return f"{format_usd(seen.value)} per 1,000 commands"
    if measure is LATENCY:
        return f"{format_ms(1000 * seen.value)} at the median"
    interval = "" if seen.low is None else f" [{seen.low:.1f}, {seen.high:.1f}]"
    return f"{measure.name} {seen.value:.1f} %{interval}"


def described(entries: Iterable[RankedModel], measures: Sequence[Measure]) -> str:
    """Return some quantities of each model in words."""
    models = (
        f"{foreign_words(entry.model)}: {', '.join(in_words(m, m.read(entry)) for m in measures)}"
        for entry in entries
    )
    return "; ".join(models) + "."


def left_out_note(
    entries: Iterable[RankedModel], drawn: Collection[RankedModel], reason: str
) -> str:
    """Name the models that a plot leaves out."""
    names = [entry.model for entry in entries if entry not in drawn]
    return f"Not drawn: {listed(names)} ({reason})." if names else ""


def sentences(*found: str) -> str:
    """Return the sentences of a caption, without empty ones."""
    return " ".join(each for each in found if each)


def capital(text: str) -> str:
    """Return a text that begins with a capital letter."""
    return text[:1].upper() + text[1:]
