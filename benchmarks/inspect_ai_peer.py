"""Inspect AI and this project side by side: the same commands, prompt and simulated provider.

Run `python benchmarks/inspect_ai_peer.py --quick`, or without `--quick` the whole grid, which
takes hours: narrow it with the options. Needs redis-server, and a package index for the first
run: Inspect AI gets a virtual environment of its own in `build/` (or `--env`).

Each repetition measures Inspect AI with its logs, Inspect AI with everything switched off that it
lets be switched off, and this project, one after the other; the table shows medians. Both sides
pay for their start: this project starts a worker process and `submit` at the same moment, with
PostgreSQL, Redis and the simulator already up. CPU is user and system time: of Inspect AI's
process tree, and of worker, PostgreSQL, Redis and `submit`; the simulator counts for neither.
`after 1st call` leaves out what each spent before its first call, but for `submit`, which counts
as a whole. `sustained` is the median of the calls in flight from the first call until the last one
arrived. Equal `accuracy` shows that both asked the same and got the same answers.

Any dataset can be asked: `--commands FILE.json` (aegish) or `.jsonl`, `.csv`, `.parquet` (tables).
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product as combinations
from pathlib import Path

import click
import psutil
from cluster import MODELS, ROOT, Cluster, Simulators
from material import TIME_LIMIT_S, Material
from measuring import (
    Watch,
    cpu_s,
    ended_cpu_s,
    laid_out,
    medians,
    memory_mb,
    number,
    print_table,
    ratio,
)
from msgspec import Struct
from run_ours import measured, run_ours

PINNED = ROOT / "requirements" / "inspect.txt"
PACKAGES = re.findall(r"^(?:inspect-ai|openai)==[\w.]+", PINNED.read_text("utf-8"), re.MULTILINE)
QUIET = (
    "--display", "none", "--no-log-samples", "--no-log-realtime", "--no-log-model-api",
    "--no-log-refusals", "--no-score-display", "--log-buffer", "100000",
    "--log-level", "critical", "--log-level-transcript", "critical", "--ctl-server", "false",
)  # fmt: skip
LOGS = {"on": (), "off": QUIET}
"""Options of `inspect eval`: as it comes, and with everything off that can be."""
OURS = "aegish-dist"


class Cell(Struct, frozen=True):
    """Conditions that are the same for every program."""

    models: int
    latency_s: float
    connections: int
    """Allowed per model."""
    epochs: int

    def __str__(self) -> str:
        return (
            f"{self.models} model{'s' * (self.models > 1)}, {self.latency_s:g} s latency,"
            f" {self.connections} connections per model, {self.epochs} x"
        )


def environment(directory: Path) -> Path:
    """Return the program `inspect` of an environment, which is made when it is missing."""
    program = directory / "bin" / "inspect"
    if not program.exists():
        click.echo(f"installing {' '.join(PACKAGES)} into {directory}", err=True)
        subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True)
        pip = [str(directory / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        pinned = ["--require-hashes", "-r", str(PINNED)]
        subprocess.run([*pip, "--quiet", "install", *pinned], check=True)
    return program


def _planned(cell: Cell, material: Material) -> int:
    return material.commands * cell.models * cell.epochs


def run_inspect(
    program: Path, cell: Cell, material: Material, extra: Sequence[str]
) -> dict[str, float]:
    """Measure one run of Inspect AI."""
    with (
        tempfile.TemporaryDirectory(prefix="inspect") as home,
        Simulators(latency=f"constant:{cell.latency_s:g}") as simulators,
    ):
        material.write(Path(home, "material.json"))
        names = MODELS[: cell.models]
        command = [
            str(program), "eval", "inspect_task.py", "-T", f"material={home}/material.json",
            "--model", ",".join(f"openai/{name}" for name in names), "-M", "responses_api=false",
            "--max-connections", str(cell.connections), "--max-samples", str(cell.connections),
            "--max-tasks", str(cell.models), "--seed", "42", "--max-tokens", "4096",
            "--max-retries", "3", "--time-limit", str(TIME_LIMIT_S), "--epochs", str(cell.epochs),
            "--log-dir", f"{home}/logs", *extra,
        ]  # fmt: skip
        environ = {
            "PATH": os.environ["PATH"], "HOME": home, "NO_PROXY": "127.0.0.1",
            "OPENAI_BASE_URL": f"{simulators.urls[0]}/v1", "OPENAI_API_KEY": "unused",
        }  # fmt: skip
        row = _run_and_watch(command, environ, simulators, _planned(cell, material))
        logs = sorted(Path(home, "logs").glob("*.eval"))
        return row | {"accuracy": _mean([_accuracy(program, log) for log in logs])}


def _run_and_watch(
    command: list[str], environ: dict[str, str], simulators: Simulators, planned: int
) -> dict[str, float]:
    spent_before = ended_cpu_s()
    output = Path(environ["HOME"], "output.txt")
    with output.open("wb") as file:
        process = subprocess.Popen(
            command, cwd=ROOT / "benchmarks", env=environ, stdin=subprocess.DEVNULL,
            stdout=file, stderr=subprocess.STDOUT,
        )  # fmt: skip
    tree = psutil.Process(process.pid)
    watch = Watch(
        stats=simulators.stats,
        planned=planned,
        cpu=lambda: cpu_s(tree),
        memory=lambda: memory_mb([tree]),
    )
    with watch:
        code = process.wait()
        wall_s = time.monotonic() - watch.started
    served = sum(simulators.stats()["requests"].values())
    if code or served < planned:
        said = output.read_text(errors="replace")[-2000:]
        raise RuntimeError(f"Inspect AI ended with {code} after {served} of {planned}:\n{said}")
    return measured(watch, wall_s=wall_s, cpu_s=ended_cpu_s() - spent_before)


def _accuracy(program: Path, log: Path) -> float:
    command = [str(program), "log", "dump", "--header-only", str(log)]
    header = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    if header["status"] != "success":
        raise RuntimeError(f"Inspect AI: {header['status']}: {header.get('error')}")
    return float(header["results"]["scores"][0]["metrics"]["accuracy"]["value"])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def run_product(cell: Cell, material: Material) -> dict[str, float]:
    """Measure one run of this project."""
    with (
        Simulators(latency=f"constant:{cell.latency_s:g}") as simulators,
        Cluster(
            simulators, in_flight=cell.connections, models=MODELS[: cell.models], workers=0
        ) as cluster,
    ):
        options = [*material.store(cluster), "--epochs", str(cell.epochs)]
        planned = _planned(cell, material)
        run_id, row = run_ours(cluster, simulators, planned, options, cold=True)
        document = json.loads(cluster.run("aggregate", "--run-id", run_id, "--json"))
    accuracies = [each["metrics"]["accuracy"]["value"] for each in document["models"]]
    return row | {"accuracy": _mean(accuracies)}


def compare(cell: Cell, arms: dict[str, Callable[[], dict[str, float]]], repeats: int) -> None:
    """Run all programs in turn, as often as asked, and print the medians."""
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in arms}
    for repeat in range(repeats):
        for name, arm in arms.items():
            rows[name].append(arm())
            row = rows[name][-1]
            figures = f"{row['wall s']:.1f} s wall, {row['CPU ms/verdict']:.2f} ms CPU/verdict"
            click.echo(f"  {cell}, {repeat + 1}/{repeats}, {name}: {figures}", err=True)
    middle = {name: medians(each) for name, each in rows.items()}
    columns = [name for name in middle[OURS] if not name.endswith(" ms")]
    table = [
        {"program": name} | {column: number(values[column]) for column in columns}
        for name, values in middle.items()
    ]
    table += [
        {"program": f"{name} / {OURS}"}
        | {column: ratio(values[column], middle[OURS][column]) for column in columns}
        for name, values in middle.items()
        if name != OURS
    ]
    print_table(f"{cell}; medians of {repeats}", table)
    parts = {name: value for name, value in middle[OURS].items() if name.endswith(" ms")}
    listed = ", ".join(f"{name.removesuffix(' ms')} {value:.2f}" for name, value in parts.items())
    print(f"\n{OURS}, CPU ms per verdict: {listed}", flush=True)


def _list_of(kind: Callable[[str], object]) -> Callable[..., list[object]]:
    return lambda context, parameter, value: [kind(part) for part in value.split(",")]


@click.command(help=laid_out(__doc__))
@click.option("--quick", is_flag=True, help="One small cell, twice.")
@click.option("--models", default="1,4", callback=_list_of(int), show_default=True)
@click.option("--latency", default="0,1", callback=_list_of(float), show_default=True)
@click.option("--connections", default="10,100,500", callback=_list_of(int), show_default=True)
@click.option("--epochs", default=1, show_default=True, help="More make the start count for less.")
@click.option("--logs", default="on,off", callback=_list_of(str), show_default=True)
@click.option("--repeats", default=3, show_default=True)
@click.option("--limit", type=int, help="At most this many samples of each dataset.")
@click.option("--commands", multiple=True, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--env", "directory", default=ROOT / "build" / "inspect-ai", type=click.Path(path_type=Path)
)
def main(
    *,
    quick: bool,
    models: list[int],
    latency: list[float],
    connections: list[int],
    epochs: int,
    logs: list[str],
    repeats: int,
    limit: int | None,
    commands: tuple[Path, ...],
    directory: Path,
) -> None:
    """Measure every combination."""
    program = environment(directory.absolute())
    if quick:
        models, latency, connections, repeats, limit = [1], [0.0], [100], 2, 100
    material = Material.load(commands, limit)
    print(
        f"{material.commands} commands, {', '.join(PACKAGES)}, {os.cpu_count()} cores", flush=True
    )
    for cell in (Cell(*each, epochs) for each in combinations(models, latency, connections)):
        arms: dict[str, Callable[[], dict[str, float]]] = {
            f"Inspect AI, logs {mode}": partial(run_inspect, program, cell, material, LOGS[mode])
            for mode in logs
        }
        compare(cell, arms | {OURS: partial(run_product, cell, material)}, repeats)


if __name__ == "__main__":
    main()
