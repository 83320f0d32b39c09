"""The three wire formats, against payloads shaped as the hosts send them, and bodies for calls."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from aegish_dist.core.model import CallParameters, ModelSpec, WireFormat
from aegish_dist.core.outcome import ErrorClass, StopKind
from aegish_dist.core.run import Prompt
from aegish_dist.core.verdict import Completion, Usage
from aegish_dist.errors import ProviderError
from aegish_dist.providers import lenient
from aegish_dist.providers.contract import RequestTemplate, codec, merged, template

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


def failure(wire: WireFormat, payload: object) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        decode(wire, payload)
    return caught.value


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


def test_every_field_of_an_openai_answer() -> None:
    message: dict[str, Any]
    message = {"role": "assistant", "content": "{}", "refusal": None, "annotations": []}
    usage = {
        "prompt_tokens": 3120,
        "completion_tokens": 250,
        "total_tokens": 3370,
        "prompt_tokens_details": {"cached_tokens": 2944, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 192},
    }
    payload = of_openai(message, model="gpt-5.1-2025-11-13", usage=usage)
    assert decode(OPENAI, payload, {"x-request-id": "req_7"}) == Completion(
        "{}",
        "stop",
        StopKind.STOP,
        Usage(3120, 250, 192, 2944, None),
        model="gpt-5.1-2025-11-13",
        request_id="req_7",
    )


def test_the_upstream_and_the_cache_writes_of_openrouter() -> None:
    details = {"cached_tokens": 0, "cache_write_tokens": 8}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": details}
    message = {"role": "assistant", "content": "{}", "reasoning": "hidden"}
    answer = decode(OPENAI, of_openai(message, provider="DeepInfra", usage=usage))
    assert (answer.upstream, answer.request_id) == ("DeepInfra", "chatcmpl-1")
    assert answer.usage.cache_write_tokens == 8


def test_reasoning_left_out_of_the_completion_tokens_is_added() -> None:
    usage = {
        "prompt_tokens": 32,
        "completion_tokens": 9,
        "total_tokens": 135,
        "completion_tokens_details": {"reasoning_tokens": 94},
    }
    assert decode(OPENAI, of_openai({"content": "{}"}, usage=usage)).usage.output_tokens == 103


def test_anthropic_counts_cached_tokens_as_input() -> None:
    usage = {
        "input_tokens": 21,
        "cache_creation_input_tokens": 100,
        "cache_read_input_tokens": 3000,
        "output_tokens": 40,
        "service_tier": "standard",
    }
    payload = of_anthropic([{"type": "text", "text": "{}"}], usage=usage)
    answer = decode(ANTHROPIC, payload, {"request-id": "req_011"})
    assert (answer.text, answer.usage) == ("{}", Usage(3121, 40, None, 3000, 100))
    assert (answer.model, answer.request_id) == ("haiku-4-5-2025", "req_011")


def test_thinking_is_part_of_the_output_and_an_hour_part_of_the_writes() -> None:
    """Both details are read; neither is counted twice."""
    usage = {
        "input_tokens": 21,
        "cache_creation_input_tokens": 100,
        "cache_creation": {"ephemeral_5m_input_tokens": 30, "ephemeral_1h_input_tokens": 70},
        "cache_read_input_tokens": 0,
        "output_tokens": 400,
        "output_tokens_details": {"thinking_tokens": 350},
    }
    read = decode(ANTHROPIC, of_anthropic([], usage=usage)).usage
    assert read == Usage(121, 400, 350, 0, 100, cache_write_1h_tokens=70)


def test_google_skips_thoughts_and_counts_them_as_output() -> None:
    usage = {
        "promptTokenCount": 3000,
        "candidatesTokenCount": 50,
        "thoughtsTokenCount": 700,
        "cachedContentTokenCount": 2048,
        "totalTokenCount": 3750,
    }
    parts = (
        {"text": "Let me see.", "thought": True},
        {"text": '{"action":'},
        {"text": '"BLOCK"}', "thoughtSignature": "abc"},
    )
    answer = decode(
        GOOGLE, of_google(*parts, usageMetadata=usage, modelVersion="flash-09", responseId="abc123")
    )
    assert answer.text == '{"action":"BLOCK"}'
    assert answer.usage == Usage(3000, 750, 700, 2048, None)
    assert (answer.model, answer.request_id) == ("flash-09", "abc123")


def test_counts_that_are_missing_or_no_counts_read_as_unknown() -> None:
    usage = {"prompt_tokens": -1, "completion_tokens": True, "prompt_tokens_details": [1]}
    assert decode(OPENAI, of_openai({"content": ""}, usage=usage)).usage == Usage()
    assert decode(ANTHROPIC, of_anthropic([])).usage == Usage()


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


def test_a_refusal_is_a_content_filter_with_its_detail() -> None:
    message = {"role": "assistant", "content": None, "refusal": "I can't help with that."}
    answer = decode(OPENAI, of_openai(message))
    assert (answer.text, answer.refusal) == (None, "I can't help with that.")
    assert (answer.stop_reason, answer.stop_kind) == ("stop", FILTERED)
    details = {"type": "refusal", "category": "cyber", "explanation": "Looks like an attack."}
    answer = decode(ANTHROPIC, of_anthropic([], "refusal", stop_details=details))
    assert (answer.text, answer.refusal) == ("", "cyber: Looks like an attack.")
    assert answer.request_id == "msg_01"


def test_a_blocked_prompt_of_google_is_an_empty_answer_of_the_filter() -> None:
    feedback = {"blockReason": "PROHIBITED_CONTENT"}
    usage = {"promptTokenCount": 12559, "totalTokenCount": 12559}
    answer = decode(GOOGLE, {"promptFeedback": feedback, "usageMetadata": usage})
    assert (answer.text, answer.stop_kind) == ("", FILTERED)
    assert answer.stop_reason == "PROHIBITED_CONTENT"
    assert answer.usage.input_tokens == 12559


def test_a_disabled_account_is_no_answer_of_the_model() -> None:
    error = failure(GOOGLE, of_google({"text": "x"}, reason="PUP_LIMITED_DISABLED"))
    assert error.error_class == ErrorClass.AUTH
    assert "PUP_LIMITED_DISABLED" in str(error)


def test_the_text_is_joined_without_reasoning() -> None:
    parts = [{"type": "text", "text": '{"action":'}, {"type": "text", "text": '"WARN"}'}]
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    assert decode(OPENAI, of_openai({"content": [thinking, *parts]})).text == '{"action":"WARN"}'
    signed = {"type": "thinking", "thinking": "hm", "signature": "s"}
    assert decode(ANTHROPIC, of_anthropic([signed, *parts])).text == '{"action":"WARN"}'
    apart = {"content": "", "reasoning_content": '{"action": "ALLOW"}'}
    assert decode(OPENAI, of_openai(apart)).text == ""
    cut = {"candidates": [{"finishReason": "MAX_TOKENS", "index": 0}]}
    assert decode(GOOGLE, cut).text == ""


@pytest.mark.parametrize("sent", [rb"\ud800", rb"\u0000", rb"\uDFFF", b"\xed\xa0\x80"])
def test_lone_surrogates_and_nul_are_replaced(sent: bytes) -> None:
    payload = lenient.parse(b'{"choices":[{"message":{"content":"a%b"}}]}' % sent)
    assert set(decode(OPENAI, payload).text or "") == {"a", "\ufffd"}


def test_a_nul_in_utf_16_is_replaced() -> None:
    assert lenient.parse(r'["a\u0000"]'.encode("utf-16")) == ["a\ufffd"]


EMPTY: dict[WireFormat, list[object]] = {
    OPENAI: [None, [], "text", {}, {"choices": []}, {"choices": ["x"]}],
    ANTHROPIC: [None, [], {}, {"content": "text"}, {"type": "error"}],
    GOOGLE: [None, [], {}, {"candidates": []}, {"promptFeedback": {}}],
}


@pytest.mark.parametrize(
    ("wire", "payload"), [(wire, each) for wire, payloads in EMPTY.items() for each in payloads]
)
def test_payloads_without_an_answer_are_malformed(wire: WireFormat, payload: object) -> None:
    error = failure(wire, payload)
    assert (error.error_class, error.status) == (ErrorClass.MALFORMED, 200)


LOST = {"error": {"code": 502, "message": "lost"}, "finish_reason": "error"}


@pytest.mark.parametrize(
    ("payload", "status", "error_class"),
    [
        ({"error": {"code": 429, "message": "slow"}}, 429, ErrorClass.RATE_LIMIT),
        ({"error": {"code": "503", "message": "busy"}}, 503, ErrorClass.OVERLOADED),
        ({"error": {"message": "Provider returned error"}}, 502, ErrorClass.SERVER),
        ({"error": "gone"}, 502, ErrorClass.SERVER),
        ({"choices": [LOST]}, 502, ErrorClass.SERVER),
        ({"choices": [{"finish_reason": "error"}]}, 502, ErrorClass.SERVER),
    ],
)
def test_an_error_inside_a_successful_response_counts_as_its_status(
    payload: dict[str, object], status: int, error_class: ErrorClass
) -> None:
    error = failure(OPENAI, payload)
    assert (error.status, error.error_class) == (status, error_class)


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
