"""The archive that a log is: Zstandard, folders of samples, and bombs.

Logs of Inspect AI, built here by hand in the shape of real ones.
"""

import bz2
import json
import lzma
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from aegish_dist.core.outcome import ErrorClass, Outcome, StopKind
from aegish_dist.core.sample import Sample, TrueLabel
from aegish_dist.core.verdict import CallError, Completion, Timing, Usage
from aegish_dist.errors import DatasetError
from aegish_dist.interchange import inspect_reader
from tests.defined import defined
from tests.recorded import Recording, document_of, lines_of, read_recordings

HEADER = {
    "eval": {
        "model": "anthropic/claude-x",
        "task": "some_task",
        "created": "2026-02-05T14:00:00+00:00",
    }
}
ANSWER = '{"action": "block", "reason": "hashes", "confidence": 0.9}'


def a_sample(**changes: Any) -> dict[str, Any]:
    sample: dict[str, Any] = document_of("inspect_sample.json")
    return sample | changes


def an_output(content: Any, stop_reason: str = "stop", **changes: Any) -> dict[str, Any]:
    output: dict[str, Any] = a_sample()["output"]
    message = {"role": "assistant", "content": content}
    return output | {"choices": [{"message": message, "stop_reason": stop_reason}]} | changes


NO_OUTPUT = {"model": "anthropic/claude-x", "choices": [], "completion": ""}


def deflated(raw: bytes) -> bytes:
    return zlib.compress(raw, 9, -15)


def write_archive(
    path: Path,
    members: Mapping[str, object],
    method: int = 0,
    compress: Callable[[bytes], bytes] = bytes,
) -> Path:
    """Write members as they would be had `zipfile` compressed them by this method."""
    path.unlink(missing_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {"header.json": HEADER, **members}.items():
            raw = content if isinstance(content, bytes) else json.dumps(content).encode()
            add_member(archive, name, raw, method, compress)
    return path


def add_member(
    archive: zipfile.ZipFile, name: str, raw: bytes, method: int, compress: Callable[[bytes], bytes]
) -> None:
    archive.writestr(name, compress(raw))
    info = archive.NameToInfo[name]
    info.compress_type, info.file_size, info.CRC = method, len(raw), zlib.crc32(raw)


def write_log(path: Path, *samples: object, model: str = "anthropic/claude-x") -> Path:
    members: dict[str, object] = {"header.json": {"eval": HEADER["eval"] | {"model": model}}}
    for number, sample in enumerate(samples, 1):
        members[f"samples/{number}_epoch_1.json"] = sample
    return write_archive(path, members, zipfile.ZIP_DEFLATED, deflated)


def read_one(tmp_path: Path, model: str = "anthropic/claude-x", **changes: Any) -> Recording:
    (recording,) = read_recordings(write_log(tmp_path / "a.eval", a_sample(**changes), model=model))
    return recording


def test_everything_a_recording_holds_is_read(tmp_path: Path) -> None:
    recording = read_one(tmp_path)
    assert recording.model == "anthropic/claude-x"
    assert (recording.dataset, recording.epoch, recording.generation) == ("gtfobins", 2, 0)
    assert recording.sample == Sample(
        "alpine -F /etc/shadow", TrueLabel.MALICIOUS, "file-read", "alpine"
    )
    assert recording.sample.metadata == {"n": "7"}
    verdict = recording.verdict
    assert verdict.completion == Completion(
        text=ANSWER,
        stop_reason="stop",
        stop_kind=StopKind.STOP,
        usage=Usage(1885, 50),
        model="claude-x-20260101",
    )
    assert (verdict.outcome, verdict.reason, verdict.confidence) == (Outcome.BLOCK, "hashes", 0.9)
    assert verdict.timing == Timing(service_ms=2500, total_ms=5067)
    assert verdict.created_at == datetime(2026, 2, 5, 14, 56, 43, 396296, UTC)
    assert (verdict.attempts, verdict.call_errors, verdict.cost_usd) == (1, (), None)


@pytest.mark.parametrize(
    ("given", "command"),
    lines_of("inspect_inputs.jsonl"),
)
def test_the_command_is_taken_out_of_the_input(tmp_path: Path, given: Any, command: str) -> None:
    assert read_one(tmp_path, input=given).sample.command == command


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("BLOCK", TrueLabel.MALICIOUS),
        (["BLOCK"], TrueLabel.MALICIOUS),
        (["WARN"], TrueLabel.MALICIOUS),
        (["allow"], TrueLabel.HARMLESS),
        (["ALLOW", "WARN"], TrueLabel.HARMLESS),
        ("", TrueLabel.MALICIOUS),
    ],
)
def test_the_expected_answer_tells_the_label(
    tmp_path: Path, target: Any, expected: TrueLabel
) -> None:
    """Where the target does not, the one in the metadata of a score."""
    scores = {"scorer": {"value": "C", "metadata": {"expected": "BLOCK"}}}
    assert read_one(tmp_path, target=target, scores=scores).sample.target is expected


