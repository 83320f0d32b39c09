"""Comparing: models of one run with each other, or the same models of several runs."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist.core.columns import AskedSamples, Bools, GuardColumns, Ints, SampleKind
from aegish_dist.core.metric import Difference, Estimate, Metric
from aegish_dist.core.model import is_baseline
from aegish_dist.core.run import ModelOfRun, Run, incompatibilities
from aegish_dist.db.columns import parser_versions, read_columns, read_commands
from aegish_dist.db.engine import transaction
from aegish_dist.db.runs import load_run
from aegish_dist.errors import ReportError
from aegish_dist.findings.comparison import (
    AUROC,
    CHANGES,
    Change,
    ChangedCommand,
    ComparedPair,
    ComparisonData,
    PairGate,
    run_names,
    tie_groups,
)
from aegish_dist.opinions.guards import Guard, Guards
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.policy import may_be_judged
from aegish_dist.opinions.scoring import OWN_NUMBER, ScoringRule, SuspicionRule
from aegish_dist.pipeline.guards import overlaps_of, read_guards
from aegish_dist.pipeline.opinions import overlay_of
from aegish_dist.pipeline.runs import chosen_models
from aegish_dist.statistics.paired_difference import UNSCORED, PairedScores, scored_values

_Pair = tuple[ModelOfRun, ModelOfRun]
MOST_GUARDS = 4


class Question(Struct, frozen=True):
    opinion: Opinion = field(default_factory=Opinion)
    metric: str = Metric.SCORE
    """One of a comparison, or of a run's models `auroc`."""
    suspicion: SuspicionRule = OWN_NUMBER
    """The suspicion that AUROC orders by."""
    margin: float = 0.02
    """How much worse a guard may be, and the difference that commands are counted for, in
    (0, 1)."""
    gate: bool = False
    """Whether each guard is to be let through or not; then pairs with the first one alone are
    compared."""
    by_category: bool = True
    """Whether detection rates are compared by category, too: about half of the time."""
    force: bool = False
    changed: bool = False
    """Whether pairs tell which samples they judge differently, where at most `MOST_GUARDS` guards
    are named."""


