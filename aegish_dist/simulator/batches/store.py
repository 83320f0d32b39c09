"""Batches and files of one dialect, by identifier and in the order of their creation."""

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any, TypeVar

from aegish_dist.core.wire import WireFormat
from aegish_dist.simulator.batch_plan import BatchPlan
from aegish_dist.simulator.batches.batch import (
    BatchProblem,
    NamedRequest,
    SimulatedBatch,
    StoredFile,
)
from aegish_dist.simulator.batches.lifecycle import BatchRunner
from aegish_dist.simulator.chance import draw

T = TypeVar("T", SimulatedBatch, StoredFile)


class BatchStore:
    """The batches and files of one dialect; they end with the process."""

    def __init__(self, wire: WireFormat, plan: BatchPlan, runner: BatchRunner, seed: int) -> None:
        self.batches: dict[str, SimulatedBatch] = {}
        self.files: dict[str, StoredFile] = {}
        self._wire = wire
        self._plan = plan
        self._runner = runner
        self._seed = seed
        self._serial = count(1)

    def add_file(self, name: str, purpose: str, content: bytes) -> StoredFile:
        """Keep a file.

        Args:
            name: Name, by the client.
            purpose: Its use, in the dialect's word.
            content: Its bytes.
        """
        file = StoredFile(self._new_id("file"), name, purpose, content, time.time())
        self.files[file.id] = file
        return file

    def create(
        self,
        source: Iterator[NamedRequest | BatchProblem],
        facts: dict[str, Any],
        at_end: Callable[[SimulatedBatch], None] = lambda _: None,
    ) -> SimulatedBatch:
        """Create a batch and begin to answer it.

        Args:
            source: Its requests as they are read.
            facts: Facts that its dialect repeats in each description.
            at_end: Called just before it counts as ended, to leave its files.
        """
        id, now_s = self._new_id("batch"), time.time()
        number = str(len(self.batches))
        chance = draw(self._seed, "batch duration", self._wire, number).latency
        duration_s = self._plan.duration.at(chance)
        batch = SimulatedBatch(id, self._wire, now_s, now_s + duration_s, source, facts)
        self.batches[id] = batch
        self._runner.start(batch, at_end)
        return batch

    def _new_id(self, kind: str) -> str:
        """Return 24 hexadecimal digits; those of another seed or dialect differ."""
        luck = draw(self._seed, "id", self._wire, kind, str(serial := next(self._serial))).luck
        return f"{int(luck * 2**48):012x}{serial:012x}"


def page(items: Iterable[T], after: str | None, limit: int) -> tuple[list[T], bool]:
    """Return one page of a list, newest first, and whether another follows.

    Args:
        items: Batches or files, oldest first.
        after: Identifier after which the page begins; None for the first page.
        limit: Most items of the page.
    """
    newest = list(items)[::-1]
    places = [place for place, item in enumerate(newest) if item.id == after]
    first = places[0] + 1 if places else 0
    return newest[first : first + limit], len(newest) > first + limit
