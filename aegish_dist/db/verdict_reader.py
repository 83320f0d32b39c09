"""The one reader of a run's verdicts: lists by conditions, whole records, and exports.

It reads part by part, a part being what the models said about a range of samples: so memory holds
some ten thousand verdicts however large the run is, and the order is fixed. Whether a verdict is
right is a list by code (`marks_of`) in which SQL looks a verdict up instead of judging it. Exports
are JSON or CSV that PostgreSQL writes itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.inspect import DecimalType, DictType
from sqlalchemy import Row, text
from sqlalchemy.orm import Session

from aegish_dist.core.outcome import READ, ErrorClass, Outcome
from aegish_dist.core.run import Run
from aegish_dist.core.sample import Sample, TrueLabel
from aegish_dist.core.secrets import mask_key_shapes
from aegish_dist.core.text import JsonObject, as_number
from aegish_dist.core.verdict import FIELDS, STORED, AttemptRecord, CallError, RecordField
from aegish_dist.db.engine import copied, execute, fragment, statement
from aegish_dist.db.overlays import OverlayInRun
from aegish_dist.db.runs import PerModel, prepare_listing, sample_of
from aegish_dist.db.schema import CODES, error_class_of, finding_of, outcome_number, outcome_of
from aegish_dist.opinions.scoring import ScoringRule
from aegish_dist.opinions.verdict_query import (
    LISTED,
    Correctness,
    JudgedVerdict,
    ListedPart,
    VerdictFilter,
    correctness,
)


def escaped_pattern(text: str) -> str:
    r"""Return text as a pattern of LIKE that matches nothing but itself."""
    return text.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")


# Verdicts of the first part of a list, about; each part after it has twice as many, so that a list
# of which much is found ends soon, and a rare condition is looked for in few statements.
STEP_VERDICTS = 2_000
PART_VERDICTS = 50_000
# The largest part of a list without a limit, whose parts are held in memory whole.
FILE_VERDICTS = 6_000
LEAST_DIGITS = 4  # fewer characters are no beginning of a sample id

MARKS = {Correctness.CORRECT: 1, Correctness.WRONG: -1, Correctness.UNSCORED: 0}
NO_CHANGES: Mapping[str, Sequence[object]] = OverlayInRun().values

CORRECT = {1: True, -1: False, 0: None}
# Parameters of `mark_before`, without their prefix `before_`; null without a second judgement.
_OF_BEFORE = ("changed_keys", "changed_targets", "malicious_marks", "harmless_marks")
_ACTIONS = [outcome_number(each) for each in (Outcome.ALLOW, Outcome.WARN, Outcome.BLOCK)]
_END = 2**63 - 1

# What is read of each field of a record; outcome and error class are in the code.
_READ = [each for each in STORED if each.name not in ("outcome", "error_class")]
_SQL = {each.name: f"verdict.{each.column}" for each in _READ}
_SQL["call_errors"] = fragment("failed_attempts")


class SqlScoring(NamedTuple):
    """A rule set and an overlay, as SQL applies them to verdicts."""

    rule: ScoringRule
    # Of an overlay: keys of samples, their targets and categories; null where it excludes them.
    changes: Mapping[str, Sequence[object]] = NO_CHANGES

    @property
    def marks(self) -> dict[TrueLabel, list[int]]:
        """By target at the position of each code how the rule set judges it; see `MARKS`."""
        return {target: marks_of(self.rule, target) for target in TrueLabel}

    def values(self) -> dict[str, object]:
        """Return what the fragments `labelled_samples` and `mark` bind."""
        marks = {f"{target}_marks": marks for target, marks in self.marks.items()}
        return marks | dict(self.changes)


def marks_of(rule: ScoringRule, target: TrueLabel) -> list[int]:
    """Return how a rule set judges verdicts about samples of a target; 0 where no code is."""
    marks = [0] * (max(CODES) + 1)
    for code in CODES:
        marks[code] = MARKS[correctness(rule, target, finding_of(code))]
    return marks


class SampleRange(Struct, frozen=True):
    """The samples of a dataset from one key up to another."""

    dataset: str
    dataset_id: int
    first: int
    end: int  # the first key that is not in it

    def bounds(self) -> dict[str, object]:
        return {"dataset": self.dataset_id, "first": self.first, "end": self.end}


def sample_ranges(
    session: Session, run_id: str, step: int, most: int = 1, datasets: Sequence[str] = ()
) -> Iterator[SampleRange]:
    """Yield the ranges of a run, ordered by dataset and sample.

    Args:
        step: Samples of the first range; the last one of a dataset may have fewer.
        most: Each range has twice as many as the one before, at most so many times the first.
        datasets: Names of those to read; all when empty.
    """
    asked = execute(session, "asked_datasets", run=run_id).all()
    width = 1
    for dataset in asked:
        if datasets and dataset.name not in datasets:
            continue
        nth = execute(session, "every_nth_sample", id=dataset.id, step=step)
        edges = [*nth.scalars(), _END]
        start = 0
        while start < len(edges) - 1:
            end = min(start + width, len(edges) - 1)
            yield SampleRange(dataset.name, dataset.id, edges[start], edges[end])
            start, width = end, min(2 * width, most)


def categories_of(session: Session, run_id: str) -> list[str]:
    return list(execute(session, "list_categories", run=run_id).scalars())


def read_verdicts(
    session: Session,
    run: Run,
    judged: SqlScoring,
    chosen: VerdictFilter,
    *,
    before: SqlScoring | None = None,
    limit: int | None,
    counted: int,
) -> Iterator[ListedPart]:
    """Yield the verdicts that count and meet the conditions, by dataset, sample, model and epoch.

    Args:
        chosen: The conditions; models and datasets are those of the run.
        before: Another judgement: only verdicts that it marks differently are read.
        limit: Verdicts to yield at most; None: all.
        counted: Verdicts beyond the limit to count; the parts after that many are not read.
    """
    if chosen.inconsistent and run.epochs == 1:
        return
    columns = tuple(name for name in LISTED if name in _SQL)
    reader = _Reader(session, run, judged, chosen, columns=columns, before=before)
    largest = FILE_VERDICTS if limit is None else PART_VERDICTS
    step = max(1, STEP_VERDICTS // (len(reader.compared) * run.epochs))
    most = max(1, largest // STEP_VERDICTS)
    shown = matched = 0
    for part in sample_ranges(session, run.run_id, step, most, chosen.datasets):
        found = reader.read(part, None if limit is None else limit - shown)
        shown += len(found.verdicts)
        matched += found.matched
        yield found
        if limit is not None and matched >= limit + counted:
            return


class FoundSample(Struct, frozen=True):
    """A sample of a run that a text may mean."""

    key: int
    dataset_id: int
    dataset: str
    sample_id: str
    sample: Sample
    # 0 where the text is its id or command, 1 where it begins its id, 2 where its command holds
    # the text.
    rank: int


def find_samples(
    session: Session, run_id: str, name: str, dataset: str | None, limit: int
) -> list[FoundSample]:
    """Return the samples of a run that a text may mean, the surest first.

    Args:
        name: A sample id, its first digits, a command or a part of one.
        dataset: Name of its dataset; None: it may be any of the run.
    """
    pattern = escaped_pattern(name)
    values = {
        "run": run_id,
        "name": name,
        "start": f"{pattern}%" if len(name) >= LEAST_DIGITS else None,
        "pattern": f"%{pattern}%",
        "dataset_name": dataset,
        "limit": limit,
    }
    return [
        FoundSample(row.key, row.dataset_id, row.dataset, row.sample_id, sample_of(row), row.rank)
        for row in execute(session, "find_named_samples", **values)
    ]


def read_about(
    session: Session, run: Run, judged: SqlScoring, found: FoundSample, models: Sequence[str]
) -> list[JudgedVerdict]:
    """Return the whole records about a sample, all generations, by model, epoch and generation.

    Args:
        models: Models of the run; all when empty.
    """
    reader = _Reader(
        session, run, judged, VerdictFilter(tuple(models)), columns=tuple(_SQL), superseded=True
    )
    part = SampleRange(found.dataset, found.dataset_id, found.key, found.key + 1)
    verdicts = reader.read(part, None).verdicts
    newest = {(each.model, each.epoch): each.generation for each in verdicts}
    for each in verdicts:
        each.replaced = each.generation < newest[each.model, each.epoch]
        each.answered = each.error_class is None
        each.pruned = each.completion is None and each.outcome in READ
    return list(verdicts)


class _Reader:
    """Reads the verdicts of a run that meet some conditions, a range of samples at a time."""

    def __init__(
        self,
        session: Session,
        run: Run,
        judged: SqlScoring,
        chosen: VerdictFilter,
        *,
        columns: tuple[str, ...],
        before: SqlScoring | None = None,
        superseded: bool = False,
    ) -> None:
        models = PerModel.of(session, run)
        self._session, self._run, self._chosen, self._columns = session, run, chosen, columns
        self._names = {key: model for model, key in models.keys.items()}
        self._shown = [models.keys[name] for name in sorted({*(chosen.models or models.keys)})]
        missed = models.keys if chosen.missed_by_all else chosen.missed_by
        self._missed = [models.keys[name] for name in sorted(set(missed))]
        counts = fragment("every") if superseded else models.counts
        commands = "choose_commands_of_one_epoch" if run.epochs == 1 else "choose_commands"
        read = ", ".join(f"{_SQL[name]} AS {name}" for name in columns)
        self._choose_commands = statement(commands, counts=counts)
        self._choose_inconsistent = statement("choose_inconsistent", counts=counts)
        self._read = statement("read_verdicts", columns=read, counts=counts)
        self._by_code = {
            code: (outcome_of(code), judged.rule.labels[finding_of(code)], error_class_of(code))
            for code in CODES
        }
        moments = [each.name for each in STORED if each.is_moment]
        self._moments = [name for name in moments if name in columns]
        self._labels = judged.values()
        of_before = {} if before is None else before.values()
        self._values = self._labels | self._conditions()
        self._values |= {f"before_{name}": of_before.get(name) for name in _OF_BEFORE}
        prepare_listing(session)

    @property
    def compared(self) -> list[int]:
        """Keys of the models whose verdicts are looked at, sorted."""
        return sorted({*self._shown, *self._missed})

    def read(self, part: SampleRange, limit: int | None) -> ListedPart:
        """Return the verdicts about a range of samples, by sample, model and epoch.

        Args:
            limit: Verdicts to read at most, while all that match are counted; None: all.
        """
        bounds = part.bounds()
        chosen = self._chosen_commands(bounds) | self._inconsistent(bounds)
        rows = self._session.execute(
            self._read, self._values | chosen | bounds | {"limit": limit}
        ).all()
        verdicts = tuple(self._verdict(row, part) for row in rows if row.place is not None)
        return ListedPart(verdicts, rows[0].matched)

    def _conditions(self) -> dict[str, object]:
        chosen = self._chosen
        codes = [
            code
            for code, (outcome, label, _) in self._by_code.items()
            if any(each is outcome or each is label for each in chosen.outcomes)
        ]
        pattern = f"%{escaped_pattern(chosen.text)}%" if chosen.text else None
        return {
            "models": self._shown,
            "targets": [*chosen.targets] or None,
            "categories": [*chosen.categories] or None,
            "codes": codes if chosen.outcomes else None,
            "marks": [MARKS[each] for each in chosen.correctness] or None,
            "pattern": pattern,
        }

    def _chosen_commands(self, bounds: Mapping[str, object]) -> dict[str, object]:
        if not (self._chosen.disputed or self._missed):
            return {"keys": None}
        values = {
            **self._labels,
            **bounds,
            "models": self.compared,
            "compared": self._shown,
            "missed": self._missed,
            "disputed": self._chosen.disputed,
        }
        keys = self._session.scalars(self._choose_commands, values)
        return {"keys": keys.all()}

    def _inconsistent(self, bounds: Mapping[str, object]) -> dict[str, object]:
        if not self._chosen.inconsistent:
            return {"inconsistent_models": None, "inconsistent_keys": None}
        values = {"models": self._shown, "actions": _ACTIONS, **bounds}
        rows = self._session.execute(self._choose_inconsistent, values).all()
        return {
            "inconsistent_models": [row.run_model_id for row in rows],
            "inconsistent_keys": [row.sample_key for row in rows],
        }

    def _verdict(self, row: Row[Any], part: SampleRange) -> JudgedVerdict:
        outcome, label, error_class = self._by_code[row.code]
        stored = dict(zip(self._columns, row[-len(self._columns) :], strict=True))
        for name in self._moments:
            if stored[name] is not None:
                stored[name] = stored[name].isoformat()
        return JudgedVerdict(
            run_id=self._run.run_id,
            model=self._names[row.run_model_id],
            dataset=part.dataset,
            sample_id=row.sample_id,
            command=row.command,
            target=TrueLabel(row.target),
            category=row.category,
            cluster=row.cluster,
            outcome=outcome,
            label=label,
            correct=CORRECT[row.mark],
            correct_before=CORRECT[row.mark_before or 0],
            error_class=error_class,
            completion=stored.pop("completion", None),
            call_errors=tuple(map(_attempt, stored.pop("call_errors", None) or ())),
            **stored,
        )


def _attempt(stored: JsonObject) -> AttemptRecord:
    """Return a failed attempt of the fragment `failed_attempts`."""
    read = {
        "error_class": ErrorClass(stored["error_class"]),
        "message": mask_key_shapes(stored["message"]),
        "retry_after_s": as_number(stored["retry_after_s"]),  # PostgreSQL writes 2.0 as 2
        "at": datetime.fromisoformat(stored["at"]).isoformat(),
    }
    return AttemptRecord(**stored | read)


PART_ROWS = 10_000

# Fields of a record that are no columns of `verdicts`.
_ELSEWHERE = {
    "model": ":model",
    "dataset": ":dataset_name",
    "command": "sample.command",
    "target": "sample.stored_target",
    "category": "sample.stored_category",
    "cluster": "sample.cluster",
    "answered": "error_class IS NULL",
    "pruned": fragment("pruned"),
    "simulated": ":simulated",
    "metadata": "sample.details::text",
    "call_errors": "coalesce(errors, '[]')",
}
_ATTEMPT = ", ".join(f"'{name}', {name}" for name in CallError.__struct_fields__)
_MARK_SQL = fragment("mark")


def export(
    session: Session,
    run: Run,
    rules: Mapping[str, ScoringRule],
    changes: Mapping[str, Sequence[object]] = NO_CHANGES,
    *,
    columns: bool = False,
) -> Iterator[bytes]:
    """Export every verdict of a run, all generations, ordered by model, dataset and sample.

    Args:
        rules: By name of a further column the rule set by which it says whether a verdict is
            correct; null where it is unscored.
        changes: Of an overlay; see `SqlScoring`.
        columns: Give CSV with a header in place of lines of JSON, with `run_id` and `sample_id` as
            further columns. Then `metadata` and `call_errors` are JSON, null is empty, and the
            empty text is quoted.

    Yields:
        Some thousand verdicts in UTF-8.
    """
    keys = PerModel.of(session, run).keys
    prepare_listing(session)
    session.execute(text("SET LOCAL timezone = 'UTC'"))
    opinions: dict[str, object] = dict(changes)
    judged = ""
    for number, (name, rule) in enumerate(rules.items()):
        marks = SqlScoring(rule).marks.items()
        opinions |= {f"{target}_marks_{number}": each for target, each in marks}
        mark = _MARK_SQL.replace("_marks", f"_marks_{number}")
        judged += f', CASE {mark} WHEN 1 THEN true WHEN -1 THEN false END AS "{name}"'
    if columns:
        judged = f", :run AS run_id, sample.sample_id{judged}"
        opinions["run"] = run.run_id
    rows = _export_sql(judged, as_csv=columns)
    ranges = list(sample_ranges(session, run.run_id, max(1, PART_ROWS // run.epochs)))
    for spec in run.models:
        model = {"model": spec.id, "simulated": spec.simulated, "key": keys[spec.id]}
        for part in ranges:
            values = model | {"dataset_name": part.dataset} | part.bounds() | opinions
            yield b"".join(copied(session, rows, values))


def _export_sql(judged: str, *, as_csv: bool) -> str:
    columns = ", ".join(f"{_column(each, as_csv=as_csv)} AS {each.name}" for each in FIELDS)
    rows = statement("export_verdicts", columns=columns + judged, attempt=_ATTEMPT).text
    if as_csv:
        return f"COPY ({rows}) TO STDOUT (FORMAT csv, HEADER)"
    # Lines of JSON hold no raw control character, so nothing is ever quoted.
    return f"""
        COPY (SELECT row_to_json(line) FROM ({rows}) AS line)
        TO STDOUT (FORMAT csv, DELIMITER E'\x02', QUOTE E'\x01')
    """  # noqa: S608  # nosec B608 # constants of ours


def _column(field: RecordField, *, as_csv: bool) -> str:
    column = _ELSEWHERE.get(field.name) or f"verdict.{field.column}"
    if isinstance(field.kind, DecimalType) and not as_csv:  # a number where a number is exact
        return (
            f"CASE WHEN {column} = {column}::float8::numeric THEN to_json({column})"
            f" ELSE to_json({column}::text) END"
        )
    return f"{column}::json" if isinstance(field.kind, DictType) and not as_csv else column
