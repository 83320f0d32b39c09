"""The database as a worker's ports need it: each call is a transaction and may block."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist.core.model import CallParameters
from aegish_dist.core.verdict import Item
from aegish_dist.db.engine import transaction
from aegish_dist.db.missing import open_queues
from aegish_dist.db.progress import Progress, model_progress
from aegish_dist.db.runs import Assignment, load_assignment, load_parameters, load_run
from aegish_dist.db.verdicts import LookUp, has_answers, insert_verdicts, look_up
from aegish_dist.db.workers import Halts, Reasons, forget_worker, report_worker
from aegish_dist.models import CatalogCredentials
from aegish_dist.pipeline.evaluate import Evaluated
from aegish_dist.ratelimit.budget import NANO_USD, Budget

COST_WINDOW_S = 1.0
"""Counting costs counts a rate as well, which is not used here."""


class Store:
    """The database as the evaluator's ports need it, each call a transaction."""

    def __init__(self, engine: Engine, recounts: Engine, credentials: CatalogCredentials) -> None:
        """Use these connections.

        Args:
            engine: For all that is short.
            recounts: For counting over all verdicts of a run.
            credentials: Say which models this worker may call.
        """
        self._credentials = credentials
        self._engine = engine
        self._recounts = recounts

    def assignments(self, callers: Sequence[tuple[str, str]]) -> Sequence[Assignment | None]:
        """Return what each caller is made of; None for a model that a run has not."""
        with transaction(self._engine) as session:
            return [load_assignment(session, run_id, model) for run_id, model in callers]

    def look_up(self, items: Sequence[Item]) -> Sequence[LookUp | None]:
        """Find the command and any verdict of each item."""
        with transaction(self._engine) as session:
            return look_up(session, items)

    def record(self, group: Sequence[Evaluated]) -> Sequence[None]:
        """Insert verdicts; those already there stay."""
        with transaction(self._engine) as session:
            insert_verdicts(session, [(each.key, each.verdict) for each in group])
        return [None] * len(group)

    def answered(self, run_models: Sequence[int]) -> Sequence[bool]:
        """Return whether the store has an answer of each model of a run."""
        with transaction(self._engine) as session:
            return [has_answers(session, run_model_id) for run_model_id in run_models]

    def spent(self, run_ids: Sequence[str]) -> Sequence[Mapping[str, int]]:
        """Return what each model of the runs has cost so far, in 1e-9 USD."""
        with transaction(self._recounts) as session:
            runs = [load_run(session, run_id) for run_id in run_ids]
            return [_in_nano_usd(model_progress(session, run, COST_WINDOW_S)) for run in runs]

    def budgets(self, run_ids: Sequence[str]) -> Sequence[Budget | None]:
        """Return what the runs may cost as of now."""
        with transaction(self._engine) as session:
            return [budget_of(parameters) for parameters in load_parameters(session, run_ids)]

    def report(
        self,
        name: str,
        in_flight: Mapping[tuple[str, str], int],
        halts: Halts,
        reasons: Reasons,
    ) -> None:
        """Write down that this worker lives."""
        with transaction(self._engine) as session:
            report_worker(
                session, name, in_flight, halts, reasons, unserved=self._unserved(session)
            )

    def _unserved(self, session: Session) -> dict[tuple[str, str], str]:
        """Return the models that this worker may not call, by run, and why."""
        credentials = self._credentials.now()
        refusals = {
            (each.run_id, each.model): credentials.refusal(each.destination)
            for each in open_queues(session).values()
        }
        return {key: refusal for key, refusal in refusals.items() if refusal is not None}

    def forget(self, name: str) -> None:
        """Remove this worker."""
        with transaction(self._engine) as session:
            forget_worker(session, name)


def budget_of(parameters: CallParameters | None) -> Budget | None:
    """Return what a run may cost; None without a cap."""
    if parameters is None:
        return None
    caps = (parameters.max_cost_usd, parameters.max_cost_per_model_usd)
    if caps == (None, None):
        return None
    return Budget(*(None if cap is None else int(cap * NANO_USD) for cap in caps))


def _in_nano_usd(progress: Mapping[str, Progress]) -> dict[str, int]:
    return {model: int((each.cost_usd or 0) * NANO_USD) for model, each in progress.items()}
