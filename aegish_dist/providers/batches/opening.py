"""Opens the batch interface of a wire format."""

from collections.abc import Callable
from importlib import import_module
from typing import Protocol, cast

from aegish_dist.core.model import ModelSpec
from aegish_dist.errors import CatalogError
from aegish_dist.providers.batches.contract import BatchClient
from aegish_dist.providers.batches.transfer import Transfer
from aegish_dist.providers.contract import Codec, RequestTemplate


class _Module(Protocol):
    """The module of this package that has the wire format's name."""

    def batches(
        self,
        spec: ModelSpec,
        codec: Codec,
        template_of: Callable[[int], RequestTemplate],
        transfer: Transfer,
    ) -> BatchClient: ...


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
    module = cast(_Module, import_module(f"aegish_dist.providers.batches.{spec.wire}"))
    return module.batches(spec, codec, template_of, transfer)
