"""Listing the verdicts of a run that meet some conditions."""

from collections.abc import Generator, Sequence

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist.core.listing import ListedPart, VerdictFilter
from aegish_dist.core.opinion import Opinion
from aegish_dist.core.run import Run
from aegish_dist.core.scoring import Label, ScoringRule
from aegish_dist.core.verdict import Outcome
from aegish_dist.db.engine import transaction
from aegish_dist.db.runs import load_run
from aegish_dist.db.verdict_list import VerdictList, categories_of
from aegish_dist.errors import ConfigError, StoreError
from aegish_dist.pipeline.opinions import overlay_of

COUNTED = 10_000
"""Verdicts beyond the limit that are counted; what is more is not read."""
NAMED = 10
"""Names that an error lists at most."""


def list_verdicts(
    engine: Engine,
    run_id: str,
    chosen: VerdictFilter,
    opinion: Opinion,
    limit: int | None = None,
) -> Generator[ListedPart, None, None]:
    """Yield the verdicts of a run that meet some conditions, by dataset, sample, model and epoch.

    Of an item the verdict of its newest generation counts.

    Args:
        limit: Verdicts at most; None: all. Up to `COUNTED` further ones are counted.

    Yields:
        Parts of the list; few of them are in memory at a time.

    Raises:
        StoreError: The run has no such model, dataset or category.
        OpinionError: The overlay of the opinion does not fit the datasets of the run.
    """
    with transaction(engine, isolation_level="REPEATABLE READ") as session:
        run = load_run(session, run_id)
        _require_names(session, run, chosen)
        changes = overlay_of(session, run, opinion).values
        parts = VerdictList(session, run, chosen, opinion.rule, changes)
        yield from parts.parts(limit, COUNTED)


def outcomes_or_labels(names: Sequence[str], rule: ScoringRule) -> frozenset[Outcome | Label]:
    """Return the outcomes of these names, in any letter case; else labels of the rule set."""
    known: dict[str, Outcome | Label] = {label.value: label for label in rule.labels.values()}
    known |= {outcome.value: outcome for outcome in Outcome}
    for name in names:
        if name.upper() not in known:
            raise ConfigError(
                f"'{name}' is no outcome under {rule.name}: there are {', '.join(sorted(known))}"
            )
    return frozenset(known[name.upper()] for name in names)


def _require_names(session: Session, run: Run, chosen: VerdictFilter) -> None:
    models = [spec.id for spec in run.models]
    for model in (*chosen.models, *chosen.missed_by):
        require_name(run, "model", model, models)
    for dataset in chosen.datasets:
        require_name(run, "dataset", dataset, [each.name for each in run.datasets])
    categories = categories_of(session, run.run_id) if chosen.categories else []
    for category in sorted(chosen.categories):
        require_name(run, "category", category, categories)


def require_name(run: Run, what: str, name: str, known: Sequence[str]) -> None:
    """Refuse a name that a run does not have.

    Args:
        what: The kind of thing that it names, in a word.
    """
    if name not in known:
        listed = ", ".join(known[:NAMED]) + (", ..." if len(known) > NAMED else "")
        raise StoreError(f"run {run.run_id} has no {what} '{name}': it has {listed or 'none'}")
