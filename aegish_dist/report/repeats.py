"""The section on repeats: how often answers change, and what further epochs would bring."""

from collections.abc import Mapping, Sequence
from typing import Any

from aegish_dist.core.sample import Target
from aegish_dist.report.entries import RankedModel
from aegish_dist.report.layout import (
    MODEL,
    Column,
    Section,
    TableCell,
    number_cell,
    rate_cell,
    tabulate,
)
from aegish_dist.report.numbers import format_decimal, format_points

_NOTE = (
    "Flips: % of commands with different actions in different epochs. Variance of being right,"
    " between commands and within them (from epoch to epoch). Clustered stderr of the score in"
    " points: as it is, with one more epoch, and with any number of them."
)
_PARTS = ("between", "within")
_RATES = ((Target.MALICIOUS, "DR"), (Target.HARMLESS, "HA"))


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


def _variance(target: Target, short: str, part: str) -> Column:
    def read(entry: RankedModel) -> TableCell:
        rates: Mapping[str, Any] = entry.part("repeats").get("rates") or {}
        return number_cell((rates.get(target.value) or {}).get(part), format_decimal)

    return Column(f"{short} {part}", read)


def _stderr(name: str, title: str) -> Column:
    return Column(title, lambda entry: number_cell(entry.part("repeats").get(name), format_points))
