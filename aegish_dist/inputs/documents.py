"""Input files of a limited size, and the TOML, JSON or Parquet in them, read without trust.

A kilobyte of Parquet may hold sixty million equal rows, or one text of 300 MB a million times over:
sizes in the footer are checked first, and texts are measured as dictionaries.
"""

import errno
import json
import os
import stat
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from aegish_dist.core.text import clean_json
from aegish_dist.errors import ConfigError, DatasetError, InputError
from aegish_dist.inputs.checking import Location


def open_input(path: Path) -> BufferedReader:
    """Open a regular file to read, or raise an OSError: a FIFO would block, a device never end."""
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
    """Read a whole regular file; an OSError says if it is none or larger."""
    with open_input(path) as file:
        # One byte more tells that the file is larger.
        raw = file.read(max_bytes + 1)
    if len(raw) > max_bytes:
        problem = f"larger than {max_bytes / 2**20:.3g} MiB, the most that is read of such a file"
        raise OSError(errno.EFBIG, problem, str(path))
    return raw


def require_within(folder: Path, file: Path) -> None:
    """Refuse a file that a symbolic link leads to: a checkout of strangers may name any."""
    if not file.resolve().is_relative_to(folder.resolve()):
        raise DatasetError("leads out of the folder by a symbolic link", source=str(file))


def read_text(path: Path, max_bytes: int) -> str:
    """Read a whole UTF-8 file, without its byte order mark."""
    try:
        raw = read_input(path, max_bytes)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"cannot be read: {reason}") from None

    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError("is not UTF-8; save it as UTF-8", line=line) from None


def placed(error: InputError, path: Path | None) -> InputError:
    """Return the error with the first line of a TOML file that holds the text at fault."""
    if not error.text or path is None:
        return error
    in_basic_string = error.text.replace("\\", "\\\\")
    with suppress(OSError, UnicodeDecodeError):  # changed since it was read
        for number, line in enumerate(path.read_text("utf-8").split("\n"), start=1):
            if error.text in line or in_basic_string in line:
                return InputError(error.what, line=number, field=error.field)

    return error


@contextmanager
def under(heading: str) -> Iterator[None]:
    """Name the table of a file in errors of the body."""
    try:
        yield
    except InputError as error:
        raise error.under(heading) from None


