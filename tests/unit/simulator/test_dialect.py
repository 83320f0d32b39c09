"""The dialects: reading requests and writing envelopes."""

from typing import Any

import pytest

from aegish_dist.core.outcome import ErrorClass, StopKind
from aegish_dist.core.verdict import Completion, Usage
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

NO_USAGE, STOP = Usage(), StopKind.STOP
USAGE = Usage(1_000, 50, 30, 600, 100)


def an_answer(text: str | None, usage: Usage = NO_USAGE, **fields: Any) -> Completion:
    return Completion(**{"text": text, "usage": usage, "model": "m-1", "stop_kind": STOP} | fields)


OPENAI: Dialect = openai
ANTHROPIC: Dialect = anthropic
GOOGLE: Dialect = google


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("Judge: <command>ls -l</command> now", "ls -l"),
        ("<command>echo '</command>'; id</command>", "echo '</command>'; id"),
        ("<command>echo '<command>'</command>", "echo '<command>'"),
        ("<command>\nls\nid\n</command>", "ls\nid"),
        ("<command>\nls</command>", "\nls"),
        ("<command>\n</command>", "\n"),
        ("<command></command>", ""),
        ("Validate this command: ls | wc", "ls | wc"),
        ("Validate this command: echo Validate this command: x", "echo Validate this command: x"),
        ("uname -a", "uname -a"),
        ("</command> <command>", "</command> <command>"),
        ("<command>ls", "<command>ls"),
        ("<command>\0\ud800</command>", "\0\ud800"),
    ],
)
def test_command_in(text: str, command: str) -> None:
    assert command_in(text) == command


def test_tokens_are_a_quarter_of_the_characters() -> None:
    assert [tokens_in(n) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]


def test_a_long_prefix_counts_as_cached() -> None:
    assert usage_of(ChatRequest("m", "u", 4_100, 4_096), 8, 5) == Usage(1_025, 7, 5, 1_024, 0)
    assert usage_of(ChatRequest("m", "u", 4_096, 4_092), 8, 0) == Usage(1_024, 2, 0, 0, 0)


VALID: list[tuple[Dialect, dict[str, Any]]] = [
    (
        OPENAI,
        {
            "model": "m",
            "max_completion_tokens": 64,
            "messages": [
                {"role": "system", "content": "12345678"},
                {"role": "user", "content": "old"},
                {"role": "user", "content": [{"type": "text", "text": "abc"}]},
            ],
        },
    ),
    (
        ANTHROPIC,
        {
            "model": "m",
            "max_tokens": 64,
            "system": [
                {"type": "text", "text": "1234567", "cache_control": {"type": "ephemeral"}},
                {"type": "text", "text": "8"},
            ],
            "messages": [
                {"role": "user", "content": "old"},
                {"role": "user", "content": [{"type": "text", "text": "abc"}]},
            ],
        },
    ),
    (
        GOOGLE,
        {
            "systemInstruction": {"parts": [{"text": "1234567"}, {"text": "8"}]},
            "contents": [
                {"parts": [{"text": "old"}]},
                {"role": "user", "parts": [{"text": "abc"}]},
            ],
            "generationConfig": {"maxOutputTokens": 64},
        },
    ),
]


@pytest.mark.parametrize(("wire", "body"), VALID)
def test_requests_are_read_alike(wire: Dialect, body: dict[str, Any]) -> None:
    chat = wire.read(body, "m")
    assert isinstance(chat, ChatRequest)
    assert (chat.model, chat.user) == ("m", "abc")
    assert (chat.prompt_chars, chat.max_output_tokens) == (14, 64)


def test_cacheable_prefixes() -> None:
    sizes = [wire.read(body, "m") for wire, body in VALID]
    assert [chat.cacheable_chars for chat in sizes if isinstance(chat, ChatRequest)] == [11, 7, 8]