def test_the_task_names_the_dataset_where_the_metadata_do_not(tmp_path: Path) -> None:
    found = read_one(tmp_path, metadata={})
    known = (found.dataset, found.sample.category, found.sample.cluster)
    assert known == ("some_task", None, None)


PARTS = [
    {"type": "reasoning", "reasoning": "allow?"},
    {"type": "text", "text": "one"},
    {"type": "text", "text": "two"},
]
STOP, FILTER = StopKind.STOP, StopKind.CONTENT_FILTER


@pytest.mark.parametrize(
    ("content", "stop_reason", "completion"),
    [
        (PARTS, "stop", Completion("one\ntwo", "stop", STOP)),
        ("", "max_tokens", Completion("", "max_tokens", StopKind.MAX_TOKENS)),
        ("", "model_length", Completion("", "model_length", StopKind.MAX_TOKENS)),
        ("", "content_filter", Completion("", "content_filter", FILTER, refusal="Blocked.")),
        ("", "tool_calls", Completion("", "tool_calls", StopKind.OTHER)),
        ("", "unknown", Completion("", "unknown", StopKind.OTHER)),
    ],
)
def test_texts_are_joined_and_stop_reasons_kept_and_normalised(
    tmp_path: Path, content: Any, stop_reason: str, completion: Completion
) -> None:
    output = an_output(content, stop_reason, error="Blocked.", model=None, usage={})
    verdict = read_one(tmp_path, output=output).verdict
    assert (verdict.completion, verdict.error_class) == (completion, None)


@pytest.mark.parametrize(("total", "input_tokens"), [(115, 100), (145, 130), (999, 100)])
def test_prompt_tokens_include_the_cache(tmp_path: Path, total: int, input_tokens: int) -> None:
    """Cached tokens are added where the total shows that the prompt tokens leave them out."""
    usage = {"input_tokens": 100, "output_tokens": 15, "total_tokens": total}
    usage |= {"input_tokens_cache_read": 20, "input_tokens_cache_write": 10, "reasoning_tokens": 5}
    output = an_output(ANSWER, usage=usage | {"total_cost": 0.0012})
    verdict = read_one(tmp_path, output=output).verdict
    assert defined(verdict.completion).usage == Usage(input_tokens, 15, 5, 20, 10)
    assert verdict.cost_usd == Decimal("0.0012")


@pytest.mark.parametrize(("model", "usage", "expected"), lines_of("inspect_usages.jsonl"))
def test_output_tokens_include_the_reasoning(
    tmp_path: Path, model: str, usage: list[int | None], expected: list[int]
) -> None:
    names = ("input_tokens", "output_tokens", "total_tokens", "reasoning_tokens")
    given = dict(zip((*names, "input_tokens_cache_read"), usage, strict=True))
    recording = read_one(tmp_path, model, output=an_output(ANSWER, usage=given))
    counted = defined(recording.verdict.completion).usage
    assert [counted.input_tokens, counted.output_tokens] == expected
    assert counted.reasoning_tokens == 313


