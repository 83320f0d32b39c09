"""Preflight: does each model answer, before money is spent on a run?"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aegish_dist.core.model import CallParameters, ModelSpec
from aegish_dist.core.parsing import parse
from aegish_dist.core.prompt import Prompt
from aegish_dist.core.secret import SecretStr
from aegish_dist.errors import AegishError
from aegish_dist.models import missing_key
from aegish_dist.prompts.loading import load_prompt
from aegish_dist.providers.session import ProviderSession

PROBE_COMMAND = "echo ok"


@dataclass(frozen=True, slots=True)
class ModelCheck:
    """What came of asking one model once."""

    model: str
    ok: bool
    """Whether it answered with an action."""
    detail: str
    """The action, or what went wrong."""
    latency_ms: float | None
    """None when it was not called."""


async def check_models(
    specs: Sequence[ModelSpec], environ: Mapping[str, str], time_limit_s: float
) -> list[ModelCheck]:
    """Ask every model about one harmless command, all at once, without retries.

    Args:
        specs: The models.
        environ: Where the keys are.
        time_limit_s: Deadline of a call.
    """
    prompt = load_prompt("guard")
    parameters = CallParameters(time_limit_s=time_limit_s)
    async with ProviderSession() as providers:
        return list(
            await asyncio.gather(
                *(_check(providers, spec, prompt, parameters, environ) for spec in specs)
            )
        )


async def _check(
    providers: ProviderSession,
    spec: ModelSpec,
    prompt: Prompt,
    parameters: CallParameters,
    environ: Mapping[str, str],
) -> ModelCheck:
    missing = missing_key(spec, environ)
    if missing is not None:
        return ModelCheck(spec.id, ok=False, detail=f"{missing} is not set", latency_ms=None)
    key = environ.get(spec.key_variable, "") if spec.key_variable else ""
    started = time.monotonic()
    try:
        client = providers.client(spec, prompt, parameters, SecretStr(key))
        completion = await client.complete(PROBE_COMMAND)
    except AegishError as error:
        return ModelCheck(spec.id, ok=False, detail=str(error), latency_ms=_since(started))
    action = parse(completion.text).action
    detail = "answered without an action" if action is None else action.value
    return ModelCheck(spec.id, ok=action is not None, detail=detail, latency_ms=_since(started))


def _since(started: float) -> float:
    return round((time.monotonic() - started) * 1000, 1)