ASK = [{"role": "user", "content": "x"}]
WRONG: list[tuple[Dialect, str, dict[str, Any]]] = [
    (OPENAI, "", {"messages": ASK}),
    (OPENAI, "", {"model": 5, "messages": ASK}),
    (OPENAI, "", {"model": "m"}),
    *((OPENAI, "", {"model": "m", "messages": odd}) for odd in ([], "x", ["x"], [{"role": "user"}])),
    (ANTHROPIC, "", {"max_tokens": 1, "messages": ASK}),
    (ANTHROPIC, "", {"model": "m", "messages": ASK}),
    (ANTHROPIC, "", {"model": "m", "max_tokens": "1", "messages": [{"content": "x"}]}),
    (ANTHROPIC, "", {"model": "m", "max_tokens": 1}),
    (ANTHROPIC, "", {"model": "m", "max_tokens": 1, "messages": {"a": 1}}),
    (ANTHROPIC, "", {"model": "m", "max_tokens": 1, "messages": [{"role": "user"}]}),
    (GOOGLE, "", {"contents": [{"parts": [{"text": "x"}]}]}),
    (GOOGLE, "m", {}),
    *((GOOGLE, "m", {"contents": odd}) for odd in ("x", [{"role": "user"}], ["x"])),
]  # fmt: skip


@pytest.mark.parametrize(("wire", "model", "body"), WRONG)
def test_wrong_requests_are_refused(wire: Dialect, model: str, body: dict[str, Any]) -> None:
    error = wire.read(body, model)
    assert isinstance(error, ErrorAnswer)
    assert error.error_class is ErrorClass.BAD_REQUEST
    assert error.message


def test_openai_answer() -> None:
    body = OPENAI.answer_body(an_answer("hi", USAGE, upstream="host"), Call("abc", 12.9))
    message = {"role": "assistant", "content": "hi", "refusal": None}
    assert body == {
        "id": "chatcmpl-abc",
        "object": "chat.completion",
        "created": 12,
        "model": "m-1",
        "provider": "host",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 1_000,
            "completion_tokens": 50,
            "total_tokens": 1_050,
            "prompt_tokens_details": {"cached_tokens": 600},
            "completion_tokens_details": {"reasoning_tokens": 30},
        },
    }


