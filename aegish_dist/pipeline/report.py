"""Reporting: a run, one of its snapshots, and its verdicts one by one, gathered for rendering."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import ROUND_CEILING, Decimal
from enum import StrEnum
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from sqlalchemy import Engine

from aegish_dist.core.metric import METRICS_VERSION, Metric
from aegish_dist.core.outcome import ErrorClass, Outcome, ScoredAnswer
from aegish_dist.core.run import Run
from aegish_dist.core.status import FailedCalls, TimedFailures, stretch_of
from aegish_dist.core.text import JsonObject, printable
from aegish_dist.db.engine import ONE_VIEW, transaction
from aegish_dist.db.fleet import Fleet, ModelBlock, living_fleet
from aegish_dist.db.progress import (
    answer_span,
    failed_kinds,
    failure_span,
    failures_by_time,
    unanswered_by_model,
)
from aegish_dist.db.runs import load_run
from aegish_dist.db.snapshots import is_unchanged
from aegish_dist.errors import ReportError
from aegish_dist.findings.comparison import ComparisonData
from aegish_dist.findings.fitted import CalibrationData, SystemsData
from aegish_dist.findings.recommendation import (
    TAKE_MARGIN,
    Incomplete,
    Recommendation,
    contest,
    recommend,
)
from aegish_dist.findings.snapshot import Snapshot, against, overlay_effect, ranked_entries
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.policy import POLICY_PREFIX, Requirements
from aegish_dist.opinions.scoring import OWN_NUMBER
from aegish_dist.pipeline.opinions import overlay_of
from aegish_dist.pipeline.snapshots import (
    current_snapshot,
    current_snapshots,
    snapshot_numbered,
    without_overlay,
)
from aegish_dist.report.data import FailureCount, Halted, ReportData
from aegish_dist.report.layout import Fact
from aegish_dist.report.systems import systems_fact
from aegish_dist.report.thresholds import threshold_fact
from aegish_dist.report.writing import NAME_WIDTH, format_usd, short_names

if TYPE_CHECKING:
    from aegish_dist.opinions.guards import Guards
    from aegish_dist.report.page.grid import Grid


class ReportPart(StrEnum):
    """Content that takes time to gather, and that not every report shows."""

    COMPARISON = "differences"
    BY_CATEGORY = "comparison by category"
    FAILURE_TIMES = "failure-times"
    SCORES = "scores"
    ADVICE = "best with a threshold"
    GUARDS = "roc"


_OF_VERDICTS = {ReportPart.SCORES, ReportPart.ADVICE, ReportPart.GUARDS}
MOST_FITTED, MOST_PAIRED = 50_000, 40
"""Verdicts and models up to which every report fits thresholds: less than half a second."""


def report_data(
    engine: Engine,
    run_id: str,
    opinion: Opinion,
    snapshot_id: int | None = None,
    *,
    parts: Collection[ReportPart] = (),
    bounds: Requirements | None = None,
    take_margin: float = TAKE_MARGIN,
) -> ReportData:
    """Gather what a report shows.

    Args:
        opinion: What to apply; of a named snapshot, its policies alone.
        snapshot_id: A stored snapshot; the current verdicts when None.
        bounds: Bounds within which systems of guards are searched; None: none are.
        take_margin: Of the score, how much worse than the best a guard may be that is recommended.

    Raises:
        ReportError: The run has no verdict yet, or no such snapshot, or this has other verdicts
            than policies need, or there is nothing to search.
    """
    snapshot, effect = _snapshot(engine, run_id, opinion, snapshot_id)
    with transaction(engine) as session:
        run = load_run(session, run_id)
        attempts = failed_kinds(session, run_id)
        unanswered = unanswered_by_model(session, run)
        fleet = living_fleet(session)
        answered = answer_span(session, run)
        is_current = snapshot_id is None or is_unchanged(session, run, snapshot.identities)
        stretch_s, failure_times = 0, list[TimedFailures]()
        if ReportPart.FAILURE_TIMES in parts:
            stretch_s = stretch_of(failure_span(session, run_id))
            failure_times = failures_by_time(
                session, run_id, [spec.id for spec in run.models], stretch_s
            )
    known = snapshot.opinion if is_current else None
    advised = snapshot_id is None and ReportPart.ADVICE in parts
    guards = None
    if known and (bounds or opinion.policies or _take_verdicts(parts, snapshot, advised=advised)):
        known = replace(known, policies=opinion.policies)
        with suppress(ReportError):
            guards = _guards(engine, run_id, known, commands=bool(bounds))
    shown = snapshot
    if opinion.policies:
        if known is None:
            raise ReportError(
                f"a policy follows from the verdicts that count now, which are not those of"
                f" snapshot {snapshot.snapshot_id} under a known rule set: leave out --snapshot"
            )
        shown = _with_policies(snapshot, known, guards or _guards(engine, run_id, known))
    systems = scores = fitted = None
    if known and bounds:
        systems = _systems(engine, run_id, known, guards, bounds)
    if known and ReportPart.SCORES in parts:
        scores = _scores(engine, run_id, known, guards=guards)
    if advised and shown.opinion and not _is_too_much(run, snapshot):
        criterion = (bounds or Requirements()).criterion
        chosen = {"known": shown, "guards": guards, "criterion": criterion}
        fitted = _scores(engine, run_id, shown.opinion, **chosen)
    halted = list(_halted(run, fleet, snapshot))
    comparison = _comparison(engine, run, shown, parts) if is_current else None
    return ReportData(
        run=run,
        snapshot=shown,
        recommendation=_recommendation(
            engine, run, shown, is_current=is_current, margin=take_margin
        ),
        incomplete=_incomplete(run, snapshot, halted),
        failures=[
            failure
            for spec in run.models
            for failure in _failures(spec.id, attempts, unanswered[spec.id])
        ],
        halted=halted,
        effect=effect,
        comparison=comparison,
        scores=scores,
        thresholds=fitted,
        advice=[*_advice(run, shown, fitted, systems)] if advised else [],
        guards=guards if ReportPart.GUARDS in parts else None,
        failure_times=failure_times,
        failure_stretch_s=stretch_s,
        answered=answered,
        is_current=is_current,
    )


def _take_verdicts(parts: Collection[ReportPart], snapshot: Snapshot, *, advised: bool) -> bool:
    """Return whether parts of a report take the verdicts, beside the numbers of the snapshot."""
    taking = _OF_VERDICTS.intersection(parts)
    if snapshot.verdicts > MOST_FITTED and ReportPart.ADVICE in parts:
        taking -= {ReportPart.ADVICE, ReportPart.GUARDS}  # no curve unasked
    if not advised:
        taking.discard(ReportPart.ADVICE)
    return bool(taking)


def _comparison(
    engine: Engine, run: Run, snapshot: Snapshot, parts: Collection[ReportPart]
) -> ComparisonData | None:
    """Compare all pairs of models; None where none is wanted, or the rule set is not known."""
    alone = len(snapshot.document["models"]) < 2
    if ReportPart.COMPARISON not in parts or alone or snapshot.opinion is None:
        return None
    by_category = ReportPart.BY_CATEGORY in parts
    return _compared(engine, run, snapshot.opinion, by_category=by_category)


def _recommendation(
    engine: Engine, run: Run, snapshot: Snapshot, *, is_current: bool, margin: float
) -> Recommendation:
    """Say what to take, from the differences that the snapshot holds.

    Those of older formulas are not known: guards are compared, if the verdicts are still there.
    """
    among = contest(ranked_entries(snapshot.document), snapshot.pairs)
    if among.best is None or not among.wanted:
        return recommend(among, {}, margin)
    best = among.best.model
    differences = against(snapshot.pairs, best)
    is_older = snapshot.metrics_version != METRICS_VERSION
    if is_older and is_current and snapshot.opinion is not None:
        models = [best, *(guard.model for guard in among.wanted)]
        comparison = _compared(engine, run, snapshot.opinion, models, gate=True)
        differences = comparison.against(best, Metric.SCORE)
    return recommend(among, differences, margin)


def _incomplete(run: Run, snapshot: Snapshot, halted: Sequence[Halted]) -> Incomplete | None:
    """Return what is missing of a run; None where nothing is."""
    number = 0
    for entry in snapshot.entries:
        number += max(0, (entry.counts["planned"] or 0) - (entry.counts["done"] or 0))
    if not number:
        return None
    states = dict.fromkeys(each.state for each in halted)
    resume = ("resume", "--run-id", run.run_id)
    if ModelBlock.OVER_BUDGET in states:
        cap, options = _higher_caps(run, snapshot)
        why = f"the cap of {format_usd(float(cap))} is reached"
        return Incomplete(number, why, (*resume, *options))
    return Incomplete(number, ", ".join(states) or "the run has not ended", resume)


def _higher_caps(run: Run, snapshot: Snapshot) -> tuple[Decimal, list[str]]:
    """Return the cap that is reached, and options with caps under which the run can end."""
    spent = Decimal()
    needed: list[Decimal] = []  # by model, what all its items cost at the price of those done
    for entry in snapshot.entries:
        planned = entry.counts["planned"] or 0
        done = entry.counts["done"] or 0
        cost = Decimal(str(entry.cost["total_usd"] or 0))
        spent += cost
        needed.append(cost * planned / done if done else Decimal())
    total = sum(needed, Decimal())
    most = max(needed)
    cap, model_cap = run.caps
    of_run = cap is not None and spent >= cap
    reached = cap if of_run else model_cap
    options: list[str] = []
    if cap is not None and total >= cap:
        options += ["--max-cost", str(_rounded_up(total))]
    if model_cap is not None and most >= model_cap:
        options += ["--max-cost-per-model", str(_rounded_up(most))]
    return reached or Decimal(), options


def _rounded_up(usd: Decimal) -> Decimal:
    """Return an amount with a fifth to spare, in two digits."""
    ample = usd * Decimal("1.2")
    step = Decimal(1).scaleb(ample.adjusted() - 1)
    return (ample / step).to_integral_value(ROUND_CEILING) * step


# What takes numpy is imported where it is needed: a report of a stored snapshot does without.


def _guards(engine: Engine, run_id: str, opinion: Opinion, *, commands: bool = False) -> Guards:
    from aegish_dist.pipeline.guards import read_guards  # noqa: PLC0415

    return read_guards(engine, run_id, opinion, commands=commands)


def _with_policies(snapshot: Snapshot, opinion: Opinion, guards: Guards) -> Snapshot:
    from aegish_dist.pipeline.guards import with_policies  # noqa: PLC0415

    return with_policies(snapshot, opinion, guards)


def _compared(
    engine: Engine,
    run: Run,
    opinion: Opinion,
    models: Sequence[str] = (),
    *,
    gate: bool = False,
    by_category: bool = False,
) -> ComparisonData:
    from aegish_dist.pipeline.compare import Question, compare_models  # noqa: PLC0415

    question = Question(opinion, gate=gate, by_category=by_category)
    return compare_models(engine, run.run_id, models, question)


def _scores(engine: Engine, run_id: str, opinion: Opinion, **chosen: Any) -> CalibrationData | None:
    """Fit a threshold to each model; None where the run has too little to fit on."""
    from aegish_dist.pipeline.calibrate import calibrate  # noqa: PLC0415  for this part alone

    with suppress(ReportError):
        return calibrate(engine, run_id, opinion, **chosen)
    return None


def _systems(
    engine: Engine,
    run_id: str,
    opinion: Opinion,
    guards: Guards | None,
    bounds: Requirements,
) -> SystemsData:
    """Search for systems of models within bounds."""
    from aegish_dist.pipeline.policies import search_run  # noqa: PLC0415  for this part alone

    alone = replace(opinion, policies={})
    if guards:
        models = [e for e in guards.guards if not e.name.startswith(POLICY_PREFIX)]
        guards = replace(guards, guards=models)
    return search_run(engine, run_id, alone, OWN_NUMBER, requirements=bounds, guards=guards)


def _is_too_much(run: Run, snapshot: Snapshot) -> bool:
    return snapshot.verdicts > MOST_FITTED or len(run.models) > MOST_PAIRED


def _advice(
    run: Run,
    snapshot: Snapshot,
    fitted: CalibrationData | None,
    systems: SystemsData | None,
) -> Iterator[Fact]:
    """Say which threshold is shown to help, and which system of guards, where searched."""
    if _is_too_much(run, snapshot):
        command = f"`aegish-dist calibrate --run-id {run.run_id}`"
        yield Fact("With a threshold", f"{command} fits one to each guard.")
    if fitted is not None:
        names = short_names([model.model for model in fitted.models], NAME_WIDTH)
        fact = threshold_fact(fitted, names)
        if fact is not None:
            yield fact
    if systems is not None:
        yield systems_fact(systems, short_names(systems.models, NAME_WIDTH))


def _snapshot(
    engine: Engine, run_id: str, opinion: Opinion, snapshot_id: int | None
) -> tuple[Snapshot, list[JsonObject]]:
    """Return the snapshot, and what its overlay, if it has one, does to the scores."""
    plain: Snapshot | None
    if snapshot_id is not None:
        snapshot = snapshot_numbered(engine, run_id, snapshot_id)
        if snapshot.opinion is None or snapshot.opinion.overlay is None:
            return snapshot, []
        plain = without_overlay(engine, snapshot)
    elif opinion.overlay is None:
        return current_snapshot(engine, run_id, opinion), []
    else:
        both = (opinion, replace(opinion, overlay=None))
        snapshot, plain = current_snapshots(engine, run_id, both)
    return snapshot, [] if plain is None else overlay_effect(plain.document, snapshot.document)


def _failures(
    model: str, failed: Sequence[FailedCalls], unanswered: Mapping[ErrorClass, int]
) -> list[FailureCount]:
    """Count by error class the verdicts without an answer, and the attempts that failed."""
    counts = []
    for error_class in ErrorClass:
        kinds = [each for each in failed if (each.model, each.error_class) == (model, error_class)]
        newest = max(kinds, key=lambda kind: (kind.at, kind.calls), default=None)
        failure = FailureCount(
            model=model,
            error_class=error_class,
            verdicts=unanswered.get(error_class, 0),
            attempts=sum(kind.calls for kind in kinds),
            statuses=tuple(sorted({each.status for each in kinds if each.status is not None})),
            message="" if newest is None else newest.message,
            last_at=None if newest is None else newest.at,
        )
        if kinds or failure.verdicts:
            counts.append(failure)
    return sorted(counts, key=lambda each: (-each.verdicts, -each.attempts))


def _halted(run: Run, fleet: Fleet, snapshot: Snapshot) -> Iterator[Halted]:
    entries = snapshot.entries
    spent = {entry.model: Decimal(str(entry.cost["total_usd"] or 0)) for entry in entries}
    over = run.over_budget(spent)
    for entry in entries:
        model = entry.model
        halt = fleet.halt(run.run_id, model)
        if (entry.counts["done"] or 0) >= (entry.counts["planned"] or 0):
            continue
        if run.held is not None:
            yield Halted(model, run.held.value)
        elif model in over:
            yield Halted(model, ModelBlock.OVER_BUDGET.value)
        elif halt is not None:
            yield Halted(model, halt.value, fleet.reason(run.run_id, model) or "")
        elif (run.run_id, model) in fleet.unserved:
            yield Halted(model, "no worker may call it", fleet.unserved[run.run_id, model])


BLOB_VERDICTS = 960
"""Verdicts whose texts are packed together, about: unpacking them takes a browser milliseconds."""
MAX_VERDICTS = 500_000
"""Planned verdicts of a grid: a browser holds some 100 bytes for each."""
MAX_WITH_TEXTS = 200_000
MAX_TEXT_BYTES = 64 * 2**20
"""Bytes of all packed texts; a third more in the file."""


def report_grid(engine: Engine, data: ReportData) -> Grid:
    """Gather the verdicts of a report under the opinion of its snapshot.

    Of too many verdicts there is less, which a note of the grid says.
    """
    from aegish_dist.db.columns import (  # noqa: PLC0415  with numpy
        TEXT_CHARS,
        read_grid,
        read_texts,
    )
    from aegish_dist.report.page.grid import (  # noqa: PLC0415  with all of the page
        Grid,
        most_missed,
        pack_columns,
        pack_texts,
    )

    run, opinion = data.run, data.snapshot.opinion
    planned = len(run.models) * run.samples * run.epochs
    if opinion is None:
        return Grid(None, notes=["This version does not know the rule set of the snapshot, so it "
                                 "cannot say which answers are right."])  # fmt: skip
    if planned > MAX_VERDICTS:
        return Grid(None, notes=[_too_many(planned, MAX_VERDICTS, "Single verdicts are")])
    texts = planned <= MAX_WITH_TEXTS
    notes = (
        ["Policies are left out below: models alone have answers."] if data.policy_options else []
    )
    if not texts:
        notes.append(_too_many(planned, MAX_WITH_TEXTS, "Completions and other texts are"))
    models = _in_order(run, data.snapshot)
    at_once = max(1, min(64, BLOB_VERDICTS // max(1, len(run.models) * run.epochs)))
    blobs: list[bytes] = []
    firsts: list[int] = []
    with transaction(engine, isolation_level=ONE_VIEW) as session:
        if not is_unchanged(session, run, data.snapshot.identities):
            notes.append("Below stand the verdicts that count now, which are not known to be those "
                         "of the snapshot: the numbers above may differ.")  # fmt: skip
        grid = read_grid(session, run, models, opinion.rule, overlay_of(session, run, opinion))
        for part in read_texts(session, run, models, grid.commands, at_once) if texts else ():
            blobs.append(pack_texts(part))
            firsts.append(part.first)
    sizes = accumulate(map(len, blobs))
    kept = [blob for blob, size in zip(blobs, sizes, strict=True) if size <= MAX_TEXT_BYTES]
    if len(kept) < len(blobs):
        notes.append(f"Texts of the last commands are left out: all would be more than "
                     f"{MAX_TEXT_BYTES >> 20} MiB.")  # fmt: skip
    names = short_names(models, width=28)  # above their columns
    short = [names[model] for model in models]
    facts = _facts(run, models, opinion.rule.name) | {"textChars": TEXT_CHARS, "short": short}
    return Grid(pack_columns(grid, firsts, facts), kept, notes, most_missed(grid, short))


def _too_many(planned: int, most: int, what: str) -> str:
    return (
        f"{what} not in this file: the run plans {planned:,} verdicts, and a page takes "
        f"{most:,} of them. `aegish-dist verdicts list` and `verdicts show` find them."
    )


def _in_order(run: Run, snapshot: Snapshot) -> list[str]:
    """Return the models by rank, those at the end that the snapshot does not have."""
    asked = [spec.id for spec in run.models]
    ranked = [place["model"] for place in snapshot.document["ranking"]]
    return [model for model in ranked if model in asked] + [
        model for model in asked if model not in ranked
    ]


def _facts(run: Run, models: Sequence[str], rule: str) -> dict[str, object]:
    return {
        "run": run.run_id,
        "rule": printable(rule),
        "models": [printable(model) for model in models],
        "asked": [
            [printable(dataset.name) for dataset in run.datasets_of(model)] for model in models
        ],
        "outcomes": [each.value for each in Outcome],
        "labels": [each.value for each in ScoredAnswer],
        "errorClasses": [each.words for each in ErrorClass],
    }
