"""Comparing: models of one run with each other, or the same models of several runs."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, groupby

from msgspec import Struct, field
from msgspec.structs import replace
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist.core.opinion import Opinion
from aegish_dist.core.run import ModelOfRun, Run, incompatibilities
from aegish_dist.core.suspicion import OWN_NUMBER, Guards, SuspicionRule
from aegish_dist.db.answers import parser_versions, read_answers
from aegish_dist.db.engine import transaction
from aegish_dist.db.runs import load_run
from aegish_dist.errors import ReportError
from aegish_dist.pipeline.opinions import overlay_of, read_guards
from aegish_dist.pipeline.runs import chosen_models
from aegish_dist.report.data import AUROC, ComparedPair, ComparisonData, PairGate
from aegish_dist.statistics.document import rank
from aegish_dist.statistics.gate import commands_to_decide, gate
from aegish_dist.statistics.paired_difference import (
    Difference,
    PairedAnswers,
    ScoredColumns,
    adjusted,
    compare_samples,
)
from aegish_dist.statistics.rates import Estimate

_Pair = tuple[ModelOfRun, ModelOfRun]


class Question(Struct, frozen=True):
    opinion: Opinion = field(default_factory=Opinion)
    metric: str = "aegish_score"
    """One of a comparison, or of a run's models `auroc`."""
    suspicion: SuspicionRule = OWN_NUMBER
    """The suspicion that AUROC orders by."""
    margin: float = 0.02
    """How much worse a candidate may be, and the difference that commands are counted for, in
    (0, 1)."""
    gate: bool = False
    """Whether each candidate is to be let through or not; then pairs with the baseline alone are
    compared."""
    by_category: bool = True
    """Whether detection rates are compared by category, too: about half of the time."""
    force: bool = False


def compare_models(
    engine: Engine, run_id: str, models: Sequence[str] = (), question: Question | None = None
) -> ComparisonData:
    """Compare models of a run.

    Args:
        models: Models of the run, and policies of the opinion, the baseline of a pair before its
            candidate; all when empty.

    Raises:
        ReportError: The run has fewer than two models.
        StoreError: It does not ask one of them.
    """
    asked = question or Question()
    guards = (
        read_guards(engine, run_id, asked.opinion, asked.suspicion, models)
        if asked.metric == AUROC or asked.opinion.policies
        else None
    )
    with transaction(engine, isolation_level="REPEATABLE READ") as session:
        run = load_run(session, run_id)
        sides = [
            ModelOfRun(run_id, model)
            for model in chosen_models(run, models, asked.opinion.contenders)
        ]
        if len(sides) < 2:
            raise ReportError(
                f"a comparison takes two models of run {run_id}: name more with `--models`, or "
                "other runs with `--runs`"
            )
        pairs = [(sides[0], other) for other in sides[1:]] if asked.gate else combinations(sides, 2)
        return _compared(session, [run], [*pairs], asked, guards=guards)


def _areas(guards: Guards) -> dict[tuple[str, str], Difference]:
    """Return how models differ in AUROC, and each beside itself; `n` counts decisions."""
    from aegish_dist.statistics.roc import (  # noqa: PLC0415  for this metric alone
        ScoredDecisions,
        auroc,
        auroc_differences,
    )

    columns = {each.name: each.suspicion for each in guards.guards}
    alone = {
        (name, name): Difference(a=auroc(ScoredDecisions(guards.decisions, column)).value)
        for name, column in columns.items()
    }
    return alone | auroc_differences(guards.decisions, columns)


def compare_runs(
    engine: Engine,
    run_ids: Sequence[str],
    models: Sequence[str] = (),
    question: Question | None = None,
) -> ComparisonData:
    """Compare models of a baseline run with the same models of other runs.

    Args:
        run_ids: Full ids, at least two; the first is the baseline.
        models: Models of all the runs; when empty, all that the runs have in common.

    Raises:
        ReportError: The runs differ in more than their answers, or have no model in common.
    """
    asked = question or Question()
    with transaction(engine, isolation_level="REPEATABLE READ") as session:
        base, *others = runs = [load_run(session, run_id) for run_id in run_ids]
        chosen = _common(runs, models)
        unlike = list(_unlike(session, runs, chosen))
        if unlike and not asked.force:
            raise ReportError(
                f"the runs differ in more than their answers: {'; '.join(unlike)}: "
                "`--force` compares them all the same, and says so"
            )
        pairs = [
            (ModelOfRun(base.run_id, model), ModelOfRun(run.run_id, model))
            for run in others
            for model in chosen
        ]
        return _compared(session, runs, pairs, asked, unlike)


