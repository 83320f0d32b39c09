"""The archive that a log is: Zstandard, folders of samples, and bombs."""

import bz2
import json
import lzma
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from aegish_dist.errors import DatasetError
from aegish_dist.recordings import inspect_archive, read_recordings, zip_member
from tests.unit.recordings.test_inspect_log import ANSWER, HEADER, a_sample, an_output, write_log

LONG = "echo " + "x" * 3000


def zstandard(raw: bytes, per_frame: int | None = None) -> bytes:
    """Compress as Inspect AI does: a frame for each so many bytes."""
    zstd = import_module("backports.zstd" if sys.version_info < (3, 14) else "compression.zstd")
    size = per_frame or len(raw)
    return b"".join(zstd.compress(raw[at : at + size]) for at in range(0, len(raw), size))


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
            archive.writestr(name, compress(raw))
            info = archive.NameToInfo[name]
            info.compress_type, info.file_size, info.CRC = method, len(raw), zlib.crc32(raw)
    return path


def message_of(log: Path) -> str:
    with pytest.raises(DatasetError) as caught:
        list(read_recordings(log))
    return str(caught.value).removeprefix(str(log))


@pytest.mark.parametrize("per_frame", [None, 100, 1])
def test_zstandard_is_read_in_any_number_of_frames(tmp_path: Path, per_frame: int | None) -> None:
    """A sample gives the same, however its bytes are parted into frames."""
    sample = json.dumps(a_sample()).encode()
    plain = write_archive(tmp_path / "a.eval", {"samples/a_epoch_2.json": sample})
    packed = write_archive(
        tmp_path / "b.eval",
        {"samples/a_epoch_2.json": sample},
        93,
        lambda raw: zstandard(raw, per_frame),
    )
    assert list(read_recordings(packed)) == list(read_recordings(plain))


def test_too_many_frames_and_damaged_ones_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frames that give nothing are bounded in number, and what is cut off is noticed."""
    member = {"samples/a_epoch_2.json": a_sample()}
    log = write_archive(tmp_path / "a.eval", member, 93, lambda raw: zstandard(raw, 100))
    monkeypatch.setattr(zip_member, "MAX_FRAMES", 3)
    assert message_of(log) == ", samples/a_epoch_2.json: has more than 3 frames"
    write_archive(log, member, 93, lambda raw: zstandard(raw)[:-5])
    assert message_of(log) == ", header.json: is damaged"
    write_archive(log, member, 93, lambda raw: b"no frame at all" + raw)
    assert message_of(log) == ", header.json: is damaged"


def test_a_sample_may_be_a_folder(tmp_path: Path) -> None:
    """The parts of a sample are found in several members, long texts among the attachments."""
    conversation = [
        {"role": "system", "content": "attachment://0"},
        {"role": "user", "content": [{"type": "text", "text": "attachment://2"}]},
    ]
    whole = a_sample(
        id="a/b",
        input=f"Validate this command: {LONG}",
        output=an_output("attachment://gone"),
    )
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
    assert chunked.verdict.completion is not None
    assert chunked.verdict.completion.text == ANSWER
    assert monolith.verdict.completion is not None
    assert monolith.verdict.completion.text == "attachment://gone"


def test_attachments_of_one_member_are_found_by_their_hash(tmp_path: Path) -> None:
    """A sample in one member names its long texts otherwise."""
    sample = a_sample(
        input=[{"role": "user", "content": "attachment://8c95"}], attachments={"8c95": LONG}
    )
    (recording,) = read_recordings(write_log(tmp_path / "a.eval", sample))
    assert recording.sample.command == LONG


def test_folders_are_bounded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many attachments are no way around the cap of one member."""
    folder = "samples/a_epoch_2"
    shell = a_sample(input=[{"role": "user", "content": "attachment://0"}])
    texts = {f"{folder}/attachments/{n}.json": ["x" * 4000] for n in range(5)}
    log = write_archive(tmp_path / "a.eval", {f"{folder}/sample.json": shell, **texts})
    monkeypatch.setattr(inspect_archive, "MAX_MEMBER_BYTES", 10_000)
    assert message_of(log).startswith(f", {folder}/attachments/2.json: is larger than")
    broken = {f"{folder}/sample.json": shell, f"{folder}/attachments/0.json": {}}
    log = write_archive(tmp_path / "a.eval", broken)
    assert message_of(log) == f", {folder}/attachments/0.json: must be a list, not an object"


READ = """
import resource, sys
from functools import partial
from importlib import import_module
from pathlib import Path
from aegish_dist.errors import DatasetError
from aegish_dist.recordings import read_recordings
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    list(read_recordings(Path(sys.argv[1])))
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
    """Members of 200 MB cost no more than the cap twice, and one line says what is wrong."""
    bomb = {"samples/a_epoch_1.json": bytes(200 * 10**6)}
    log = tmp_path / "a.eval"
    with zipfile.ZipFile(log, "w") as archive:
        archive.writestr("header.json", json.dumps(HEADER))
        for name, raw in bomb.items():
            archive.writestr(name, compress(raw))
            info = archive.NameToInfo[name]
            info.compress_type, info.file_size, info.CRC = method, len(raw), zlib.crc32(raw)
    done = subprocess.run(
        [sys.executable, "-c", READ, log], capture_output=True, text=True, check=True
    )
    mebibytes, _, problem = done.stdout.partition(" ")
    assert message in problem
    assert int(mebibytes) < 160


@pytest.mark.parametrize("at", [0, 4, 18, 22, 26, 28])
def test_forged_headers_are_refused(tmp_path: Path, at: int) -> None:
    """Whatever a local header claims, the answer is one line."""
    log = write_archive(tmp_path / "a.eval", {"samples/a_epoch_1.json": a_sample()})
    raw = bytearray(log.read_bytes())
    raw[at : at + 2] = b"\xff\xff"
    log.write_bytes(raw)
    try:
        assert len(list(read_recordings(log))) == 1
    except DatasetError as error:
        assert "\n" not in str(error)  # noqa: PT017


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    """No password is asked for."""
    log = write_archive(tmp_path / "a.eval", {"samples/a_epoch_1.json": a_sample()})
    raw = bytearray(log.read_bytes())
    raw[raw.rindex(b"PK\x01\x02") + 8] |= 1
    log.write_bytes(raw)
    assert message_of(log) == ", samples/a_epoch_1.json: is encrypted"
