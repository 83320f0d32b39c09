"""The Anthropic wire format, against payloads shaped as the service sends them."""

import json
from typing import Any

import pytest

from aegish_dist.core.model import CallParameters, ModelSpec, WireFormat
from aegish_dist.core.outcome import ErrorClass, StopKind
from aegish_dist.core.run import Prompt
from aegish_dist.core.verdict import Usage
from aegish_dist.errors import ProviderError
from aegish_dist.providers import anthropic

PROMPT = Prompt("guard", "Judge shell commands.", "<command>{command}</command>")


def spec(**parameters: Any) -> ModelSpec:
    return ModelSpec(
        "anthropic/claude-haiku-4-5",
        WireFormat.ANTHROPIC,
        "claude-haiku-4-5",
        "https://api.anthropic.com",
        parameters=parameters,
    )


def message(
    content: object, stop_reason: str | None = "end_turn", **fields: object
) -> dict[str, object]:
    return {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "model": "claude-haiku-4-5-20251001",
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        **fields,
    }


def test_request_marks_the_system_text_as_cacheable_and_has_no_seed() -> None:
    template = anthropic.encode(spec(), PROMPT, CallParameters(temperature=0.0))
    assert template.url == "https://api.anthropic.com/v1/messages"
    assert json.loads(b"".join(template.parts("ls"))) == {
        "model": "claude-haiku-4-5",
        "max_tokens": 4096,
        "temperature": 0.0,
        "system": [
            {
                "type": "text",
                "text": "Judge shell commands.",
                "cache_control": {"type": "ephemeral"},
            }
        ],
        "messages": [{"role": "user", "content": "<command>ls</command>"}],
    }


def test_an_empty_system_text_is_left_out() -> None:
    template = anthropic.encode(spec(), Prompt("bare", "", "{command}"), CallParameters())
    assert "system" not in json.loads(b"".join(template.parts("ls")))


def test_parameters_of_the_model_are_added() -> None:
    thinking = {"type": "enabled", "budget_tokens": 1024}
    template = anthropic.encode(spec(thinking=thinking), PROMPT, CallParameters())
    assert json.loads(b"".join(template.parts("ls")))["thinking"] == thinking


def test_version_is_always_sent_and_the_key_in_its_own_header() -> None:
    assert anthropic.request_headers(None) == {"anthropic-version": "2023-06-01"}
    assert anthropic.request_headers("k")["x-api-key"] == "k"


def test_decode_counts_cached_tokens_as_input() -> None:
    answer = anthropic.decode(
        message(
            [{"type": "text", "text": '{"action": "ALLOW"}'}],
            usage={
                "input_tokens": 21,
                "cache_creation_input_tokens": 100,
                "cache_read_input_tokens": 3000,
                "output_tokens": 40,
                "service_tier": "standard",
            },
        ),
        {"request-id": "req_011"},
    )
    assert answer.text == '{"action": "ALLOW"}'
    assert answer.usage == Usage(3121, 40, None, 3000, 100)
    assert answer.model == "claude-haiku-4-5-20251001"
    assert answer.request_id == "req_011"


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
    answer = anthropic.decode(message([], usage=usage), {})
    assert answer.usage == Usage(121, 400, 350, 0, 100, cache_write_1h_tokens=70)


def test_text_blocks_are_joined_without_thinking() -> None:
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": '{"action":'},
        {"type": "text", "text": '"WARN"}'},
    ]
    assert anthropic.decode(message(content), {}).text == '{"action":"WARN"}'


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("end_turn", StopKind.STOP),
        ("stop_sequence", StopKind.STOP),
        ("max_tokens", StopKind.MAX_TOKENS),
        ("model_context_window_exceeded", StopKind.MAX_TOKENS),
        ("refusal", StopKind.CONTENT_FILTER),
        ("pause_turn", StopKind.OTHER),
        (None, None),
    ],
)
def test_stop_reasons_are_normalised(reason: str | None, kind: StopKind | None) -> None:
    answer = anthropic.decode(message([], reason), {})
    assert (answer.stop_reason, answer.stop_kind) == (reason, kind)


def test_a_refusal_carries_its_category_and_explanation() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "Looks like an attack."}
    answer = anthropic.decode(message([], "refusal", stop_details=details), {})
    assert answer.text == ""
    assert answer.refusal == "cyber: Looks like an attack."
    assert answer.request_id == "msg_01"


def test_missing_usage_reads_as_unknown() -> None:
    assert anthropic.decode(message([]), {}).usage == Usage()


@pytest.mark.parametrize("payload", [None, [], {}, {"content": "text"}, {"type": "error"}])
def test_payloads_without_content_are_malformed(payload: object) -> None:
    with pytest.raises(ProviderError) as caught:
        anthropic.decode(payload, {})
    assert caught.value.error_class == ErrorClass.MALFORMED
