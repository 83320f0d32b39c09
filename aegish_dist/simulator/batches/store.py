"""Batches and files of one dialect, by identifier and in the order of their creation."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

from aegish_dist.core.wire import WireFormat
from aegish_dist.simulator.batch_plan import BatchPlan, EndFault
from aegish_dist.simulator.batches.batch import (
    BatchProblem,
    NamedRequest,
    ResultLine,
    SimulatedBatch,
    StoredFile,
)
from aegish_dist.simulator.batches.lifecycle import BatchRunner
from aegish_dist.simulator.chance import draw
from aegish_dist.simulator.dialect import Call
from aegish_dist.simulator.exchange import encode
from aegish_dist.simulator.faults import pick

# Factor on the duration of a slow batch.
_SLOWER = 5
T = TypeVar("T", SimulatedBatch, StoredFile)


@dataclass(slots=True)
class Upload:
    """A file that arrives in parts."""

    name: str
    content: bytearray = field(default_factory=bytearray)
    """Its bytes so far."""


class BatchStore:
    """The batches and files of one dialect; they end with the process."""

    def __init__(self, wire: WireFormat, plan: BatchPlan, runner: BatchRunner, seed: int) -> None:
        self.batches: dict[str, SimulatedBatch] = {}
        self.files: dict[str, StoredFile] = {}
        self.uploads: dict[str, Upload] = {}
        self._wire = wire
        self._plan = plan
        self._runner = runner
        self._seed = seed
        self._serial = count(1)
        self._numbers = count()

    def add_file(self, name: str, purpose: str, content: bytes) -> StoredFile:
        """Keep a file.

        Args:
            content: Its bytes.
        """
        file = StoredFile(self._new_id("file"), name, purpose, content, time.time())
        self.files[file.id] = file
        return file

    def begin_upload(self, name: str) -> str:
        """Begin to take a file in parts, and return the identifier of the upload."""
        id = self._new_id("upload")
        self.uploads[id] = Upload(name)
        return id

    def create(
        self,
        source: Iterator[NamedRequest | BatchProblem],
        facts: dict[str, Any],
        at_end: Callable[[SimulatedBatch], None] = lambda _: None,
    ) -> SimulatedBatch:
        """Create a batch and begin to answer it.

        Args:
            at_end: Called just before it counts as ended, to leave its files.
        """
        id, now_s = self._new_id("batch"), time.time()
        draws = draw(self._seed, "batch end", self._wire, str(next(self._numbers)))
        fault = pick(self._plan.ends, draws.luck)
        duration_s = self._plan.duration.at(draws.latency) * (
            _SLOWER if fault is EndFault.SLOW else 1
        )
        batch = SimulatedBatch(id, self._wire, now_s, now_s + duration_s, source, fault)
        batch.facts = facts
        if fault in (EndFault.EXPIRED, EndFault.CANCELLED):
            batch.limit = draws.length
        self.batches[id] = batch
        self._runner.start(batch, at_end)
        return batch

    def listed(self) -> list[SimulatedBatch]:
        """Return the batches that a list shows, oldest first."""
        known_s = time.time() - self._plan.list_lag_s
        return [batch for batch in self.batches.values() if batch.created_s <= known_s]

    def remove(self, batch: SimulatedBatch) -> None:
        """Forget a batch and the files that it left."""
        del self.batches[batch.id]
        for id in batch.files.values():
            self.files.pop(id, None)

    def _new_id(self, kind: str) -> str:
        """Return 24 hexadecimal digits; those of another seed or dialect differ."""
        luck = draw(self._seed, "id", self._wire, kind, str(serial := next(self._serial))).luck
        return f"{int(luck * 2**48):012x}{serial:012x}"


def page(
    items: Iterable[T], limit: int, *, after: str = "", before: str = ""
) -> tuple[list[T], bool]:
    """Return one page of a list, newest first, and whether another follows.

    Args:
        items: Batches or files, oldest first.
        after: Identifier after which the page begins; empty for the first page.
        before: Identifier before which it ends, which is followed by newer ones; empty for none.
    """
    newest = list(items)[::-1]
    places = {item.id: place for place, item in enumerate(newest)}
    first, end = places.get(after, -1) + 1, places.get(before, len(newest))
    if before:
        return newest[max(first, end - limit) : end], end - limit > first
    return newest[first : first + limit], end > first + limit


def written(
    batch: SimulatedBatch,
    body: Callable[[ResultLine, Call], dict[str, Any]],
    kept: Callable[[ResultLine], bool] = lambda _: True,
) -> bytes:
    """Return the bytes of results, one JSON object a line."""
    content = bytearray()
    for place, line in enumerate(batch.lines):
        if kept(line):
            entry = encode(body(line, Call(f"{batch.id}{place:06x}", batch.created_s))).encode()
            content += (entry[: len(entry) // 2] if line.broken else entry) + b"\n"
    return bytes(content)
