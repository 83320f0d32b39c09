"""The table of wire formats: each entry has its modules, and each fact in it names what exists."""

import inspect
from types import ModuleType
from typing import get_args

import pytest

from aegish_dist.core.verdict import ErrorClass
from aegish_dist.core.wire import HTTP_FORMATS, HttpApi, WireFormat
from aegish_dist.models.entries import MaxTokensField
from aegish_dist.providers import anthropic, google, openai
from aegish_dist.providers.contract import Codec, codec
from aegish_dist.simulator import anthropic as anthropic_dialect
from aegish_dist.simulator import google as google_dialect
from aegish_dist.simulator import openai as openai_dialect
from aegish_dist.simulator.dialect import ChatRequest, Dialect, ErrorAnswer, dialect_of
from aegish_dist.simulator.personas import PERSONAS

# Checked by mypy: a module whose functions differ from the protocol's cannot stand here.
CODECS: tuple[Codec, ...] = (openai, anthropic, google)
DIALECTS: tuple[Dialect, ...] = (openai_dialect, anthropic_dialect, google_dialect)
NOT_SERVED = {ErrorClass.DEADLINE, ErrorClass.CONNECTION, ErrorClass.MALFORMED}


def members(protocol: type) -> set[str]:
    """Return the functions and constants that a protocol asks for."""
    names = {name for name in vars(protocol) if not name.startswith("_")}
    return names | set(protocol.__annotations__)


def parameters(owner: object, name: str) -> list[str]:
    """Return the names of a function's parameters, without `self`."""
    return [each for each in inspect.signature(getattr(owner, name)).parameters if each != "self"]


@pytest.mark.parametrize("wire", HTTP_FORMATS)
@pytest.mark.parametrize(("protocol", "find"), [(Codec, codec), (Dialect, dialect_of)])
def test_each_format_has_a_codec_and_a_dialect(
    wire: WireFormat, protocol: type, find: object
) -> None:
    """The modules of its name hold all that the protocols ask for, with the same parameters."""
    assert callable(find)
    module = find(wire)
    assert isinstance(module, ModuleType)
    assert members(protocol) <= set(vars(module))
    for name in members(protocol):
        if callable(getattr(module, name)):
            assert parameters(module, name) == parameters(protocol, name)


@pytest.mark.parametrize(("wire", "http"), HTTP_FORMATS.items())
def test_the_facts_of_each_format_name_what_exists(wire: WireFormat, http: HttpApi) -> None:
    """A persona, header names that differ for each of the six values, and a path."""
    assert http.simulated_model in PERSONAS
    assert http.output_limit_fields
    assert http.simulated_root == "" or http.simulated_root.startswith("/")
    pattern = http.rate_limit_headers
    whats = ("limit", "remaining", "reset")
    names = {
        pattern.format(of=of, what=w) for of in ("requests", "tokens") for w in whats if pattern
    }
    assert len(names) == (6 if pattern else 0)


@pytest.mark.parametrize("wire", HTTP_FORMATS)
def test_each_dialect_knows_a_form_of_every_error(wire: WireFormat) -> None:
    """All classes but those that are no response."""
    assert set(dialect_of(wire).ERRORS) == set(ErrorClass) - NOT_SERVED


def test_a_path_belongs_to_one_dialect() -> None:
    """No two formats are served at one address."""
    paths = ("/v1/chat/completions", "/v1/messages", "/v1beta/models/m:generateContent")
    for path in paths:
        found = [wire for wire in HTTP_FORMATS if dialect_of(wire).route(path) is not None]
        assert len(found) == 1


@pytest.mark.parametrize("wire", HTTP_FORMATS)
def test_an_empty_request_is_refused(wire: WireFormat) -> None:
    """A body without messages is a bad request in every dialect."""
    read = dialect_of(wire).read({}, "m")
    assert not isinstance(read, ChatRequest)
    assert isinstance(read, ErrorAnswer)


def test_the_catalog_offers_the_output_fields_of_the_format_that_has_a_choice() -> None:
    """`max_tokens_field` of a catalog takes exactly these."""
    http = WireFormat.OPENAI.http
    assert http is not None
    assert set(get_args(MaxTokensField)) == set(http.output_limit_fields)


def test_formats_without_network_have_no_facts() -> None:
    """Baselines answer in this process, imported models never."""
    local = {wire for wire in WireFormat if wire.http is None}
    assert local == {WireFormat.BASELINE, WireFormat.IMPORTED}
