"""Instruments of the benchmarks: CPU time, memory, and a watch over the simulated provider."""

import resource
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import psutil
from msgspec import Struct, field

POLL_S = 0.02
POLLS_PER_MEMORY = 10
"""Walking the process table takes milliseconds; asking the simulator does not."""


def laid_out(text: str | None) -> str:
    """Return a docstring as a help text that keeps its lines: click would join them."""
    return "\n\n".join(f"\b\n{part}" for part in (text or "").strip().split("\n\n"))


def cpu_s(process: psutil.Process) -> float:
    """Return the CPU seconds of a process and its children, those that ended included."""
    own = process.cpu_times()
    total = own.user + own.system + own.children_user + own.children_system
    for child in process.children(True):
        try:
            times = child.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return float(total)


def ended_cpu_s() -> float:
    """Return the CPU seconds of the children of this process that ended, theirs included."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def memory_mb(processes: Iterable[psutil.Process]) -> float:
    """Return the resident memory of the largest of these processes, children added to it."""
    return max((_tree_bytes(process) for process in processes), default=0) / 1e6


def _tree_bytes(process: psutil.Process) -> int:
    total = 0
    try:
        for each in (process, *process.children(True)):
            total += each.memory_info().rss
    except psutil.NoSuchProcess:
        pass
    return total


class Watch(Struct):
    """Polls the simulated provider in a thread while something calls it; a context manager."""

    stats: Callable[[], dict[str, Any]]
    planned: int
    cpu: Callable[[], float]
    """Reads the CPU seconds of what is measured, once, at the first call."""
    memory: Callable[[], float]
    started: float = field(default_factory=time.monotonic)
    calls: list[tuple[float, int, int]] = field(default_factory=list)
    """From the first call on: seconds since the start, calls so far, calls in flight."""
    cpu_at_first_call_s: float = 0.0
    memory_mb: float = 0.0
    in_flight_max: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Start the clock."""
        self.started = time.monotonic()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop polling."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _poll(self) -> None:
        polls = 0
        while not self._ended.wait(POLL_S):
            stats = self.stats()
            total = sum(stats["requests"].values())
            if total:
                if not self.calls:
                    self.cpu_at_first_call_s = self.cpu()
                self.calls.append((time.monotonic() - self.started, total, stats["in_flight"]))
                self.in_flight_max = stats["in_flight_max"]
            if polls % POLLS_PER_MEMORY == 0:
                self.memory_mb = max(self.memory_mb, self.memory())
            polls += 1

    @property
    def first_call_s(self) -> float:
        """Seconds from the start to the first call."""
        return self.calls[0][0]

    @property
    def all_arrived(self) -> bool:
        """Whether as many calls have come as were planned."""
        return bool(self.calls) and self.calls[-1][1] >= self.planned

    @property
    def in_flight(self) -> float:
        """Calls in flight, median from the first call until the last one arrived."""
        return statistics.median(
            [held for _, total, held in self.calls if total < self.planned] or [self.in_flight_max]
        )

    @property
    def calls_per_s(self) -> float:
        """Calls per second while the middle half of them arrived."""
        low = next(each for each in self.calls if each[1] >= self.planned / 4)
        high = next(each for each in self.calls if each[1] >= self.planned * 3 / 4)
        return (high[1] - low[1]) / (high[0] - low[0]) if high[0] > low[0] else float("inf")


def medians(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the median of each column."""
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


def number(value: float) -> str:
    """Write a number with three significant digits."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def ratio(value: float, base: float) -> str:
    """Write how many times the base a value is; a dash when the base is zero."""
    return f"{number(value / base)} x" if base else "-"


def print_table(title: str, rows: Sequence[dict[str, str]]) -> None:
    """Print rows of the same columns as a Markdown table."""
    names = list(rows[0])
    cells = [names, *([row[name] for name in names] for row in rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(names))]
    lines = [
        "| " + " | ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|")
    print("", title, "", *lines, sep="\n", flush=True)
