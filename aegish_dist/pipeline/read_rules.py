"""Reading the runs that have a stop rule, and ending those whose questions are answered."""

from dataclasses import replace

from sqlalchemy import Engine

from aegish_dist.core.run import Held
from aegish_dist.core.stop_rule import decide
from aegish_dist.db.engine import transaction
from aegish_dist.db.held import hold
from aegish_dist.db.stop_rules import answers_in_order, load_decision, ruled_runs, save_decision
from aegish_dist.logs import get_logger

log = get_logger(__name__)


def read_rules(engine: Engine) -> None:
    """Read each run that has a stop rule and is asked about; any process may, at any time."""
    with transaction(engine) as session:
        for run in ruled_runs(session):
            order, answers = answers_in_order(session, run)
            decision = decide(run.rule, order, answers, run.before)
            # A model that was asked everything is closed as finished, and so is the run.
            asked = {m for m, each in answers.items() if each.complete >= decision.clusters}
            left = tuple(model for model in decision.stopped if model not in asked)
            decision = replace(decision, stopped=left, final=run.closed)
            if run.before is None or decision != replace(run.before, read_at=""):
                save_decision(session, run.run_id, decision)
            if decision.settled and left:
                hold(session, run.run_id, Held.DECIDED)
                log.info("run_decided", run=run.run_id, clusters=decision.clusters)


def has_stop_rule(engine: Engine, run_id: str) -> bool:
    """Return whether a run stops by itself."""
    with transaction(engine) as session:
        return load_decision(session, run_id)[0] is not None
