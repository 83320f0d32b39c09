"""Every fault many times, each at another moment of a run, and the table of what became of it.

Run with `python benchmarks/fault_table.py --repeats 20 --jobs 4 -o FILE`, the table in
docs/reference; needs redis-server and rabbitmq-server. The faults are those of `tests/chaos`. What
was measured is kept beside the table, line by line, and not measured again: delete the lines of a
fault to repeat it.
"""

import json
import os
import platform
import statistics
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import UTC, datetime
from multiprocessing import get_context
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import click
from measuring import laid_out
from msgspec.structs import asdict

from tests.chaos.drill import Drill, Result
from tests.chaos.faults import FAULTS
from tests.chaos.fleet import Host

HEADER = """# Faults, and what became of a run

Each fault struck a run of 120 items (two models, calls of 0.2 to 0.5 s, two workers with 10 calls
each; a row says where that differs) again and again, each time at another moment, which was drawn
from the first six tenths of its calls. As in Jepsen's set test an item is *attempted* when
it is enqueued, *acknowledged* when a reader has seen its verdict, and *lost* when it was
acknowledged and is gone, or never got a verdict. *Doubled* are verdicts beyond the first of an
item. *Paid twice* are calls beyond the first of a command, of those that the provider worked on; in
parentheses the calls begun and not stored at each blow, which is what nothing can avoid.
*Errors* are items whose verdict says that their call failed. *Recovered after*: from the end of the
fault until every item had its verdict; the rest of the run is part of it, as the first row shows.

Every run went on by itself, without a command, but where the row names one: after the loss of all
messages (`resume` enqueues what is missing), or not to wait for the next probe of a parked model.
"""
COLUMNS = (
    "fault", "times", "attempted", "acknowledged", "lost", "doubled", "paid twice (in flight)",
    "errors", "recovered after s: median", "worst",
)  # fmt: skip


_HOST = Host(lambda: Path(tempfile.mkdtemp(prefix="aegish-drill-")))
"""Of this process, which drills one after the other."""


def drill(name: str, seed: int) -> dict[str, Any]:
    """Run one drill in this process; a fleet that it left in disorder is not used again."""
    fault = FAULTS[name]
    fleet = _HOST.fleet(fault.layout)
    result = Drill(fleet, fault, seed).run()
    broken = result.broken(fault)
    if broken:
        words = f"--- {name} {seed}: {'; '.join(broken)}\n{fleet.cluster.log()}"
        Path(tempfile.gettempdir(), f"fault-{name}-{seed}.log").write_text(words)
        _HOST.close()
    return asdict(result)


def _begin() -> None:
    Finalize(None, _HOST.close, exitpriority=1)


def measure(wanted: Sequence[tuple[str, int]], jobs: int, kept: Path) -> None:
    """Run drills side by side, and append each result to a file as it comes."""
    with ProcessPoolExecutor(jobs, get_context("spawn"), _begin) as pool:
        running = {pool.submit(drill, *each): each for each in wanted}
        for number, future in enumerate(as_completed(running), 1):
            name, seed = running[future]
            if (error := future.exception()) is not None:
                click.echo(f"{name} {seed}: {error!r}", err=True)
                continue
            with kept.open("a") as file:
                file.write(json.dumps(future.result()) + "\n")
            result = Result(**future.result())
            broken = "; ".join(result.broken(FAULTS[name])) or f"{result.recovered_s:.1f} s"
            click.echo(f"{number}/{len(wanted)} {name} {seed}: {broken}", err=True)


def read(kept: Path) -> list[Result]:
    """Return what was measured so far."""
    if not kept.exists():
        return []
    return [Result(**json.loads(line)) for line in kept.read_text().splitlines()]


def table(results: Iterable[Result]) -> str:
    """Return the table as Markdown, in the order of the faults."""
    of: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        of[result.fault].append(result)
    rows = [row(FAULTS[name].title, of[name]) for name in FAULTS if name in of]
    lines = [COLUMNS, ["---"] * len(COLUMNS), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def row(title: str, results: Sequence[Result]) -> list[str]:
    """Return the row of a fault: sums over its repetitions."""
    recovered = [result.recovered_s for result in results]
    names = ("attempted", "acknowledged", "lost", "doubled")
    sums = [f"{sum(getattr(result, name) for result in results):,}" for name in names]
    twice, in_flight, errors = (
        sum(getattr(result, name) for result in results)
        for name in ("paid_twice", "in_flight", "errors")
    )
    return [
        title, str(len(results)), *sums, f"{twice:,} ({in_flight:,})", f"{errors:,}",
        f"{statistics.median(recovered):.1f}", f"{max(recovered):.1f}",
    ]  # fmt: skip


def footer(command: str) -> str:
    """Say where, when and how it was measured."""
    model = "unknown"
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = [line for line in lines if "model name" in line]
        model = names[0].partition(":")[2].strip() if names else model
    commit = subprocess.run(
        ("git", "rev-parse", "--short", "HEAD"), capture_output=True, text=True, check=False
    ).stdout.strip()
    day = datetime.now(UTC).strftime("%d %B %Y").lstrip("0")
    return (
        f"Measured on {day} at {commit} on {os.cpu_count()} cores of an {model} (virtual),"
        f" {platform.system()} {platform.release().partition('-')[0]}, by `{command}`."
    )


@click.command(help=laid_out(__doc__))
@click.option("--faults", default=",".join(FAULTS), help="Names, with commas between them.")
@click.option("--repeats", default=20, help="Of each fault.")
@click.option("--jobs", default=4, help="Fleets side by side; they mostly wait.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Markdown file to write.")
@click.option("--kept", type=click.Path(path_type=Path), help="Where results are kept.")
def main(faults: str, repeats: int, jobs: int, output: Path | None, kept: Path | None) -> None:
    """Drill what was not drilled yet, then write the table."""
    kept = kept or Path(tempfile.gettempdir(), "fault-table.jsonl")
    done = {(result.fault, result.seed) for result in read(kept)}
    names = faults.split(",")
    wanted = [(name, seed) for name in names for seed in range(repeats)]
    measure([each for each in wanted if each not in done], jobs, kept)
    results = [result for result in read(kept) if result.fault in names]
    command = f"python benchmarks/fault_table.py --repeats {repeats} --jobs {jobs}"
    text = f"{HEADER}\n{table(results)}\n\n{footer(command)}\n"
    if output is None:
        click.echo(text)
    else:
        output.write_text(text + _sections(output))


def _sections(path: Path) -> str:
    """Return what stands below the table in an earlier one, under headings of its own."""
    old = path.read_text() if path.exists() else ""
    return old[start:] if (start := old.find("\n## ")) >= 0 else ""


if __name__ == "__main__":
    main()
