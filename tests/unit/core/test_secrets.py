"""Keys in foreign text in every form that providers may echo, and hosts in every notation."""

import base64
import json
import time
import urllib.parse

import pytest

from aegish_dist.core.secrets import (
    KeyMask,
    SecretStr,
    host_of,
    is_loopback,
    is_metadata,
    mask_key_shapes,
    origin,
)
from tests.recorded import lines_of


def test_a_secret_shows_only_when_it_is_asked_for() -> None:
    secret = SecretStr("hunter2")
    assert "hunter2" not in f"{secret} {secret!r} {[secret]}"
    assert secret.get_secret_value() == "hunter2"
    assert secret == SecretStr("hunter2") != SecretStr("hunter3")
    assert (str(SecretStr("")), len({secret, SecretStr("hunter2")})) == ("", 1)


KEY = "sk-proj-AbC123+/=xyz_0987~q"
SHORT = "hunter#2"


def revealed(text: str) -> int:
    """Return the length of the longest part of the key that the text shows, plain or in base64."""
    texts = [text]
    for run in text.replace("-", "+").replace("_", "/").split():
        for cut in range(4):
            padded = run[cut:].rstrip("=")
            padded = padded[: len(padded) // 4 * 4]
            try:
                texts.append(base64.b64decode(padded, validate=True).decode("latin-1"))
            except ValueError:
                continue
    parts = (KEY[i:j] for i in range(len(KEY)) for j in range(i + 1, len(KEY) + 1))
    return max((len(part) for part in parts if any(part in each for each in texts)), default=0)


@pytest.mark.parametrize("form", [form for _, form in lines_of("keys_in_forms.jsonl")])
def test_a_key_is_masked_in_every_form(form: str) -> None:
    masked = KeyMask(KEY).text(f"before {form} after")
    assert "[key]" in masked
    assert (masked.startswith("before "), masked.endswith(" after")) == (True, True)
    assert form not in masked
    if "base64" not in form:
        assert revealed(masked.replace("before", "").replace("after", "")) <= 2


def test_text_without_the_key_is_left_alone() -> None:
    for text in ("", "sk-", "100 % \\u0041", "a\0b", KEY[:-1], json.dumps({"action": "BLOCK"})):
        assert KeyMask(KEY).text(text) == text


def test_every_string_of_a_value_is_masked() -> None:
    assert "sk-" not in repr(KeyMask(KEY))
    value = {KEY: [KEY, 1, None, {"x": f"<{KEY}>"}], "n": 0.5}
    assert KeyMask(KEY).value(value) == {"[key]": ["[key]", 1, None, {"x": "<[key]>"}], "n": 0.5}


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (f"wrong key {SHORT}.", "wrong key [key]."),
        (f"({SHORT})", "([key])"),
        (urllib.parse.quote(SHORT, safe=""), "[key]"),
        (base64.b64encode(SHORT.encode()).decode(), "[key]="),
        (f"my{SHORT}", f"my{SHORT}"),
        (f"{SHORT}7", f"{SHORT}7"),
    ],
)
def test_a_short_key_is_masked_as_a_word(text: str, masked: str) -> None:
    """Inside longer words it may be chance."""
    assert KeyMask(SHORT).text(text) == masked


@pytest.mark.parametrize("key", [None, "", "k", "123", "EMPTY", "ollama", "block", "None"])
def test_placeholders_hide_nothing(key: str | None) -> None:
    answer = '{"action": "BLOCK", "reason": "None EMPTY ollama k", "confidence": 0.123}'
    assert KeyMask(key).text(answer) == answer
    assert KeyMask(key).value({"text": answer}) == {"text": answer}


@pytest.mark.parametrize(
    "hostile",
    [
        *("\\" * 200_000, "\0" * 200_000, "%25" * 70_000, "&#00000" * 30_000, KEY[:-1] * 8_000),
        *("\\n" * 100_000, "=\r\n " * 50_000, KEY.encode()[:-1].hex(":") * 3_000 + "\\"),
        *("&amp;" * 40_000, "\\u{000000" * 20_000, ("\n".join(KEY[:-1]) + "\\") * 4_000),
    ],
    ids=[
        *("backslashes", "zeros", "per cent", "entities", "beginnings", "escaped breaks"),
        *("soft breaks", "hexadecimal", "ampersands", "braces", "broken beginnings"),
    ],
)
def test_masking_takes_linear_time(hostile: str) -> None:
    started = time.process_time()
    KeyMask(KEY).text(hostile)
    mask_key_shapes(hostile)
    assert time.process_time() - started < 5


@pytest.mark.parametrize(("text", "masked"), lines_of("key_shapes.jsonl"))
def test_shapes_of_keys_are_masked(text: str, masked: str) -> None:
    assert masked in mask_key_shapes(text)
    for secret in ("123456", "abcdef", "s3cret", "dXNl", "OSFO", "BBBB", "0a1b"):
        assert secret not in mask_key_shapes(text)


@pytest.mark.parametrize(
    "text",
    [
        "Rate limit reached for gpt-5.1 in organization org-1 on requests per min: 500",
        "`temperature` is deprecated for this model.",
        "Incorrect API key provided",
        "max_tokens: 100000 > 8192, which is the maximum",
        "connection failed: Cannot connect to host 127.0.0.1:8000",
        "see https://example.test/docs:80/errors",
    ],
)
def test_ordinary_errors_stay_as_they_are(text: str) -> None:
    assert mask_key_shapes(text) == text


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://api.openai.com/v1", "https://api.openai.com:443"),
        ("HTTPS://API.OpenAI.com:443", "https://api.openai.com:443"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000"),
        ("http://[::1]:9/v1/", "http://[::1]:9"),
        ("http://my_llm/v1", "http://my_llm:80"),
    ],
)
def test_an_origin_is_scheme_host_and_port(url: str, expected: str) -> None:
    assert origin(url) == expected


@pytest.mark.parametrize(
    "url",
    lines_of("ambiguous_urls.jsonl"),
)
def test_what_two_parsers_may_read_differently_has_no_origin(url: str) -> None:
    assert origin(url) is None
    assert host_of(url) == ""


LOOPBACK = """127.0.0.1 127.0.0.2 127.255.1.9 ::1 [::1] localhost LOCALHOST 127.1 0x7f.1 2130706433
::ffff:127.0.0.1"""
METADATA = """169.254.169.254 169.254.0.1 2852039166 0xa9fea9fe [fd00:ec2::254] fe80::1
::ffff:169.254.169.254 168.63.129.16 192.0.0.192 fd20:ce::254 fd00:42::42 ::169.254.169.254
64:ff9b::a9fe:a9fe metadata.google.internal METADATA 100.100.100.200"""


OTHERS = "10.0.0.1 localhost.evil.test 128.0.0.1 face ::2 api.openai.com fd00:ec2::253"


@pytest.mark.parametrize("host", ["", *f"{LOOPBACK} {METADATA} {OTHERS}".split()])
def test_this_machine_and_metadata_services_have_many_names(host: str) -> None:
    """All of 127.0.0.0/8 in any notation, ::1 and localhost."""
    assert is_loopback(host) is (host in LOOPBACK.split())
    assert is_metadata(host) is (host in METADATA.split())
