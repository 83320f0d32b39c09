"""The seam between the pipeline and the batch interface of a provider."""

from collections.abc import AsyncIterator, Callable, Iterable
from datetime import datetime
from importlib import import_module
from typing import Protocol, cast

from aegish_dist.core.batches import BatchLimits, BatchReport, BatchRequest, BatchResult
from aegish_dist.core.model import ModelSpec
from aegish_dist.errors import CatalogError
from aegish_dist.providers.batches.transfer import Transfer
from aegish_dist.providers.contract import Codec, RequestTemplate


class BatchClient(Protocol):
    """The batches of one model with one prompt and one set of parameters.

    Every method makes one attempt and has its own deadline; the caller repeats it.
    """

    limits: BatchLimits

    def size(self, request: BatchRequest, token: str) -> int:
        """Return the bytes of a request as it is sent, its envelope and separator included."""
        ...

    async def create(self, token: str, requests: Iterable[BatchRequest]) -> str:
        """Hand a batch over; costs money from the moment the provider has it.

        Args:
            token: Sent along where the provider keeps such a word, and in every request's name.

        Returns:
            The provider's name of the batch, untrusted: at most 200 characters, no slash but in
            Gemini's `batches/ID`.

        Raises:
            ProviderError: It is not known to be created: unless the error says that the provider
                refused it (4xx), it may exist, and `find` has to say so before a second attempt.
        """
        ...

    async def find(self, token: str, requests: int, since: datetime) -> list[str]:
        """Return the provider's names of batches that an attempt to create may have left.

        Where the provider keeps the token (OpenAI, Gemini) there is one at most, and it is this
        one. Anthropic keeps none: then it is every batch of so many requests that was created
        since, and `results` says whether it is the one.

        Args:
            since: When the attempt began, by the store's clock; clocks may differ by minutes.
        """
        ...

    async def poll(self, name: str) -> BatchReport: ...

    def results(self, name: str) -> AsyncIterator[BatchResult]:
        """Stream the results of an ended batch, in any order; each line is size-capped.

        What the provider sends twice comes twice; a request that it leaves out does not come. A
        line that cannot be read is a result without a name, and with a MALFORMED error.

        Raises:
            ProviderError: The stream broke off or could not be begun; it can be begun again.
        """
        ...

    async def cancel(self, name: str) -> None:
        """Ask the provider to begin no further request of a batch; it ends some time later."""
        ...

    async def discard(self, name: str) -> None:
        """Remove the files of an ended batch where the provider keeps some; never raises."""
        ...


def batch_client(
    spec: ModelSpec,
    codec: Codec,
    template_of: Callable[[int], RequestTemplate],
    transfer: Transfer,
) -> BatchClient:
    """Return the client of a model's batches.

    Args:
        template_of: Returns the request of an epoch that lacks only the command.
    """
    if spec.wire.http is None or not spec.wire.http.batches:
        raise CatalogError(f"model '{spec.id}': wire format '{spec.wire}' has no batches")
    module = import_module(f"aegish_dist.providers.batches.{spec.wire}")
    return cast(BatchClient, module.CLIENT(spec, codec, template_of, transfer))