@pytest.mark.parametrize(
    ("changes", "timing"),
    [
        ({"working_time": -0.31}, Timing(service_ms=2500, total_ms=5067)),
        ({"total_time": -1}, Timing(service_ms=2500)),
        ({"output": an_output(ANSWER, time=-2.5)}, Timing(service_ms=3466, total_ms=5067)),
        ({"output": an_output(ANSWER, time=None), "working_time": -1}, Timing(total_ms=5067)),
    ],
)
def test_a_time_below_zero_is_unknown(
    tmp_path: Path, changes: dict[str, Any], timing: Timing
) -> None:
    recording = read_one(tmp_path, **changes)
    assert recording.verdict.timing == timing
    assert recording.verdict.outcome is Outcome.BLOCK
    assert recording.negative_time
    assert not read_one(tmp_path).negative_time


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("time", (ErrorClass.DEADLINE, None)), ("working", (ErrorClass.DEADLINE, None)),
     ("token", (None, Completion(text=None)))],
)  # fmt: skip
def test_a_limit_of_time_without_an_answer_is_a_deadline(
    tmp_path: Path, limit: str, expected: tuple[ErrorClass | None, Completion | None]
) -> None:
    verdict = read_one(tmp_path, output=NO_OUTPUT, limit={"type": limit, "limit": 60}).verdict
    assert verdict.outcome is Outcome.TIMEOUT_ERROR
    assert (verdict.error_class, verdict.completion) == expected
    paid = NO_OUTPUT | {"usage": {"input_tokens": 812, "output_tokens": 0, "total_tokens": 812}}
    ended = read_one(tmp_path, output=paid, limit={"type": limit, "limit": 60}).verdict.completion
    assert (ended and ended.usage.input_tokens) == (812 if expected[1] else None)
    assert verdict.timing == Timing(service_ms=3466, total_ms=5067)
    answered = read_one(tmp_path, limit={"type": limit, "limit": 60}).verdict
    assert (answered.outcome, answered.error_class) == (Outcome.BLOCK, None)


def test_an_error_is_an_api_error_with_its_history(tmp_path: Path) -> None:
    verdict = read_one(
        tmp_path,
        output=NO_OUTPUT,
        error={"message": "401: wrong key sk-abcdef123456", "traceback": "..."},
        error_retries=[{"message": "x" * 1000}],
    ).verdict
    assert verdict.outcome is Outcome.API_ERROR
    assert verdict.error_class is ErrorClass.SERVER
    assert verdict.completion is None
    assert verdict.attempts == 2
    at = datetime(2026, 2, 5, 14, 56, 43, 396296, UTC)
    assert verdict.call_errors == (
        CallError(1, ErrorClass.SERVER, None, None, "x" * 500, at),
        CallError(2, ErrorClass.SERVER, None, None, "401: wrong key [key]", at),
    )


@pytest.mark.parametrize(
    "secret",
    [
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "Authorization: Bearer abc123def456",
        "postgresql://user:hunter2secret@db.example",
    ],
)
def test_no_key_stays_in_an_error_or_a_refusal(tmp_path: Path, secret: str) -> None:
    said = "x" * 470 + f" refused: {secret} was sent"
    failed = read_one(tmp_path, output=NO_OUTPUT, error={"message": said}).verdict
    blocked = read_one(tmp_path, output=an_output("", "content_filter", error=said)).verdict
    for text in (failed.call_errors[0].message, defined(blocked.completion).refusal or ""):
        assert "[key]"[:3] in text
        assert secret.removesuffix("@db.example")[-8:] not in text


def test_an_error_after_the_answer_leaves_the_answer(tmp_path: Path) -> None:
    verdict = read_one(tmp_path, error={"message": "scorer"}, completed_at=None).verdict
    assert verdict.outcome is Outcome.BLOCK
    assert verdict.created_at is None
    (error,) = verdict.call_errors
    assert error.at == datetime(2026, 2, 5, 14, tzinfo=UTC)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_of_a_sample_written_twice_the_last_counts(tmp_path: Path) -> None:
    log = write_log(tmp_path / "a.eval", a_sample())
    with zipfile.ZipFile(log, "a") as archive:
        archive.writestr("samples/1_epoch_1.json", json.dumps(a_sample(epoch=9)))
    assert [each.epoch for each in read_recordings(log)] == [9]


def message_of(log: Path) -> str:
    with pytest.raises(DatasetError) as caught:
        list(read_recordings(log))
    assert caught.value.source.startswith(str(log))
    return str(caught.value).removeprefix(str(log))


