"""Before a run spends money: missing keys, models that retire, and one question to each model."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from aegish_dist.core.model import ModelSpec
from aegish_dist.errors import ConfigError
from aegish_dist.pipeline.plan import require_prices

if TYPE_CHECKING:
    from aegish_dist.models import ModelEntry, RunEstimate
    from aegish_dist.pipeline.check_models import ModelCheck
    from aegish_dist.pipeline.plan import Request, Submission
    from aegish_dist.pipeline.workspace import Observer, Workspace

WARN_DAYS = 60
"""Days before its retirement from which a model is warned about."""


def check_before_calls(
    workspace: Workspace,
    submission: Submission,
    estimated: RunEstimate,
    *,
    request: Request,
    lines: Sequence[str],
    observer: Observer,
) -> None:
    """Check all that can be checked before a run is stored and spends money, and note its plan.

    Args:
        request: Which checks are wanted; a dry run asks neither the broker nor a model.

    Raises:
        ConfigError: A cap holds for a model without a price, or a model cannot be called or
            refuses the run.
    """
    require_prices(estimated, submission.parameters)
    _require_keys(workspace, submission.models, request, observer)
    _warn_by_catalog(workspace, submission, observer)
    if not (request.dry_run or workspace.settings.embedded_broker):
        from aegish_dist.broker.connection import check_broker  # noqa: PLC0415  a dry run needs none

        check_broker(workspace.app)
    for line in lines:
        observer.note(line)
    if not request.dry_run:
        _preflight(workspace, submission, request, observer)


def _require_keys(
    workspace: Workspace, models: Sequence[ModelSpec], request: Request, observer: Observer
) -> None:
    """Refuse models that cannot be called from here, in a table when there are several."""
    refusals = [
        (spec.id, refusal)
        for spec in models
        if (refusal := workspace.credentials.refusal(spec.destination)) is not None
    ]
    if not refusals:
        return
    if len(refusals) == 1:
        problem = ": ".join(refusals[0])
    else:
        observer.note_table(("Model", "Cannot be called from here"), refusals)
        problem = f"{len(refusals)} of {len(models)} models cannot be called from here"
    if request.dry_run or request.keys_on_workers:
        observer.note(problem)
        return
    raise ConfigError(
        f"{problem}. Set the keys, leave those models out (`--models available` selects the"
        " others), or say --keys-on-workers"
    )


def _warn_by_catalog(workspace: Workspace, submission: Submission, observer: Observer) -> None:
    """Note which models have retired or soon will, and which take no temperature."""
    today = datetime.now(UTC).date()
    for spec in submission.models:
        entry = workspace.catalog.entry(spec.id)
        warning = retirement(entry, today)
        if warning:
            observer.note(warning)
        if not entry.takes(spec, submission.parameters):
            observer.note(f"{spec.id} takes no temperature, by the catalog: drop --temperature")


def retirement(model: ModelEntry, today: date) -> str:
    """Return the warning about a model's retirement.

    Args:
        today: In UTC.

    Returns:
        One line; empty when none is announced, or it is more than `WARN_DAYS` days away.
    """
    if model.retires is None:
        return ""
    days = (model.retires - today).days
    if days <= 0:
        return f"{model.id} was retired on {model.retires}: its calls will fail"
    when = "tomorrow" if days == 1 else f"in {days} days"
    return f"{model.id} ends on {model.retires}, {when}" if days <= WARN_DAYS else ""


def calls_a_provider(spec: ModelSpec) -> bool:
    """Whether a model is asked over the network for real, and so may lack a key or a permission."""
    return spec.wire.http is not None and not spec.simulated


def _preflight(
    workspace: Workspace, submission: Submission, request: Request, observer: Observer
) -> None:
    """Ask each model that costs money or may refuse one harmless question, as the run would."""
    if not request.preflight:
        return
    if request.keys_on_workers:
        observer.note("no preflight: the keys are on the workers")
        return
    asked = list(filter(calls_a_provider, submission.models))
    if asked:
        observer.note(f"preflight: asking {len(asked)} models one harmless question each")
        _require_answers(_checks(workspace, asked, submission), observer)


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
            workspace.catalog.entry,
        )
    )


def _require_answers(checks: Sequence[ModelCheck], observer: Observer) -> None:
    for each in checks:
        if not each.ok and not each.refused:
            observer.note(f"preflight: {each.model}: {each.detail}; the run asks it all the same")
    refused = [each for each in checks if each.refused]
    if not refused:
        return
    if len(refused) == 1:
        [only] = refused
        problem = f"{only.model} refuses this run: {only.detail}"
        problem += f"; {only.remedy}" if only.remedy else ""
    else:
        rows = [(each.model, each.detail, each.remedy) for each in refused]
        observer.note_table(("Model", "Refuses this run", "What to change"), rows)
        problem = f"{len(refused)} of {len(checks)} models refuse this run"
    raise ConfigError(
        f"{problem.rstrip('.')}. Nothing was stored: change that, leave them out, or say"
        " --skip-preflight"
    )
