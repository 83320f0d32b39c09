"""The Gemini wire format, against payloads shaped as the service sends them."""

import json
from typing import Any

import pytest

from aegish_dist.core.model import CallParameters, ModelSpec, WireFormat
from aegish_dist.core.outcome import ErrorClass, StopKind
from aegish_dist.core.run import Prompt
from aegish_dist.core.verdict import Usage
from aegish_dist.errors import ProviderError
from aegish_dist.providers import google

PROMPT = Prompt("guard", "Judge shell commands.", "Validate this command: {command}")
BASE_URL = "https://generativelanguage.googleapis.com/v1beta"


def spec(**parameters: Any) -> ModelSpec:
    name = "gemini-3-flash-preview"
    return ModelSpec(f"google/{name}", WireFormat.GOOGLE, name, BASE_URL, parameters=parameters)


def answer_with(
    *parts: object, finish_reason: str | None = "STOP", **fields: object
) -> dict[str, object]:
    candidate = {"content": {"parts": list(parts), "role": "model"}, "finishReason": finish_reason}
    return {"candidates": [candidate | fields]}


def test_request_names_the_model_in_its_address() -> None:
    template = google.encode(spec(), PROMPT, CallParameters())
    assert template.url == f"{BASE_URL}/models/gemini-3-flash-preview:generateContent"
    assert json.loads(b"".join(template.parts("id"))) == {
        "systemInstruction": {"parts": [{"text": "Judge shell commands."}]},
        "generationConfig": {"maxOutputTokens": 4096, "seed": 42},
        "contents": [{"role": "user", "parts": [{"text": "Validate this command: id"}]}],
    }


def test_parameters_of_the_model_merge_into_the_generation_config() -> None:
    thinking = {"thinkingConfig": {"thinkingLevel": "low"}, "seed": None}
    template = google.encode(spec(generationConfig=thinking), PROMPT, CallParameters())
    assert json.loads(b"".join(template.parts("id")))["generationConfig"] == {
        "maxOutputTokens": 4096,
        "thinkingConfig": {"thinkingLevel": "low"},
    }


def test_key_travels_in_its_own_header() -> None:
    assert google.request_headers("k") == {"x-goog-api-key": "k"}
    assert google.request_headers(None) == {}


def test_decode_skips_thoughts_and_counts_them_as_output() -> None:
    payload = answer_with(
        {"text": "Let me see.", "thought": True},
        {"text": '{"action":'},
        {"text": '"BLOCK"}', "thoughtSignature": "abc"},
    ) | {
        "usageMetadata": {
            "promptTokenCount": 3000,
            "candidatesTokenCount": 50,
            "thoughtsTokenCount": 700,
            "cachedContentTokenCount": 2048,
            "totalTokenCount": 3750,
        },
        "modelVersion": "gemini-3-flash-preview-09",
        "responseId": "abc123",
    }
    answer = google.decode(payload, {})
    assert answer.text == '{"action":"BLOCK"}'
    assert answer.usage == Usage(3000, 750, 700, 2048, None)
    assert answer.model == "gemini-3-flash-preview-09"
    assert answer.request_id == "abc123"


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("STOP", StopKind.STOP),
        ("MAX_TOKENS", StopKind.MAX_TOKENS),
        ("SAFETY", StopKind.CONTENT_FILTER),
        ("RECITATION", StopKind.CONTENT_FILTER),
        ("BLOCKLIST", StopKind.CONTENT_FILTER),
        ("PROHIBITED_CONTENT", StopKind.CONTENT_FILTER),
        ("SPII", StopKind.CONTENT_FILTER),
        ("ESCALATION", StopKind.CONTENT_FILTER),
        ("CONTINUATION", StopKind.MAX_TOKENS),
        ("MALFORMED_RESPONSE", StopKind.OTHER),
        (None, None),
    ],
)
def test_finish_reasons_are_normalised(reason: str | None, kind: StopKind | None) -> None:
    answer = google.decode(answer_with(finish_reason=reason), {})
    assert (answer.stop_reason, answer.stop_kind) == (reason, kind)


def test_a_disabled_account_is_no_answer_of_the_model() -> None:
    """It fails as a wrong key does, whatever text stands beside it."""
    with pytest.raises(ProviderError, match="PUP_LIMITED_DISABLED") as caught:
        google.decode(answer_with(finish_reason="PUP_LIMITED_DISABLED"), {})
    assert caught.value.error_class == ErrorClass.AUTH


def test_a_candidate_without_content_is_an_empty_answer() -> None:
    payload = {"candidates": [{"finishReason": "MAX_TOKENS", "index": 0}]}
    assert google.decode(payload, {}).text == ""


def test_a_blocked_prompt_is_an_empty_answer_of_the_filter() -> None:
    payload = {
        "promptFeedback": {"blockReason": "PROHIBITED_CONTENT"},
        "usageMetadata": {"promptTokenCount": 12559, "totalTokenCount": 12559},
        "modelVersion": "gemini-3-pro-preview",
    }
    answer = google.decode(payload, {})
    assert (answer.text, answer.stop_kind) == ("", StopKind.CONTENT_FILTER)
    assert answer.stop_reason == "PROHIBITED_CONTENT"
    assert answer.usage.input_tokens == 12559


@pytest.mark.parametrize("payload", [None, [], {}, {"candidates": []}, {"promptFeedback": {}}])
def test_payloads_without_candidate_or_block_reason_are_malformed(payload: object) -> None:
    with pytest.raises(ProviderError) as caught:
        google.decode(payload, {})
    assert caught.value.error_class == ErrorClass.MALFORMED
