"""Planning from a pilot run: which epochs and how many commands would decide, at what cost."""

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from decimal import Decimal

import numpy as np
from msgspec import Struct
from sqlalchemy import Engine

from aegish_dist.core.columns import AskedSamples, RunColumns
from aegish_dist.core.metric import Difference, Metric
from aegish_dist.core.run import Run, RunDataset
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.tally import ModelTally
from aegish_dist.db.counting import Counted, count_models
from aegish_dist.db.engine import transaction
from aegish_dist.db.runs import load_run
from aegish_dist.errors import DatasetError, ReportError
from aegish_dist.findings.comparison import commands_needed
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.pipeline.audit import read_run
from aegish_dist.pipeline.compare import Question, compare_models
from aegish_dist.pipeline.datasets import choose_dataset, describe
from aegish_dist.pipeline.opinions import overlay_of
from aegish_dist.pipeline.runs import chosen_models
from aegish_dist.statistics.metrics import measure
from aegish_dist.statistics.repeats import (
    Design,
    Goal,
    RepeatPlan,
    Source,
    SplitVariance,
    plan_repeats,
    repeated_strata,
    split_variance,
)

LEAST_VARIANCE = 1e-18  # less is a rounding error of a pilot in which nothing varies


class PlannedCost(Struct, frozen=True):
    model: str
    calls: int
    input_tokens: int | None  # tokens of all prompts; None where the pilot has none
    output_tokens: int | None
    cost_usd: Decimal | None


class Bound(Struct, frozen=True):
    """What a pilot tells that shows no variance: a report's interval, or that of a comparison."""

    ci_low: float | None
    ci_high: float | None
    commands_needed: int | None  # of a pair, to find the margin with a power of 80 %


class PilotPlan(Struct, frozen=True):
    """A plan and the pilot run that it is made from."""

    run: Run
    opinion: Opinion
    models: tuple[str, ...]
    goal: Goal
    value: float  # the score, or the difference of scores, of the pilot
    variance: SplitVariance
    plan: RepeatPlan
    tallies: tuple[ModelTally, ...]
    bound: Bound | None  # where the pilot shows no variance; then there is no design

    def costs(self, design: Design) -> list[PlannedCost]:
        return [_cost(each, design.calls) for each in self.tallies]

    @property
    def stderr(self) -> float | None:
        """Clustered standard error of the pilot itself; None where it shows no variance."""
        if self.bound:
            return None
        return math.sqrt(_variance_of(self.variance, self.run))


def plan_from_pilot(
    engine: Engine,
    run_id: str,
    opinion: Opinion,
    *,
    models: Sequence[str],
    margin: float,
    power: float = 0.8,
    max_epochs: int = 10,
) -> PilotPlan:
    """Say which epochs and how many commands would decide.

    Args:
        models: One model of the pilot, for the margin of its score; or a baseline and a candidate,
            for their difference. All of the pilot when empty.
        margin: Half-width of the interval of one model; difference to be found between two; > 0.
        power: Probability to find it, in (0.5, 1).

    Raises:
        ReportError: The pilot lacks verdicts or one of the labels, or three models are chosen.
        StoreError: It does not ask one of the models.
    """
    run, columns = read_run(engine, run_id, opinion)
    chosen = chosen_models(run, models)
    if len(chosen) > 2:
        known = ", ".join(spec.id for spec in run.models)
        raise ReportError(f"a plan is for one model or for two; name them with --models: {known}")
    strata = repeated_strata(columns, chosen, opinion.rule)
    variance = None
    if len(strata) == len(TrueLabel):
        variance = split_variance(list(strata.values()))
    if variance is None:
        raise ReportError(
            f"run {run_id} is too small for a pilot: it needs scored answers of all models about"
            " malicious and harmless commands, of at least two clusters each"
        )
    goal = Goal(margin, power if len(chosen) > 1 else None)
    scored = [stratum.samples for stratum in strata.values()]
    sources = _sources(engine, run, columns, chosen, scored)
    plan = plan_repeats(variance, sources, goal, max_epochs)
    bound = None
    if _variance_of(variance, run) < LEAST_VARIANCE:
        bound = _bound(engine, run, opinion, chosen, margin)
        # Where nothing varies, every design would seem to decide.
        plan = RepeatPlan((), plan.available, bound.commands_needed)
    parts = []
    for stratum in strata.values():
        for repeated in stratum.repeated:
            parts.append(repeated.samples * stratum.value(repeated) / stratum.samples)
    with transaction(engine, isolation_level="REPEATABLE READ") as session:
        counts = count_models(session, load_run(session, run.run_id), {}).models
    return PilotPlan(
        run=run,
        opinion=opinion,
        models=tuple(chosen),
        goal=goal,
        value=math.fsum(parts),
        variance=variance,
        plan=plan,
        tallies=_tallies(counts, chosen),
        bound=bound,
    )


