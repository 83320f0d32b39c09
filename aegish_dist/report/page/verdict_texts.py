"""The texts of the grid, packed in blobs of some commands each.

A page unpacks a blob when one of its commands is opened.

Within a blob verdicts are command-major: `(command * models + model) * epochs + epoch`, all
0-based. Columns hold places in the blob's list of texts.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from aegish_dist.core.printable import printable_lines
from aegish_dist.core.verdict_query import TEXTS, UNKNOWN, GridPart
from aegish_dist.report.page.packing import as_json, packed


@dataclass(frozen=True, slots=True)
class GridShape:
    """How many there are of what."""

    models: int
    epochs: int
    commands_per_blob: int


def pack_texts(part: GridPart, shape: GridShape) -> list[bytes]:
    """Return the texts of a part, so many commands in each blob.

    Returns:
        No blob where no texts were asked for.
    """
    if not part.texts:
        return []
    cells = [
        (command * shape.models + model) * shape.epochs + epoch - 1
        for model, command, epoch in zip(part.model, part.command, part.epoch, strict=True)
    ]
    size = shape.models * shape.epochs * shape.commands_per_blob
    blobs: list[list[tuple[int, int]]] = [
        [] for _ in range(-(-len(part.commands) // shape.commands_per_blob))
    ]
    for cell, verdict in sorted(zip(cells, range(len(cells)), strict=True)):
        blobs[cell // size].append((cell % size, verdict))
    return [packed([as_json(_blob(part, places))]) for places in blobs]


class _Texts:
    """Gives each text of a blob a place."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def places(self, texts: Iterable[str | None]) -> list[int]:
        known = self._places
        return [UNKNOWN if text is None else known.setdefault(text, len(known)) for text in texts]

    def shown(self) -> list[str]:
        return [printable_lines(text) for text in self._places]


def _blob(part: GridPart, places: Sequence[tuple[int, int]]) -> dict[str, object]:
    texts = _Texts()
    cell_of = {verdict: cell for cell, verdict in places}
    columns = {
        name: texts.places([part.texts[name][verdict] for _, verdict in places]) for name in TEXTS
    }
    return {
        "at": [cell for cell, _ in places],
        **columns,
        "lengths": {
            str(cell): part.lengths[verdict] for cell, verdict in places if verdict in part.lengths
        },
        "attempts": list(_attempts(part, cell_of, texts)),
        "texts": texts.shown(),
    }


def _attempts(
    part: GridPart, cell_of: dict[int, int], texts: _Texts
) -> Iterator[list[int | float | str | None]]:
    for each in part.attempts:
        if each.verdict in cell_of:
            yield [
                cell_of[each.verdict], each.attempt, each.error_class, each.status,
                each.retry_after_s, *texts.places([each.message]), each.at_s,
            ]  # fmt: skip
