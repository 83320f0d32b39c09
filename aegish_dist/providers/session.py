"""The connections of one worker process, and the clients that share them."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from aegish_dist import __version__
from aegish_dist.core.model import CallParameters, ModelSpec, WireFormat
from aegish_dist.core.run import Prompt
from aegish_dist.core.secrets import SecretStr, is_loopback
from aegish_dist.errors import CatalogError, ConfigError
from aegish_dist.providers.baseline import baseline
from aegish_dist.providers.batches.transfer import BatchClient, Transfer, batch_client
from aegish_dist.providers.contract import Codec, ModelClient, Observer, RequestTemplate, codec
from aegish_dist.providers.http import HttpClient, Route

CONNECT_TIMEOUT_S = 30.0
"""Seconds to connect; a host that accepts no connection in this time is unreachable, not slow."""
KEEPALIVE_S = 30.0
DNS_CACHE_S = 300


@asynccontextmanager
async def provider_session() -> AsyncIterator["ProviderSession"]:
    """Open the connection pool of this process, and close it at the end."""
    connector = aiohttp.TCPConnector(
        limit=0, keepalive_timeout=KEEPALIVE_S, ttl_dns_cache=DNS_CACHE_S
    )
    # The deadline of a call is the client's; aiohttp's own would be a second one.
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)
    cookies = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(
        connector=connector, cookie_jar=cookies, timeout=timeout
    ) as http:
        yield ProviderSession(http)


class ProviderSession:
    """One connection pool for all models.

    It limits nothing: the number of calls in flight is the limiter's business.
    """

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http

    def client(
        self,
        spec: ModelSpec,
        prompt: Prompt,
        parameters: CallParameters,
        key: SecretStr | None,
        observe: Observer | None = None,
    ) -> ModelClient:
        """Prepare a client for one model of one run.

        Args:
            prompt: Encoded once per epoch; calls add only the command.
            key: Sent in the wire format's own header; None or blank sends none.

        Raises:
            CatalogError: The model's base URL cannot be called, or its baseline does not exist.
        """
        if spec.wire is WireFormat.BASELINE:
            return baseline(spec.name)
        calls = _calls(spec, prompt, parameters, key)
        return HttpClient(
            self._http, calls.codec, calls.template_of, calls.route, calls.key, observe=observe
        )

    def batches(
        self, spec: ModelSpec, prompt: Prompt, parameters: CallParameters, key: SecretStr | None
    ) -> BatchClient:
        """Prepare a client for the batches of one model of one run.

        Args:
            prompt: Encoded once per epoch; requests add only the command.
            parameters: Generation parameters; the deadline of a live call is of no matter here.
            key: Sent in the wire format's own header; None or blank sends none.

        Raises:
            CatalogError: The model cannot be called over the network.
        """
        calls = _calls(spec, prompt, parameters, key)
        transfer = Transfer(self._http, calls.route, spec.base_url, calls.key)
        return batch_client(spec, calls.codec, calls.template_of, transfer)


@dataclass(frozen=True, slots=True)
class _Calls:
    """Everything that a client of a model over the network needs."""

    codec: Codec
    template_of: Callable[[int], RequestTemplate]
    route: Route
    key: str | None = field(repr=False)


def _calls(
    spec: ModelSpec, prompt: Prompt, parameters: CallParameters, key: SecretStr | None
) -> _Calls:
    if spec.wire.http is None:
        what = "a baseline" if spec.wire is WireFormat.BASELINE else "imported"
        raise CatalogError(f"model '{spec.id}' is {what} and cannot be called over the network")
    wire = codec(spec.wire)

    @cache
    def template_of(epoch: int) -> RequestTemplate:
        return wire.encode(spec, prompt, parameters.of_epoch(epoch))

    secret = _key_text(spec, key)
    headers = {
        "Content-Type": "application/json",
        # Answers are small: decompressing them costs more than it saves.
        "Accept-Encoding": "identity",
        "User-Agent": f"aegish-dist/{__version__}",
        **wire.request_headers(secret),
    }
    route = _route(_endpoint(spec, template_of(1).url), headers, parameters.time_limit_s)
    return _Calls(wire, template_of, route, secret)


def _endpoint(spec: ModelSpec, address: str) -> URL:
    try:
        url = URL(address)
    except ValueError:
        url = URL()
    if url.scheme not in {"http", "https"} or not url.host or url.user or url.password:
        raise CatalogError(
            f"model '{spec.id}': base_url must be an http or https address without credentials"
        )
    return url


def _key_text(spec: ModelSpec, key: SecretStr | None) -> str | None:
    text = key.get_secret_value().strip() if key is not None else ""
    if not (text.isascii() and text.isprintable()):
        raise ConfigError(
            f"the key for '{spec.id}' holds characters that a header cannot carry; "
            f"set {spec.key_variable or 'its variable'} again"
        )
    return text or None


def _route(url: URL, headers: dict[str, str], time_limit_s: float) -> Route:
    """Find the way to an endpoint, through the environment's proxy if it names one.

    Once per client: with `trust_env` aiohttp hops to a thread twice per call to look for a proxy
    and for a .netrc, whose credentials no provider should get.
    """
    host = url.host or ""
    address = None if is_loopback(host) or proxy_bypass(host) else getproxies().get(url.scheme)
    if address is None:
        return Route(url, headers, time_limit_s)
    proxy = _proxy(address, url.scheme)
    if proxy.user is None:
        return Route(url, headers, time_limit_s, proxy)
    basic = aiohttp.encode_basic_auth(proxy.user, proxy.password or "")
    credentials = {"Proxy-Authorization": basic}
    if url.scheme == "http":
        # aiohttp sends `proxy_headers` with CONNECT only; plain HTTP has no such request.
        return Route(url, headers | credentials, time_limit_s, proxy.with_user(None))
    return Route(url, headers, time_limit_s, proxy.with_user(None), credentials)


def _proxy(address: str, scheme: str) -> URL:
    try:
        proxy = URL(address)
        usable = proxy.scheme in {"http", "https"} and bool(proxy.host) and bool(proxy.port)
    except ValueError:
        usable = False
    if not usable:
        # The address may hold a password: it is not repeated.
        raise ConfigError(
            f"the {scheme} proxy of the environment must be an address such as"
            f" http://HOST:3128; set {scheme.upper()}_PROXY again"
        )
    return proxy
