"""Before a run spends money: missing keys, models that retire, and one question to each model."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct

from aegish_dist.core.model import HTTP_FORMATS, CallParameters, ModelSpec, WireFormat
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.run import Prompt, is_arm_of
from aegish_dist.core.secrets import origin
from aegish_dist.core.text import counted
from aegish_dist.errors import AegishError, ConfigError, ProviderError
from aegish_dist.opinions.parsing import ACTIONS, judge
from aegish_dist.pipeline.plan import require_prices, summary

if TYPE_CHECKING:
    from aegish_dist.models.catalog import Catalog
    from aegish_dist.models.credentials import Credentials
    from aegish_dist.models.entries import ModelEntry
    from aegish_dist.pipeline.observer import Observer
    from aegish_dist.pipeline.plan import Request, RunPlan
    from aegish_dist.pipeline.workspace import Workspace
    from aegish_dist.providers.contract import ModelClient
    from aegish_dist.providers.session import ProviderSession

WARN_DAYS = 60  # days before its retirement from which a model is warned about
PROBE_COMMAND = "echo ok"
CONNECT_S = 5.0
# Failures that every call of the run would meet again; the others pass, and calls are retried.
REFUSALS = frozenset(
    {ErrorClass.AUTH, ErrorClass.QUOTA, ErrorClass.NOT_FOUND, ErrorClass.BAD_REQUEST}
)


class ModelCheck(Struct, frozen=True):
    model: str
    ok: bool
    detail: str
    latency_ms: float | None  # None when it was not called
    refused: bool = False  # whether all calls of a run would fail in the same way
    remedy: str = ""
    reached: bool = True  # whether its address took a connection, or was not tried


def check_before_calls(
    workspace: Workspace, plan: RunPlan, request: Request, observer: Observer
) -> None:
    """Check all that can be checked before a run is stored and spends money, and note its plan.

    A dry run asks neither the broker nor a model. A ConfigError says that a cap holds for a model
    without a price, that a model cannot be called or refuses the run, or that none can be reached.
    """
    estimated = plan.estimate()
    own = [spec for spec in plan.asked if spec.parameters]
    if own:
        from aegish_dist.providers.contract import require_harmless  # noqa: PLC0415  few have any

        for spec in own:
            require_harmless(spec, plan.parameters)
    require_prices(estimated, plan.parameters)
    catalog = workspace.catalog
    _require_keys(catalog, workspace.credentials, plan.asked, request, observer)
    for line in (*_warnings(catalog, plan), *addresses(catalog, plan.asked)):
        observer.note(line)
    if not (request.dry_run or workspace.settings.embedded_broker):
        from aegish_dist.broker.client import check_broker  # noqa: PLC0415  a dry run needs none

        check_broker(workspace.app)
    for line in summary(plan, estimated, workspace.settings.concurrency):
        observer.note(line)
    if not request.dry_run and request.preflight:
        _preflight(workspace, plan, request, observer)


def _require_keys(
    catalog: Catalog,
    credentials: Credentials,
    models: Sequence[ModelSpec],
    request: Request,
    observer: Observer,
) -> None:
    refusals = []
    mistyped = False
    for spec in models:
        refusal = credentials.refusal(spec.destination)
        if refusal is not None:
            meant = catalog.meant(spec.id)
            mistyped = mistyped or bool(meant)
            refusals.append((spec.id, f"{meant} {refusal}".strip()))
    if not refusals:
        return
    if len(refusals) == 1:
        problem = ": ".join(refusals[0])
    else:
        observer.note_table(("Model", "Cannot be called from here"), refusals)
        problem = f"{len(refusals)} of {len(models)} models cannot be called from here"
    if not request.keys_on_workers and (mistyped or not request.dry_run):
        raise ConfigError(
            f"{problem}. Set the keys, leave those models out (`--models available` selects the"
            " others), or say --keys-on-workers"
        )
    observer.note(problem)


def _warnings(catalog: Catalog, plan: RunPlan) -> list[str]:
    today = datetime.now(UTC).date()
    warnings: list[str] = []
    for spec in plan.asked:
        entry = catalog.entry(spec.id)
        warnings.append(catalog.unlisted(spec.id))
        prompt = plan.prompts.get(spec.id)
        if prompt is not None and not is_arm_of(spec.id, prompt):
            warnings.append(f"{spec.id} is asked with its own prompt {prompt.pinned}")
        warnings.append(retirement(entry, today))
        if not entry.takes(spec, plan.parameters):
            warnings.append(f"{spec.id} takes no temperature, by the catalog: drop --temperature")
    # The arms of a model share the warnings about it.
    return [warning for warning in dict.fromkeys(warnings) if warning]


def addresses(catalog: Catalog, specs: Sequence[ModelSpec]) -> Iterator[str]:
    """Yield a line for each address of real calls that is not the provider's in the package."""
    called = [spec for spec in specs if calls_a_provider(spec)]
    for spec in catalog.redirected(called):
        line = f"{spec.provider} is asked at {spec.base_url}, by {_given_by(catalog, spec)}"
        if spec.key_variable:
            line += f"; {spec.key_variable} is sent there"
        yield line


