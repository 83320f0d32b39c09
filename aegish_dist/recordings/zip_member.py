"""One member of a zip archive, decompressed within a limit.

`zipfile` bounds what deflate gives at once, but not what bz2 and LZMA give (741 bytes of bz2 are
1.1 GB), and before Python 3.14 it knows no Zstandard, in which Inspect AI writes. Therefore it only
reads the directory here. Inspect AI never used the other two methods, so they are refused.
"""

import sys
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

from aegish_dist.errors import ConfigError

STORED, DEFLATED, ZSTANDARD = 0, 8, 93
"""Methods of compression, as the zip format numbers them."""
INPUT_BYTES = 2**14
OUTPUT_BYTES = 2**20
"""Decompressed at once at most."""
MAX_FRAMES = 1_000
"""Inspect AI begins a Zstandard frame every 200 MiB; empty ones cost time and give nothing."""
LOCAL_HEADER_BYTES = 30
ENCRYPTED = 0x1


def read_member(file: BinaryIO, info: zipfile.ZipInfo, max_bytes: int) -> bytes:
    """Read and decompress a member, never holding much more than the limit.

    Raises:
        ValueError: It is damaged, encrypted, too large or compressed in another way; says which.
        ConfigError: It takes a package that is not installed.
    """
    if info.flag_bits & ENCRYPTED:
        raise ValueError("is encrypted")
    pieces: list[bytes] = []
    size = checksum = 0
    for piece in _decompressed(_raw(file, info), info.compress_type):
        size += len(piece)
        if size > max_bytes:
            raise ValueError(f"is larger than {max_bytes} bytes")
        checksum = zlib.crc32(piece, checksum)
        pieces.append(piece)
    if checksum != info.CRC:
        raise ValueError("is damaged")
    return b"".join(pieces)


def _raw(file: BinaryIO, info: zipfile.ZipInfo) -> Iterator[bytes]:
    """Yield the compressed bytes; lengths of name and extra field may differ from the directory."""
    file.seek(max(info.header_offset, 0))
    header = file.read(LOCAL_HEADER_BYTES)
    if len(header) < LOCAL_HEADER_BYTES or not header.startswith(b"PK\x03\x04"):
        raise ValueError("is damaged")
    file.seek(int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little"), 1)
    left = info.compress_size
    while left > 0:
        chunk = file.read(min(left, INPUT_BYTES))
        if not chunk:
            raise ValueError("is damaged")
        left -= len(chunk)
        yield chunk


def _decompressed(chunks: Iterator[bytes], method: int) -> Iterator[bytes]:
    if method == STORED:
        return chunks
    if method == DEFLATED:
        return _inflated(chunks)
    if method == ZSTANDARD:
        return _unframed(chunks)
    raise ValueError(
        f"is compressed by method {method}, which Inspect AI does not use; rewrite the log with "
        "'inspect log convert'"
    )


def _inflated(chunks: Iterator[bytes]) -> Iterator[bytes]:
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        for chunk in chunks:
            rest = chunk
            while rest and not inflate.eof:
                yield inflate.decompress(rest, OUTPUT_BYTES)
                rest = inflate.unconsumed_tail
        yield inflate.flush()
    except zlib.error as error:
        raise ValueError("is damaged") from error


def _unframed(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Decompress Zstandard, which may come in several frames."""
    new_decoder, zstd_error = _zstandard()
    decoder, frames = new_decoder(), 1
    try:
        for chunk in chunks:
            rest = chunk
            while rest or not decoder.needs_input:
                if decoder.eof:
                    rest, decoder, frames = decoder.unused_data, new_decoder(), frames + 1
                    if frames > MAX_FRAMES:
                        raise ValueError(f"has more than {MAX_FRAMES} frames")
                    continue
                yield decoder.decompress(rest, OUTPUT_BYTES)
                rest = b""
    except zstd_error as error:
        raise ValueError("is damaged") from error


def _zstandard() -> tuple[Any, type[Exception]]:
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd  # noqa: PLC0415
        else:
            from backports import zstd  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            "logs compressed by Zstandard need a package: pip install backports.zstd"
        ) from error
    return zstd.ZstdDecompressor, zstd.ZstdError