def compare_models(
    engine: Engine, run_id: str, models: Sequence[str] = (), question: Question | None = None
) -> ComparisonData:
    """Compare models of a run.

    Args:
        models: Models of the run, and policies of the opinion; the first of a pair is the one that
            the second is compared with. All when empty.

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
                f"a comparison takes two guards of run {run_id}: name more with `--models`, or "
                "other runs with `--runs`"
            )
        pairs = [(sides[0], other) for other in sides[1:]] if asked.gate else combinations(sides, 2)
        asked = replace(asked, changed=asked.changed and bool(models))
        return _compared(session, [run], [*pairs], asked, guards=guards)


def _areas(guards: Guards) -> dict[tuple[str, str], Difference]:
    """Return how models differ in AUROC, and each beside itself; `n` counts decisions."""
    from aegish_dist.statistics.roc import (  # noqa: PLC0415  for this metric alone
        ScoredDecisions,
        auroc,
        auroc_differences,
    )

    alone = {}
    for guard in guards.guards:
        area = auroc(ScoredDecisions(guards.samples, guard.suspicion))
        alone[guard.name, guard.name] = Difference(a=area.value)
    return alone | auroc_differences(guards)


class _Answers(Struct, frozen=True, eq=False):
    """What sides answered about the samples of all their runs."""

    samples: AskedSamples
    values: dict[ModelOfRun, Ints]
    answered: dict[ModelOfRun, Bools]  # by sample, whether a side has a verdict about it
    keys: dict[str, Ints]  # by run and sample, its key in the store


# What guards of a run said, by name, and about which samples.
_Read = tuple[AskedSamples, Mapping[str, GuardColumns | Guard]]


def _answers(runs: Mapping[str, _Read], rule: ScoringRule) -> _Answers:
    """Join what guards of several runs answered: a sample is known by its dataset and id."""
    if len(runs) == 1:
        [(samples, _)] = runs.values()
        places = dict.fromkeys(runs, np.arange(len(samples)))
    else:
        samples, places = _joined_samples({run_id: of_run for run_id, (of_run, _) in runs.items()})
    values, answered, keys = {}, {}, {}
    for run_id, (of_run, guards) in runs.items():
        at = places[run_id]
        keys[run_id] = np.zeros(len(samples), np.int64)
        keys[run_id][at] = of_run.keys
        for name, guard in guards.items():
            side = ModelOfRun(run_id, name)
            values[side] = np.full(len(samples), UNSCORED)
            values[side][at] = scored_values(guard.finding, samples.malicious[at], rule)
            answered[side] = np.zeros(len(samples), bool)
            answered[side][at] = guard.answered
    return _Answers(samples, values, answered, keys)


def _joined_samples(runs: Mapping[str, AskedSamples]) -> tuple[AskedSamples, dict[str, Ints]]:
    """Return the samples of runs, each once, and by run their places; labels are of the first."""
    kinds: dict[SampleKind, int] = {}
    kind: list[int] = []
    place_of: dict[tuple[str, str], int] = {}
    places = {}
    for run_id, samples in runs.items():
        own = []
        for name, number in zip(samples.names, samples.kind.tolist(), strict=True):
            place = place_of.setdefault(name, len(kind))
            if place == len(kind):
                kind.append(kinds.setdefault(samples.kinds[number], len(kinds)))
            own.append(place)
        places[run_id] = np.array(own, np.int64)
    return AskedSamples(list(kinds), np.array(kind, np.int64)), places


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
        ReportError: The runs differ in more than their answers, or have no guard in common.
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
    rule = asked.opinion.rule
    read: dict[str, _Read] = {}
    for run in runs:
        if guards is None:
            models = [each.model for each in sides if each.run_id == run.run_id]
            overlay = overlay_of(session, run, asked.opinion)
            columns = read_columns(session, run, models, overlay, numbers=(), texts=len(runs) > 1)
            read[run.run_id] = columns.samples, columns.guards
        else:
            read[run.run_id] = guards.samples, {guard.name: guard for guard in guards.guards}
    answers = _answers(read, rule)
    areas = _areas(guards) if guards is not None and asked.metric == AUROC else {}
    scored = PairedScores(answers.samples, answers.values, rule.composite)
    comparisons = scored.compare(pairs, by_category=asked.by_category)
    if areas:
        comparisons = [
            replace(each, metrics={**each.metrics, AUROC: areas[a.model, b.model]})
            for (a, b), each in zip(pairs, comparisons, strict=True)
        ]
    few = len({side.model for side in sides}) <= MOST_GUARDS
    overlaps = {} if guards is None else overlaps_of(asked.opinion, guards)
    fitted = {name: each for name, each in overlaps.items() if not may_be_judged(each)}
    compared = [
        ComparedPair(
            *pair,
            comparison,
            int((answers.answered[pair[0]] | answers.answered[pair[1]]).sum()),
            _changed(scored, answers, *pair) if asked.changed and few else None,
            fitted.get(pair[1].model) or fitted.get(pair[0].model),
        )
        for pair, comparison in zip(pairs, comparisons, strict=True)
    ]
    policies = guards.guards if guards is not None else ()
    simulated = {ModelOfRun(runs[0].run_id, each.name) for each in policies if each.simulated}
    for run in runs:
        simulated |= {ModelOfRun(run.run_id, spec.id) for spec in run.models if spec.simulated}
    in_groups = len(runs) == 1 and not asked.gate
    gates = [PairGate.of(pair, asked.metric, asked.margin) for pair in compared]
    return ComparisonData(
        runs=runs,
        opinion=asked.opinion,
        pairs=compared,
        tie_groups=_tie_groups(scored, compared, asked, areas, fitted) if in_groups else (),
        unlike=unlike,
        simulated=simulated,
        metric=asked.metric,
        margin=asked.margin,
        gates=gates if asked.gate else (),
        overlaps=overlaps,
    )


def _changed(
    scored: PairedScores[ModelOfRun], answers: _Answers, a: ModelOfRun, b: ModelOfRun
) -> dict[Change, Sequence[int]]:
    """Return by change the keys of its samples, in the run of the guard that stops them."""
    keys_by_change: dict[Change, list[int]] = {change: [] for change in CHANGES}
    for place, target, b_is_right in scored.changed(a, b):
        change = Change(target, b_is_right)
        stopper = b if change.second_stops else a
        keys_of_run = answers.keys[stopper.run_id]
        keys_by_change[change].append(int(keys_of_run[place]))
    return {change: sorted(keys) for change, keys in keys_by_change.items()}


def changed_commands(
    engine: Engine,
    data: ComparisonData,
    pair: ComparedPair,
    change: Change,
    limit: int | None = None,
) -> Iterator[ChangedCommand]:
    """Yield the commands that the guards of a pair judge differently, in the order of the store.

    Args:
        data: With `Question.changed`.
        limit: Commands at most; None: all.
    """
    keys = (pair.changed or {}).get(change, ())[:limit]
    if not keys:
        return
    stopper = pair.stopper(change)
    (run,) = (run for run in data.runs if run.run_id == stopper.run_id)
    rule = data.opinion.rule
    with transaction(engine) as session:
        rows = read_commands(session, run, stopper.model, keys, target=change.target, rule=rule)
        for sample, command, reason in rows:
            yield ChangedCommand(sample, command, reason)


def _tie_groups(
    scored: PairedScores[ModelOfRun],
    compared: Sequence[ComparedPair],
    asked: Question,
    areas: Mapping[tuple[str, str], Difference],
    fitted: Collection[str],
) -> list[list[str]]:
    """Group the guards of a run; a policy that was chosen on its commands has no place."""
    both_sides = dict.fromkeys(side for pair in compared for side in (pair.a, pair.b))
    ranked = [side for side in both_sides if side.model not in fitted]
    scores = {}
    if areas:
        scores = {side.model: Estimate(value=areas[side.model, side.model].a) for side in ranked}
    else:
        with_themselves = scored.compare([(side, side) for side in ranked])
        for side, itself in zip(ranked, with_themselves, strict=True):
            scores[side.model] = Estimate(value=itself.metrics[asked.metric].a)
    p_adjusted = {
        frozenset((pair.a.model, pair.b.model)): pair.comparison.metrics[asked.metric].p_adjusted
        for pair in compared
    }
    return tie_groups(scores, p_adjusted)


def _common(runs: Sequence[Run], models: Sequence[str]) -> list[str]:
    of_runs = [chosen_models(run, models) for run in runs]
    found = [model for model in of_runs[0] if all(model in others for others in of_runs)]
    found = [each for each in found if models or not is_baseline(each)] or found
    if not found:
        raise ReportError(
            "the runs have no guard in common; `--runs` compares the same guard in two runs: to "
            "compare B with A, ask B too, `extend --run-id R --models B`, then "
            "`compare --run-id R --models A,B`"
        )
    return found


def _unlike(session: Session, runs: Sequence[Run], models: Sequence[str]) -> Iterator[str]:
    """Yield what other runs differ in from the first, each with its run where there are several."""
    parsers: dict[ModelOfRun, set[int]] = {}
    for run in runs:
        for model, versions in parser_versions(session, models, run).items():
            parsers[ModelOfRun(run.run_id, model)] = versions
    names = run_names(runs)
    for run in runs[1:]:
        of_run = f"run {names[run.run_id]}: " if len(runs) > 2 else ""
        yield from (of_run + each for each in incompatibilities(runs[0], run, models, parsers))