def _given_by(catalog: Catalog, spec: ModelSpec) -> str:
    by_catalog = catalog.entry(spec.id).base_url or catalog.providers[spec.provider].base_url
    return "base_url in the catalog" if spec.base_url == by_catalog else "OPENAI_BASE_URL"


def retirement(model: ModelEntry, today: date) -> str:
    """Return the warning about a model's retirement, one line; `today` is in UTC.

    It is empty when none is announced, or it is more than `WARN_DAYS` days away.
    """
    if model.retires is None:
        return ""
    days = (model.retires - today).days
    if days > WARN_DAYS:
        return ""
    if days <= 0:
        return f"{model.id} was retired on {model.retires}: its calls will fail"
    when = "tomorrow" if days == 1 else f"in {days} days"
    return f"{model.id} ends on {model.retires}, {when}"


def calls_a_provider(spec: ModelSpec) -> bool:
    """Whether a model is asked for real, and so may lack a key, a program or a permission."""
    return spec.wire is not WireFormat.BASELINE and not spec.simulated


def _preflight(workspace: Workspace, plan: RunPlan, request: Request, observer: Observer) -> None:
    """Ask each model that costs money or may refuse one harmless question, as the run would.

    A simulated model is asked nothing: where its calls would leave from here, its address is tried.
    """
    if request.keys_on_workers:
        observer.note("no preflight: the keys are on the workers")
        return
    checks: list[ModelCheck] = []
    asked = [spec for spec in plan.asked if calls_a_provider(spec)]
    if asked:
        observer.note(f"preflight: one harmless question to {counted(len(asked), 'model')}")
        checks += check_models(
            workspace.catalog,
            workspace.credentials,
            asked,
            plan.prompt_of,
            plan.parameters,
            private_folders=workspace.settings.private_folders,
        )
    if workspace.settings.embedded_broker:
        called = (spec for spec in reversed(plan.asked) if spec.simulated and spec.base_url)
        simulated = {origin(spec.base_url): spec for spec in called}
        checks += map(_connected, simulated.values())  # once each: silence takes 5 s
    _require_a_model_reached(checks)
    for each in checks:
        if not each.ok and not each.refused:
            observer.note(f"preflight: {each.model}: {each.detail}; the run asks it all the same")
    _require_no_refusal(checks, observer)


def _connected(spec: ModelSpec) -> ModelCheck:
    address = urlsplit(origin(spec.base_url) or "")
    try:
        socket.create_connection((address.hostname, address.port), CONNECT_S).close()
    except OSError as error:
        detail = f"connection to {address.netloc} failed: {error.strerror or error}"
        remedy = "start `aegish-dist simulate-provider`"
        return ModelCheck(spec.id, False, detail, None, remedy=remedy, reached=False)
    return ModelCheck(spec.id, True, "", None)


def _require_a_model_reached(checks: Sequence[ModelCheck]) -> None:
    if not checks or any(each.reached for each in checks):
        return
    first = checks[0]
    others = f", nor can {counted(len(checks) - 1, 'other')}" if checks[1:] else ""
    raise ConfigError(
        f"{first.model} cannot be reached: {first.detail}{others}. Nothing was stored:"
        f" {first.remedy}, or say --skip-preflight"
    )


def _require_no_refusal(checks: Sequence[ModelCheck], observer: Observer) -> None:
    refused = [each for each in checks if each.refused]
    if not refused:
        return
    if len(refused) == 1:
        [only] = refused
        problem = f"{only.model} refuses this run: {only.detail}"
        if only.remedy:
            problem += f"; {only.remedy}"
    else:
        observer.note_table(
            ("Model", "Refuses this run", "What to change"),
            [(each.model, each.detail, each.remedy) for each in refused],
        )
        problem = f"{len(refused)} of {len(checks)} models refuse this run"
    end = "" if problem.endswith("?") else "."
    raise ConfigError(
        f"{problem.rstrip('.')}{end} Nothing was stored: change that, leave them out, or say"
        " --skip-preflight"
    )


