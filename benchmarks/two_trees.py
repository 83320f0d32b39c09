"""The same run by this working tree and by another one, in turn: wall clock with both starts.

Run `python benchmarks/two_trees.py TREE [--latency 1,3] [--allowed 500] [--models 1] [--pairs 4]
[--commands 1172]`, where TREE is a checkout of another commit (`git worktree add`) with an
environment of its own in `.venv`. Needs redis-server.

Each run asks the same bundled commands once. Its time is from the start of a worker process and of
`submit` to the last stored verdict; PostgreSQL, Redis and the simulated provider are up before.
The catalog lists the calls in flight that are allowed, and no rate. The ratio is taken pair by
pair, this tree over the other one, and the median of the ratios is the figure to quote.
"""

import json
import subprocess
import tempfile
from pathlib import Path
from statistics import median

import click
from cluster import ROOT
from material import Material
from measuring import laid_out, print_table
from msgspec import Struct

ONE_RUN = """
import json, sys
from pathlib import Path
from cluster import MODELS, Cluster, Simulators
from material import Material
from run_ours import run_ours

latency, allowed, models = sys.argv[1], int(sys.argv[2]), MODELS[: int(sys.argv[3])]
material = Material.load((Path(sys.argv[4]),))
planned = material.commands * len(models)
with (
    Simulators(latency=f"constant:{latency}") as simulators,
    Cluster(simulators, in_flight=allowed, models=models, workers=0) as cluster,
):
    _, row = run_ours(cluster, simulators, planned, material.store(cluster), cold=True)
print(json.dumps(row | {"planned": planned}))
"""
"""Uses nothing but what the benchmarks of both trees have."""


def write_commands(path: Path, number: int) -> None:
    """Write so many bundled commands as a table."""
    samples = [sample for dataset in Material.load().datasets for sample in dataset.samples]
    if number > len(samples):
        raise click.UsageError(f"only {len(samples)} commands are bundled")
    rows = [
        json.dumps(
            {
                "id": str(place),
                "command": sample.command,
                "target": sample.target,
                "category": sample.category,
            }
        )
        for place, sample in enumerate(samples[:number])
    ]
    path.write_text("\n".join(rows), encoding="utf-8")


class Cell(Struct, frozen=True):
    """Conditions that are the same for both trees."""

    commands: Path
    latency_s: float
    allowed: int
    models: int


def one_run(tree: Path, cell: Cell) -> dict[str, float]:
    """Return the figures of one run of a tree, by its own code."""
    python = tree / ".venv" / "bin" / "python"
    conditions = (f"{cell.latency_s:g}", str(cell.allowed), str(cell.models), str(cell.commands))
    command = [str(python), "-c", ONE_RUN, *conditions]
    done = subprocess.run(
        command, cwd=tree / "benchmarks", capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{tree} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    row: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return row


def compare(other: Path, cell: Cell, pairs: int) -> dict[str, str]:
    """Run both trees in turn; return the row of the table."""
    walls, after_first_call = [], []
    for _ in range(pairs):
        ours, theirs = (_one_run_shown(tree, cell) for tree in (ROOT, other))
        walls.append((ours["wall s"], theirs["wall s"]))
        after_first_call.append(
            (ours["wall s"] - ours["1st call s"], theirs["wall s"] - theirs["1st call s"])
        )
    return {
        "latency": f"{cell.latency_s:g} s",
        "this tree": f"{median(ours for ours, _ in walls):.2f} s",
        "other tree": f"{median(theirs for _, theirs in walls):.2f} s",
        "ratio": _ratios(walls),
        "ratio from 1st call on": _ratios(after_first_call),
    }


def _one_run_shown(tree: Path, cell: Cell) -> dict[str, float]:
    row = one_run(tree, cell)
    figures = f"{row['planned']} calls, first after {row['1st call s']:.2f} s"
    click.echo(f"  {tree}: {row['wall s']:.2f} s wall, {figures}", err=True)
    return row


def _ratios(pairs: list[tuple[float, float]]) -> str:
    """Return the median of the ratios, with the least and the greatest one."""
    ratios = [ours / theirs for ours, theirs in pairs]
    return f"{median(ratios):.3f} ({min(ratios):.3f}-{max(ratios):.3f})"


def _list_of_floats(_: click.Context, __: click.Parameter, value: str) -> list[float]:
    return [float(part) for part in value.split(",")]


@click.command(help=laid_out(__doc__))
@click.argument("tree", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--latency", default="1,3", callback=_list_of_floats, show_default=True)
@click.option("--allowed", default=500, show_default=True, help="Calls in flight of each model.")
@click.option("--models", default=1, show_default=True)
@click.option("--pairs", default=4, show_default=True)
@click.option("--commands", default=1172, show_default=True)
def main(
    *, tree: Path, latency: list[float], allowed: int, models: int, pairs: int, commands: int
) -> None:
    """Compare the trees at each latency."""
    other = tree.resolve()
    with tempfile.TemporaryDirectory(prefix="trees") as home:
        table = Path(home, "commands.jsonl")
        write_commands(table, commands)
        cells = [Cell(table, seconds, allowed, models) for seconds in latency]
        rows = [compare(other, cell, pairs) for cell in cells]
    print_table(f"{commands} commands, {allowed} in flight allowed, {pairs} pairs", rows)


if __name__ == "__main__":
    main()
