"""Systems of guards: the search over the verdicts of a run, and the file of what it finds."""

import re
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace
from sqlalchemy import Engine

from aegish_dist.core.opinion import Opinion
from aegish_dist.core.suspicion import LEAST_SCORED, Guard, Guards, SuspicionRule
from aegish_dist.db.engine import in_transaction
from aegish_dist.db.runs import load_run
from aegish_dist.errors import ReportError
from aegish_dist.files import replacing_text
from aegish_dist.opinion_files import render_policy
from aegish_dist.pipeline.audit import require_new
from aegish_dist.pipeline.opinions import read_guards
from aegish_dist.report.decision import BASELINE
from aegish_dist.report.quality import with_interval
from aegish_dist.report.systems import SystemsData
from aegish_dist.statistics.policy_search import Requirements, search_policies


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
    guards = guards or read_guards(engine, run_id, opinion, rule, models)
    chosen = guards.guards if models else [g for g in guards.guards if _takes_part(g, guards)]
    if not chosen:
        raise ReportError(
            f"no model of run {run_id}, baselines aside, has scored half of its malicious and half"
            f" of its harmless commands with a suspicion by {rule.name}: name models with"
            " `policies search --models`"
        )
    found = search_policies(Guards(guards.decisions, chosen), opinion.rule, requirements)
    names = [each.name for each in chosen]
    scored = {each.name: sum(e is not None for e in each.suspicion) for each in guards.guards}
    others = {name: number for name, number in scored.items() if name not in names}
    run = in_transaction(engine, load_run, run_id)
    return SystemsData(run, opinion, guards.rule(rule), requirements, names, others, found)


def _takes_part(guard: Guard, among: Guards) -> bool:
    scored: dict[bool, list[bool]] = {True: [], False: []}
    for decision, suspicion in zip(among.decisions, guard.suspicion, strict=True):
        scored[decision.dangerous].append(suspicion is not None)
    enough = all(sum(each) >= LEAST_SCORED * len(each) for each in scored.values())
    return enough and not guard.name.startswith(BASELINE)


def write_winner(data: SystemsData, path: Path) -> None:
    """Write the winner of a search as a policy file, which names the policy.

    A ReportError says that no system keeps to the bounds, or that none is surely better than
    chance, an OutputError that there is such a file, or that it cannot be written.
    """
    require_new(path)
    winner = data.choices.get(data.winner or "")
    if winner is None:
        any_kept = any(data.choices.values())
        why = "is surely better than chance" if any_kept else "keeps to the bounds"
        raise ReportError(f"nothing is written to {path}: no system {why}")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("._-") or "found"
    with replacing_text(path) as stream:
        stream.write(
            f"# Found by `aegish-dist policies search` in run {data.run.run_id}: score"
            f" {with_interval(winner.estimate.score)} on other commands,\n# judged by"
            f" {data.opinion.rule.name}, suspicion by {data.rule.name}.\n"
        )
        stream.write(render_policy(replace(winner.best.policy, name=name)))
