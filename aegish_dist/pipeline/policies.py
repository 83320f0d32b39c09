"""Systems of guards: the search over the verdicts of a run, and the file of what it finds."""

import re
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import asdict, replace
from sqlalchemy import Engine

from aegish_dist.core.metric import Metric
from aegish_dist.core.text import known
from aegish_dist.db.engine import in_transaction
from aegish_dist.db.runs import load_run
from aegish_dist.errors import ReportError
from aegish_dist.files import replacing_text, require_new
from aegish_dist.findings.fitted import SystemsData
from aegish_dist.findings.snapshot import takes_part
from aegish_dist.opinions.guards import Guard, Guards, apply_policy, decided_fingerprint
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.opinion_files import render_policy
from aegish_dist.opinions.policy import Origin, PolicySearch, Requirements
from aegish_dist.opinions.scoring import ACTIONS, ScoringRule, SuspicionRule
from aegish_dist.pipeline.guards import read_guards
from aegish_dist.report.layout import with_interval
from aegish_dist.statistics.policy_search import search_policies
from aegish_dist.statistics.rates import scaled


def search_run(
    engine: Engine,
    run_id: str,
    opinion: Opinion,
    rule: SuspicionRule,
    models: Sequence[str] = (),
    *,
    requirements: Requirements,
    guards: Guards | None = None,
) -> SystemsData:
    """Search for the best system of guards among models of a run.

    Without models, all take part that have scored enough, but no baselines. Guards are as
    `read_guards` returns them, where they are read already. A StoreError names a
    model that the run does not ask, an OpinionError an overlay that does not fit the datasets. With
    too few verdicts there is a ReportError.
    """
    guards = guards or read_guards(engine, run_id, opinion, rule, models, commands=True)
    chosen = list(guards.guards)
    if not models:
        chosen = [guard for guard in guards.guards if _takes_part(guard, guards)]
    if not chosen:
        raise ReportError(
            f"no model of run {run_id}, baselines aside, has scored half of its malicious and half"
            f" of its harmless commands with a suspicion by {rule.name}: name models with"
            " `policies search --models`"
        )
    found = search_policies(replace(guards, guards=chosen), opinion.rule, requirements)
    names = [each.name for each in chosen]
    scored = {each.name: int(each.scored.sum()) for each in guards.guards}
    others = {name: number for name, number in scored.items() if name not in names}
    run = in_transaction(engine, load_run, run_id)
    return SystemsData(
        run=run,
        opinion=opinion,
        rule=guards.rule(rule),
        requirements=requirements,
        models=names,
        models_left_out=others,
        found=found,
        own=[guard.name for guard in chosen if guard.own],
        origin=_origin(run_id, guards, opinion.rule, found),
    )


def _takes_part(guard: Guard, among: Guards) -> bool:
    malicious = int((guard.scored & among.malicious).sum())
    harmless = int(guard.scored.sum()) - malicious
    return takes_part(guard.name, (malicious, harmless), among.asked)


def write_winner(data: SystemsData, path: Path) -> None:
    """Write the winner of a search as a policy file, which names the policy.

    A ReportError says that no system keeps to the bounds, or that none is surely better than
    chance, an OutputError that there is such a file, or that it cannot be written.
    """
    require_new(path)
    winner, estimate, origin = data.winning, data.found.winner_estimate, data.origin
    if winner is None or estimate is None or origin is None:
        any_kept = any(data.choices.values())
        why = "is surely better than chance" if any_kept else "keeps to the bounds"
        raise ReportError(f"nothing is written to {path}: no system {why}")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("._-") or "found"
    policy = replace(winner.best.policy, name=name)
    with replacing_text(path) as stream:
        stream.write(
            f"# Found by `aegish-dist policies search` in run {data.run.run_id}: score"
            f" {with_interval(estimate.score)} on other commands,\n# judged by"
            f" {data.opinion.rule.name}, suspicion by {data.rule.name}.\n"
        )
        stream.write(render_policy(policy.sealed(origin)))


def _origin(run_id: str, guards: Guards, rule: ScoringRule, found: PolicySearch) -> Origin | None:
    """Return what the winner was chosen on, and its estimates out of fold."""
    if found.winner is None or found.winner_estimate is None:
        return None
    policy, estimate = getattr(found, found.winner).best.policy, found.winner_estimate
    estimates = {}
    # A search knows stops alone: of a warning that neither stops nor passes its score differs.
    if all(rule.is_acceptance(action) is not rule.is_detection(action) for action in ACTIONS):
        estimates = {
            Metric.SCORE: estimate.score,
            Metric.DETECTION_RATE: estimate.detection_rate,
            Metric.ACCEPTANCE_RATE: scaled(estimate.false_positive_rate, -1, 1),
            Metric.FALSE_POSITIVE_RATE: estimate.false_positive_rate,
        }
    return Origin(
        run=run_id,
        decided=decided_fingerprint(apply_policy(policy, guards), guards, rule),
        marks=frozenset().union(*guards.marks),
        estimates={name: known(asdict(each)) for name, each in estimates.items()},
    )
