"""The model catalog: who can be asked, where, with which key, and at what price."""

from aegish_dist.models.catalog import (
    Catalog,
    CatalogCredentials,
    Credentials,
    ListedModel,
    ModelEntry,
    missing_key,
)
from aegish_dist.models.prices import ModelEstimate, RunEstimate, estimate

__all__ = [
    "Catalog",
    "CatalogCredentials",
    "Credentials",
    "ListedModel",
    "ModelEntry",
    "ModelEstimate",
    "RunEstimate",
    "estimate",
    "missing_key",
]