def numbered_lines(path: Path, max_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines with their numbers from 1 on; blank ones are passed over."""
    number = 0
    with Location(str(path)), open_input(path) as file:
        while block := file.read(BLOCK_BYTES):
            if not block.endswith(b"\n"):
                block += file.readline(max_bytes + 1)
            is_utf8 = _is_utf8(block)
            for line in block.removesuffix(b"\n").split(b"\n"):
                number += 1
                if len(line) > max_bytes:
                    raise InputError(f"is longer than {max_bytes} bytes", line=number)
                # Also where the decoder passes over a key.
                if not (is_utf8 or _is_utf8(line)):
                    raise InputError("is not UTF-8", line=number)
                if line.strip():
                    yield number, line


def _is_utf8(data: bytes) -> bool:
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False


BLOCK_BYTES = 2**18  # whose lines stay in a processor's cache
MAX_INTEGER = 2**63  # TOML asks for 64 bits; Python's `str` refuses longer integers


def parse_toml(text: str, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """Parse a TOML document; an InputError also of deep nesting and integers above 64 bits."""
    try:
        content = tomllib.loads(text, parse_float=parse_float)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"is not valid TOML: {error}") from None
    except RecursionError:
        raise InputError("is nested too deeply") from None
    except ValueError:  # from int, with advice about the interpreter
        raise InputError("holds a number with thousands of digits") from None

    numbers = (each for each in parts_of(content) if isinstance(each, int))
    if any(not -MAX_INTEGER <= number < MAX_INTEGER for number in numbers):
        raise InputError("holds an integer of more than 64 bits")
    return content


def parts_of(content: object) -> Iterator[object]:
    """Yield the keys and values of a document, however deeply it is nested."""
    left = [content]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            left += [*part, *part.values()]
        elif isinstance(part, list):
            left += part
        else:
            yield part


def parse_json(text: str | bytes, parse_float: Callable[[str], Any] | None = None) -> object:
    """Parse a JSON document, texts cleaned; `NaN` and `Infinity` are numbers.

    An InputError also of deep nesting and of numbers of thousands of digits.
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


MAX_FOOTER_BYTES = 16 * 2**20  # its decoded structures take several times that
MAX_FIXED_BYTES = 2**20  # of a value whose column states its length


class ParquetLimits(Struct, frozen=True):
    rows: int
    group_rows: int  # lists in it may hold as many values
    group_bytes: int
    batch_bytes: int


@contextmanager
def open_parquet(
    path: Path,
    limits: ParquetLimits,
    batch_rows: int,
) -> Iterator[Iterator[Any]]:
    """Give the rows of a Parquet file in batches; words errors of the body."""
    arrow = load_pyarrow()
    limited = {"thrift_string_size_limit": MAX_FOOTER_BYTES}
    try:
        open_input(path).close()  # refuses what is no regular file
        with arrow.parquet.ParquetFile(path, **limited) as file:
            metadata = file.metadata
        _check(metadata, limits, str(path))
        texts = list(_texts(metadata.schema, str(path)))
        with arrow.parquet.ParquetFile(path, read_dictionary=texts, **limited) as file:
            yield _batches(file, str(path), limits, batch_rows)
    except (OSError, ValueError, arrow.ArrowException) as error:
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise DatasetError(f"cannot be read as Parquet: {reason}", source=str(path)) from error


def _batches(
    file: Any,
    source: str,
    limits: ParquetLimits,
    batch_rows: int,
) -> Iterator[Any]:
    """Yield the rows in batches of limited bytes, decoded, texts as plain columns again."""
    arrow = load_pyarrow()
    # One group at a time: a batch over several holds all of them, however long their texts are.
    for group in range(file.num_row_groups):
        for batch in file.iter_batches(batch_rows, [group], use_threads=False):
            size = sum(_decoded_bytes(arrow, column) for column in batch.columns)
            if size > limits.batch_bytes:
                raise _exceeds(source, f"{batch_rows:,} rows", size, limits.batch_bytes)
            columns = [
                column.dictionary_decode() if arrow.types.is_dictionary(column.type) else column
                for column in batch.columns
            ]
            yield arrow.RecordBatch.from_arrays(columns, names=batch.schema.names)


def load_pyarrow() -> Any:
    """Import pyarrow, 120 MB that most users never need, which is an extra."""
    try:
        import pyarrow  # noqa: PLC0415
        import pyarrow.compute  # noqa: PLC0415
        import pyarrow.csv  # noqa: PLC0415
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            "Parquet needs pyarrow: pip install 'aegish-dist[parquet]', or use .jsonl"
        ) from error

    return pyarrow


def _check(metadata: Any, limits: ParquetLimits, source: str) -> None:
    if metadata.num_rows > limits.rows:
        problem = f"has {metadata.num_rows:,} rows, at most {limits.rows:,} are read"
        raise DatasetError(problem, source=source)

    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        values = group.num_rows
        size = 0
        for index in range(group.num_columns):
            column = group.column(index)
            values = max(values, column.num_values)
            size += column.total_uncompressed_size
        if values > limits.group_rows:
            problem = f"has a group of {values:,} rows, at most {limits.group_rows:,} are read"
            raise DatasetError(f"{problem}; write smaller row groups", source=source)
        if size > limits.group_bytes:
            raise _exceeds(source, "a group of rows", size, limits.group_bytes)


def _exceeds(
    source: str,
    what: str,
    size: int,
    most: int,
) -> DatasetError:
    problem = f"{what} take {size / 2**20:,.0f} MiB, at most {most / 2**20:,.0f} MiB are read"
    return DatasetError(problem, source=source)


def _texts(schema: Any, source: str) -> Iterator[str]:
    """Yield the paths of the columns whose values may be of any length."""
    for index in range(len(schema)):
        column = schema.column(index)
        if column.physical_type == "BYTE_ARRAY" and column.logical_type.type != "DECIMAL":
            yield column.path
        elif column.length > MAX_FIXED_BYTES:
            raise _exceeds(source, f"values of {column.name!a}", column.length, MAX_FIXED_BYTES)


def _decoded_bytes(arrow: Any, column: Any) -> int:
    types = arrow.types
    if types.is_dictionary(column.type):
        lengths = arrow.compute.binary_length(column.dictionary)
        return int(arrow.compute.sum(lengths.take(column.indices)).as_py() or 0)

    if types.is_map(column.type):
        parts = [column.keys, column.items]
    elif types.is_struct(column.type):
        parts = column.flatten()
    elif types.is_nested(column.type):
        parts = [column.flatten()]
    else:
        return int(column.nbytes)

    return sum(_decoded_bytes(arrow, part) for part in parts)
