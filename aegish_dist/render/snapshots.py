"""A comparison of two snapshots as text: tables, Markdown, CSV, JSON."""

from collections.abc import Iterator
from typing import Any

from aegish_dist.core.printable import printable_json, shortened
from aegish_dist.core.snapshot_change import RejudgedModel, RejudgedVerdict, SidedVerdict
from aegish_dist.render.csv import csv_text
from aegish_dist.render.formats import in_format
from aegish_dist.render.layout import Fact, Report, Section, TableCell
from aegish_dist.render.numbers import (
    UNDEFINED,
    format_count,
    format_difference,
    format_rate,
    format_time,
)  # fmt: skip
from aegish_dist.render.quality import HEADLINES
from aegish_dist.render.snapshot_data import SnapshotComparison, SnapshotSide

MOST_ROWS = 200
"""Verdicts that a table shows; CSV and JSON have all."""
MOST_CHARACTERS = 160
"""Characters of a command that a table shows."""

COLUMNS = (
    *("snapshot_a", "snapshot_b", "model", "dataset", "command", "target", "category", "epoch"),
    *("outcome_a", "outcome_b", "target_a", "target_b", "correct_a", "correct_b"),
)


def render_snapshots(
    data: SnapshotComparison, format: str, *, width: int | None = None, color: bool = False
) -> str:
    """Return a comparison of snapshots as text that ends with a line break.

    Args:
        format: One of `COMPARISON_FORMATS`. CSV lists the verdicts that changed sides.
        width: Columns of the terminal; only tables use it.
        color: Whether to emit ANSI colours; only tables use it.
    """
    texts = {"csv": lambda: _csv(data), "json": lambda: printable_json(_document(data)) + "\n"}
    return in_format(format, lambda: _report(data), texts, width=width, color=color)


def _verdicts(data: SnapshotComparison) -> list[RejudgedVerdict]:
    return [verdict for model in data.models for verdict in model.verdicts]


def _document(data: SnapshotComparison) -> dict[str, Any]:
    return {
        "a": _side(data.a),
        "b": _side(data.b),
        "models": [_model(model) for model in data.models],
        "verdicts": [_row(verdict) for verdict in _verdicts(data)],
    }


def _side(side: SnapshotSide) -> dict[str, Any]:
    return {
        "snapshot_id": side.snapshot.snapshot_id,
        "run_id": side.run.run_id,
        "scoring": side.snapshot.scoring,
        "scoring_version": side.snapshot.scoring_version,
        "opinion": side.opinion.provenance,
        "parser_versions": side.snapshot.parser_versions,
        "created_at": side.snapshot.created_at.isoformat(),
        "verdicts_changed_since": not side.is_current,
    }


def _model(model: RejudgedModel) -> dict[str, Any]:
    return {
        "model": model.model,
        "changed": len(model.verdicts),
        "changes": [
            {"a": a.value, "b": b.value, "verdicts": number}
            for (a, b), number in sorted(model.counts.items())
        ],
        "metrics": {
            each.metric: {"a": each.a, "b": each.b, "change": each.change} for each in model.metrics
        },
    }


def _row(verdict: RejudgedVerdict) -> dict[str, Any]:
    return {
        "model": verdict.model,
        "dataset": verdict.dataset,
        "command": verdict.command,
        "target": verdict.target.value,
        "category": verdict.category,
        "epoch": verdict.epoch,
        "outcome_a": verdict.a.outcome.value,
        "outcome_b": verdict.b.outcome.value,
        "target_a": verdict.a.target,
        "target_b": verdict.b.target,
        "correct_a": verdict.a.correct,
        "correct_b": verdict.b.correct,
    }


def _csv(data: SnapshotComparison) -> str:
    numbers = {
        "snapshot_a": data.a.snapshot.snapshot_id,
        "snapshot_b": data.b.snapshot.snapshot_id,
    }
    return csv_text(COLUMNS, (numbers | _row(verdict) for verdict in _verdicts(data)))


def _report(data: SnapshotComparison) -> Report:
    return Report(
        title="Comparison of snapshots",
        facts=tuple(_facts(data)),
        sections=(_models(data), *_changed(data)),
        legend=(
            "Metrics are those that the snapshots hold. Whether a verdict is right is computed "
            "from the rule set and overlay of each snapshot, on the verdicts as they are now.",
        ),
    )


def _facts(data: SnapshotComparison) -> Iterator[Fact]:
    for name, side in (("A", data.a), ("B", data.b)):
        parts = (
            f"{part} {made['name']} version {made['version']}"
            for part, made in side.opinion.provenance.items()
            if made is not None
        )
        yield Fact(
            name,
            f"snapshot {side.snapshot.snapshot_id} of run {side.run.run_id}, taken "
            f"{format_time(side.snapshot.created_at)}: {', '.join(parts)}, parser "
            f"{side.snapshot.parser_versions}",
        )
        if not side.is_current:
            yield Fact(
                f"{name} CHANGED",
                "verdicts of the run have changed since this snapshot; the list below is of the "
                "verdicts as they are now",
            )


def _models(data: SnapshotComparison) -> Section:
    titles = list(HEADLINES.values())
    return Section(
        title="Metrics",
        columns=(
            TableCell("model"),
            *(TableCell(title, "A to B") for title in titles),
            TableCell("changed", "verdicts"),
            TableCell("right in B", "wrong in B"),
        ),
        rows=tuple(
            (
                TableCell(model.model),
                *(
                    TableCell(
                        format_difference(each.change),
                        f"{format_rate(each.a)} to {format_rate(each.b)}",
                    )
                    for each in model.metrics
                ),
                TableCell(format_count(len(model.verdicts))),
                TableCell(_number(model, correct=True), _number(model, correct=False)),
            )
            for model in data.models
        ),
    )


def _number(model: RejudgedModel, *, correct: bool) -> str:
    return format_count(sum(each.b.correct is correct for each in model.verdicts))


def _changed(data: SnapshotComparison) -> Iterator[Section]:
    verdicts = _verdicts(data)
    if not verdicts:
        return
    more = len(verdicts) - MOST_ROWS
    yield Section(
        title="Verdicts that changed sides",
        columns=tuple(
            map(TableCell, ("model", "target", "category", "command", "outcome", "in A", "in B"))
        ),
        rows=tuple(map(_cells, verdicts[:MOST_ROWS])),
        keys=4,
        remarks=(f"{format_count(more)} more: `--format csv` lists all.",) if more > 0 else (),
    )


def _cells(verdict: RejudgedVerdict) -> tuple[TableCell, ...]:
    a, b = verdict.a, verdict.b
    outcome = a.outcome.value if a.outcome is b.outcome else f"{a.outcome} to {b.outcome}"
    return (
        TableCell(verdict.model),
        TableCell(verdict.target.value),
        TableCell(verdict.category or UNDEFINED),
        TableCell(shortened(verdict.command, MOST_CHARACTERS)),
        TableCell(outcome),
        TableCell(_word(a), _label(verdict, a)),
        TableCell(_word(b), _label(verdict, b)),
    )


def _word(side: SidedVerdict) -> str:
    if side.correct is None:
        return "unscored"
    return "right" if side.correct else "wrong"


def _label(verdict: RejudgedVerdict, side: SidedVerdict) -> str:
    if side.target is verdict.target:
        return ""
    return "excluded" if side.target is None else f"as {side.target}"
