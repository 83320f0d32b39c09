"""The dialects: reading requests and writing envelopes."""

from operator import itemgetter
from typing import Any

import pytest
from msgspec import convert

from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.verdict import Completion, Usage
from aegish_dist.errors import InputError
from aegish_dist.simulator import anthropic, google, openai
from aegish_dist.simulator.dialect import (
    Allowance,
    Call,
    ChatRequest,
    Dialect,
    ErrorAnswer,
    command_in,
    tokens_in,
    usage_of,
)
from tests.recorded import document_of, lines_of

OPENAI: Dialect = openai
ANTHROPIC: Dialect = anthropic
GOOGLE: Dialect = google
DIALECTS = {"openai": OPENAI, "anthropic": ANTHROPIC, "google": GOOGLE}


@pytest.mark.parametrize(("text", "command"), lines_of("commands_in_texts.jsonl"))
def test_command_in(text: str, command: str) -> None:
    assert command_in(text) == command


def test_tokens_are_a_quarter_of_the_characters() -> None:
    assert [tokens_in(n) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]


def test_a_long_prefix_counts_as_cached() -> None:
    assert usage_of(ChatRequest("m", "u", 4_100, 4_096), 8, 5) == Usage(1_025, 7, 5, 1_024, 0)
    assert usage_of(ChatRequest("m", "u", 4_096, 4_092), 8, 0) == Usage(1_024, 2, 0, 0, 0)


@pytest.mark.parametrize("recorded", lines_of("simulated_requests.jsonl"), ids=itemgetter("wire"))
def test_a_request_is_read_or_refused(recorded: dict[str, Any]) -> None:
    read = DIALECTS[recorded["wire"]].read
    if recorded["read"] is not None:
        assert read(recorded["body"], recorded["model"]) == convert(recorded["read"], ChatRequest)
    else:
        with pytest.raises(InputError) as raised:
            read(recorded["body"], recorded["model"])
        assert raised.value.what


@pytest.mark.parametrize("recorded", lines_of("simulated_answers.jsonl"), ids=itemgetter("what"))
def test_an_answer_has_the_body_of_its_dialect(recorded: dict[str, Any]) -> None:
    answer, call = convert(recorded["answer"], Completion), Call("abc", 12.9)
    bodies = {name: wire.answer_body(answer, call) for name, wire in DIALECTS.items()}
    assert bodies == recorded["bodies"]


def test_refusals_have_the_bodies_and_headers_of_their_dialect() -> None:
    """A 429 whose client should wait 1.5 s, and 7 of 600 calls left for 90 s."""
    error, call = ErrorAnswer(ErrorClass.RATE_LIMIT, "slow", retry_after_s=1.5), Call("x", 0)
    allowance = Allowance(limit=600, remaining=7, reset_s=90.0)
    assert document_of("simulated_refusals.json") == {
        "errors": {name: wire.error_body(error, call) for name, wire in DIALECTS.items()},
        "headers": {name: wire.headers(allowance, call) for name, wire in DIALECTS.items()},
    }


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(0.0, "0s"), (0.12, "120ms"), (1.5, "1.5s"), (59.99, "59.99s"), (120.0, "2m0s")],
)
def test_openai_durations(seconds: float, written: str) -> None:
    headers = OPENAI.headers(Allowance(1, 1, seconds), Call("x", 0))
    assert headers["x-ratelimit-reset-requests"] == written
