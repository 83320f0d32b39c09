"""Comparing two snapshots: which verdicts changed sides, and what that did to the metrics.

Whether a verdict is right is computed again from the opinion that each snapshot has stored, on the
verdicts as they are now; the metrics are those that the snapshots hold.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist.core.listing import correctness
from aegish_dist.core.opinion import Opinion
from aegish_dist.core.run import Run
from aegish_dist.core.sample import Target
from aegish_dist.core.snapshot import Snapshot
from aegish_dist.core.snapshot_change import (
    HEADLINE_METRICS,
    MetricChange,
    RejudgedModel,
    RejudgedVerdict,
    SidedVerdict,
)  # fmt: skip
from aegish_dist.db.codes import finding_of, outcome_of
from aegish_dist.db.engine import transaction
from aegish_dist.db.identity import is_unchanged
from aegish_dist.db.judged_items import (
    ItemCodes,
    LabelledSample,
    labelled_samples,
    read_commands,
    read_item_codes,
)  # fmt: skip
from aegish_dist.db.runs import load_run
from aegish_dist.db.snapshots import load_snapshot
from aegish_dist.errors import ReportError
from aegish_dist.pipeline.opinions import overlay_of
from aegish_dist.render.snapshot_data import SnapshotComparison, SnapshotSide

_Samples = Mapping[tuple[str, str], LabelledSample]


@dataclass(frozen=True)
class _Judge:
    """One snapshot, ready to judge verdicts of its run."""

    run: Run
    snapshot: Snapshot
    opinion: Opinion
    samples: _Samples
    is_current: bool

    def side(self, sample: LabelledSample, code: int) -> SidedVerdict:
        correct = self.correct(sample.effective, code)
        return SidedVerdict(outcome_of(code), sample.effective, correct)

    def correct(self, target: Target | None, code: int) -> bool | None:
        if target is None:
            return None
        return correctness(self.opinion.rule, target, finding_of(code)).as_bool


def compare_snapshots(
    engine: Engine, a: int, b: int, models: Sequence[str] = ()
) -> SnapshotComparison:
    """Compare two snapshots of a run, or of two.

    Args:
        a: Number of the first snapshot.
        b: Number of the second.
        models: Only these models of both; all when empty.

    Raises:
        ReportError: There is no such snapshot, this version does not know its rule set, or the two
            have no model in common.
    """
    with transaction(engine, isolation_level="REPEATABLE READ") as session:
        of_a, of_b = _judge(session, a), _judge(session, b)
        chosen = _common(of_a.snapshot, of_b.snapshot, models)
        changed = _changes(session, of_a, of_b, chosen)
        keys = {each.key for verdicts in changed.values() for each in verdicts}
        commands = read_commands(session, keys)
        return SnapshotComparison(
            a=_described(of_a),
            b=_described(of_b),
            models=[
                RejudgedModel(
                    model,
                    _metrics(of_a.snapshot, of_b.snapshot, model),
                    [replace(each.verdict, command=commands[each.key]) for each in changed[model]],
                )
                for model in chosen
            ],
        )


def _judge(session: Session, number: int) -> _Judge:
    snapshot = load_snapshot(session, number)
    if snapshot is None:
        raise ReportError(
            f"--snapshots: there is no snapshot {number}; `aegish-dist aggregate` makes them"
        )
    if snapshot.opinion is None:
        raise ReportError(
            f"--snapshots: snapshot {number} was made under version {snapshot.scoring_version} of "
            f"rule set '{snapshot.scoring}', which this version of the package does not know"
        )
    run = load_run(session, snapshot.run_id)
    overlay = overlay_of(session, run, snapshot.opinion)
    return _Judge(
        run,
        snapshot,
        snapshot.opinion,
        labelled_samples(session, run, overlay),
        is_unchanged(session, run, snapshot.identities),
    )


def _common(a: Snapshot, b: Snapshot, models: Sequence[str]) -> list[str]:
    of_a, of_b = ([entry["model"] for entry in each.document["models"]] for each in (a, b))
    for snapshot, known in ((a, of_a), (b, of_b)):
        for model in models:
            if model not in known:
                raise ReportError(
                    f"--models: snapshot {snapshot.snapshot_id} does not have '{model}'; it has "
                    f"{', '.join(known)}"
                )
    found = [model for model in models or of_a if model in of_b]
    if not found:
        raise ReportError("--snapshots: the two have no model in common")
    return list(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class _Changed:
    key: int
    verdict: RejudgedVerdict


def _changes(
    session: Session, a: _Judge, b: _Judge, models: Sequence[str]
) -> dict[str, list[_Changed]]:
    of_a = read_item_codes(session, a.run, models)
    if a.run.run_id == b.run.run_id:
        return {model: list(_changed(a, b, model, codes, codes)) for model, codes in of_a}
    of_b = read_item_codes(session, b.run, models)
    return {
        model: list(_changed(a, b, model, codes, others))
        for (model, codes), (_, others) in zip(of_a, of_b, strict=True)
    }


def _changed(
    a: _Judge, b: _Judge, model: str, codes_a: ItemCodes, codes_b: ItemCodes
) -> Iterator[_Changed]:
    """Yield the items that both runs have and the snapshots judge differently."""
    judge_a, judge_b = cache(a.correct), cache(b.correct)
    pairs = {
        of_a.key: (of_a, of_b)
        for name, of_a in a.samples.items()
        if (of_b := b.samples.get(name)) is not None
    }
    for (key, epoch), code in sorted(codes_a.items()):
        if key not in pairs:
            continue
        sample_a, sample_b = pairs[key]
        other = codes_b.get((sample_b.key, epoch))
        if other is None:
            continue
        if judge_a(sample_a.effective, code) != judge_b(sample_b.effective, other):
            verdict = RejudgedVerdict(
                model, sample_a.dataset, "", sample_a.target, sample_a.category, epoch,
                a.side(sample_a, code), b.side(sample_b, other),
            )  # fmt: skip
            yield _Changed(key, verdict)


def _metrics(a: Snapshot, b: Snapshot, model: str) -> tuple[MetricChange, ...]:
    values_a, values_b = (_values(snapshot, model) for snapshot in (a, b))
    return tuple(MetricChange(name, values_a(name), values_b(name)) for name in HEADLINE_METRICS)


def _values(snapshot: Snapshot, model: str) -> Any:
    (entry,) = (each for each in snapshot.document["models"] if each["model"] == model)
    return lambda name: (entry["metrics"].get(name) or {}).get("value")


def _described(judge: _Judge) -> SnapshotSide:
    return SnapshotSide(judge.run, judge.snapshot, judge.opinion, judge.is_current)
