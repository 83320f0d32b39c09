"""Before a run spends money: missing keys, models that end, and one question to each model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from aegish_dist.cli.printing import note
from aegish_dist.cli.tables import TextTable, note_table
from aegish_dist.core.model import ModelSpec
from aegish_dist.errors import ConfigError

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from aegish_dist.cli.context import Workspace
    from aegish_dist.models import ModelFacts
    from aegish_dist.pipeline.check_models import ModelCheck
    from aegish_dist.pipeline.submit import Submission

WARN_DAYS = 60
"""How long before its end a model is warned about."""
REPORTED_WITHIN_S = 3.0
"""Within so many seconds living workers have said which models of a new run they may not call."""
POLL_S = 0.25


def require_keys(
    workspace: Workspace, models: Sequence[ModelSpec], options: dict[str, Any]
) -> None:
    """Refuse models that cannot be called from here, in a table when there are several.

    Raises:
        ConfigError: There are such models, and neither `--keys-on-workers` nor `--dry-run`.
    """
    refusals = [
        (spec.id, refusal)
        for spec in models
        if (refusal := workspace.credentials.refusal(spec.destination)) is not None
    ]
    if not refusals:
        return
    elsewhere = options["dry_run"] or options["keys_on_workers"]
    if len(refusals) == 1:
        problem = ": ".join(refusals[0])
    else:
        note_table(TextTable(("Model", "Cannot be called from here"), refusals))
        problem = f"{len(refusals)} of {len(models)} models cannot be called from here"
    if elsewhere:
        note(problem)
        return
    raise ConfigError(
        f"{problem}. Set the keys, leave those models out (`--models available` selects the"
        " others), or say --keys-on-workers"
    )


def warn_by_catalog(workspace: Workspace, submission: Submission) -> None:
    """Say which models have ended or end soon, and which take no temperature."""
    today = datetime.now(UTC).date()
    for spec in submission.models:
        facts = workspace.catalog.facts(spec.id)
        warning = retirement(spec.id, facts, today)
        if warning:
            note(warning)
        if not facts.takes(spec, submission.parameters):
            note(f"{spec.id} takes no temperature, by the catalog: drop --temperature")


def retirement(model: str, facts: ModelFacts, today: date) -> str:
    """Return the warning about a model's end, empty when it is far or not announced."""
    if facts.retires is None:
        return ""
    days = (facts.retires - today).days
    if days <= 0:
        return f"{model} was retired on {facts.retires}: its calls will fail"
    when = "tomorrow" if days == 1 else f"in {days} days"
    return f"{model} ends on {facts.retires}, {when}" if days <= WARN_DAYS else ""


def may_be_unserved(models: Sequence[ModelSpec]) -> bool:
    """Whether workers may lack a key or a permission for some of the models."""
    return any(spec.wire.http is not None and not spec.simulated for spec in models)


def unserved(engine: Engine, run_id: str, patience_s: float = REPORTED_WITHIN_S) -> list[str]:
    """Return a line for each model that no living worker may call, once they have said so.

    Args:
        engine: The store.
        run_id: A run that was just enqueued.
        patience_s: How long to wait; workers report every second.
    """
    from aegish_dist.cli.halts import halted  # noqa: PLC0415
    from aegish_dist.pipeline.status import State, run_status  # noqa: PLC0415

    deadline = time.monotonic() + patience_s
    while True:
        status = run_status(engine, run_id)
        waiting = [m for m in status.models if m.state is State.WAITING and m.reason is None]
        if not (waiting and status.workers) or time.monotonic() > deadline:
            return list(halted(status))
        time.sleep(POLL_S)


def preflight(workspace: Workspace, submission: Submission, options: dict[str, Any]) -> None:
    """Ask each model that costs money or may refuse one harmless question, as the run would.

    Raises:
        ConfigError: Some refuse it; nothing is stored yet.
    """
    if options["skip_preflight"]:
        return
    if options["keys_on_workers"]:
        note("no preflight: the keys are on the workers")
        return
    asked = [s for s in submission.models if not s.simulated and s.wire.http is not None]
    if asked:
        note(f"preflight: asking {len(asked)} models one harmless question each")
        _judge(_checks(workspace, asked, submission))


def _checks(
    workspace: Workspace, asked: Sequence[ModelSpec], submission: Submission
) -> list[ModelCheck]:
    import asyncio  # noqa: PLC0415

    from aegish_dist.pipeline.check_models import check_models  # noqa: PLC0415  with aiohttp

    return asyncio.run(
        check_models(
            asked,
            submission.prompt,
            submission.parameters,
            workspace.credentials,
            workspace.catalog.facts,
        )
    )


def _judge(checks: Sequence[ModelCheck]) -> None:
    for each in checks:
        if not each.ok and not each.refused:
            note(f"preflight: {each.model}: {each.detail}; the run asks it all the same")
    refused = [each for each in checks if each.refused]
    if not refused:
        return
    if len(refused) == 1:
        [only] = refused
        problem = f"{only.model} refuses this run: {only.detail}"
        problem += f"; {only.remedy}" if only.remedy else ""
    else:
        rows = [(each.model, each.detail, each.remedy) for each in refused]
        note_table(TextTable(("Model", "Refuses this run", "What to change"), rows))
        problem = f"{len(refused)} of {len(checks)} models refuse this run"
    raise ConfigError(
        f"{problem.rstrip('.')}. Nothing was stored: change that, leave them out, or say"
        " --skip-preflight"
    )
