"""The OpenAI wire format, against payloads shaped as the hosts send them."""

import json
from dataclasses import replace
from typing import Any

import pytest

from aegish_dist.core.model import CallParameters, ModelSpec, WireFormat
from aegish_dist.core.outcome import ErrorClass, StopKind
from aegish_dist.core.run import Prompt
from aegish_dist.core.verdict import Usage
from aegish_dist.errors import ProviderError
from aegish_dist.providers import lenient, openai

PROMPT = Prompt("guard", "Judge shell commands.", "Validate this command: {command}")
ANSWER = '{"action": "BLOCK", "reason": "reads hashes", "confidence": 0.98}'


def spec(base_url: str = "https://api.openai.com/v1", **parameters: Any) -> ModelSpec:
    return ModelSpec(
        "openai/gpt-5.1", WireFormat.OPENAI, "gpt-5.1", base_url, parameters=parameters
    )


def body(
    model: ModelSpec,
    parameters: CallParameters | None = None,
    command: str = "cat /etc/shadow",
    prompt: Prompt = PROMPT,
) -> dict[str, Any]:
    template = openai.encode(model, prompt, parameters or CallParameters())
    sent: dict[str, Any] = json.loads(b"".join(template.parts(command)))
    return sent


def completion(
    message: object, finish_reason: str | None = "stop", **fields: object
) -> dict[str, object]:
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return {"id": "chatcmpl-1", "object": "chat.completion", "choices": [choice], **fields}


def test_request_holds_the_system_text_the_command_and_the_parameters() -> None:
    assert body(spec(), CallParameters(temperature=0.5)) == {
        "model": "gpt-5.1",
        "max_completion_tokens": 4096,
        "seed": 42,
        "temperature": 0.5,
        "messages": [
            {"role": "system", "content": "Judge shell commands."},
            {"role": "user", "content": "Validate this command: cat /etc/shadow"},
        ],
    }


def test_request_goes_to_chat_completions_below_the_base_url() -> None:
    template = openai.encode(spec("http://127.0.0.1:8000/v1"), PROMPT, CallParameters())
    assert template.url == "http://127.0.0.1:8000/v1/chat/completions"


def test_hosts_other_than_openai_get_max_tokens() -> None:
    sent = body(spec("https://openrouter.ai/api/v1"))
    assert sent["max_tokens"] == 4096
    assert "max_completion_tokens" not in sent


@pytest.mark.parametrize("host", ["api.openai.com", "eu.api.openai.com", "us.api.openai.com"])
def test_every_region_of_openai_gets_max_completion_tokens(host: str) -> None:
    """A stored run states no field; then the host decides."""
    sent = body(spec(f"https://{host}/v1"))
    assert sent["max_completion_tokens"] == 4096
    assert "max_tokens" not in sent


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("base_url", ["https://gateway.test/v1", "https://api.openai.com/v1"])
def test_the_catalog_names_the_field_whatever_the_host(field: str, base_url: str) -> None:
    """A gateway to reasoning models refuses one, an old server knows only the other."""
    sent = body(replace(spec(base_url), max_tokens_field=field))
    assert [name for name in sent if name.startswith("max_")] == [field]


def test_a_host_that_only_ends_alike_is_another() -> None:
    assert "max_tokens" in body(spec("https://api.openai.com.test/v1"))
    assert "max_tokens" in body(spec("https://notapi.openai.com/v1"))


def test_unset_seed_and_temperature_are_not_sent() -> None:
    sent = body(spec(), CallParameters(seed=None, temperature=None))
    assert "seed" not in sent
    assert "temperature" not in sent


def test_parameters_of_the_model_override_add_and_remove_fields() -> None:
    sent = body(spec(seed=None, reasoning_effort="low", max_completion_tokens=99))
    assert "seed" not in sent
    assert sent["reasoning_effort"] == "low"
    assert sent["max_completion_tokens"] == 99


def test_an_empty_system_text_is_left_out() -> None:
    sent = body(spec(), prompt=Prompt("bare", "", "{command}"))
    assert sent["messages"] == [{"role": "user", "content": "cat /etc/shadow"}]


def test_key_travels_as_bearer_token() -> None:
    assert openai.request_headers("sk-1") == {"Authorization": "Bearer sk-1"}
    assert openai.request_headers(None) == {}


