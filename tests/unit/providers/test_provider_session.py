"""Preparing clients: no request is sent here.

The guards without a model.
"""

import asyncio
import json
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from aegish_dist.core.model import CallParameters, ModelSpec, WireFormat
from aegish_dist.core.outcome import StopKind
from aegish_dist.core.run import Prompt
from aegish_dist.core.secrets import SecretStr
from aegish_dist.core.verdict import Usage
from aegish_dist.errors import CatalogError, ConfigError
from aegish_dist.providers import google
from aegish_dist.providers.baselines import Baseline
from aegish_dist.providers.contract import ModelClient
from aegish_dist.providers.exchange import HttpClient, Route
from aegish_dist.providers.session import provider_session
from tests.defined import defined
from tests.recorded import document_of, lines_of

PROMPT = Prompt("guard", "Judge shell commands.", "{command}")
KEY = "sk-proj-0123456789abcdef"


def prepare(
    base_url: str = "https://api.example.test/v1",
    key: str | None = KEY,
    wire: WireFormat = WireFormat.OPENAI,
    name: str = "m",
    **more: Any,
) -> ModelClient:
    async def body() -> ModelClient:
        spec = ModelSpec(f"test/{name}", wire, name, base_url, key_variable="TEST_API_KEY", **more)
        async with provider_session(()) as session:
            return session.client(spec, PROMPT, CallParameters(), SecretStr(key) if key else None)

    return asyncio.run(body())


def route(**options: Any) -> Route:
    client = prepare(**options)
    assert isinstance(client, HttpClient)
    return client.route


@pytest.fixture(autouse=True)
def no_proxy_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize("wire", [WireFormat.OPENAI, WireFormat.ANTHROPIC, WireFormat.GOOGLE])
def test_a_prepared_client_shows_its_key_nowhere(wire: WireFormat) -> None:
    client = prepare(wire=wire)
    assert isinstance(client, HttpClient)
    assert KEY not in repr(client)
    assert KEY not in repr(client.route)
    assert KEY not in str([*client.route.__rich_repr__()])
    assert KEY in str(dict(client.route.headers))


@pytest.mark.parametrize(
    ("key", "sent"), [(f" {KEY}\n", f"Bearer {KEY}"), (None, None), (" ", None)]
)
def test_a_key_is_sent_without_the_blanks_around_it(key: str | None, sent: str | None) -> None:
    assert route(key=key).headers.get("Authorization") == sent


def test_a_key_that_no_header_can_carry_is_refused_without_being_shown() -> None:
    with pytest.raises(ConfigError, match="TEST_API_KEY") as caught:
        prepare(key="sk-a\r\nb")
    assert "sk-a" not in str(caught.value)


@pytest.mark.parametrize(
    "base_url", ["", "api.example.test/v1", "ftp://example.test", "http://", "http://u:p@h/v1"]
)
def test_a_base_url_that_cannot_be_called_is_refused(base_url: str) -> None:
    with pytest.raises(CatalogError, match="'test/m'"):
        prepare(base_url)


@pytest.mark.parametrize("name", ["../../admin/keys#", "a/b", "a?b=c", "a%2f..", "a\\b"])
def test_the_name_of_a_model_chooses_no_path(name: str) -> None:
    root = "https://api.example.test/v1"
    spec = ModelSpec("test/m", WireFormat.GOOGLE, name, root)
    url = google.encode(spec, PROMPT, CallParameters()).url
    assert url == f"{root}/models/{quote(name, safe='')}:generateContent"
    assert urlsplit(url).path.count("/") == 3
    assert not urlsplit(url).query + urlsplit(url).fragment