def check_models(
    catalog: Catalog,
    credentials: Credentials,
    specs: Sequence[ModelSpec],
    prompt_of: Callable[[str], Prompt],
    parameters: CallParameters,
    *,
    private_folders: Sequence[Path],
) -> list[ModelCheck]:
    """Ask every model about one harmless command, all at once, without retries.

    A request that a model's catalog entry rules out is not sent. The deadline of a call is the
    run's.

    Args:
        private_folders: Folders of the store, which no guard may read.
    """
    from aegish_dist.providers.session import provider_session  # noqa: PLC0415  with aiohttp

    async def check_all() -> list[ModelCheck]:
        async with provider_session(private_folders) as providers:
            asked = []
            for spec in specs:
                prompt = prompt_of(spec.id)
                connect = partial(_client, providers, credentials, spec, prompt, parameters)
                asked.append(_asked(catalog, spec, parameters, connect))
            return await asyncio.gather(*asked)

    return asyncio.run(check_all())


def _client(
    providers: ProviderSession,
    credentials: Credentials,
    spec: ModelSpec,
    prompt: Prompt,
    parameters: CallParameters,
) -> ModelClient:
    key = credentials.key(spec.destination)
    program = credentials.program(spec.destination)
    return providers.client(spec, prompt, parameters, key, program=program)


async def _asked(
    catalog: Catalog,
    spec: ModelSpec,
    parameters: CallParameters,
    connect: Callable[[], ModelClient],
) -> ModelCheck:
    if not catalog.entry(spec.id).takes(spec, parameters):
        detail, remedy = "takes no temperature, by the catalog", "drop --temperature"
        return ModelCheck(spec.id, False, detail, None, refused=True, remedy=remedy)
    meant = catalog.meant(spec.id)
    started = time.monotonic()

    def since() -> float:
        return round((time.monotonic() - started) * 1000, 1)

    try:
        completion = await connect().complete(PROBE_COMMAND)
    except ProviderError as error:
        refused = error.error_class in REFUSALS
        reached = error.error_class is not ErrorClass.CONNECTION
        remedy = _remedy(spec, parameters, str(error)) if refused else ""
        if error.error_class is ErrorClass.NOT_FOUND:
            openai = spec.wire is WireFormat.OPENAI  # Anthropic's root has no version
            unversioned = openai and not re.search(r"/v\d", spec.base_url)
            remedy = f"does {_given_by(catalog, spec)} lack /v1?" if unversioned else meant
        if not reached:
            remedy = f"start its server or mend its address, {_given_by(catalog, spec)}"
        return ModelCheck(spec.id, False, str(error), since(), refused, remedy, reached)
    except AegishError as error:
        refused = isinstance(error, ConfigError)
        remedy = ""
        if refused and meant:
            remedy = meant
        elif refused and str(error) == f"{spec.key_variable} is not set":
            remedy = f"export {spec.key_variable}=..."
        return ModelCheck(spec.id, False, str(error), None, refused, remedy)
    outcome = judge(completion, PROBE_COMMAND, spec.output).outcome
    ok = outcome.value in ACTIONS
    detail = outcome.value if ok else "answered without an action"
    return ModelCheck(spec.id, ok=ok, detail=detail, latency_ms=since())


def _remedy(spec: ModelSpec, parameters: CallParameters, words: str) -> str:
    """Return how to leave out the first field sent that the provider's words name."""
    for field, remedy in _sent(spec, parameters):
        if re.search(rf"(?<![a-z0-9]){re.escape(field)}(?![a-z0-9])", words, re.IGNORECASE):
            return remedy
    return ""


def _sent(spec: ModelSpec, parameters: CallParameters) -> Iterator[tuple[str, str]]:
    """Yield the optional fields of a request, each with how to leave it out."""
    for field, value in spec.parameters.items():
        if value is not None:
            yield field, f"drop parameters.{field} of this model in your catalog"
    for field in ("response_format", "json_schema", "output_config", "tools", "tool_choice"):
        if spec.structured is not None:
            yield field, "drop 'structured' of this model in your catalog, or take the other value"
    if parameters.temperature is not None:
        yield "temperature", "drop --temperature"
    own = () if spec.wire.http is None else spec.wire.http.output_limit_fields
    # Those of every format: routers pass on errors of providers that speak another one.
    for http in HTTP_FORMATS.values():
        for field in http.output_limit_fields:
            others = [each for each in own if each != field] if len(own) > 1 else []
            swap = f', or set max_tokens_field = "{others[0]}" in your catalog' if others else ""
            yield field, f"lower --max-output-tokens{swap}"
    if parameters.seed is not None:
        yield "seed", 'put drop_parameters = ["seed"] for this model into your catalog'
