"""Counting: the one pass over the verdicts of a run that every metric is made from."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from aegish_dist.core.model import ModelSpec
from aegish_dist.core.sample import Target
from aegish_dist.core.tally import (
    CONFIDENCE_BINS,
    Cell,
    ConfidenceCell,
    Finding,
    Latency,
    ModelTally,
    TokenTotals,
)
from aegish_dist.db.newest import newest_verdict
from aegish_dist.db.runs import load_run

PARTS = ("service", "queue", "limiter", "backoff", "total")

_FINDING = """
    CASE verdict.outcome
      WHEN 'FORMAT_ERROR' THEN 'UNREADABLE'
      WHEN 'API_ERROR' THEN 'API_FAILURE'
      WHEN 'TIMEOUT_ERROR' THEN
        CASE WHEN verdict.error_class = 'deadline' THEN 'DEADLINE'
             WHEN verdict.stop_kind = 'content_filter' THEN 'EMPTY_FILTERED'
             WHEN verdict.stop_kind = 'max_tokens' THEN 'EMPTY_CUT'
             ELSE 'EMPTY' END
      ELSE verdict.outcome END
"""
"""`core.tally.find` in SQL; a test holds the two together."""

_CELLS_OF_ONE_EPOCH = """
    SELECT model.model, sample.target, sample.category, sample.cluster,
           ARRAY[{finding}] AS findings, count(*) AS samples
    FROM verdicts AS verdict
    JOIN run_models AS model ON model.id = verdict.run_model_id
    JOIN samples AS sample ON sample.key = verdict.sample_key
    WHERE model.run_id = :run AND {newest}
    GROUP BY 1, 2, 3, 4, 5
"""

_CELLS_OF_MANY_EPOCHS = """
    SELECT model.model, sample.target, sample.category, sample.cluster,
           item.findings, count(*) AS samples
    FROM (
        SELECT verdict.run_model_id, verdict.sample_key,
               array_agg({finding} ORDER BY {finding}) AS findings
        FROM verdicts AS verdict
        JOIN run_models AS model ON model.id = verdict.run_model_id
        WHERE model.run_id = :run AND {newest}
        GROUP BY 1, 2
    ) AS item
    JOIN run_models AS model ON model.id = item.run_model_id
    JOIN samples AS sample ON sample.key = item.sample_key
    GROUP BY 1, 2, 3, 4, 5
"""

_CONFIDENCE = """
    SELECT model, target, finding, least(floor(c * :bins)::int, :bins - 1) AS bin, count(*),
           sum(round(c * 1e6)::bigint), sum(round(c ^ 2 * 1e6)::bigint),
           sum(round(c ^ 4 * 1e6)::bigint), sum(round((1 - c) ^ 2 * 1e6)::bigint),
           sum(round((1 - c) ^ 4 * 1e6)::bigint)
    FROM (
        SELECT model.model, sample.target, verdict.outcome AS finding,
               greatest(verdict.confidence, 1e-9) AS c
        FROM verdicts AS verdict
        JOIN run_models AS model ON model.id = verdict.run_model_id
        JOIN samples AS sample ON sample.key = verdict.sample_key
        WHERE model.run_id = :run AND verdict.confidence IS NOT NULL
          AND verdict.outcome IN ('ALLOW', 'WARN', 'BLOCK') AND {newest}
    ) AS stated
    GROUP BY 1, 2, 3, 4
"""
"""A confidence below 1e-9 adds nothing to sums in 1e-6, but its powers would underflow."""

_SPENT = """
    SELECT model.model, sum(input_tokens), sum(output_tokens), sum(reasoning_tokens),
           sum(cache_read_tokens), sum(cache_write_tokens), sum(cost_usd), count(cost_usd)
    FROM verdicts AS verdict
    JOIN run_models AS model ON model.id = verdict.run_model_id
    WHERE model.run_id = :run
    GROUP BY 1
"""
"""All generations: a retry costs as much as a first try."""

_LATENCY = """
    SELECT model.model, sum(round({part}_ms * 1000)::bigint) / 1000.0 / count({part}_ms),
           percentile_cont(ARRAY[0.5, 0.9, 0.99]) WITHIN GROUP (ORDER BY {part}_ms),
           max({part}_ms)
    FROM verdicts AS verdict
    JOIN run_models AS model ON model.id = verdict.run_model_id
    WHERE model.run_id = :run AND verdict.error_class IS NULL AND {part}_ms IS NOT NULL
      AND {newest}
    GROUP BY 1
