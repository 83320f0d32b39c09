"""Whatever JSON a provider sends, a codec gives a completion or a ProviderError."""

import json
import re
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aegish_dist.core.model import HTTP_FORMATS, WireFormat
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.verdict import Completion
from aegish_dist.errors import ProviderError
from aegish_dist.providers import anthropic, google, openai
from aegish_dist.providers.batches.transfer import moment
from aegish_dist.providers.contract import Codec, codec
from aegish_dist.providers.failures import retry_after_s, settle
from aegish_dist.providers.lenient import parse

FIELDS = """
choices message content text type refusal finish_reason usage prompt_tokens prompt_tokens_details
completion_tokens total_tokens completion_tokens_details reasoning_tokens error code status details
violations quotaId retryDelay metadata retry_after_seconds innererror stop_reason stop_details
category explanation input_tokens output_tokens cache_read_input_tokens candidates parts thought
finishReason finishMessage promptFeedback blockReason usageMetadata promptTokenCount
thoughtsTokenCount id model provider responseId modelVersion detail
"""
WORDS = ["text", "stop", "error", "refusal", "end_turn", "STOP", "SAFETY", "RESOURCE_EXHAUSTED"]

texts = st.text(st.characters(codec=None), max_size=20) | st.sampled_from(WORDS)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([400, 429, 502, 10**400])
    | st.floats()
    | texts
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(FIELDS.split()) | texts, inner, max_size=6)
    ),
    max_leaves=25,
)
header_maps = st.dictionaries(
    st.sampled_from(["retry-after", "retry-after-ms", "date", "x-request-id", "request-id"]), texts
)


def completed(read: Callable[[], Completion]) -> bool:
    try:
        answer = read()
    except ProviderError:
        return False
    return isinstance(answer, Completion)


@pytest.mark.parametrize("wire", HTTP_FORMATS)
@given(payload=values, headers=header_maps)
def test_decoding_is_total_up_to_provider_errors(
    wire: WireFormat, payload: object, headers: dict[str, str]
) -> None:
    completed(lambda: codec(wire).decode(payload, headers))


@given(
    envelope=st.sampled_from(
        [
            (openai, lambda inner: {"choices": [{"message": inner}]}),
            (anthropic, lambda inner: {"content": [inner]}),
            (google, lambda inner: {"candidates": [{"content": inner}]}),
        ]
    ),
    inner=values,
)
def test_an_answer_of_the_right_outer_shape_is_always_a_completion(
    envelope: tuple[Codec, Callable[[object], object]], inner: object
) -> None:
    codec, wrap = envelope
    assert completed(lambda: codec.decode(wrap(inner), {}))


@given(status=st.integers(300, 999), payload=values, headers=header_maps)
def test_reading_an_error_response_is_total_up_to_provider_errors(
    status: int, payload: object, headers: dict[str, str]
) -> None:
    completed(lambda: settle(status, payload, headers))


@given(headers=header_maps, error=st.dictionaries(st.sampled_from(FIELDS.split()), values))
def test_a_wait_is_never_negative_or_endless(
    headers: dict[str, str], error: dict[str, object]
) -> None:
    seconds = retry_after_s(headers, error)
    assert seconds is None or 0 <= seconds < float("inf")


@given(payload=values)
def test_json_reads_back_and_everything_else_is_malformed(payload: object) -> None:
    body = json.dumps(payload).encode()
    assert json.dumps(parse(body)) == json.dumps(storable(json.loads(body)))


def storable(value: object) -> object:
    match value:
        case str():
            return re.sub("[\0\ud800-\udfff]", "\ufffd", value)
        case dict():
            return {storable(key): storable(each) for key, each in value.items()}
        case list():
            return [storable(each) for each in value]
    return value


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"{", b"\xff\xfe\xfa", b"[" * 200_000, b"9" * 5000, b'{"a":1}x']
)
def test_a_body_that_is_no_json_is_malformed(body: bytes) -> None:
    with pytest.raises(ProviderError) as caught:
        parse(body)
    assert caught.value.error_class == ErrorClass.MALFORMED


@given(values | st.integers(-(10**12), 10**12))
@example(253_402_300_800)  # the year 10000
def test_whatever_stands_for_a_time_is_one_with_a_zone_or_none(value: object) -> None:
    found = moment(value)
    assert found is None or found.tzinfo is not None
