"""The samples of a run with the findings of all its models."""

from collections import Counter, defaultdict
from functools import cache, partial

from sqlalchemy.orm import Session

from aegish_dist.core.judged import Findings, JudgedSample
from aegish_dist.core.run import Run
from aegish_dist.core.sample import Target
from aegish_dist.db.codes import finding_of
from aegish_dist.db.per_model import PerModel
from aegish_dist.db.statements import counting_statement, statement

_SAMPLES_OF_RUN = statement("samples_of_run")
_CODES_BY_SAMPLE = counting_statement("codes_by_sample")


def judged_samples(session: Session, run: Run) -> list[JudgedSample]:
    """Return every sample of a run with the findings of all models, ordered by dataset and place.

    Of an item that was retried the newest verdict counts. Findings are those of all epochs.

    Args:
        session: Transaction of the caller, `REPEATABLE READ`.
        run: The run.
    """
    models = PerModel.of(session, run)
    found: defaultdict[int, dict[str, Findings]] = defaultdict(dict)
    with models.readers(session) as readers:
        ids = [spec.id for spec in run.models]
        by_model = readers.map(partial(_findings_by_sample, models), ids)
        for model, by_sample in zip(ids, by_model, strict=True):
            for key, findings in by_sample.items():
                found[key][model] = findings
    return [
        JudgedSample(
            row.dataset,
            row.sample_id,
            row.command,
            Target(row.target),
            row.category,
            row.cluster,
            found.get(row.key, {}),
        )
        for row in session.execute(_SAMPLES_OF_RUN, {"run": run.run_id})
    ]


def _findings_by_sample(models: PerModel, session: Session, model: str) -> dict[int, Findings]:
    rows = models.newest(session, _CODES_BY_SAMPLE, model)
    return {row.key: _findings(tuple(row.codes)) for row in rows}


@cache
def _findings(codes: tuple[int, ...]) -> Findings:
    return tuple(sorted(Counter(map(finding_of, codes)).items()))