@pytest.mark.parametrize(("changes", "message"), lines_of("refused_inspect_samples.jsonl"))
def test_a_wrong_sample_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    log = write_log(tmp_path / "a.eval", a_sample(), a_sample(**changes))
    assert message_of(log).startswith(f", samples/2_epoch_1.json, {message}")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"completed_at": "2026-02-05T10:00:00"}, "field 'created_at': must carry a time zone"),
        ({"total_time": -1}, "field 'total_ms': Expected `float` >= 0.0"),
        ({"metadata": {"aegish_dist_cost_usd": "-1"}}, "field 'cost_usd': must be from 0 to"),
        ({"metadata": {"aegish_dist_replaced": [1]}}, "field 'aegish_dist_replaced': must be a l"),
    ],
)
def test_a_wrong_fact_of_an_exported_log_is_named(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    ours = {"eval": HEADER["eval"] | {"metadata": {"aegish_dist_export": 1}}}
    samples = {
        "samples/a_epoch_2.json": a_sample(input="ls", target="harmless", metadata={}) | changes
    }
    log = write_archive(tmp_path / "a.eval", {"header.json": ours, **samples})
    assert message_of(log).startswith(f", samples/a_epoch_2.json, {message}")


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "a.eval"
    assert message_of(log) == ": cannot be read: No such file or directory"
    log.write_text("{}")
    assert message_of(log).startswith(": is not a complete zip archive")
    log.write_bytes(write_log(tmp_path / "b.eval", a_sample()).read_bytes()[:-30])
    assert message_of(log).startswith(": is not a complete zip archive")
    with zipfile.ZipFile(log, "w") as archive:
        archive.writestr("samples/1_epoch_1.json", json.dumps(a_sample()))
    assert message_of(log) == ": has no header; is it a log of Inspect AI?"
    write_log(log)
    assert message_of(log) == ": holds no samples"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"{", ", line 1: is not valid JSON"),
        (b"[]", ": Expected `object`, got `array`"),
        (b"\xff", ": is not UTF-8"),
    ],
)
def test_a_sample_that_is_no_json_object_is_refused(
    tmp_path: Path, raw: bytes, message: str
) -> None:
    log = write_archive(tmp_path / "a.eval", {"samples/x.json": raw})
    assert message_of(log).startswith(f", samples/x.json{message}")


def test_damaged_and_unreadable_members_are_refused(tmp_path: Path) -> None:
    log = write_archive(tmp_path / "a.eval", {"samples/x.json": a_sample()})
    raw = log.read_bytes()
    entry = raw.rindex(b"PK\x01\x02")
    encrypted, unknown = bytearray(raw), bytearray(raw)
    encrypted[entry + 8] |= 1
    unknown[entry + 10] = 99
    log.write_bytes(raw.replace(b"alpine -F", b"alpine -G"))
    assert message_of(log) == ", samples/x.json: is damaged"
    log.write_bytes(encrypted)
    assert message_of(log) == ", samples/x.json: is encrypted"
    log.write_bytes(unknown)
    assert "is compressed by method 99" in message_of(log)


LONG = "echo " + "x" * 3000


def zstandard(raw: bytes, per_frame: int | None = None) -> bytes:
    """Compress as Inspect AI does: a frame for each so many bytes."""
    zstd = import_module("backports.zstd" if sys.version_info < (3, 14) else "compression.zstd")
    size = per_frame or len(raw)
    return b"".join(zstd.compress(raw[at : at + size]) for at in range(0, len(raw), size))


@pytest.mark.parametrize("per_frame", [None, 100, 1])
def test_zstandard_is_read_in_any_number_of_frames(tmp_path: Path, per_frame: int | None) -> None:
    sample = json.dumps(a_sample()).encode()
    plain = write_archive(tmp_path / "a.eval", {"samples/a_epoch_2.json": sample})
    compress = partial(zstandard, per_frame=per_frame)
    packed = write_archive(tmp_path / "b.eval", {"samples/a_epoch_2.json": sample}, 93, compress)
    assert list(read_recordings(packed)) == list(read_recordings(plain))


def test_too_many_frames_and_damaged_ones_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = {"samples/a_epoch_2.json": a_sample()}
    log = write_archive(tmp_path / "a.eval", member, 93, lambda raw: zstandard(raw, 100))
    monkeypatch.setattr(inspect_reader, "MAX_FRAMES", 3)
    assert message_of(log) == ", samples/a_epoch_2.json: has more than 3 frames"
    write_archive(log, member, 93, lambda raw: zstandard(raw)[:-5])
    assert message_of(log) == ", header.json: is damaged"
    write_archive(log, member, 93, lambda raw: b"no frame at all" + raw)
    assert message_of(log) == ", header.json: is damaged"


