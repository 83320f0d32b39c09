"""One chunk of a file to rows for the store: the work of one process among several."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from aegish_dist.core.model import Price, cost_usd
from aegish_dist.core.verdict_record import VerdictRecord, usage_of
from aegish_dist.db.verdict_copy import copy_line
from aegish_dist.interchange.reading import Chunk, ChunkReader
from aegish_dist.interchange.record import About

PriceOf = Callable[[str], Price | None]
"""Returns the price of a model; to be copied into other processes."""


@dataclass(slots=True)
class Rendered:
    """A chunk as rows that lack the keys, which only the store can give."""

    models: dict[str, int] = field(default_factory=dict)
    simulated: set[str] = field(default_factory=set)
    """Models of which an answer came from the simulator."""
    reader: int = field(default_factory=os.getpid)
    """The process, which numbers the samples it meets from 0 on, over all its chunks."""
    items: list[About] = field(default_factory=list)
    """The samples that it has not met before."""
    model_of: list[int] = field(default_factory=list)
    """Of each row the position of its model."""
    sample_of: list[int] = field(default_factory=list)
    """Of each row the number of its sample."""
    lines: bytes = b""
    """Of each row the rest, as a line of COPY; in one, which crosses to another process fast."""
    failed: dict[int, VerdictRecord] = field(default_factory=dict)
    epochs: int = 0
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

    def render(self, chunk: Chunk) -> Rendered:
        """Read a chunk.

        Raises:
            DatasetError: A record is wrong; names file, line and field.
        """
        rendered = Rendered()
        lines: list[str] = []
        for record, about, negative_time in self._reader.read(chunk):
            model = record.model
            rendered.model_of.append(rendered.models.setdefault(model, len(rendered.models)))
            rendered.sample_of.append(self._number(rendered, about))
            if record.simulated:
                rendered.simulated.add(model)
            rendered.epochs = max(rendered.epochs, record.epoch)
            rendered.negative_times += negative_time
            if record.call_errors:
                rendered.failed[len(lines)] = record
            if self._price_of is not None:
                self._add_cost(record, self._price_of)
            lines.append(copy_line(record))
        rendered.lines = "".join(lines).encode()
        return rendered

    def _number(self, rendered: Rendered, about: About) -> int:
        number = self._numbers.get(about[:2])
        if number is None:
            number = self._numbers[about[:2]] = len(self._numbers)
            rendered.items.append(about)
        return number

    def _add_cost(self, record: VerdictRecord, price_of: PriceOf) -> None:
        if record.cost_usd is None and record.error_class is None:
            if record.model not in self._prices:
                self._prices[record.model] = price_of(record.model)
            record.cost_usd = cost_usd(usage_of(record), self._prices[record.model])
