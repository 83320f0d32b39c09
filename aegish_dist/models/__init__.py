"""The model catalog: who can be asked, where, with which key, and at what price.

Plain values in, `core.model.ModelSpec` out. Nothing here calls a provider or reads the environment
by itself.
"""

from aegish_dist.models.catalog import Catalog, CatalogEntry, ModelFacts
from aegish_dist.models.credentials import CatalogCredentials, Credentials
from aegish_dist.models.estimate import Estimate, ModelEstimate, estimate
from aegish_dist.models.keys import missing_key

__all__ = [
    "Catalog",
    "CatalogCredentials",
    "CatalogEntry",
    "Credentials",
    "Estimate",
    "ModelEstimate",
    "ModelFacts",
    "estimate",
    "missing_key",
]
