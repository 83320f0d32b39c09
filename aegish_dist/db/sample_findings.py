"""The samples of a run with the findings of all its models."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any

from sqlalchemy import Row
from sqlalchemy.orm import Session

from aegish_dist.core.judged import SampleAnswers
from aegish_dist.core.opinion import LabelChange
from aegish_dist.core.run import Run
from aegish_dist.core.sample import Target
from aegish_dist.core.tally import Findings
from aegish_dist.db.codes import finding_of
from aegish_dist.db.overlays import OverlayInRun
from aegish_dist.db.per_model import PerModel, prepare_counting
from aegish_dist.db.statements import counting_statement, statement

_SAMPLES_OF_RUN = statement("samples_of_run")
_READ_ANSWERS = counting_statement("read_answers")


def judged_samples(
    session: Session, run: Run, overlay: OverlayInRun | None = None
) -> list[SampleAnswers]:
    """Return every sample of a run with the findings of all models, ordered by dataset and place.

    Of an item that was retried the newest verdict counts. Findings are those of all epochs.
    """
    models = PerModel.of(session, run)
    found: defaultdict[int, dict[str, Findings]] = defaultdict(dict)
    prepare_counting(session)
    for spec in run.models:
        (row,) = models.newest(session, _READ_ANSWERS, spec.id)
        for key, codes in zip(row.keys.split(), row.codes.split(), strict=True):
            found[int(key)][spec.id] = _findings(codes)
    changes = {each.key: each.change for each in (overlay.samples if overlay else ())}
    rows = session.execute(_SAMPLES_OF_RUN, {"run": run.run_id})
    return [
        sample
        for row in rows
        for sample in _sample(row, changes.get(row.key), found.get(row.key, {}))
    ]


@cache
def _findings(codes: str) -> Findings:
    return tuple(sorted(Counter(map(finding_of, map(int, codes.split(",")))).items()))


def _sample(
    row: Row[Any], change: LabelChange | None, findings: dict[str, Findings]
) -> Iterator[SampleAnswers]:
    target, category = Target(row.target), row.category
    if change is not None:
        if change.target is None:
            return
        target, category = change.target, change.category
    yield SampleAnswers(
        row.dataset, row.sample_id, row.command, target, category, row.cluster, findings
    )
