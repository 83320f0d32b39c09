"""The wire formats, against payloads shaped as the hosts send them, and bodies for calls."""

import json
import time
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import pytest
from msgspec import convert

from aegish_dist.core.model import CallParameters, ModelSpec, WireFormat
from aegish_dist.core.run import Prompt
from aegish_dist.core.verdict import Completion
from aegish_dist.errors import ProviderError
from aegish_dist.providers import lenient
from aegish_dist.providers.contract import codec, merged, template
from tests.recorded import lines_of

OPENAI, ANTHROPIC, GOOGLE = WireFormat.OPENAI, WireFormat.ANTHROPIC, WireFormat.GOOGLE
PROMPT = Prompt("guard", "Judge shell commands.", "Validate this command: {command}")
BARE = Prompt("bare", "", "{command}")
WIRES = (OPENAI, ANTHROPIC, GOOGLE)


def decode(
    wire: WireFormat, payload: object, headers: Mapping[str, str] | None = None
) -> Completion:
    return codec(wire).decode(payload, headers or {})


@pytest.mark.parametrize("recorded", lines_of("chat_requests.jsonl"), ids=itemgetter("what"))
def test_a_request_is_that_of_the_vendor(recorded: dict[str, Any]) -> None:
    (wire,) = (each for each in WIRES if each == recorded["wire"])
    more = recorded.get("model", {})
    spec = ModelSpec("lab/m-1", wire, "m-1", recorded["base_url"], **more)
    prompt = BARE if recorded.get("prompt") == "bare" else PROMPT
    made = codec(wire).encode(spec, prompt, CallParameters(**recorded.get("call", {})))
    assert made.url == recorded["url"]
    assert json.loads(b"".join(made.parts("cat /etc/shadow"))) == recorded["body"]


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
    (wire,) = (each for each in WIRES if each == recorded["wire"])
    given = wire, recorded["payload"], recorded.get("headers")
    if "answer" in recorded:
        assert decode(*given) == convert({"text": None} | recorded["answer"], Completion)
    else:
        with pytest.raises(ProviderError) as caught:
            decode(*given)
        error = {"error_class": caught.value.error_class, "status": caught.value.status}
        assert error | {"words": str(caught.value)} == recorded["error"]


@pytest.mark.parametrize(
    ("sent", "count"),
    [
        ("20", 20),
        ("20.0", 20),
        ("20.5", None),
        ("-1.0", None),
        ("1e300", None),
        ("Infinity", None),
        ("NaN", None),
        ("true", None),
        ('"20"', None),
    ],
)
def test_a_count_is_a_whole_number_however_it_is_written(sent: str, count: int | None) -> None:
    assert lenient.count(json.loads(sent)) == count


@pytest.mark.parametrize("sent", [rb"\ud800", rb"\u0000", rb"\uDFFF", b"\xed\xa0\x80"])
def test_lone_surrogates_and_nul_are_replaced(sent: bytes) -> None:
    payload = lenient.parse(b'{"choices":[{"message":{"content":"a%b"}}]}' % sent)
    assert set(decode(OPENAI, payload).text or "") == {"a", "\ufffd"}


def test_a_nul_in_utf_16_is_replaced() -> None:
    assert lenient.parse(r'["a\u0000"]'.encode("utf-16")) == ["a\ufffd"]


def test_a_string_without_an_end_takes_no_time() -> None:
    start = time.process_time()
    with pytest.raises(ProviderError, match="is not JSON"):
        lenient.parse(b'["' + b'\\",' * 2**15)
    assert time.process_time() - start < 1


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
