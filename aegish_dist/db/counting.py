"""Counting: from the verdicts of a run to what every metric is made from.

Cells are counted in the columns that are read once; sums of tokens, cost and times are those of the
database, which adds up decimals exactly.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from msgspec import Struct
from sqlalchemy import Row
from sqlalchemy.orm import Session

from aegish_dist.core.columns import RunColumns, cells_of, confidence_of
from aegish_dist.core.model import ModelSpec
from aegish_dist.core.run import Run
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.tally import TOKEN_KINDS, Latency, ModelTally
from aegish_dist.db.columns import read_columns
from aegish_dist.db.overlays import OverlayInRun
from aegish_dist.db.runs import PerModel, prepare_counting
from aegish_dist.db.snapshots import identity_of, unchanged_models
from aegish_dist.findings.snapshot import VerdictSet

PARTS = ("service", "queue", "limiter", "backoff", "total")
"""Parts of the time of a call; the columns of `add_up_totals` begin with these words."""
FRACTIONS = (0.5, 0.9, 0.99, 1.0)  # the quantiles of `Latency`, and its greatest time


def _latency(row: Row[Any]) -> dict[str, Latency]:
    latency = {}
    for part in PARTS:
        times: int = getattr(row, f"{part}_times")
        if times:
            micros = int(getattr(row, f"{part}_micros"))
            mean_ms = float(Fraction(micros, 1000 * times))
            quantiles = getattr(row, f"{part}_quantiles")
            latency[part] = Latency(mean_ms, *quantiles)
    return latency


def _sum(rows: Sequence[Row[Any]], column: str) -> Any:
    """Return the sum of a column; None where no row has a value."""
    values = [getattr(row, column) for row in rows]
    known = [value for value in values if value is not None]
    if known:
        return sum(known)
    return None


class Counted(Struct, frozen=True):
    spec: ModelSpec
    identity: VerdictSet
    tallies: tuple[ModelTally, ...]
    """One for each overlay; empty when its verdicts are those that the caller knew."""


class RunCount(Struct, frozen=True, eq=False):
    models: list[Counted]  # sorted by model, those without a verdict included
    columns: list[RunColumns]  # one for each overlay; empty when all verdicts are known


def count_models(
    session: Session,
    run: Run,
    known: Mapping[str, VerdictSet],
    overlays: Sequence[OverlayInRun] = (OverlayInRun(),),
) -> RunCount:
    """Count the verdicts of a run, except where they are known already.

    Args:
        session: Transaction of the caller; `REPEATABLE READ` makes the counts one picture while
            workers still write.
        overlays: Corrections of labels, each of which gives a tally of its own.
    """
    models = PerModel.of(session, run)
    prepare_counting(session)
    unchanged = unchanged_models(models, known)
    columns = []
    if len(unchanged) < len(run.models):
        names = [spec.id for spec in run.models]
        for overlay in overlays:
            columns.append(read_columns(session, run, names, overlay, numbers=["confidence"]))
    found = []
    for spec in run.models:
        if spec.id in unchanged:
            found.append(Counted(spec, known[spec.id], ()))
        else:
            found.append(_count(models, spec, overlays, columns))
    return RunCount(found, columns)


def _count(
    models: PerModel,
    spec: ModelSpec,
    overlays: Sequence[OverlayInRun],
    columns: Iterable[RunColumns],
) -> Counted:
    """Count the verdicts of a model that count; add up tokens and costs of all, and times."""
    groups = models.newest("identify_verdicts", spec.id)
    (totals,) = models.newest("add_up_totals", spec.id, fractions=list(FRACTIONS))
    # A retry costs as much as a first try, and the first try was not free.
    replaced = models.superseded("add_up_spent", spec.id)
    spent = [totals, *replaced]
    tokens = {kind: _sum(spent, f"{kind}_tokens") for kind in TOKEN_KINDS}
    tallies = []
    for overlay, read in zip(overlays, columns, strict=True):
        planned = overlay.planned(models.run, spec.id)
        guard = read.guards[spec.id]
        tally = ModelTally(
            model=spec.id,
            simulated=spec.simulated,
            planned_malicious=planned[TrueLabel.MALICIOUS],
            planned_harmless=planned[TrueLabel.HARMLESS],
            cells=cells_of(read.samples, guard.finding),
            confidence=confidence_of(read.samples, guard),
            latency=_latency(totals),
            tokens={kind: n if n is None else int(n) for kind, n in tokens.items()},
            cost_usd=_sum(spent, "cost_usd"),
            priced_verdicts=sum(each.priced for each in spent),
            replaced=sum(each.verdicts for each in replaced),
            untimed=totals.verdicts - totals.service_times,
        )
        tallies.append(tally.as_imported if models.run.imported else tally)
    return Counted(spec, identity_of(groups, totals), tuple(tallies))
