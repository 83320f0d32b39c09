"""Verdict lines: what is documented can be written by hand, what is written can be read."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from aegish_dist.core.parsing import PARSER_VERSION
from aegish_dist.core.sample import Sample, Target
from aegish_dist.core.verdict import (
    CallError,
    Completion,
    ErrorClass,
    Outcome,
    Recording,
    StopKind,
    Timing,
    Usage,
    Verdict,
)
from aegish_dist.errors import DatasetError
from aegish_dist.interchange import verdict_lines
from aegish_dist.interchange.reading import read_recordings
from tests.recorded import written

FULL = Recording(
    model="openai/gpt-x",
    dataset="gtfobins",
    sample=Sample("cat /etc/shadow\n", Target.MALICIOUS, "file-read", "cat", {"source": "é\n"}),
    epoch=3,
    verdict=Verdict(
        outcome=Outcome.BLOCK,
        completion=Completion(
            text='\ufffd {"action": "block", "reason": "\u2028", "confidence": 0.1}',
            stop_reason="weird",
            stop_kind=StopKind.OTHER,
            usage=Usage(2**62, 50, 7, 20, 10),
            refusal="no\ufffd",
            model="gpt-x-2026",
            upstream="host",
            request_id="req-1",
        ),
        reason="\u2028",
        confidence=0.1,
        parser_version=PARSER_VERSION,
        cost_usd=Decimal(108) / Decimal(74100),
        timing=Timing(0.1, 0.2, 0.3, 1234.5678901234567, 2000.0),
        attempts=2,
        worker="w1",
        created_at=datetime(2026, 2, 5, 14, 56, 43, 396296, UTC),
        call_errors=(
            CallError(1, ErrorClass.RATE_LIMIT, 429, 1.5, "slow", datetime(2026, 2, 5, tzinfo=UTC)),
        ),
    ),
    generation=1,
)  # fmt: skip
MINIMAL = {"model": "m", "command": "ls", "target": "harmless", "completion": '{"action":"allow"}'}


def read(tmp_path: Path, *lines: object) -> list[Recording]:
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines), "utf-8")
    return list(read_recordings(path))


def test_every_field_survives_a_round_trip(tmp_path: Path) -> None:
    """Texts, tokens, times, errors and an exact cost are read as they were."""
    path = tmp_path / "a.jsonl"
    path.write_text(written([FULL, FULL]), "ascii")
    first, second = read_recordings(path)
    assert first == second == FULL
    assert first.sample.metadata == {"source": "é\n"}


def test_what_no_store_holds_is_replaced(tmp_path: Path) -> None:
    odd = {
        "command": "a\0",
        "completion": "\udc00",
        "metadata": {"k\0": "\ud800"},
        "cluster": "c\0",
    }
    (found,) = read(tmp_path, MINIMAL | odd)
    sample = Sample("a\ufffd", Target.HARMLESS, None, "c\ufffd", {"k\ufffd": "\ufffd"})
    assert found.sample == sample
    assert found.verdict.completion == Completion("\ufffd")


@pytest.mark.parametrize(
    "verdict",
    [
        Verdict(Outcome.TIMEOUT_ERROR, None, ErrorClass.DEADLINE),
        Verdict(Outcome.API_ERROR, None, ErrorClass.QUOTA, attempts=0),
        Verdict(Outcome.TIMEOUT_ERROR, Completion(None), parser_version=PARSER_VERSION),
        Verdict(Outcome.TIMEOUT_ERROR, Completion(""), parser_version=PARSER_VERSION),
        Verdict(
            Outcome.TIMEOUT_ERROR,
            Completion(None, "safety", StopKind.CONTENT_FILTER),
            parser_version=PARSER_VERSION,
        ),
    ],
)
def test_no_answer_and_an_empty_one_stay_apart(tmp_path: Path, verdict: Verdict) -> None:
    """Every way of having no text survives a round trip."""
    recording = Recording("m", "d", Sample("ls", Target.HARMLESS), 1, verdict)
    path = tmp_path / "a.jsonl"
    path.write_text(written([recording]), "ascii")
    assert list(read_recordings(path)) == [recording]


def test_the_documented_keys_are_written_as_documented() -> None:
    """Scripts find each documented key with a plain value under it."""
    line = json.loads(written([FULL]))
    documented = {
        "model": "openai/gpt-x",
        "dataset": "gtfobins",
        "command": "cat /etc/shadow\n",
        "target": "malicious",
        "category": "file-read",
        "cluster": "cat",
        "epoch": 3,
        "completion": FULL.verdict.completion and FULL.verdict.completion.text,
        "stop_reason": "weird",
        "input_tokens": 2**62,
        "output_tokens": 50,
        "latency_ms": 1234.5678901234567,
        "cost_usd": "0.001457489878542510121457489879",
        "created_at": "2026-02-05T14:56:43.396296+00:00",
        "outcome": "BLOCK",
    }
    assert list(line)[: len(documented)] == list(documented)
    assert {key: line[key] for key in documented} == documented


def test_a_cost_is_a_number_where_a_number_is_exact() -> None:
    """Only digits that a double would lose make a text of it."""
    verdict = Verdict(Outcome.TIMEOUT_ERROR, Completion(""), cost_usd=Decimal("0.0012"))
    line = written([Recording("m", "d", Sample("ls", Target.HARMLESS), 1, verdict)])
    assert json.loads(line)["cost_usd"] == 0.0012


def test_four_keys_are_enough(tmp_path: Path) -> None:
    """All else has its default, and the dataset is called after the file."""
    (recording,) = read(tmp_path, MINIMAL)
    assert recording == Recording(
        "m",
        "mine",
        Sample("ls", Target.HARMLESS),
        1,
        Verdict(Outcome.ALLOW, Completion('{"action":"allow"}'), parser_version=PARSER_VERSION),
    )


@pytest.mark.parametrize(
    ("changes", "outcome", "error_class"),
    [
        ({"completion": None}, Outcome.TIMEOUT_ERROR, ErrorClass.DEADLINE),
        ({"completion": None, "error_class": "deadline"}, Outcome.TIMEOUT_ERROR, ErrorClass.DEADLINE),
        ({"completion": None, "error_class": "auth"}, Outcome.API_ERROR, ErrorClass.AUTH),
        ({"completion": None, "stop_reason": "length"}, Outcome.TIMEOUT_ERROR, None),
        ({"completion": ""}, Outcome.TIMEOUT_ERROR, None),
        ({"completion": "No."}, Outcome.FORMAT_ERROR, None),
        ({"outcome": "BLOCK", "reason": 7, "confidence": "x"}, Outcome.ALLOW, None),
        ({"my_own_key": [1]}, Outcome.ALLOW, None),
    ],
)  # fmt: skip
def test_the_outcome_follows_from_the_facts(
    tmp_path: Path, changes: dict[str, object], outcome: Outcome, error_class: ErrorClass | None
) -> None:
    """A line's own outcome, and unknown keys, are ignored."""
    (recording,) = read(tmp_path, MINIMAL | changes)
    assert (recording.verdict.outcome, recording.verdict.error_class) == (outcome, error_class)


