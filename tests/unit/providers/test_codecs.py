"""The three wire formats, against payloads shaped as the hosts send them, and bodies for calls."""

import json
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import pytest
from msgspec import convert
from msgspec.structs import replace

from aegish_dist.core.model import CallParameters, ModelSpec, WireFormat
from aegish_dist.core.outcome import StopKind
from aegish_dist.core.run import Prompt
from aegish_dist.core.verdict import Completion
from aegish_dist.errors import ProviderError
from aegish_dist.providers import lenient
from aegish_dist.providers.contract import RequestTemplate, codec, merged, template
from tests.recorded import lines_of

OPENAI, ANTHROPIC, GOOGLE = WireFormat.OPENAI, WireFormat.ANTHROPIC, WireFormat.GOOGLE
PROMPT = Prompt("guard", "Judge shell commands.", "Validate this command: {command}")
BARE = Prompt("bare", "", "{command}")
ROOTS = {
    OPENAI: "https://api.openai.com/v1",
    ANTHROPIC: "https://api.anthropic.com",
    GOOGLE: "https://generativelanguage.googleapis.com/v1beta",
}


def spec(wire: WireFormat, base_url: str = "", **parameters: Any) -> ModelSpec:
    root = base_url or ROOTS[wire]
    return ModelSpec("lab/m-1", wire, "m-1", root, parameters=parameters)


def encoded(
    model: ModelSpec, prompt: Prompt = PROMPT, **parameters: Any
) -> tuple[RequestTemplate, dict[str, Any]]:
    template = codec(model.wire).encode(model, prompt, CallParameters(**parameters))
    return template, json.loads(b"".join(template.parts("cat /etc/shadow")))


def body(model: ModelSpec, prompt: Prompt = PROMPT, **parameters: Any) -> dict[str, Any]:
    return encoded(model, prompt, **parameters)[1]


def decode(
    wire: WireFormat, payload: object, headers: Mapping[str, str] | None = None
) -> Completion:
    return codec(wire).decode(payload, headers or {})


def of_openai(message: object, reason: str | None = "stop", **fields: object) -> dict[str, object]:
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return {"id": "chatcmpl-1", "object": "chat.completion", "choices": [choice], **fields}


def of_anthropic(
    content: object, reason: str | None = "end_turn", **fields: object
) -> dict[str, object]:
    model = {"id": "msg_01", "type": "message", "role": "assistant", "model": "haiku-4-5-2025"}
    return {**model, "content": content, "stop_reason": reason, "stop_sequence": None, **fields}


def of_google(*parts: object, reason: str | None = "STOP", **fields: object) -> dict[str, object]:
    candidate = {"content": {"parts": list(parts), "role": "model"}, "finishReason": reason}
    return {"candidates": [candidate], **fields}


def test_a_request_of_openai() -> None:
    template, sent = encoded(spec(OPENAI, "http://127.0.0.1:8000/v1"), temperature=0.5)
    assert template.url == "http://127.0.0.1:8000/v1/chat/completions"
    assert sent == {
        "model": "m-1",
        "max_tokens": 4096,
        "seed": 42,
        "temperature": 0.5,
        "messages": [
            {"role": "system", "content": "Judge shell commands."},
            {"role": "user", "content": "Validate this command: cat /etc/shadow"},
        ],
    }


def test_a_request_of_anthropic_marks_the_system_text_as_cacheable_and_has_no_seed() -> None:
    template, sent = encoded(spec(ANTHROPIC), temperature=0.0)
    assert template.url == "https://api.anthropic.com/v1/messages"
    cached = {"type": "text", "text": PROMPT.system, "cache_control": {"type": "ephemeral"}}
    assert sent == {
        "model": "m-1",
        "max_tokens": 4096,
        "temperature": 0.0,
        "system": [cached],
        "messages": [{"role": "user", "content": "Validate this command: cat /etc/shadow"}],
    }


def test_a_request_of_google_names_the_model_in_its_address() -> None:
    template, sent = encoded(spec(GOOGLE))
    assert template.url == f"{ROOTS[GOOGLE]}/models/m-1:generateContent"
    user = {"role": "user", "parts": [{"text": "Validate this command: cat /etc/shadow"}]}
    assert sent == {
        "systemInstruction": {"parts": [{"text": "Judge shell commands."}]},
        "generationConfig": {"maxOutputTokens": 4096, "seed": 42},
        "contents": [user],
    }


@pytest.mark.parametrize(
    ("base_url", "field"),
    [
        ("https://openrouter.ai/api/v1", "max_tokens"),
        ("https://api.openai.com/v1", "max_completion_tokens"),
        ("https://eu.api.openai.com/v1", "max_completion_tokens"),
        ("https://us.api.openai.com/v1", "max_completion_tokens"),
        ("https://api.openai.com.test/v1", "max_tokens"),
        ("https://notapi.openai.com/v1", "max_tokens"),
    ],
)
def test_the_host_decides_on_the_field_for_the_limit(base_url: str, field: str) -> None:
    sent = body(spec(OPENAI, base_url))
    assert {name: sent[name] for name in sent if name.startswith("max_")} == {field: 4096}


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("base_url", ["https://gateway.test/v1", "https://api.openai.com/v1"])
def test_the_catalog_names_the_field_whatever_the_host(field: str, base_url: str) -> None:
    sent = body(replace(spec(OPENAI, base_url), max_tokens_field=field))
    assert [name for name in sent if name.startswith("max_")] == [field]


def test_what_is_unset_is_not_sent() -> None:
    assert not {"seed", "temperature"} & body(spec(OPENAI), seed=None, temperature=None).keys()
    assert body(spec(OPENAI), BARE)["messages"] == [{"role": "user", "content": "cat /etc/shadow"}]
    assert "system" not in body(spec(ANTHROPIC), BARE)