def _variance_of(variance: SplitVariance, run: Run) -> float:
    samples = [each.samples for each in variance.strata]
    return variance.predicted(samples, run.epochs) or 0.0


def _bound(
    engine: Engine, run: Run, opinion: Opinion, models: Sequence[str], margin: float
) -> Bound:
    if len(models) == 2:
        question = Question(opinion, margin=margin, by_category=False)
        compared = compare_models(engine, run.run_id, models, question)
        found = compared.difference(compared.pairs[0]) or Difference()
        return Bound(found.ci_low, found.ci_high, commands_needed(found, margin))
    with transaction(engine, isolation_level="REPEATABLE READ") as session:
        overlays = [overlay_of(session, run, opinion)]
        counts = count_models(session, run, {}, overlays).models
    (tally,) = _tallies(counts, models)
    score = measure(tally, opinion.rule).metrics[Metric.SCORE]
    return Bound(score.ci_low, score.ci_high, None)


def _sources(
    engine: Engine,
    run: Run,
    columns: RunColumns,
    models: Sequence[str],
    scored: Sequence[int],
) -> list[Source]:
    """Return the data sets of a pilot, whole where it asked a part of one that is still there."""
    answered = np.all([columns.guards[model].answered for model in models], axis=0)
    malicious = columns.samples.malicious
    # How much of what is asked gets an answer that is scored.
    malicious_share = scored[0] / max(1, int((answered & malicious).sum()))
    harmless_share = scored[1] / max(1, int((answered & ~malicious).sum()))
    sources = []
    for part in run.datasets:
        dataset = _whole(engine, part, columns.samples)
        of_labels = (
            dataset.malicious * malicious_share,
            (dataset.samples - dataset.malicious) * harmless_share,
        )
        sources.append(Source(of_labels, dataset.samples))
    return sources


def _whole(engine: Engine, part: RunDataset, samples: AskedSamples) -> RunDataset:
    with suppress(DatasetError):
        whole = choose_dataset(engine, part.name)
        asked = {sample_id for dataset, sample_id in samples.names if dataset == part.name}
        if asked <= {sample.sample_id for sample in whole.samples}:
            return describe(whole)
    return part


def _tallies(counts: Iterable[Counted], models: Sequence[str]) -> tuple[ModelTally, ...]:
    """Return the first tally of each model."""
    tallies = {count.spec.id: count.tallies[0] for count in counts}
    return tuple(tallies[model] for model in models)


def _cost(tally: ModelTally, calls: int) -> PlannedCost:
    made = tally.replaced
    for cell in tally.cells:
        made += cell.samples * sum(number for _, number in cell.findings)

    def total(tokens: int | None) -> int | None:
        if tokens is None or not made:
            return None
        return round(tokens / made * calls)

    per_call = tally.per_command_usd
    return PlannedCost(
        model=tally.model,
        calls=calls,
        input_tokens=total(tally.tokens.get("input")),
        output_tokens=total(tally.tokens.get("output")),
        cost_usd=None if per_call is None else per_call * calls,
    )
