"""The connections of one worker process, and the clients that share them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import cast
from urllib.request import getproxies, proxy_bypass

import aiohttp
from msgspec.structs import replace
from yarl import URL

from aegish_dist import __version__
from aegish_dist.core.isolation import Shares
from aegish_dist.core.model import CallParameters, ModelSpec, Program, WireFormat
from aegish_dist.core.run import Prompt
from aegish_dist.core.sample import MAX_COMMAND_CHARS
from aegish_dist.core.secrets import SecretStr, is_loopback
from aegish_dist.core.verdict import Completion, Usage
from aegish_dist.errors import CatalogError, ConfigError
from aegish_dist.opinions.parsing import holds_action
from aegish_dist.providers.baselines import Baseline
from aegish_dist.providers.batches.transfer import BatchClient, Transfer
from aegish_dist.providers.contract import (
    Codec,
    Decode,
    ModelClient,
    Observer,
    RequestTemplate,
    codec,
    require_harmless,
)
from aegish_dist.providers.exchange import ANSWERS_BYTES, HttpClient, Route
from aegish_dist.providers.lenient import Headers
from aegish_dist.providers.programs import Programs, python_program

UTF8_BYTES = 4  # most bytes of a character; a token has one at least
UNSEEN_TOKENS = 10_000  # tokens of an input that a provider may add to what it is sent
# Some hosts do not count hidden reasoning among the tokens that a request allows.
LONGEST_ANSWER_TOKENS = 100_000
# Seconds to connect; a host that accepts no connection in this time is unreachable, not slow.
CONNECT_TIMEOUT_S = 30.0
MAX_HEADERS = 64  # of a response, each of at most 8 KiB: they are read before any room is asked for
KEEPALIVE_S = 30.0
DNS_CACHE_S = 300


@asynccontextmanager
async def provider_session(hidden: Collection[Path]) -> AsyncIterator["ProviderSession"]:
    """Open a session; `hidden`: folders that no guard which is a program may read."""
    connector = aiohttp.TCPConnector(
        limit=0,
        keepalive_timeout=KEEPALIVE_S,
        ttl_dns_cache=DNS_CACHE_S,
    )
    # The deadline of a call is the client's; aiohttp's own would be a second one.
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)
    cookies = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(
        connector=connector,
        cookie_jar=cookies,
        timeout=timeout,
        max_headers=MAX_HEADERS,
    ) as http:
        programs = Programs(hidden)
        try:
            yield ProviderSession(http, programs)
        finally:
            await programs.close()


class ProviderSession:
    """One connection pool for all models.

    It limits nothing: the number of calls in flight is the limiter's business.
    """

    def __init__(self, http: aiohttp.ClientSession, programs: Programs) -> None:
        self._http = http
        self._programs = programs
        self._answers: Shares[asyncio.Task[object]] = Shares(ANSWERS_BYTES)

    def client(
        self,
        spec: ModelSpec,
        prompt: Prompt,
        parameters: CallParameters,
        key: SecretStr | None,
        *,
        observe: Observer | None = None,
        program: Program | None = None,
    ) -> ModelClient:
        """Prepare a client for one model of one run.

        Args:
            prompt: Encoded once per epoch; calls add only the command.
            key: Sent in the wire format's own header; None or blank sends none.
            program: Of the catalog here, for the wires `exec` and `python`.
        """
        if spec.wire is WireFormat.BASELINE:
            return Baseline(spec.name)
        if program is not None:
            if spec.wire is WireFormat.PYTHON:
                program = python_program(program.command[0], program)
            reads = partial(holds_action, spec.output)
            return self._programs.client(program, parameters.time_limit_s, reads)

        calls = _calls(spec, prompt, parameters, key)
        return HttpClient(self._http, *calls, observe=observe, answers=self._answers)

    def batches(
        self,
        spec: ModelSpec,
        prompt: Prompt,
        parameters: CallParameters,
        key: SecretStr | None,
    ) -> BatchClient:
        decode, template_of, route, secret = _calls(spec, prompt, parameters, key)
        if spec.wire.http is None or not spec.wire.http.batches:
            raise CatalogError(f"model '{spec.id}': wire format '{spec.wire}' has no batches")
        module = import_module(f"aegish_dist.providers.batches.{spec.wire}")
        transfer = Transfer(self._http, route, spec.base_url, secret)
        return cast(BatchClient, module.CLIENT(spec, decode, template_of, transfer))


def _calls(
    spec: ModelSpec,
    prompt: Prompt,
    parameters: CallParameters,
    key: SecretStr | None,
) -> tuple[Decode, Callable[[int], RequestTemplate], Route, str | None]:
    if spec.wire.http is None:
        imported = spec.wire is WireFormat.IMPORTED
        what = "imported" if imported else "a baseline or a program"
        raise CatalogError(f"model '{spec.id}' is {what} and cannot be called over the network")

    require_harmless(spec, parameters)
    wire = codec(spec.wire)

    @cache
    def template_of(epoch: int) -> RequestTemplate:
        return wire.encode(spec, prompt, parameters.of_epoch(epoch))

    # No provider counts more tokens than there are bytes: what says more is an error of its own.
    one = template_of(1)
    most = (
        len(one.head) + len(one.tail) + UTF8_BYTES * MAX_COMMAND_CHARS + UNSEEN_TOKENS,
        max(parameters.max_output_tokens, LONGEST_ANSWER_TOKENS),
    )
    secret = _key_text(spec, key)
    headers = {
        "Content-Type": "application/json",
        # Answers are small: decompressing them costs more than it saves.
        "Accept-Encoding": "identity",
        "User-Agent": f"aegish-dist/{__version__}",
        **wire.request_headers(secret),
    }
    route = _route(_endpoint(spec, one.url), headers, parameters.time_limit_s)
    return partial(_decoded, wire, most), template_of, route, secret


def _decoded(
    wire: Codec,
    most: tuple[int, int],
    payload: object,
    headers: Headers,
) -> Completion:
    """Decode an answer; usage of more than `most` tokens of input or of output is unknown."""
    completion = wire.decode(payload, headers)
    used = completion.usage
    if (used.input_tokens or 0) > most[0] or (used.output_tokens or 0) > most[1]:
        return replace(completion, usage=Usage())
    return completion


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
        variable = spec.key_variable or "its variable"
        raise ConfigError(
            f"the key for '{spec.id}' holds characters that a header cannot carry; "
            f"set {variable} again"
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
