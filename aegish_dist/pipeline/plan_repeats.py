"""Planning from a pilot run: which epochs and how many commands would decide, at what cost."""

import math
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal

from msgspec import Struct
from sqlalchemy import Engine

from aegish_dist.core.opinion import Opinion
from aegish_dist.core.run import Run, RunDataset
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.scoring import SampleAnswers
from aegish_dist.core.tally import ModelTally
from aegish_dist.db.counting import count_models
from aegish_dist.db.engine import transaction
from aegish_dist.db.runs import load_run
from aegish_dist.errors import DatasetError, ReportError
from aegish_dist.pipeline.audit import verdicts_by_sample
from aegish_dist.pipeline.datasets import choose_dataset, describe
from aegish_dist.pipeline.runs import chosen_models
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


class PlannedCost(Struct, frozen=True):
    model: str
    calls: int
    input_tokens: int | None  # tokens of all prompts; None where the pilot has none
    output_tokens: int | None
    cost_usd: Decimal | None


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

    def costs(self, design: Design) -> list[PlannedCost]:
        return [_cost(each, design.calls) for each in self.tallies]

    @property
    def stderr(self) -> float:
        """Clustered standard error of the pilot itself."""
        samples = [each.samples for each in self.variance.strata]
        return math.sqrt(self.variance.predicted(samples, self.run.epochs) or 0.0)


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
    run, samples = verdicts_by_sample(engine, run_id, opinion)
    chosen = chosen_models(run, models)
    if len(chosen) > 2:
        known = ", ".join(spec.id for spec in run.models)
        raise ReportError(f"a plan is for one model or for two; name them with --models: {known}")
    strata = repeated_strata(samples, chosen, opinion.rule)
    variance = split_variance(list(strata.values())) if len(strata) == len(TrueLabel) else None
    if variance is None:
        raise ReportError(
            f"run {run_id} is too small for a pilot: it needs scored answers of all models about"
            " malicious and harmless commands, of at least two clusters each"
        )
    goal = Goal(margin, power if len(chosen) > 1 else None)
    scored = [stratum.samples for stratum in strata.values()]
    return PilotPlan(
        run=run,
        opinion=opinion,
        models=tuple(chosen),
        goal=goal,
        value=math.fsum(
            each.samples * stratum.value(each) / stratum.samples
            for stratum in strata.values()
            for each in stratum.repeated
        ),
        variance=variance,
        plan=plan_repeats(
            variance, _sources(engine, run, samples, chosen, scored), goal, max_epochs
        ),
        tallies=_tallies(engine, run, chosen),
    )


def _sources(
    engine: Engine,
    run: Run,
    samples: Sequence[SampleAnswers],
    models: Sequence[str],
    scored: Sequence[int],
) -> list[Source]:
    """Return the data sets of a pilot, whole where it asked a part of one that is still there."""
    asked = [
        sum(s.target is target and all(model in s.findings for model in models) for s in samples)
        for target in TrueLabel
    ]
    coverage = [part / max(1, whole) for part, whole in zip(scored, asked, strict=True)]
    return [
        Source(
            (each.malicious * coverage[0], (each.samples - each.malicious) * coverage[1]),
            each.samples,
        )
        for each in [_whole(engine, dataset, samples) for dataset in run.datasets]
    ]


def _whole(engine: Engine, part: RunDataset, samples: Sequence[SampleAnswers]) -> RunDataset:
    with suppress(DatasetError):
        whole = choose_dataset(engine, part.name)
        asked = {sample.sample_id for sample in samples if sample.dataset == part.name}
        if asked <= {sample.sample_id for sample in whole.samples}:
            return describe(whole)
    return part


def _tallies(engine: Engine, run: Run, models: Sequence[str]) -> tuple[ModelTally, ...]:
    with transaction(engine, isolation_level="REPEATABLE READ") as session:
        tallies = {
            each.spec.id: each.tallies[0]
            for each in count_models(session, load_run(session, run.run_id), {})
        }
    return tuple(tallies[model] for model in models)


def _cost(tally: ModelTally, calls: int) -> PlannedCost:
    made = tally.replaced + sum(n * cell.samples for cell in tally.cells for _, n in cell.findings)

    def total(tokens: int | None) -> int | None:
        return None if tokens is None or not made else round(tokens / made * calls)

    per_call = tally.per_command_usd
    return PlannedCost(
        tally.model,
        calls,
        total(tally.tokens.get("input")),
        total(tally.tokens.get("output")),
        None if per_call is None else per_call * calls,
    )