def test_anthropic_answer() -> None:
    body = ANTHROPIC.answer_body(an_answer("hi", USAGE), Call("abc", 0))
    assert body == {
        "id": "msg_abc",
        "type": "message",
        "role": "assistant",
        "model": "m-1",
        "content": [{"type": "text", "text": "hi"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 300,
            "cache_creation_input_tokens": 100,
            "cache_read_input_tokens": 600,
            "output_tokens": 50,
        },
    }


def test_google_answer() -> None:
    body = GOOGLE.answer_body(an_answer("hi", USAGE), Call("abc", 0))
    content = {"role": "model", "parts": [{"text": "hi"}]}
    assert body == {
        "modelVersion": "m-1",
        "responseId": "abc",
        "candidates": [{"index": 0, "content": content, "finishReason": "STOP"}],
        "usageMetadata": {
            "promptTokenCount": 1_000,
            "candidatesTokenCount": 20,
            "totalTokenCount": 1_050,
            "thoughtsTokenCount": 30,
            "cachedContentTokenCount": 600,
        },
    }


def test_unreported_usage_stays_unreported() -> None:
    answer = an_answer("hi")
    for wire, field in ((OPENAI, "usage"), (ANTHROPIC, "usage"), (GOOGLE, "usageMetadata")):
        assert field not in wire.answer_body(answer, Call("x", 0))


def stop_reason(wire: Dialect, answer: Completion) -> object:
    body = wire.answer_body(answer, Call("x", 0))
    if wire is OPENAI:
        return body["choices"][0]["finish_reason"]
    return body["stop_reason"] if wire is ANTHROPIC else body["candidates"][0].get("finishReason")


@pytest.mark.parametrize(
    ("kind", "raw", "words"),
    [
        (StopKind.STOP, None, ("stop", "end_turn", "STOP")),
        (StopKind.MAX_TOKENS, "model_length", ("length", "max_tokens", "MAX_TOKENS")),
        (StopKind.CONTENT_FILTER, "filtered", ("content_filter", "refusal", "SAFETY")),
        (StopKind.OTHER, "odd", ("odd", "odd", "OTHER")),
        (None, None, (None, None, None)),
        (None, "odd", ("odd", "odd", "odd")),
    ],
)
def test_stop_reasons_are_translated(
    kind: StopKind | None, raw: str | None, words: tuple[str | None, ...]
) -> None:
    answer = an_answer("text", stop_kind=kind, stop_reason=raw)
    assert tuple(stop_reason(wire, answer) for wire in (OPENAI, ANTHROPIC, GOOGLE)) == words


@pytest.mark.parametrize(
    ("wire", "kind", "raw"),
    [
        (OPENAI, StopKind.OTHER, "tool_calls"),
        (ANTHROPIC, StopKind.STOP, "stop_sequence"),
        (ANTHROPIC, StopKind.MAX_TOKENS, "model_context_window_exceeded"),
        (GOOGLE, StopKind.CONTENT_FILTER, "PROHIBITED_CONTENT"),
    ],
)
def test_native_stop_reasons_are_kept(wire: Dialect, kind: StopKind, raw: str) -> None:
    assert stop_reason(wire, an_answer("text", stop_kind=kind, stop_reason=raw)) == raw


def test_withheld_answers() -> None:
    answer = an_answer(None, stop_kind=StopKind.CONTENT_FILTER, refusal="no")
    message = OPENAI.answer_body(answer, Call("x", 0))["choices"][0]["message"]
    assert (message["content"], message["refusal"]) == (None, "no")
    body = ANTHROPIC.answer_body(answer, Call("x", 0))
    assert (body["content"], body["stop_details"]["explanation"]) == ([], "no")
    blocked = GOOGLE.answer_body(answer, Call("x", 0))
    assert "candidates" not in blocked
    assert blocked["promptFeedback"] == {"blockReason": "SAFETY", "blockReasonMessage": "no"}
    cut = GOOGLE.answer_body(
        an_answer("", stop_kind=StopKind.CONTENT_FILTER, refusal="no"), Call("x", 0)
    )
    assert cut["candidates"][0]["finishReason"] == "SAFETY"
    assert cut["candidates"][0]["finishMessage"] == "no"


def test_error_envelopes() -> None:
    error = ErrorAnswer(ErrorClass.RATE_LIMIT, "slow", retry_after_s=1.5)
    worded = {"message": "slow", "type": "requests", "param": None, "code": "rate_limit_exceeded"}
    assert OPENAI.error_body(error, Call("x", 0)) == {"error": worded}
    assert ANTHROPIC.error_body(error, Call("x", 0)) == {
        "type": "error",
        "error": {"type": "rate_limit_error", "message": "slow"},
        "request_id": "req_x",
    }
    body = GOOGLE.error_body(error, Call("x", 0))["error"]
    assert (body["code"], body["status"]) == (429, "RESOURCE_EXHAUSTED")
    assert body["details"][0]["retryDelay"] == "1.500s"


def test_rate_limit_headers() -> None:
    allowance = Allowance(limit=600, remaining=7, reset_s=90.0)
    assert OPENAI.headers(allowance, Call("x", 0)) == {
        "x-request-id": "req_x",
        "x-ratelimit-limit-requests": "600",
        "x-ratelimit-remaining-requests": "7",
        "x-ratelimit-reset-requests": "1m30s",
    }
    assert ANTHROPIC.headers(allowance, Call("x", 0)) == {
        "request-id": "req_x",
        "anthropic-ratelimit-requests-limit": "600",
        "anthropic-ratelimit-requests-remaining": "7",
        "anthropic-ratelimit-requests-reset": "1970-01-01T00:01:30Z",
    }
    assert GOOGLE.headers(allowance, Call("x", 0)) == {}


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(0.0, "0s"), (0.12, "120ms"), (1.5, "1.5s"), (59.99, "59.99s"), (120.0, "2m0s")],
)
def test_openai_durations(seconds: float, written: str) -> None:
    headers = OPENAI.headers(Allowance(1, 1, seconds), Call("x", 0))
    assert headers["x-ratelimit-reset-requests"] == written