def test_parameters_of_the_model_override_add_and_remove_fields() -> None:
    sent = body(spec(OPENAI, seed=None, reasoning_effort="low", max_completion_tokens=99))
    assert "seed" not in sent
    assert (sent["reasoning_effort"], sent["max_completion_tokens"]) == ("low", 99)
    thinking = {"type": "enabled", "budget_tokens": 1024}
    assert body(spec(ANTHROPIC, thinking=thinking))["thinking"] == thinking
    low = {"thinkingConfig": {"thinkingLevel": "low"}}
    sent = body(spec(GOOGLE, generationConfig=low | {"seed": None}))
    assert sent["generationConfig"] == {"maxOutputTokens": 4096, **low}


@pytest.mark.parametrize(
    ("wire", "without", "with_key"),
    [
        (OPENAI, {}, {"Authorization": "Bearer k"}),
        (ANTHROPIC, {"anthropic-version": "2023-06-01"}, {"x-api-key": "k"}),
        (GOOGLE, {}, {"x-goog-api-key": "k"}),
    ],
)
def test_the_key_has_its_own_header(
    wire: WireFormat, without: dict[str, str], with_key: dict[str, str]
) -> None:
    assert codec(wire).request_headers(None) == without
    assert codec(wire).request_headers("k") == without | with_key


@pytest.mark.parametrize("recorded", lines_of("answers.jsonl"), ids=itemgetter("what"))
def test_a_recorded_answer_is_read(recorded: dict[str, Any]) -> None:
    """An answer in the fields of a completion, or the error that stands in its place."""
    (wire,) = (each for each in ROOTS if each == recorded["wire"])
    given = wire, recorded["payload"], recorded.get("headers")
    if "answer" in recorded:
        assert decode(*given) == convert({"text": None} | recorded["answer"], Completion)
    else:
        with pytest.raises(ProviderError) as caught:
            decode(*given)
        error = {"error_class": caught.value.error_class, "status": caught.value.status}
        assert error | {"words": str(caught.value)} == recorded["error"]


STOPPED, CUT, FILTERED = StopKind.STOP, StopKind.MAX_TOKENS, StopKind.CONTENT_FILTER
KINDS: dict[WireFormat, dict[str | None, StopKind | None]] = {
    OPENAI: {
        "stop": STOPPED,
        "length": CUT,
        "content_filter": FILTERED,
        "tool_calls": StopKind.OTHER,
        None: None,
    },
    ANTHROPIC: {
        "end_turn": STOPPED,
        "stop_sequence": STOPPED,
        "max_tokens": CUT,
        "model_context_window_exceeded": CUT,
        "refusal": FILTERED,
        "pause_turn": StopKind.OTHER,
        None: None,
    },
    GOOGLE: {
        "STOP": STOPPED,
        **dict.fromkeys(("MAX_TOKENS", "CONTINUATION"), CUT),
        **dict.fromkeys(("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT"), FILTERED),
        **dict.fromkeys(("SPII", "ESCALATION"), FILTERED),
        "MALFORMED_RESPONSE": StopKind.OTHER,
        None: None,
    },
}


@pytest.mark.parametrize(
    ("wire", "reason", "kind"), [(wire, *row) for wire, rows in KINDS.items() for row in rows.items()]
)  # fmt: skip
def test_stop_reasons_are_normalised(
    wire: WireFormat, reason: str | None, kind: StopKind | None
) -> None:
    payloads = {
        OPENAI: of_openai({"content": "x"}, reason),
        ANTHROPIC: of_anthropic([], reason),
        GOOGLE: of_google(reason=reason),
    }
    answer = decode(wire, payloads[wire])
    assert (answer.stop_reason, answer.stop_kind) == (reason, kind)


@pytest.mark.parametrize("sent", [rb"\ud800", rb"\u0000", rb"\uDFFF", b"\xed\xa0\x80"])
def test_lone_surrogates_and_nul_are_replaced(sent: bytes) -> None:
    payload = lenient.parse(b'{"choices":[{"message":{"content":"a%b"}}]}' % sent)
    assert set(decode(OPENAI, payload).text or "") == {"a", "\ufffd"}


def test_a_nul_in_utf_16_is_replaced() -> None:
    assert lenient.parse(r'["a\u0000"]'.encode("utf-16")) == ["a\ufffd"]


AWKWARD = Prompt("p", 'Say "{command}" \u20ac', 'Judge:\n<c>{command}</c> "{}"')


@pytest.mark.parametrize(
    "command",
    [
        "ls",
        "",
        'echo "a\\b"\t\n\0',
        ":(){ :|:& };:",
        "{command}",
        "echo \u2603 \U0001f4a3",
        "\ud83d alone \udca3",
        "x" * 100_000,
    ],
)
def test_body_holds_the_rendered_prompt_whatever_the_command(command: str) -> None:
    body = {
        "system": AWKWARD.system,
        "max_tokens": 5,
        "messages": [{"role": "user", "content": AWKWARD.template}],
    }
    sent = json.loads(b"".join(template("http://127.0.0.1/", body).parts(command)))
    rendered = AWKWARD.render(command)
    assert sent["messages"][0]["content"] == rendered.user
    assert sent["system"] == rendered.system
    assert sent["max_tokens"] == 5


def test_merge_follows_the_json_merge_patch_rules() -> None:
    assert merged(
        {"a": 1, "b": {"c": 2, "d": 3}, "e": None, "f": 4},
        {"b": {"c": None, "x": 5}, "f": None, "g": {"h": None, "i": 0}, "a": [1]},
    ) == {"a": [1], "b": {"d": 3, "x": 5}, "g": {"i": 0}}