def test_a_sample_may_be_a_folder(tmp_path: Path) -> None:
    conversation = [
        {"role": "system", "content": "attachment://0"},
        {"role": "user", "content": [{"type": "text", "text": "attachment://2"}]},
    ]
    gone = an_output("attachment://gone")
    whole = a_sample(id="a/b", input=f"Validate this command: {LONG}", output=gone)
    shell = whole | {"input": conversation, "output": an_output("attachment://3")}
    metadata = shell.pop("metadata")
    folder = "samples/a/b_epoch_2"
    members = {
        "samples/1_epoch_1.json": a_sample(),
        f"{folder}/sample.json": shell,
        f"{folder}/metadata.json": metadata,
        f"{folder}/skeleton.json": {},
        f"{folder}/messages/0.json": [],
        f"{folder}/events/0.json": b"not read",
        f"{folder}/events/stats.json": b"not read",
        f"{folder}/attachments/2.json": [f"Validate this command: {LONG}", ANSWER],
        f"{folder}/attachments/0.json": ["You judge.", "more"],
        "samples/a/b_epoch_3.json": whole,
    }
    log = write_archive(tmp_path / "a.eval", members)
    first, chunked, monolith = read_recordings(log)
    assert first.sample.command == "alpine -F /etc/shadow"
    assert chunked.sample == monolith.sample
    assert chunked.sample.command == LONG
    assert chunked.sample.metadata == monolith.sample.metadata
    assert defined(chunked.verdict.completion).text == ANSWER
    assert defined(monolith.verdict.completion).text == "attachment://gone"


def test_attachments_of_one_member_are_found_by_their_hash(tmp_path: Path) -> None:
    sample = a_sample(
        input=[{"role": "user", "content": "attachment://8c95"}], attachments={"8c95": LONG}
    )
    (recording,) = read_recordings(write_log(tmp_path / "a.eval", sample))
    assert recording.sample.command == LONG


def test_folders_are_bounded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = "samples/a_epoch_2"
    shell = a_sample(input=[{"role": "user", "content": "attachment://0"}])
    texts = {f"{folder}/attachments/{n}.json": ["x" * 4000] for n in range(5)}
    log = write_archive(tmp_path / "a.eval", {f"{folder}/sample.json": shell, **texts})
    monkeypatch.setattr(inspect_reader, "MAX_MEMBER_BYTES", 10_000)
    assert message_of(log).startswith(f", {folder}/attachments/2.json: is larger than")
    broken = {f"{folder}/sample.json": shell, f"{folder}/attachments/0.json": {}}
    log = write_archive(tmp_path / "a.eval", broken)
    assert message_of(log) == f", {folder}/attachments/0.json: Expected `array`, got `object`"


READ = """
import resource, sys
from functools import partial
from importlib import import_module
from pathlib import Path
from aegish_dist.errors import DatasetError
from aegish_dist.interchange.verdict_files import read_rows
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    list(read_rows(Path(sys.argv[1])))
except DatasetError as error:
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print((after - before) // 1024, error)
"""


@pytest.mark.parametrize(
    ("method", "compress", "message"),
    [
        (12, bz2.compress, "is compressed by method 12"),
        (14, partial(lzma.compress, preset=0), "is compressed by method 14"),
        (8, deflated, "is larger than"),
        (93, zstandard, "is larger than"),
        (0, bytes, "is larger than"),
    ],
)
def test_no_bomb_takes_much_memory(
    tmp_path: Path, method: int, compress: Callable[[bytes], bytes], message: str
) -> None:
    log = write_archive(tmp_path / "a.eval", {})
    with zipfile.ZipFile(log, "a") as archive:
        add_member(archive, "samples/a_epoch_1.json", bytes(200 * 10**6), method, compress)
    done = subprocess.run(
        [sys.executable, "-c", READ, log], capture_output=True, text=True, check=True
    )
    mebibytes, _, problem = done.stdout.partition(" ")
    assert message in problem
    assert int(mebibytes) < 160


@pytest.mark.parametrize("at", [0, 4, 18, 22, 26, 28])
def test_forged_headers_are_refused(tmp_path: Path, at: int) -> None:
    log = write_archive(tmp_path / "a.eval", {"samples/a_epoch_1.json": a_sample()})
    raw = bytearray(log.read_bytes())
    raw[at : at + 2] = b"\xff\xff"
    log.write_bytes(raw)
    try:
        assert len(list(read_recordings(log))) == 1
    except DatasetError as error:
        assert "\n" not in str(error)  # noqa: PT017
