"""The answers of several models as columns: sample by sample, and for the grid of a report.

Of an item that was retried the newest verdict counts. A sample is known by the name of its dataset
and by its content-derived id, so that runs with dataset rows of their own (`--limit`, imports) are
matched too.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, TypeVar

from msgspec.structs import replace
from sqlalchemy import Row
from sqlalchemy.orm import Session

from aegish_dist.core.outcome import ErrorClass, Outcome, OutcomeDetails, ScoredAnswer
from aegish_dist.core.run import ModelOfRun, Run
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.secrets import mask_key_shapes
from aegish_dist.core.tally import SampleAnswers
from aegish_dist.core.verdict_record import STORED
from aegish_dist.db.engine import execute, reading, statement
from aegish_dist.db.overlays import OverlayInRun
from aegish_dist.db.runs import PerModel, prepare_counting
from aegish_dist.db.tables import error_class_of, finding_of, findings_of, outcome_of
from aegish_dist.db.verdict_reader import (
    CODES,
    MARKS,
    SampleRange,
    SqlScoring,
    marks_of,
    prepare,
    sample_ranges,
)
from aegish_dist.opinions.scoring import ACTIONS, ScoringRule
from aegish_dist.opinions.suspicion import Decision, Guard, Guards, SuspicionRule, suspicion
from aegish_dist.opinions.verdict_query import (
    COUNTED,
    TEXTS,
    UNKNOWN,
    Correctness,
    GridAttempt,
    GridCommand,
    GridPart,
)
from aegish_dist.statistics.paired_difference import PairedAnswers, SampleKind

T = TypeVar("T")


def read_answers(
    session: Session,
    sides: Sequence[ModelOfRun],
    runs: Sequence[Run],
    overlays: Mapping[str, OverlayInRun],
) -> PairedAnswers[ModelOfRun]:
    """Read what sides answered: of each item the verdict of the newest generation.

    Args:
        session: Transaction of the caller; `REPEATABLE READ` makes it one picture.
        overlays: By run, its samples whose labels are corrected, or that are left out.
    """
    samples = _Samples()
    places: dict[str, dict[str, int]] = {}
    rows: dict[ModelOfRun, Row[Any]] = {}
    for run in runs:
        models = PerModel.of(session, run)
        places[run.run_id] = samples.places(session, run.run_id, overlays[run.run_id])
        prepare_counting(session)
        rows |= {side: _read(models, side.model) for side in sides if side.run_id == run.run_id}
    findings = _Numbered[OutcomeDetails]({(): 0})
    answers = _columns(rows, places, len(samples.kind), findings)
    keys_of_runs = {
        run_id: {place: int(key) for key, place in places_of_run.items()}
        for run_id, places_of_run in places.items()
    }
    keys = {side: keys_of_runs[side.run_id] for side in sides}
    return PairedAnswers(list(samples.kinds), samples.kind, list(findings), answers, keys)


def _columns(
    rows: Mapping[ModelOfRun, Row[Any]],
    places: Mapping[str, Mapping[str, int]],
    length: int,
    findings: "_Numbered[OutcomeDetails]",
) -> dict[ModelOfRun, list[int]]:
    """Put the answers of sides in the order of the samples, as numbers of their findings."""

    @cache  # most models have answered the same samples
    def order(run_id: str, keys: str) -> list[int]:
        with reading(run_id):  # a verdict may be about no sample
            return _order(keys.split(), places[run_id], length)

    way = cache(lambda codes: findings[_findings(codes)])
    columns = {}
    for side, row in rows.items():
        numbers = map(way, row.codes.split())
        columns[side] = _in_order(order(side.run_id, row.keys), numbers, unknown=0)
    return columns


def _read(models: PerModel, model: str) -> Row[Any]:
    name = "read_answers_of_one_epoch" if models.run.epochs == 1 else "read_answers"
    return models.newest(name, model)[0]


def parser_versions(
    session: Session, sides: Iterable[ModelOfRun], run: Run
) -> dict[ModelOfRun, set[int]]:
    """Return the versions of the parser that read the verdicts of sides of a run."""
    models = PerModel.of(session, run)
    return {
        side: {row.parser_version for row in models.newest("read_parser_versions", side.model)}
        for side in sides
    }


class _Numbered(dict[T, int]):
    """Numbers things from 0, in the order in which they are first looked up."""

    def __missing__(self, thing: T) -> int:
        self[thing] = len(self)
        return self[thing]


class _Samples:
    """Samples of several runs, each once."""

    def __init__(self) -> None:
        self.kinds = _Numbered[SampleKind]()
        self.kind: list[int] = []
        self._places: dict[tuple[str, str], int] = {}

    def places(self, session: Session, run_id: str, overlay: OverlayInRun) -> dict[str, int]:
        """Add the samples of a run under their corrected labels.

        Returns:
            By key of a sample, its place in every column; -1 for one that the overlay leaves out.
        """
        places: dict[str, int] = {}
        for row in execute(session, "read_samples", run=run_id, **overlay.values):
            keys = row.keys.split()
            if row.excluded:
                places |= dict.fromkeys(keys, -1)
                continue
            kind = self.kinds[SampleKind(TrueLabel(row.target), row.category, row.cluster)]
            for key, sample_id in zip(keys, row.sample_ids, strict=True):
                end = len(self.kind)
                places[key] = self._places.setdefault((row.dataset, sample_id), end)
                if places[key] == end:
                    self.kind.append(kind)
        return places


def judged_samples(session: Session, run: Run, overlay: OverlayInRun) -> list[SampleAnswers]:
    """Return every sample of a run with the findings of all models, ordered by dataset and place.

    Findings are those of all epochs.
    """
    models = PerModel.of(session, run)
    found: defaultdict[int, dict[str, OutcomeDetails]] = defaultdict(dict)
    prepare_counting(session)
    for spec in run.models:
        row = _read(models, spec.id)
        for key, codes in zip(row.keys.split(), row.codes.split(), strict=True):
            found[int(key)][spec.id] = _findings(codes)
    return [
        SampleAnswers(
            sample.dataset,
            sample.sample_id,
            sample.command,
            TrueLabel(sample.target),
            sample.category,
            sample.cluster,
            found.get(sample.key, {}),
        )
        for sample in execute(session, "samples_of_run", run=run.run_id, **overlay.values)
        if not sample.excluded
    ]


@cache
def _findings(codes: str) -> OutcomeDetails:
    return findings_of(tuple(map(int, codes.split(","))))


def read_guard_columns(
    session: Session,
    run: Run,
    models: Sequence[str],
    *,
    scoring: ScoringRule,
    rule: SuspicionRule,
    overlay: OverlayInRun,
) -> Guards:
    """Read what models of a run said about each sample in each epoch.

    Decisions are ordered by dataset, sample and epoch, with the labels that the overlay gives. Of
    an item that was retried the newest verdict counts.
    """
    of_run = PerModel.of(session, run)
    simulated = {spec.id for spec in run.models if spec.simulated}
    decisions, places, commands, keys = _decisions(session, run, overlay)

    @lru_cache(2**16)  # few differ, unless the rule is native
    def score(code: str, confidence: str, native: str) -> float | None:
        finding = finding_of(int(code))
        outcome = outcome_of(int(code)) if scoring.is_scored(finding) else None
        if outcome and finding not in ACTIONS and scoring.is_detection(finding):
            outcome, confidence = Outcome.BLOCK, "-"  # such as a refusal under `filter-as-block`
        return suspicion(rule, outcome, _number(confidence), _number(native))

    prepare_counting(session)
    guards = []
    for model in models:
        row = of_run.newest("read_guard", model)[0]
        with reading(run.run_id):  # a verdict may be about no item of the run
            order = _order(row.items.split(), places, len(decisions))
        codes = row.codes.split()
        scores = [*map(score, codes, row.confidences.split(), row.natives.split())]
        own = rule.levels is None
        if rule.own_first:
            numbers = [
                None if stated is None else _number(number)
                for stated, number in zip(scores, row.natives.split(), strict=True)
            ]
            own = numbers != [None] * len(numbers) and numbers.count(None) == scores.count(None)
            scores = numbers if own else scores
        guards.append(
            Guard(
                model,
                findings=_in_order(order, map(finding_of, map(int, codes)), None),
                suspicion=_in_order(order, scores, None),
                cost_usd=_in_order(order, map(_number, row.costs.split()), None),
                latency_ms=_in_order(order, map(_number, row.times.split()), None),
                simulated=model in simulated,
                own=own,
            )
        )
    return Guards(decisions, guards, commands, keys)


def _decisions(
    session: Session, run: Run, overlay: OverlayInRun
) -> tuple[list[Decision], dict[str, int], list[str], list[int]]:
    """Return decisions, the place of each by its item as `read_guard` writes it, commands and keys.

    The place is -1 where the overlay excludes the sample.
    """
    decisions: list[Decision] = []
    places: dict[str, int] = {}
    commands: list[str] = []
    keys: list[int] = []
    for sample in execute(session, "samples_of_run", run=run.run_id, **overlay.values):
        items = [f"{sample.key}.{epoch}" for epoch in range(1, run.epochs + 1)]
        if sample.excluded:
            places |= dict.fromkeys(items, -1)
            continue
        about = sample.target == TrueLabel.MALICIOUS, sample.category, sample.cluster
        for epoch, item in enumerate(items, start=1):
            places[item] = len(decisions)
            decisions.append(Decision(len(commands), epoch, *about))
        commands.append(sample.command)
        keys.append(sample.key)
    return decisions, places, commands, keys


def _order(items: Sequence[str], places: Mapping[str, int], length: int) -> list[int]:
    """Return for each place the position of its item; -1 where there is none."""
    order = [-1] * length
    for position, place in enumerate(map(places.__getitem__, items)):
        if place >= 0:
            order[place] = position
    return order


def _in_order(order: Iterable[int], column: Iterable[T], unknown: T) -> list[T]:
    found = [*column, unknown]
    return [found[position] for position in order]


def _number(text: str) -> float | None:
    return None if text == "-" else float(text)


PART_KEYS = 5_000


def read_commands(
    session: Session,
    run: Run,
    model: str,
    keys: Sequence[int],
    *,
    target: TrueLabel,
    rule: ScoringRule,
) -> Iterator[tuple[str, str, str | None]]:
    """Yield id and command of samples, and the first reason of a model to stop each.

    Args:
        model: A model of the run, or a policy, which gives no reason.
        target: The label of all these samples.
        rule: What counts as stopped: an attack that is detected, a harmless command that is not
            accepted.
    """
    stopped = MARKS[Correctness.CORRECT if target is TrueLabel.MALICIOUS else Correctness.WRONG]
    codes = [code for code, mark in enumerate(marks_of(rule, target)) if mark == stopped]
    models = PerModel.of(session, run)
    query = statement("read_commands", counts=models.counts)
    values = {"model": models.keys.get(model), "codes": codes, "keys": list(keys)}
    prepare(session)
    for row in session.execute(query, values, execution_options={"yield_per": PART_KEYS}):
        yield row.sample_id, row.command, row.reason


PART_VERDICTS = 4_000
TEXT_CHARS = 20_000

_CORRECT = {1: 1, -1: 0, 0: UNKNOWN}
_COLUMNS = {each.name: each.column for each in STORED}


def read_grid(
    session: Session,
    run: Run,
    models: Sequence[str],
    judged: SqlScoring,
    *,
    commands: int,
    texts: bool,
) -> Iterator[GridPart]:
    """Yield the verdicts that count as columns, by dataset and sample.

    Args:
        commands: Each part but the last of a dataset has a multiple of so many.
    """
    asked = len(models) * run.epochs
    step = commands * max(1, PART_VERDICTS // (commands * max(1, asked)))
    prepare(session)
    reader = _GridReader(session, run, models, judged, texts=texts)
    yield from map(reader.read, sample_ranges(session, run.run_id, step))


def _whole(number: str) -> str:
    """Return SQL for the nearest integer that JavaScript knows exactly, -1 where it is unknown."""
    return (
        f"CASE WHEN {number} IS NULL THEN -1 ELSE least(round({number}), {2**53 - 1})::bigint END"
    )


_EXPRESSIONS = {
    "confidence": _whole("verdict.confidence * 1000"),
    "cost_nano_usd": _whole("verdict.cost_usd * 1e9"),
    "attempts": "verdict.attempts",
    "generation": "verdict.generation",
    "created_s": "coalesce(floor(extract(epoch FROM verdict.created_at))::bigint, -1)",
}
_NUMBERS = ", ".join(_EXPRESSIONS.get(name) or _whole(f"verdict.{name}") for name in COUNTED)
_LENGTH = (
    "CASE WHEN char_length(verdict.completion) > :chars THEN char_length(verdict.completion) END"
)
_CUT = ", ".join(f"left(verdict.{_COLUMNS[name]}, :chars)" for name in TEXTS)


class _GridReader:
    """Reads the verdicts of a run that count as columns, a range of samples at a time."""

    def __init__(
        self, session: Session, run: Run, models: Sequence[str], judged: SqlScoring, *, texts: bool
    ) -> None:
        of_run = PerModel.of(session, run)
        self._session, self._texts = session, texts
        self._places = {of_run.keys[model]: place for place, model in enumerate(models)}
        columns = f"{_NUMBERS}, {_LENGTH}, {_CUT}" if texts else _NUMBERS
        self._sql = statement("read_columns", columns=columns, counts=of_run.counts)
        self._changes = judged.changes
        self._judged = {code: _places_of(code, judged.rule) for code in CODES}
        self._marks = judged.marks

    def read(self, part: SampleRange) -> GridPart:
        rows = execute(self._session, "label_samples", **self._changes, **part.bounds()).all()
        commands = [
            GridCommand(
                row.sample_id, part.dataset, row.command, TrueLabel(row.target), row.category,
                row.cluster, row.excluded,
            )
            for row in rows
        ]  # fmt: skip
        values = {"models": list(self._places), **part.bounds()}
        cut = {"chars": TEXT_CHARS} if self._texts else {}
        found = self._session.execute(self._sql, values | cut).all()
        if not found:
            return GridPart(commands)
        columns = list(zip(*found, strict=True))
        models, keys, epochs, codes, *counted = columns
        places = {row.key: place for place, row in enumerate(rows)}
        at = [places[key] for key in keys]
        numbers = dict(zip(COUNTED, counted, strict=False))
        asked = GridPart(
            commands,
            [self._places[key] for key in models],
            at,
            epochs,
            self._opinions(commands, at, codes) | numbers,
        )
        if not self._texts:
            return asked
        lengths, *texts = counted[len(COUNTED) :]
        items = zip(models, keys, epochs, numbers["generation"], strict=True)
        verdicts: dict[tuple[int, ...], int] = {item: place for place, item in enumerate(items)}
        return replace(
            asked,
            texts={name: list(column) for name, column in zip(TEXTS, texts, strict=True)},
            lengths={place: each for place, each in enumerate(lengths) if each is not None},
            attempts=list(self._attempts(values, verdicts)),
        )

    def _opinions(
        self, commands: Sequence[GridCommand], at: Sequence[int], codes: Sequence[int]
    ) -> dict[str, Sequence[int]]:
        judged = [self._judged[code] for code in codes]
        marks = [None if command.excluded else self._marks[command.target] for command in commands]
        return {
            "outcome": [each[0] for each in judged],
            "label": [each[1] for each in judged],
            "error_class": [each[2] for each in judged],
            "correct": [
                UNKNOWN if (mark := marks[place]) is None else _CORRECT[mark[code]]
                for place, code in zip(at, codes, strict=True)
            ],
        }

    def _attempts(
        self, values: Mapping[str, object], verdicts: Mapping[tuple[int, ...], int]
    ) -> Iterator[GridAttempt]:
        for row in execute(self._session, "read_attempts", **values, chars=TEXT_CHARS):
            verdict = verdicts.get((row.run_model_id, row.sample_key, row.epoch, row.generation))
            if verdict is not None:
                yield GridAttempt(
                    verdict=verdict,
                    attempt=row.attempt,
                    error_class=row.error_class,
                    status=UNKNOWN if row.status is None else row.status,
                    retry_after_s=row.retry_after_s,
                    message=mask_key_shapes(row.message),
                    at_s=math.floor(row.at.timestamp()),
                )


def _places_of(code: int, rule: ScoringRule) -> tuple[int, int, int]:
    """Return the places of outcome, label and error class of a code in their enumerations."""
    error_class = error_class_of(code)
    return (
        list(Outcome).index(outcome_of(code)),
        list(ScoredAnswer).index(rule.labels[finding_of(code)]),
        UNKNOWN if error_class is None else list(ErrorClass).index(error_class),
    )
