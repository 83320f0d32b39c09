"""One chunk of a file to rows for the store: the work of one process among several."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from aegish_dist.core.completion import Usage
from aegish_dist.core.cost import Price, cost_usd
from aegish_dist.core.recording import CELLS, Cells
from aegish_dist.core.verdict import CallError
from aegish_dist.db.imports import NamedSample
from aegish_dist.db.verdict_copy import cells_line
from aegish_dist.errors import DatasetError
from aegish_dist.recordings.chunks import About, Chunk, ChunkReader

PriceOf = Callable[[str], Price | None]
"""Returns the price of a model; to be copied into other processes."""

EPOCH, GENERATION = CELLS.index("epoch"), CELLS.index("generation")
ERROR_CLASS, COST = CELLS.index("error_class"), CELLS.index("cost_usd")
TOKENS = slice(CELLS.index("input_tokens"), CELLS.index("cache_write_tokens") + 1)


@dataclass(frozen=True, slots=True)
class FailedAttempts:
    """What preceded a verdict."""

    row: int
    """Position of the verdict in the chunk."""
    epoch: int
    generation: int
    errors: tuple[CallError, ...]


@dataclass(slots=True)
class Rendered:
    """A chunk as rows that lack the keys, which only the store can give."""

    models: dict[str, int] = field(default_factory=dict)
    """Position of each."""
    simulated: set[str] = field(default_factory=set)
    """Models of which an answer came from the simulator."""
    reader: int = field(default_factory=os.getpid)
    """The process, which numbers the samples it meets from 0 on, over all its chunks."""
    items: list[NamedSample] = field(default_factory=list)
    """The samples that it has not met before."""
    model_of: list[int] = field(default_factory=list)
    """Of each row the position of its model."""
    sample_of: list[int] = field(default_factory=list)
    """Of each row the number of its sample."""
    lines: bytes = b""
    """Of each row the rest, as a line of COPY; in one, which crosses to another process fast."""
    failed: list[FailedAttempts] = field(default_factory=list)
    epochs: int = 0
    """The highest one."""
    negative_times: int = 0
    """Verdicts of which a time was below zero."""


class Renderer:
    """Turns chunks into rows."""

    def __init__(self, price_of: PriceOf | None) -> None:
        """Prepare; the prices are for answers that carry tokens but no cost."""
        self._price_of = price_of
        self._prices: dict[str, Price | None] = {}
        self._reader = ChunkReader()
        self._numbers: dict[tuple[str, str], int] = {}

    def render(self, chunk: Chunk) -> Rendered | None:
        """Read a chunk; None when a record is wrong, and `recordings.chunks.examine` tells which.

        An error itself would not survive the way from one process to another.
        """
        try:
            return self._render(chunk)
        except DatasetError:
            return None

    def _render(self, chunk: Chunk) -> Rendered:
        rendered = Rendered()
        lines: list[str] = []
        for row in self._reader.read(chunk):
            rendered.model_of.append(rendered.models.setdefault(row.model, len(rendered.models)))
            rendered.sample_of.append(self._number(rendered, row.about))
            if row.simulated:
                rendered.simulated.add(row.model)
            epoch = int(row.cells[EPOCH] or 1)
            rendered.epochs = max(rendered.epochs, epoch)
            rendered.negative_times += row.negative_time
            if row.errors:
                generation = int(row.cells[GENERATION] or 0)
                failed = FailedAttempts(len(lines), epoch, generation, row.errors)
                rendered.failed.append(failed)
            if self._price_of is not None:
                if row.model not in self._prices:
                    self._prices[row.model] = self._price_of(row.model)
                _add_cost(row.cells, self._prices[row.model])
            lines.append(cells_line(row.cells))
        rendered.lines = "".join(lines).encode()
        return rendered

    def _number(self, rendered: Rendered, about: About) -> int:
        number = self._numbers.get(about[:2])
        if number is None:
            number = self._numbers[about[:2]] = len(self._numbers)
            rendered.items.append(about)
        return number


def _add_cost(cells: Cells, price: Price | None) -> None:
    if cells[COST] is None and cells[ERROR_CLASS] is None:
        usage = Usage(*(None if tokens is None else int(tokens) for tokens in cells[TOKENS]))
        cost = cost_usd(usage, price)
        cells[COST] = None if cost is None else str(cost)
