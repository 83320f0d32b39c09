"""Parts that the files of rule sets, targets and overlays share."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from aegish_dist.core.printable import printable
from aegish_dist.core.sample import MAX_LABEL_CHARS
from aegish_dist.errors import InputError, OpinionError
from aegish_dist.inputs.documents import parse_toml
from aegish_dist.inputs.files import read_text

MAX_FILE_BYTES = 64 * 2**20
"""Room for some hundred thousand corrections of labels."""

Version = Annotated[int, Meta(ge=1, le=2**31 - 1)]
LabelText = Annotated[str, Meta(min_length=1, max_length=MAX_LABEL_CHARS)]


class Named(Struct, kw_only=True):
    """The keys that every file has."""

    name: LabelText
    version: Version
    """1-based."""

    def __post_init__(self) -> None:
        """Refuse a name that cannot be shown as it stands."""
        if not self.name.strip() or printable(self.name) != self.name:
            raise InputError("must be of visible characters", field="name")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in errors of the body."""
    try:
        yield
    except InputError as error:
        what = f"{error}, not {error.found}" if error.found else str(error)
        raise OpinionError(f"{path}: {what}") from None


def read_document(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        InputError: It cannot be read, is no TOML, or holds a character that no store takes.
    """
    text = read_text(path, MAX_FILE_BYTES)
    content = parse_toml(text)
    if "\\u0000" in text or "\\U00000000" in text:
        _refuse_nul(content)
    return content


def _refuse_nul(content: dict[str, Any]) -> None:
    left: list[object] = [content]
    while left:
        match left.pop():
            case dict() as table:
                left.extend([*table, *table.values()])
            case list() as array:
                left.extend(array)
            case str() as text if "\0" in text:
                raise InputError("holds a NUL character")
