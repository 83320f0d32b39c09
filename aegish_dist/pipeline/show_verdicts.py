"""Showing one sample of a run with every verdict about it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist.core.listing import ShownSample, ShownVerdict, correctness
from aegish_dist.core.opinion import Opinion
from aegish_dist.core.printable import shortened
from aegish_dist.core.run import Run
from aegish_dist.core.sample import Target
from aegish_dist.db.codes import finding_of
from aegish_dist.db.engine import transaction
from aegish_dist.db.runs import load_run
from aegish_dist.db.verdict_show import FoundSample, StoredVerdict, find_samples, verdicts_about
from aegish_dist.errors import StoreError
from aegish_dist.pipeline.list_verdicts import require_name
from aegish_dist.pipeline.opinions import overlay_of

CANDIDATES = 5
"""Samples that an error lists at most."""
CANDIDATE_CHARS = 40


def show_sample(
    engine: Engine,
    run_id: str,
    name: str,
    opinion: Opinion,
    *,
    models: Sequence[str] = (),
    dataset: str | None = None,
) -> ShownSample:
    """Return a sample and the verdicts about it.

    Args:
        name: Its id or command, the first digits of its id, or what stands in its command alone.
        models: Models whose verdicts are returned; all when empty.
        dataset: Name of its dataset; None: it may be any of the run.

    Raises:
        StoreError: The text names no sample or several, or the run has no such model or dataset.
    """
    with transaction(engine, isolation_level="REPEATABLE READ") as session:
        run = load_run(session, run_id)
        for model in models:
            require_name(run, "model", model, [spec.id for spec in run.models])
        found = _find(session, run, name, dataset)
        stored = verdicts_about(session, run, found, models)
        changed = overlay_of(session, run, opinion).samples
    change = next((each.change for each in changed if each.key == found.key), None)
    sample = found.sample
    if change is not None and change.target is not None:
        sample = replace(sample, target=change.target, category=change.category)
    excluded = change is not None and change.excludes
    verdicts = tuple(_shown(stored, opinion, None if excluded else sample.target))
    return ShownSample(run.run_id, found.dataset, found.sample_id, sample, verdicts)


def _find(session: Session, run: Run, name: str, dataset: str | None) -> FoundSample:
    if dataset is not None:
        require_name(run, "dataset", dataset, [each.name for each in run.datasets])
    limit = CANDIDATES + 1
    found = find_samples(session, run.run_id, name, dataset, limit) if name.strip() else []
    best = [each for each in found if each.rank == found[0].rank]
    if not best:
        raise StoreError(
            f"run {run.run_id} has no sample '{_short(name)}': "
            "`aegish-dist verdicts list` shows ids and commands"
        )
    if len(best) > 1:
        listed = ", ".join(map(_candidate, best[:CANDIDATES]))
        more = ", ..." if len(best) > CANDIDATES else ""
        raise StoreError(f"'{_short(name)}' is ambiguous: it could be {listed}{more}")
    return best[0]


def _candidate(found: FoundSample) -> str:
    command = _short(found.sample.command)
    return f"{found.sample_id} of {found.dataset} ({command})"


def _short(text: str) -> str:
    return shortened(text, CANDIDATE_CHARS)


def _shown(
    stored: Sequence[StoredVerdict], opinion: Opinion, target: Target | None
) -> Iterator[ShownVerdict]:
    for _, item in groupby(stored, lambda each: (each.record.model, each.record.epoch)):
        generations = list(item)
        for each in generations:
            yield ShownVerdict(
                record=each.record,
                label=opinion.rule.labels[finding_of(each.code)],
                correct=_is_correct(opinion, target, each.code),
                replaced=each is not generations[-1],
            )


def _is_correct(opinion: Opinion, target: Target | None, code: int) -> bool | None:
    """Judge a verdict; None where it is unscored, as all are of a sample without a target."""
    if target is None:
        return None
    return correctness(opinion.rule, target, finding_of(code)).as_bool