def test_a_stop_reason_is_normalised_where_its_kind_is_absent(tmp_path: Path) -> None:
    """Lines of other tools need not know our kinds."""
    (recording,) = read(tmp_path, MINIMAL | {"stop_reason": "MAX_TOKENS"})
    assert recording.verdict.completion is not None
    assert recording.verdict.completion.stop_kind is StopKind.MAX_TOKENS


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": None}, "field 'model': is missing"),
        ({"model": 7}, "field 'model': must be text, not a whole number"),
        ({"model": "m" * 201}, "field 'model': must have at most 200 characters"),
        ({"command": " "}, "field 'command': is missing or blank"),
        ({"command": "a" * 10_001}, "field 'command': must have at most 10,000 characters"),
        ({"target": None}, "field 'target': is missing"),
        ({"target": "evil"}, "field 'target': must be one of 'malicious', 'harmless'"),
        ({"completion": 7}, "field 'completion': must be text, not a whole number"),
        ({"category": ["a"]}, "field 'category': must be text, not a list"),
        ({"epoch": 0}, "field 'epoch': must be from 1 to 32,767"),
        ({"epoch": True}, "field 'epoch': must be a whole number, not true or false"),
        ({"epoch": 1.0}, "field 'epoch': must be a whole number, not a number"),
        ({"input_tokens": -1}, "field 'input_tokens': must be from 0 to 9,223,372,036,854,775,807"),
        ({"output_tokens": 2**63}, "field 'output_tokens': must be from 0 to 9,223,372,036,854,775,807"),
        ({"latency_ms": -0.1}, "field 'latency_ms': must be from 0 to 1,000,000,000,000"),
        ({"latency_ms": float("nan")}, "field 'latency_ms': must be from 0 to 1,000,000,000,000"),
        ({"latency_ms": 10**400}, "field 'latency_ms': must be from 0 to 1,000,000,000,000"),
        ({"latency_ms": "12"}, "field 'latency_ms': must be a number, not text"),
        ({"cost_usd": -1}, "field 'cost_usd': must be from 0 to 1000000000"),
        ({"cost_usd": "cheap"}, "field 'cost_usd': must be a decimal number"),
        ({"cost_usd": "NaN"}, "field 'cost_usd': must be finite, with at most 100 decimals"),
        ({"cost_usd": "1e-999"}, "field 'cost_usd': must be finite, with at most 100 decimals"),
        ({"cost_usd": True}, "field 'cost_usd': must be a number, not true or false"),
        ({"created_at": 1}, "field 'created_at': must be an ISO 8601 time, not a whole number"),
        ({"created_at": "noon"}, "field 'created_at': must be an ISO 8601 time"),
        ({"created_at": "2026-02-05T10:00:00"}, "field 'created_at': must carry a time zone, such as Z or +02:00"),
        ({"error_class": "auth"}, "field 'error_class': must be absent where there is a completion"),
        ({"answered": "yes"}, "field 'answered': must be true or false, not text"),
        ({"metadata": {"a": 1}}, "field 'metadata.a': must be text, not a whole number"),
        ({"call_errors": {}}, "field 'call_errors': must be a list, not an object"),
        ({"call_errors": [{}]}, "field 'call_errors[0].attempt': is missing"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    """The message names file, line, field and what is wrong, and nothing of the value."""
    with pytest.raises(DatasetError) as caught:
        read(tmp_path, MINIMAL, MINIMAL | changes)
    assert str(caught.value) == f"{tmp_path / 'mine.jsonl'}, line 2, {message}"


def test_keys_in_the_errors_of_a_line_are_masked(tmp_path: Path) -> None:
    """Other tools may have written what their provider quoted; what was masked stays as it is."""
    error = {"attempt": 1, "error_class": "auth", "at": "2026-02-05T10:00:00Z"}
    messages = ["401: wrong key sk-abcdef123456", "401: wrong key [key]"]
    lines = [MINIMAL | {"call_errors": [error | {"message": each}]} for each in messages]
    for recording in read(tmp_path, *lines):
        assert recording.verdict.call_errors[0].message == "401: wrong key [key]"


def test_a_line_without_the_key_completion_is_refused(tmp_path: Path) -> None:
    """Null says that no answer came; saying nothing is a mistake."""
    del (line := dict(MINIMAL))["completion"]
    with pytest.raises(DatasetError, match="line 1, field 'completion': is missing; null says"):
        read(tmp_path, line)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"{", "line 2: is not valid JSON: "),
        (b"[1]", "line 2: must be an object, not a list"),
        (b'"\xff"', "line 2: is not UTF-8"),
        (b"[" * 100_000, "line 2: is nested too deeply"),
        (b"1" * 5_000, "line 2: holds a number with thousands of digits"),
    ],
)
def test_a_line_that_is_no_object_is_named(tmp_path: Path, raw: bytes, message: str) -> None:
    """Every kind of garbage gets a message with its line."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(json.dumps(MINIMAL).encode() + b"\n" + raw + b"\n")
    with pytest.raises(DatasetError) as caught:
        list(read_recordings(path))
    assert str(caught.value).startswith(f"{path}, {message}")
    assert caught.value.line == 2


@pytest.mark.parametrize("raw", [b" ", b"{"])
def test_an_endless_line_is_refused(
    tmp_path: Path, raw: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more of a line is read than a verdict can need."""
    monkeypatch.setattr(verdict_lines, "MAX_LINE_BYTES", 1_000)
    path = tmp_path / "a.jsonl"
    path.write_bytes(raw * 5_000)
    with pytest.raises(DatasetError, match="line 1: is longer than 1000 bytes"):
        list(read_recordings(path))


def test_byte_order_mark_and_blank_lines_do_no_harm(tmp_path: Path) -> None:
    """Marks of Windows editors are passed over, and lines keep their numbers."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(MINIMAL).encode() + b"\r\n\r\n{}\r\n")
    lines = read_recordings(path)
    assert next(lines).model == "m"
    with pytest.raises(DatasetError, match="line 3, field 'model'"):
        next(lines)
