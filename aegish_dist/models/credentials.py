"""Which key may go where: what the operator of this process has allowed.

A run names an address and a key variable for each of its models, and a process that can submit a
run can name any. So a process sends a key only to an origin that its own catalog pairs with it: the
packaged catalog, the one of `AEGISH_DIST_CATALOG`, and `OPENAI_BASE_URL` in its own environment.
Calls without a key are made to origins of that catalog only, too: a worker may reach what the
submitter cannot. In a run that is worked on in the submitting process the two catalogs are one.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from aegish_dist.core.model import Destination, WireFormat
from aegish_dist.core.secrets import host_of, is_loopback, is_metadata, origin
from aegish_dist.errors import CatalogError, ConfigError
from aegish_dist.models.catalog import Catalog, provider_base_url
from aegish_dist.models.catalog_file import RESERVED_PREFIX, ProviderEntry, provider_name

REMEDY = "see docs/security.md for AEGISH_DIST_CATALOG"
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,99}")


class _Pair(NamedTuple):
    """A key variable, empty for calls without one, and an origin that it may be sent to."""

    variable: str
    origin: str


class Credentials:
    """The keys of this process, and the origins that its operator allows for each."""

    def __init__(
        self, pairs: Mapping[_Pair, bool], environ: Mapping[str, str], problem: str | None = None
    ) -> None:
        """Keep what is allowed; see `of`.

        Args:
            pairs: Allowed pairs, each with whether the key may go over plain HTTP.
            problem: Why nothing is allowed, when the catalog cannot be read.
        """
        self._pairs = pairs
        self._origins = frozenset(pair.origin for pair in pairs)
        self._environ = environ
        self._problem = problem

    @classmethod
    def of(cls, catalog: Catalog, environ: Mapping[str, str]) -> Self:
        """Allow the pairs of a catalog.

        Args:
            environ: Where the keys and base URLs of the operator are. A base URL that is none
                allows nothing.
        """
        allowed: dict[_Pair, bool] = {}
        for pair, plain_http in _pairs(catalog, environ):
            allowed[pair] = allowed.get(pair, False) or plain_http
        return cls(allowed, environ)

    def refusal(self, destination: Destination) -> str | None:
        """Say why this process makes no call to a destination; None when it does.

        Returns:
            A phrase without a key, in ASCII.
        """
        if destination.wire == WireFormat.BASELINE:
            return None
        return (
            self._problem
            or self._refused_address(destination.base_url)
            or self._refused_key(destination.key_variable or "", destination.base_url)
        )

    def key(self, destination: Destination) -> str | None:
        """Return the key for a destination, None where none is needed.

        Raises:
            ConfigError: This process makes no call to it; says why.
        """
        refusal = self.refusal(destination)
        if refusal is not None:
            raise ConfigError(refusal)
        variable = destination.key_variable
        return self._environ[variable].strip() if variable else None

    def _refused_address(self, base_url: str) -> str | None:
        where = origin(base_url)
        if where is None:
            return "its base_url is no plain http or https address"
        if is_metadata(host_of(base_url)):
            return f"{where} is a link-local or metadata address"
        if where not in self._origins:
            return f"{where} is not in the catalog here; {REMEDY}"
        return None

    def _refused_key(self, variable: str, base_url: str) -> str | None:
        where = origin(base_url) or ""
        if not variable:
            return None
        if not _VARIABLE.fullmatch(variable) or variable.startswith(RESERVED_PREFIX):
            return "its key variable is not the name of a key"
        pair = _Pair(variable, where)
        if pair not in self._pairs:
            return f"{variable} may not be sent to {where} by the catalog here; {REMEDY}"
        clear = where.startswith("http:") and not is_loopback(host_of(base_url))
        if clear and not self._pairs[pair]:
            return f"{variable} would go in clear to {where}: its table needs plain_http = true"
        return None if self._environ.get(variable, "").strip() else f"{variable} is not set"


class CatalogCredentials:
    """The credentials by a catalog file, read again when the file has changed."""

    def __init__(self, path: Path | None, environ: Mapping[str, str]) -> None:
        """Read nothing yet.

        Args:
            path: The operator's catalog; None for the packaged one alone.
        """
        self._path = path
        self._environ = environ
        self._stamp: object = None
        self._read: Credentials | None = None

    def now(self) -> Credentials:
        """Return what is allowed now: nothing while the file cannot be read."""
        stamp = self._stamp_now()
        if self._read is None or stamp != self._stamp:
            self._read, self._stamp = self._load(), stamp
        return self._read

    def _stamp_now(self) -> object:
        try:
            status = None if self._path is None else self._path.stat()
        except OSError:
            return "missing"
        return status and (status.st_mtime_ns, status.st_ino, status.st_size)

    def _load(self) -> Credentials:
        try:
            return Credentials.of(Catalog.load(self._path), self._environ)
        except CatalogError as error:
            return Credentials({}, self._environ, f"the catalog here cannot be used: {error}")


def _pairs(catalog: Catalog, environ: Mapping[str, str]) -> Iterator[tuple[_Pair, bool]]:
    for name, provider in catalog.providers.items():
        for base_url in _base_urls(name, provider, environ):
            where = origin(base_url)
            if where is not None:
                yield _Pair("", where), False
                yield _Pair(provider.key_variable, where), provider.plain_http
    for model_id, model in catalog.models.items():
        provider = catalog.providers[provider_name(model_id)]
        where = origin(model.base_url)
        if where is not None:
            yield _Pair("", where), False
            # What a simulator answers needs no key, so none may go there.
            variable = "" if model.simulated else provider.key_variable
            yield _Pair(variable, where), provider.plain_http or model.plain_http


def _base_urls(name: str, provider: ProviderEntry, environ: Mapping[str, str]) -> Iterator[str]:
    yield provider.base_url
    with suppress(CatalogError):
        yield provider_base_url(name, provider, environ)
