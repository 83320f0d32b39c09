"""The guards that a process may ask: its keys, and the addresses and programs for them.

A run names an address and a key variable for each of its models, and a process that can submit a
run can name any. So a process sends a key only to an origin that its own catalog, or
`OPENAI_BASE_URL` in its own environment, pairs with it. Calls without a key are made to origins of
that catalog only, too: a worker may reach what the submitter cannot. Programs, and what is sent to
classifiers, come from that catalog alone.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from aegish_dist.core.model import Destination, Program, WireFormat, base_of
from aegish_dist.core.secrets import SecretStr, host_of, is_loopback, is_metadata, origin
from aegish_dist.errors import CatalogError, ConfigError
from aegish_dist.models.catalog import Catalog, Environ, base_url_of, value_of
from aegish_dist.models.entries import (
    CHAT,
    PROGRAMS,
    RESERVED_PREFIX,
    ProgramEntry,
    is_model_id,
    provider_name,
)

REMEDY = "see docs/explanation/security.md for AEGISH_DIST_CATALOG"
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,99}")


class _Api(NamedTuple):
    """Where calls go; a key allowed for one such place is allowed for no other."""

    wire: str
    origin: str
    path: str  # without a trailing slash


def _api(wire: str, base_url: str) -> _Api | None:
    where = origin(base_url)
    if where is None:
        return None
    _scheme, _, _host, *path = base_url.split("/")
    return _Api(wire, where, "/".join(path).rstrip("/"))


class Credentials:
    """The keys of this process, and the APIs that its operator allows for each."""

    def __init__(
        self,
        catalog: Catalog | None,
        environ: Environ,
        problem: str | None = None,
        *,
        embedded: bool = True,
    ) -> None:
        """Allow the pairs of a catalog.

        Args:
            catalog: None allows nothing; `problem` then says why it cannot be read.
            embedded: Whether this is the submitter's machine, whose servers may be called.
        """
        self._environ = environ
        self._problem = problem
        self._catalog = catalog or Catalog({}, {})
        # By key variable, empty for calls without one, and API that it may be sent to: whether it
        # may go there over plain HTTP.
        self._plain_http: dict[tuple[str, _Api], bool] = {}
        for api, variable, plain_http in _allowed(self._catalog, environ, embedded=embedded):
            self._plain_http.setdefault(("", api), False)
            before = self._plain_http.get((variable, api), False)
            self._plain_http[variable, api] = plain_http or before

    def refusal(self, destination: Destination) -> str | None:
        provider = self._catalog.providers.get(provider_name(destination.model))
        if destination.wire == WireFormat.BASELINE and (
            provider is None or provider.wire == destination.wire
        ):
            return None

        problem = destination.unreadable or self._problem or self._refused_guard(destination)
        if problem is not None or destination.wire in PROGRAMS:
            return problem
        return self._refused_address(destination)

    def _refused_address(self, destination: Destination) -> str | None:
        api = _api(destination.wire, destination.base_url)
        host = host_of(destination.base_url)
        if api is None:
            return "its base_url is no plain http or https address"
        where = api.origin
        if is_metadata(host):
            return f"{where} is a link-local or metadata address"
        if ("", api) not in self._plain_http:
            what = where
            if any(where == allowed.origin for _, allowed in self._plain_http):
                what = f"{where} with this path and wire format"
            return f"{what} is not in the catalog here; {REMEDY}"

        variable = destination.key_variable
        if variable:
            return self._refused_key(variable, api, host)
        return None

    def _refused_guard(self, destination: Destination) -> str | None:
        """Compare what a run says of a program, a document or a mapping with the catalog here.

        Under the id of a guard that is no chat model, no chat model is asked: its numbers would
        count as the guard's.
        """
        model = base_of(destination.model)
        listed = model in self._catalog.models
        provider = self._catalog.providers.get(provider_name(model))
        wires = {destination.wire}
        if provider is not None:
            wires.add(provider.wire)
        if not wires <= CHAT and (not listed or len(wires) > 1):
            return f"by wire '{destination.wire}' it is not a guard of the catalog here; {REMEDY}"
        # A model of an old run may have a name that no catalog can have.
        entry = self._catalog.entry(destination.model) if is_model_id(model) else None
        if destination.request != (entry and entry.request):
            return f"its request is not that of the catalog here; {REMEDY}"
        if destination.output not in (None, entry and entry.output):
            return f"its output is not that of the catalog here; {REMEDY}"
        return None

    def program(self, destination: Destination) -> Program | None:
        """Return the program of a destination that is not refused; None of other wires."""
        provider = self._catalog.providers.get(provider_name(destination.model))
        if destination.wire in PROGRAMS and isinstance(provider, ProgramEntry):
            return provider.program
        return None

    def _refused_key(self, variable: str, api: _Api, host: str) -> str | None:
        where = api.origin
        if not _VARIABLE.fullmatch(variable) or variable.startswith(RESERVED_PREFIX):
            return "its key variable is not the name of a key"
        plain_http = self._plain_http.get((variable, api))
        if plain_http is None:
            return f"{variable} may not be sent to {where} by the catalog here; {REMEDY}"
        if where.startswith("http:") and not is_loopback(host) and not plain_http:
            return f"{variable} would go in clear to {where}: its table needs plain_http = true"
        if value_of(variable, self._environ):
            return None
        return f"{variable} is not set"

    def key(self, destination: Destination) -> SecretStr | None:
        """Return the key for a destination, None where none is needed; ConfigError if refused."""
        refusal = self.refusal(destination)
        if refusal is not None:
            raise ConfigError(refusal)
        variable = "" if destination.wire in PROGRAMS else destination.key_variable
        if variable:
            return SecretStr(self._environ[variable].strip())
        return None


def _allowed(
    catalog: Catalog, environ: Environ, *, embedded: bool
) -> Iterator[tuple[_Api, str, bool]]:
    """Yield APIs, each with its key variable and whether the key may go over plain HTTP.

    On the machine of a worker that is not embedded, the ports of the packaged vLLM and Ollama may
    be those of any other service: they count only where the operator's catalog names them.
    """
    for name, provider in catalog.providers.items():
        urls = []
        if embedded or name in catalog.named or not is_loopback(host_of(provider.base_url)):
            urls.append(provider.base_url)
        with suppress(CatalogError):
            urls.append(base_url_of(name, environ))
        for url in urls:
            if api := _api(provider.wire, url):
                yield api, provider.key_variable, provider.plain_http

    for model in catalog.models.values():
        provider = catalog.providers[provider_name(model.id)]
        # What a simulator answers needs no key, so none may go there.
        variable = "" if model.simulated else provider.key_variable
        if api := _api(provider.wire, model.base_url):
            yield api, variable, provider.plain_http or model.plain_http


class CatalogCredentials:
    """A worker's credentials by a catalog file, read again when the file has changed."""

    def __init__(
        self,
        path: Path | None,
        environ: Environ,
        *,
        embedded: bool = False,
    ) -> None:
        self._path = path
        self._environ = environ
        self._embedded = embedded  # on the submitter's machine, whose servers may be called
        self._stamp: object = None
        self._read: Credentials | None = None

    def now(self) -> Credentials:
        """Return what is allowed now: nothing while the file cannot be read."""
        stamp: object = None
        try:
            if self._path is not None:
                status = self._path.stat()
                stamp = (status.st_mtime_ns, status.st_ino, status.st_size)
        except OSError:
            stamp = "missing"

        if self._read is None or stamp != self._stamp:
            try:
                catalog = Catalog.load(self._path)
                read = Credentials(catalog, self._environ, embedded=self._embedded)
            except CatalogError as error:
                read = Credentials(None, self._environ, f"the catalog here cannot be used: {error}")
            # In this order: another thread, or a call after a bug, reads again what is not read.
            self._read = read
            self._stamp = stamp

        return self._read
