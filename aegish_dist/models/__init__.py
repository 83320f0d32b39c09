"""The model catalog: who can be asked, where, with which key, and at what price.

Plain values in, `core.model.ModelSpec` out. Nothing here calls a provider or reads the environment
by itself.
"""

from aegish_dist.models.catalog import Catalog, ListedModel
from aegish_dist.models.credentials import CatalogCredentials, Credentials
from aegish_dist.models.entries import ModelEntry
from aegish_dist.models.estimate import ModelEstimate, RunEstimate, estimate
from aegish_dist.models.spec import missing_key

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