@pytest.mark.parametrize(
    ("parameters", "problem"),
    lines_of("refused_parameters.jsonl"),
)
def test_parameters_of_a_model_replace_no_field_of_ours(
    parameters: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        prepare(parameters=parameters)


def test_parameters_of_a_model_that_ask_for_no_more_are_its_own() -> None:
    own = {"max_tokens": 100, "reasoning": {"effort": "low"}, "service_tier": "flex", "seed": None}
    assert isinstance(prepare(parameters=own), HttpClient)


def test_a_baseline_needs_no_address_and_no_key() -> None:
    client = prepare("", None, WireFormat.BASELINE, "always-allow")
    assert isinstance(client, Baseline)


def test_the_proxy_of_the_environment_is_used_and_its_password_kept_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("https_proxy", "http://user:secret@proxy.test:3128")
    taken = route()
    assert str(taken.proxy) == "http://proxy.test:3128"
    # base64 of "user:secret"
    assert taken.proxy_headers == {"Proxy-Authorization": "Basic dXNlcjpzZWNyZXQ="}
    assert "dXNlcjpzZWNyZXQ=" not in repr(taken)


@pytest.mark.parametrize(
    "base_url",
    [
        *("http://127.0.0.1:8000", "http://127.0.0.2:1", "http://localhost:1/v1"),
        *("http://[::1]:1/v1", "https://api.example.test/v1"),
    ],
)
def test_loopback_and_excluded_hosts_are_called_without_a_proxy(
    monkeypatch: pytest.MonkeyPatch, base_url: str
) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.test:3128")
    monkeypatch.setenv("https_proxy", "http://proxy.test:3128")
    monkeypatch.setenv("no_proxy", "example.test")
    assert route(base_url=base_url).proxy is None


@pytest.mark.parametrize(
    "address",
    [
        "socks5://user:hush@proxy.test:1080",
        "http://user:hush@proxy.test:port",
        "http://user:hush@proxy.test:99999",
        "http://user:hush@",
        "proxy.test:3128",
        "http://[::1",
    ],
)
def test_a_proxy_that_cannot_be_used_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("https_proxy", address)
    with pytest.raises(ConfigError, match=r"https proxy .* HTTPS_PROXY") as caught:
        prepare()
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("wire", [WireFormat.BASELINE, WireFormat.IMPORTED])
def test_a_model_without_a_network_has_no_batches(wire: WireFormat) -> None:
    async def body() -> None:
        async with provider_session(()) as session:
            session.batches(ModelSpec("test/m", wire, "m"), PROMPT, CallParameters(), None)

    with pytest.raises(CatalogError, match="cannot be called over the network"):
        asyncio.run(body())


def judge(name: str, command: str) -> Any:
    answer = asyncio.run(Baseline(name).complete(command))
    assert answer.stop_kind is StopKind.STOP
    assert answer.usage == Usage()
    assert answer.model == f"baseline/{name}"
    return json.loads(defined(answer.text))


@pytest.mark.parametrize(("name", "action"), [("always-block", "BLOCK"), ("always-allow", "ALLOW")])
@pytest.mark.parametrize("command", ["ls", "cat /etc/shadow", ""])
def test_constant_guards_give_the_same_answer_to_every_command(
    name: str, action: str, command: str
) -> None:
    verdict = judge(name, command)
    assert verdict["action"] == action
    assert verdict["confidence"] == 1.0


LISTED = document_of("judged_commands.json")["keyword guard"]


@pytest.mark.parametrize("command", LISTED["BLOCK"])
def test_keyword_guard_blocks_what_is_on_its_list(command: str) -> None:
    assert judge("keyword", command)["action"] == "BLOCK"


@pytest.mark.parametrize("command", LISTED["ALLOW"])
def test_keyword_guard_allows_what_is_not_on_its_list(command: str) -> None:
    verdict = judge("keyword", command)
    assert (verdict["action"], verdict["confidence"]) == ("ALLOW", 0.5)


@pytest.mark.parametrize("unit", ["nc ", "rm -f ", "-a ", "! ", "curl |", ":(){", "\\", "\ud800"])
def test_keyword_guard_judges_a_hostile_command_of_any_size(unit: str) -> None:
    assert judge("keyword", unit * 20_000)["action"] == "ALLOW"


def test_an_unknown_baseline_is_refused_with_the_known_ones() -> None:
    with pytest.raises(CatalogError, match=r"'never'.*always-block, always-allow, keyword"):
        Baseline("never")
