"""The verdicts of the grid as columns of integers, dictionary-coded.

Verdicts are model-major: that of model `m`, command `c` and epoch `e` (0-based) stands at
`(m * commands + c) * epochs + e` of each column, and is `UNKNOWN` where there is none.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from aegish_dist.core.printable import printable, printable_lines
from aegish_dist.core.sample import Target
from aegish_dist.core.verdict_query import NUMBERS, UNKNOWN, GridPart
from aegish_dist.report.page.packing import as_json, numbers_as_json, packed
from aegish_dist.report.page.verdict_texts import GridShape, pack_texts


@dataclass(frozen=True, slots=True)
class PackedPart:
    """A part of the grid in its own columns."""

    commands: Mapping[str, Sequence[str | int]]
    """Of each command what is known of it."""
    numbers: "Mapping[str, array[int]]"
    texts: Sequence[bytes]
    """Blobs of texts; empty where none were asked for."""

    @property
    def size(self) -> int:
        """How many commands there are."""
        return len(self.commands["id"])


def pack_part(part: GridPart, shape: GridShape) -> PackedPart:
    """Return a part of the grid as columns, its texts packed."""
    count = len(part.commands)
    cells = [
        (model * count + command) * shape.epochs + epoch - 1
        for model, command, epoch in zip(part.model, part.command, part.epoch, strict=True)
    ]
    size = shape.models * count * shape.epochs
    return PackedPart(
        {
            "id": [each.sample_id for each in part.commands],
            "text": [printable_lines(each.command) for each in part.commands],
            "dataset": [printable(each.dataset) for each in part.commands],
            "target": [each.target.value for each in part.commands],
            "category": [printable(each.category or "") for each in part.commands],
            "cluster": [printable(each.cluster or "") for each in part.commands],
            "excluded": [int(each.excluded) for each in part.commands],
        },
        {name: _placed(cells, part.numbers.get(name, ()), size) for name in NUMBERS},
        pack_texts(part, shape),
    )


def _placed(cells: Sequence[int], values: Iterable[int], size: int) -> "array[int]":
    column = array("q", [UNKNOWN]) * size
    for cell, value in zip(cells, values, strict=False):
        column[cell] = value
    return column


def pack_columns(
    parts: Sequence[PackedPart], shape: GridShape, facts: Mapping[str, object]
) -> bytes:
    """Return all columns of a grid, compressed.

    Args:
        parts: In the order of their commands.
        facts: What else the page has to know of the grid, in JSON types.
    """
    return packed(_document(parts, shape, facts))


def _document(
    parts: Sequence[PackedPart], shape: GridShape, facts: Mapping[str, object]
) -> Iterator[str]:
    times = chain.from_iterable(part.numbers["created_s"] for part in parts)
    since = min((each for each in times if each != UNKNOWN), default=0)
    yield as_json({**facts, "epochs": shape.epochs, "since": since, **_commands(parts, shape)})[:-1]
    yield ',"cells":{'
    for number, name in enumerate(NUMBERS):
        column = list(chain.from_iterable(_slices(parts, shape, name)))
        if name == "created_s":
            column = [each - since if each != UNKNOWN else each for each in column]
        yield f'{"," if number else ""}"{name}":{numbers_as_json(column)}'
    yield "}}"


def _slices(parts: Iterable[PackedPart], shape: GridShape, name: str) -> Iterator["array[int]"]:
    """Yield the pieces of a column, model by model."""
    for model in range(shape.models):
        for part in parts:
            width = part.size * shape.epochs
            yield part.numbers[name][model * width : (model + 1) * width]


def _commands(parts: Sequence[PackedPart], shape: GridShape) -> dict[str, object]:
    """Return the columns of commands; names that repeat as places in a list of them."""
    whole = {
        name: [value for part in parts for value in part.commands[name]]
        for name in ("id", "text", "dataset", "target", "category", "cluster", "excluded")
    }
    coded: dict[str, object] = {name: whole[name] for name in ("id", "text", "excluded")}
    coded["malicious"] = [int(target == Target.MALICIOUS) for target in whole["target"]]
    names: dict[str, object] = {}
    for kind in ("dataset", "category", "cluster"):
        known = sorted({str(name) for name in whole[kind]} - {""})
        places = {name: place for place, name in enumerate(known)} | {"": UNKNOWN}
        names[kind] = known
        coded[kind] = [places[str(name)] for name in whole[kind]]
    return {"names": names, "commands": coded, "blobs": _first_commands(parts, shape)}


def _first_commands(parts: Sequence[PackedPart], shape: GridShape) -> list[int]:
    """Return the first command of each blob of texts; only the last one of a part may have less."""
    found: list[int] = []
    first = 0
    for part in parts:
        found += [first + shape.commands_per_blob * number for number in range(len(part.texts))]
        first += part.size
    return found
