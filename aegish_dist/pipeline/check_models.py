"""Preflight: does each model answer as a run would ask it, before money is spent on the run?"""

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from aegish_dist.core.model import HTTP_FORMATS, CallParameters, ModelSpec
from aegish_dist.core.parsing import parse
from aegish_dist.core.run import Prompt
from aegish_dist.core.secrets import SecretStr
from aegish_dist.core.verdict import ErrorClass
from aegish_dist.errors import AegishError, ConfigError, ProviderError
from aegish_dist.models import Credentials, ModelEntry
from aegish_dist.providers.session import ProviderSession, provider_session

PROBE_COMMAND = "echo ok"
REFUSALS = frozenset(
    {ErrorClass.AUTH, ErrorClass.QUOTA, ErrorClass.NOT_FOUND, ErrorClass.BAD_REQUEST}
)
"""Failures that every call of the run would meet again; the others pass, and calls are retried."""
_OUTPUT_LIMIT_FIELDS = tuple(
    dict.fromkeys(field for http in HTTP_FORMATS.values() for field in http.output_limit_fields)
)
"""Those of every format: routers pass on errors of providers that speak another one."""


@dataclass(frozen=True, slots=True)
class ModelCheck:
    """Result of asking one model once."""

    model: str
    ok: bool
    detail: str
    latency_ms: float | None
    """None when it was not called."""
    refused: bool = False
    """Whether all calls of a run would fail in the same way."""
    remedy: str = ""
    """The change that the refusal names, if any."""


async def check_models(
    specs: Sequence[ModelSpec],
    prompt: Prompt,
    parameters: CallParameters,
    credentials: Credentials,
    entry: Callable[[str], ModelEntry],
) -> list[ModelCheck]:
    """Ask every model about one harmless command, all at once, without retries.

    Args:
        parameters: Of the run, the deadline of a call among them.
        entry: Returns the catalog entry of a model id; a model is not asked what it refuses by it.
    """
    async with provider_session() as providers:

        async def check(spec: ModelSpec) -> ModelCheck:
            return _foreseen(spec, parameters, entry(spec.id)) or await _asked(
                providers, spec, prompt, parameters, credentials
            )

        return list(await asyncio.gather(*map(check, specs)))


def _foreseen(spec: ModelSpec, parameters: CallParameters, entry: ModelEntry) -> ModelCheck | None:
    """Return the refusal that the catalog predicts; None for none."""
    if entry.takes(spec, parameters):
        return None
    return ModelCheck(
        spec.id,
        ok=False,
        detail="takes no temperature, by the catalog",
        latency_ms=None,
        refused=True,
        remedy="drop --temperature",
    )


async def _asked(
    providers: ProviderSession,
    spec: ModelSpec,
    prompt: Prompt,
    parameters: CallParameters,
    credentials: Credentials,
) -> ModelCheck:
    started = time.monotonic()
    try:
        key = credentials.key(spec.destination)
        secret = None if key is None else SecretStr(key)
        client = providers.client(spec, prompt, parameters, secret)
        completion = await client.complete(PROBE_COMMAND)
    except ProviderError as error:
        refused = error.error_class in REFUSALS
        remedy = _remedy(spec, parameters, str(error)) if refused else ""
        return ModelCheck(spec.id, False, str(error), _since(started), refused, remedy)
    except AegishError as error:
        return ModelCheck(spec.id, False, str(error), None, refused=isinstance(error, ConfigError))
    action = parse(completion.text).action
    detail = "answered without an action" if action is None else action.value
    return ModelCheck(spec.id, ok=action is not None, detail=detail, latency_ms=_since(started))


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
    if parameters.temperature is not None:
        yield "temperature", "drop --temperature"
    for field in _OUTPUT_LIMIT_FIELDS:
        yield field, f"lower --max-output-tokens{_swap(spec, field)}"
    if parameters.seed is not None:
        yield "seed", 'put drop_parameters = ["seed"] for this model into your catalog'


def _swap(spec: ModelSpec, field: str) -> str:
    """Return how to send the output limit in another field; empty where there is no choice."""
    known = () if spec.wire.http is None else spec.wire.http.output_limit_fields
    if len(known) < 2:
        return ""
    other = next(each for each in known if each != field)
    return f', or set max_tokens_field = "{other}" in your catalog'


def _since(started: float) -> float:
    return round((time.monotonic() - started) * 1000, 1)