def _compared(
    session: Session,
    runs: Sequence[Run],
    pairs: Sequence[_Pair],
    asked: Question,
    unlike: Sequence[str] = (),
    *,
    guards: Guards | None = None,
) -> ComparisonData:
    sides = dict.fromkeys(side for pair in pairs for side in pair)
    side = partial(ModelOfRun, runs[0].run_id)
    if guards is None:
        overlays = {run.run_id: overlay_of(session, run, asked.opinion) for run in runs}
        answers = read_answers(session, [*sides], runs, overlays)
    else:
        answers = PairedAnswers.of(guards, side)
    areas = _areas(guards) if guards is not None and asked.metric == AUROC else {}
    rule = asked.opinion.rule
    scored = ScoredColumns(answers, rule, by_category=asked.by_category)
    comparisons = adjusted([compare_samples(scored.pair(a, b), rule.composite) for a, b in pairs])
    if areas:
        comparisons = [
            replace(each, metrics={**each.metrics, AUROC: areas[a.model, b.model]})
            for (a, b), each in zip(pairs, comparisons, strict=True)
        ]
    compared = [
        ComparedPair(*pair, comparison, answers.answered(*pair))
        for pair, comparison in zip(pairs, comparisons, strict=True)
    ]
    return ComparisonData(
        runs=runs,
        opinion=asked.opinion,
        pairs=compared,
        tie_groups=_tie_groups(scored, compared, asked, areas)
        if len(runs) == 1 and not asked.gate
        else (),
        unlike=unlike,
        simulated={
            ModelOfRun(run.run_id, spec.id) for run in runs for spec in run.models if spec.simulated
        }
        | {side(each.name) for each in (guards.guards if guards else ()) if each.simulated},
        metric=asked.metric,
        margin=asked.margin,
        gates=[_gated(pair, asked) for pair in compared] if asked.gate else (),
    )


def _tie_groups(
    scored: ScoredColumns[ModelOfRun],
    compared: Sequence[ComparedPair],
    asked: Question,
    areas: Mapping[tuple[str, str], Difference],
) -> list[list[str]]:
    """Group the models of a run with those that they cannot be distinguished from, best first.

    A model is placed by all of its scored samples, as in reports, and not by those of a pair.
    """
    sides = dict.fromkeys(side for pair in compared for side in (pair.a, pair.b))
    metric, composite = asked.metric, asked.opinion.rule.composite
    alone = {
        side.model: areas[side.model, side.model]
        if areas
        else compare_samples(scored.pair(side, side), composite).metrics[metric]
        for side in sides
    }
    places = rank(
        {model: Estimate(value=each.a) for model, each in alone.items()},
        {
            frozenset((each.a.model, each.b.model)): each.comparison.metrics[metric].p_adjusted
            for each in compared
        },
    )
    return [
        [place.model for place in group]
        for number, group in groupby(places, key=lambda place: place.tie_group)
        if number is not None
    ]


def _gated(pair: ComparedPair, asked: Question) -> PairGate:
    found, margin = pair.comparison.metrics[asked.metric], asked.margin
    return PairGate(pair, gate(found, margin), found, commands_to_decide(found, margin))


def _common(runs: Sequence[Run], models: Sequence[str]) -> list[str]:
    of_runs = [chosen_models(run, models) for run in runs]
    found = [model for model in of_runs[0] if all(model in others for others in of_runs)]
    found = [each for each in found if models or not each.startswith("baseline/")] or found
    if not found:
        raise ReportError(
            "the runs have no model in common; `--runs` compares the same model in two runs: to "
            "compare B with A, ask B too, `extend --run-id R --models B`, then "
            "`compare --run-id R --models A,B`"
        )
    return found


def _unlike(session: Session, runs: Sequence[Run], models: Sequence[str]) -> Iterator[str]:
    """Yield what other runs differ in from the first, each with its run where there are several."""
    parsers: dict[ModelOfRun, set[int]] = {}
    for run in runs:
        parsers |= parser_versions(
            session, [ModelOfRun(run.run_id, model) for model in models], run
        )
    for run in runs[1:]:
        of_run = f"run {run.run_id}: " if len(runs) > 2 else ""
        yield from (of_run + each for each in incompatibilities(runs[0], run, models, parsers))