def test_decode_reads_every_field_of_an_openai_answer() -> None:
    answer = openai.decode(
        completion(
            {"role": "assistant", "content": ANSWER, "refusal": None, "annotations": []},
            model="gpt-5.1-2025-11-13",
            usage={
                "prompt_tokens": 3120,
                "completion_tokens": 250,
                "total_tokens": 3370,
                "prompt_tokens_details": {"cached_tokens": 2944, "audio_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 192},
            },
        ),
        {"x-request-id": "req_7"},
    )
    assert answer.text == ANSWER
    assert (answer.stop_reason, answer.stop_kind) == ("stop", StopKind.STOP)
    assert answer.usage == Usage(3120, 250, 192, 2944, None)
    assert answer.model == "gpt-5.1-2025-11-13"
    assert answer.request_id == "req_7"
    assert answer.refusal is None
    assert answer.upstream is None


def test_decode_reads_the_upstream_and_cache_writes_of_openrouter() -> None:
    answer = openai.decode(
        completion(
            {"role": "assistant", "content": ANSWER, "reasoning": "hidden"},
            provider="DeepInfra",
            usage={
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 15,
                "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 8},
            },
        ),
        {},
    )
    assert answer.upstream == "DeepInfra"
    assert answer.usage.cache_write_tokens == 8
    assert answer.request_id == "chatcmpl-1"


def test_reasoning_left_out_of_the_completion_tokens_is_added() -> None:
    usage = {
        "prompt_tokens": 32,
        "completion_tokens": 9,
        "total_tokens": 135,
        "completion_tokens_details": {"reasoning_tokens": 94},
    }
    answer = openai.decode(completion({"content": ANSWER}, usage=usage), {})
    assert answer.usage.output_tokens == 103


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("stop", StopKind.STOP),
        ("length", StopKind.MAX_TOKENS),
        ("content_filter", StopKind.CONTENT_FILTER),
        ("tool_calls", StopKind.OTHER),
        (None, None),
    ],
)
def test_stop_reasons_are_normalised(reason: str | None, kind: StopKind | None) -> None:
    answer = openai.decode(completion({"content": "x"}, reason), {})
    assert (answer.stop_reason, answer.stop_kind) == (reason, kind)


def test_a_refusal_is_a_content_filter_with_its_detail() -> None:
    message = {"role": "assistant", "content": None, "refusal": "I can't help with that."}
    answer = openai.decode(completion(message), {})
    assert answer.text is None
    assert answer.refusal == "I can't help with that."
    assert (answer.stop_reason, answer.stop_kind) == ("stop", StopKind.CONTENT_FILTER)


def test_content_parts_are_joined_without_thinking() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": '{"action":'},
        {"type": "text", "text": '"WARN"}'},
    ]
    assert openai.decode(completion({"content": parts}), {}).text == '{"action":"WARN"}'


def test_reasoning_content_is_not_the_text() -> None:
    message = {"content": "", "reasoning_content": '{"action": "ALLOW"}'}
    assert openai.decode(completion(message), {}).text == ""


@pytest.mark.parametrize("sent", [rb"\ud800", rb"\u0000", rb"\uDFFF", b"\xed\xa0\x80"])
def test_lone_surrogates_and_nul_are_replaced(sent: bytes) -> None:
    payload = lenient.parse(b'{"choices":[{"message":{"content":"a%b"}}]}' % sent)
    assert set(openai.decode(payload, {}).text or "") == {"a", "\ufffd"}


def test_a_nul_in_utf_16_is_replaced() -> None:
    assert lenient.parse(r'["a\u0000"]'.encode("utf-16")) == ["a\ufffd"]


def test_token_counts_that_are_no_counts_read_as_unknown() -> None:
    usage = {"prompt_tokens": -1, "completion_tokens": True, "prompt_tokens_details": [1]}
    assert openai.decode(completion({"content": ""}, usage=usage), {}).usage == Usage()


@pytest.mark.parametrize("payload", [None, [], "text", {}, {"choices": []}, {"choices": ["x"]}])
def test_payloads_without_a_choice_are_malformed(payload: object) -> None:
    with pytest.raises(ProviderError) as caught:
        openai.decode(payload, {})
    assert caught.value.error_class == ErrorClass.MALFORMED
    assert caught.value.status == 200


@pytest.mark.parametrize(
    ("payload", "status", "error_class"),
    [
        ({"error": {"code": 429, "message": "slow"}}, 429, ErrorClass.RATE_LIMIT),
        ({"error": {"code": "503", "message": "busy"}}, 503, ErrorClass.OVERLOADED),
        ({"error": {"message": "Provider returned error"}}, 502, ErrorClass.SERVER),
        ({"error": "gone"}, 502, ErrorClass.SERVER),
        (
            {"choices": [{"error": {"code": 502, "message": "lost"}, "finish_reason": "error"}]},
            502,
            ErrorClass.SERVER,
        ),
        ({"choices": [{"finish_reason": "error"}]}, 502, ErrorClass.SERVER),
    ],
)
def test_an_error_inside_a_successful_response_counts_as_its_status(
    payload: dict[str, object], status: int, error_class: ErrorClass
) -> None:
    with pytest.raises(ProviderError) as caught:
        openai.decode(payload, {})
    assert (caught.value.status, caught.value.error_class) == (status, error_class)
