"""Regular input files of a limited size, and the TOML and JSON in them, read without trust."""

import errno
import json
import os
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

from aegish_dist.core.text import clean_json
from aegish_dist.errors import InputError


def open_input(path: Path) -> BinaryIO:
    """Open a regular file to read.

    A FIFO would block until another process writes to it, and a device may never end.

    Raises:
        OSError: It cannot be read, or is no regular file; `strerror` says which.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file; write it to one first", str(path))
        return os.fdopen(descriptor, "rb")
    except OSError:
        os.close(descriptor)
        raise


def read_input(path: Path, max_bytes: int) -> bytes:
    """Read a whole regular file.

    Raises:
        OSError: It cannot be read, is no regular file or is larger; `strerror` says which.
    """
    with open_input(path) as file:
        raw = file.read(max_bytes + 1)
    if len(raw) > max_bytes:
        problem = f"larger than {max_bytes / 2**20:.3g} MiB, the most that is read of such a file"
        raise OSError(errno.EFBIG, problem, str(path))
    return raw


def read_text(path: Path, max_bytes: int) -> str:
    """Read a whole UTF-8 file, without its byte order mark.

    Raises:
        InputError: It cannot be read, is larger, or is not UTF-8; tells the line of the last.
    """
    try:
        raw = read_input(path, max_bytes)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}") from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError("is not UTF-8; save it as UTF-8", line=line) from None


MAX_INTEGER = 2**63
"""The specification of TOML asks for 64 bits; Python's `str` refuses longer integers."""


def parse_toml(text: str, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """Parse a TOML document.

    Args:
        parse_float: Makes a number of the digits of a decimal fraction.

    Raises:
        InputError: It is not TOML, is nested too deeply, or holds an integer of more than 64 bits.
    """
    try:
        content = tomllib.loads(text, parse_float=parse_float)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"is not valid TOML: {error}") from None
    except RecursionError:
        raise InputError("is nested too deeply") from None
    except ValueError:  # from int, with advice about the interpreter
        raise InputError("holds a number with thousands of digits") from None
    _require_64_bits(content)
    return content


def parse_json(text: str | bytes, parse_float: Callable[[str], Any] | None = None) -> object:
    """Parse a JSON document; `NaN` and `Infinity` are numbers, as Python writes them.

    Texts are cleaned: see `core.text`.

    Args:
        text: The document; bytes are UTF-8, with or without a byte order mark.
        parse_float: Makes a number of the digits of a decimal fraction; None makes floats.

    Raises:
        InputError: It is not JSON, is nested too deeply, or holds a number of thousands of digits.
    """
    try:
        text = text if isinstance(text, str) else text.decode("utf-8-sig")
        return cast(object, clean_json(text, json.loads(text, parse_float=parse_float)))
    except UnicodeDecodeError:
        raise InputError("is not UTF-8") from None
    except json.JSONDecodeError as error:
        problem = f"is not valid JSON: {error.msg} at character {error.colno}"
        raise InputError(problem, line=error.lineno) from None
    except RecursionError:
        raise InputError("is nested too deeply") from None
    except ValueError:  # from int, with advice about the interpreter
        raise InputError("holds a number with thousands of digits") from None


def _require_64_bits(content: dict[str, Any]) -> None:
    left: list[object] = [content]
    while left:
        match left.pop():
            case dict() as table:
                left.extend(table.values())
            case list() as array:
                left.extend(array)
            case int() as number if not -MAX_INTEGER <= number < MAX_INTEGER:
                raise InputError("holds an integer of more than 64 bits")
