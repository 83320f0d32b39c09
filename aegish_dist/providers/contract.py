"""The two seams of this package: what the pipeline calls, and what the transport calls."""

from collections.abc import Callable, Mapping
from typing import Protocol

from aegish_dist.core.completion import Completion
from aegish_dist.core.limits import RateHint
from aegish_dist.core.model import CallParameters, ModelSpec
from aegish_dist.core.prompt import Prompt
from aegish_dist.providers.request import RequestTemplate

Observer = Callable[[RateHint], None]
"""Told what each response says about the model's rate limits."""


class ModelClient(Protocol):
    """One model, prepared for one run; safe to call hundreds of times at once."""

    async def complete(self, command: str) -> Completion:
        """Make one attempt to have a command judged.

        Args:
            command: The shell command; sent as data, never executed.

        Returns:
            The answer. One that the provider withheld is an answer too: empty, CONTENT_FILTER.

        Raises:
            ProviderError: The attempt brought no answer.
        """
        ...


class Codec(Protocol):
    """One wire format in pure functions: `openai`, `anthropic` and `google` are such modules."""

    def encode(
        self, spec: ModelSpec, prompt: Prompt, parameters: CallParameters
    ) -> RequestTemplate:
        """Prepare everything of a request but the command."""
        ...

    def request_headers(self, key: str | None) -> dict[str, str]:
        """Return the headers of the wire format; no key, no credential."""
        ...

    def decode(self, payload: object, headers: Mapping[str, str]) -> Completion:
        """Read the JSON of a successful response.

        Args:
            payload: Any JSON value.
            headers: Response headers, looked up by lower-case name.

        Raises:
            ProviderError: The payload is not an answer in this wire format, or holds an error.
        """
        ...