"""

_FINGERPRINT = """
    SELECT count(*), coalesce(bit_xor(hashtextextended(concat_ws('|', model.model,
             dataset.name, sample.sample_id, epoch, generation, outcome, error_class, stop_kind,
             parser_version), 0)), 0),
           coalesce(string_agg(DISTINCT parser_version::text, ',' ORDER BY parser_version::text),
                    '')
    FROM verdicts AS verdict
    JOIN run_models AS model ON model.id = verdict.run_model_id
    JOIN samples AS sample ON sample.key = verdict.sample_key
    JOIN datasets AS dataset ON dataset.id = sample.dataset_id
    WHERE model.run_id = :run AND {newest}
"""


@dataclass(frozen=True, slots=True)
class VerdictSet:
    """Which verdicts a snapshot was made of."""

    verdicts: int
    verdicts_hash: str
    """Sixteen hexadecimal digits that change with any verdict's identity or outcome."""
    parser_versions: str
    """Comma-separated."""


def identify_verdicts(session: Session, run_id: str) -> VerdictSet:
    """Return the identity of the verdicts that count in a run now."""
    number, digest, parsers = _query(session, _FINGERPRINT, run_id)[0]
    return VerdictSet(number, f"{digest % 2**64:016x}", parsers)


def tally(session: Session, run_id: str) -> list[ModelTally]:
    """Count the verdicts of a run.

    Args:
        session: Transaction of the caller; `REPEATABLE READ` makes the counts one picture while
            workers still write.
        run_id: A full run id.

    Returns:
        One tally per model of the run, sorted by model, those without a verdict included.
    """
    run = load_run(session, run_id)
    cells = _cells(session, run_id, run.epochs)
    confidence = _confidence(session, run_id)
    spent = {row[0]: row[1:] for row in _query(session, _SPENT, run_id)}
    latency = _latency(session, run_id)
    malicious = sum(dataset.malicious for dataset in run.datasets)

    def of(spec: ModelSpec) -> ModelTally:
        *tokens, cost, priced = spent.get(spec.id, (None,) * 6 + (0,))
        return ModelTally(
            model=spec.id,
            simulated=spec.simulated,
            planned_malicious=malicious * run.epochs,
            planned_harmless=(run.samples - malicious) * run.epochs,
            cells=tuple(sorted(cells.get(spec.id, ()), key=repr)),
            confidence=tuple(sorted(confidence.get(spec.id, ()))),
            latency=latency.get(spec.id, {}),
            tokens=TokenTotals(*(None if total is None else int(total) for total in tokens)),
            cost_usd=cost,
            priced_verdicts=priced,
        )

    return [of(spec) for spec in run.models]


def _query(session: Session, template: str, run_id: str, **parts: object) -> Sequence[Any]:
    statement = template.replace("{finding}", _FINDING).replace(
        "{newest}", newest_verdict(session, run_id)
    )
    return session.execute(text(statement), {"run": run_id, **parts}).all()


def _cells(session: Session, run_id: str, epochs: int) -> dict[str, list[Cell]]:
    template = _CELLS_OF_ONE_EPOCH if epochs == 1 else _CELLS_OF_MANY_EPOCHS
    cells: dict[str, list[Cell]] = {}
    for model, target, category, cluster, findings, samples in _query(session, template, run_id):
        counted = Counter(Finding(finding) for finding in findings)
        cell = Cell(Target(target), category, cluster, tuple(sorted(counted.items())), samples)
        cells.setdefault(model, []).append(cell)
    return cells


def _confidence(session: Session, run_id: str) -> dict[str, list[ConfidenceCell]]:
    cells: dict[str, list[ConfidenceCell]] = {}
    for model, target, finding, *numbers in _query(
        session, _CONFIDENCE, run_id, bins=CONFIDENCE_BINS
    ):
        cell = ConfidenceCell(Target(target), Finding(finding), *map(int, numbers))
        cells.setdefault(model, []).append(cell)
    return cells


def _latency(session: Session, run_id: str) -> dict[str, dict[str, Latency]]:
    latency: dict[str, dict[str, Latency]] = {}
    for part in PARTS:
        rows = _query(session, _LATENCY.replace("{part}", part), run_id)
        for model, mean, (p50, p90, p99), longest in rows:
            latency.setdefault(model, {})[part] = Latency(float(mean), p50, p90, p99, longest)
    return latency
