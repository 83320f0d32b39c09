"""How long `verdicts list` takes over a run of a million verdicts, whatever the conditions.

Run `python benchmarks/verdict_list.py [--rows 1000000] [--epochs 1] [--repeats 5] [NAME...]`.
Eleven models; with one epoch 90,909 commands. Each command is timed from its start to its end.
Beside the wall clock stand the CPU seconds of the command and of PostgreSQL, as another load on the
machine changes those less.
"""

import statistics
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import click
import psutil
from aggregate import Store
from measuring import cpu_s, ended_cpu_s, laid_out, number, print_table
from synthetic import fill

from aegish_dist.db.embedded import embedded_server

RUN = "0listed"
LISTS = {
    "everything": (),
    "wrong": ("--wrong",),
    "wrong, of one model and category": (
        *("--wrong", "--models", "lab/model-03", "--category", "category-5"),
    ),
    "wrong, 10,000 as JSON": ("--wrong", "--json"),
    "failed calls of one model": ("--outcome", "API_ERROR", "--models", "lab/model-03"),
    "failed calls of one category": ("--outcome", "API_ERROR", "--category", "category-7"),
    "missed by two": ("--missed-by", "lab/model-03,lab/model-07"),
    "missed by all": ("--missed-by-all",),
    "disputed": ("--disputed",),
    "disputed between two, wrong": (
        *("--disputed", "--wrong", "--models", "lab/model-03,lab/model-04"),
    ),
    "disputed, failed calls": ("--disputed", "--outcome", "API_ERROR", "--models", "lab/model-01"),
    "inconsistent": ("--inconsistent",),
    "inconsistent, failed calls": (
        *("--inconsistent", "--outcome", "API_ERROR", "--models", "lab/model-01"),
    ),
    "text that is frequent": ("--text", "shadow"),
    "text of one command": ("--text", "number 77777"),
    "text that is nowhere": ("--text", "nowhere to be found"),
    "everything into a file": ("-o", "{file}.csv"),
    "failed calls into a file": ("--outcome", "API_ERROR", "-o", "{file}.json"),
}
"""Options by what they ask for; the last ones have no limit."""


@contextmanager
def _served(home: Path) -> Iterator[tuple[Store, psutil.Process]]:
    with closing(embedded_server(home)) as server:
        yield Store(server.url), psutil.Process(server.pid)


def measure(
    store: Store, postgres: psutil.Process, name: str, file: Path, repeats: int
) -> dict[str, str]:
    """Run one list several times after a first one that does not count."""
    options = [option.format(file=file) for option in LISTS[name]]
    command = ("verdicts", "list", "--run-id", RUN, *options)
    store.command_s(*command)
    own, server, walls = ended_cpu_s(), cpu_s(postgres), []
    for _ in range(repeats):
        walls.append(store.command_s(*command))
    return {
        "list": name,
        "wall s": number(statistics.median(walls)),
        "least": number(min(walls)),
        "CPU command": number((ended_cpu_s() - own) / repeats),
        "CPU PostgreSQL": number((cpu_s(postgres) - server) / repeats),
        "MB": number(store.largest_mb),
    }


@click.command(help=laid_out(__doc__))
@click.argument("names", nargs=-1, type=click.Choice(list(LISTS)))
@click.option("--rows", default=1_000_000, show_default=True, help="Verdicts of the run.")
@click.option("--epochs", default=1, show_default=True)
@click.option("--repeats", default=5, show_default=True)
def main(names: tuple[str, ...], rows: int, epochs: int, repeats: int) -> None:
    """Fill a store of our own and measure."""
    with tempfile.TemporaryDirectory(prefix="vl") as folder:
        with _served(Path(folder)) as (store, _):
            store.command_s("db", "upgrade")
            rows = fill(store.url, RUN, rows, epochs)
            store.sql_s("VACUUM ANALYZE")
        with _served(Path(folder)) as (store, postgres):
            file = Path(folder) / "list"
            table = [measure(store, postgres, name, file, repeats) for name in names or LISTS]
    print_table(
        f"verdicts list of {rows:,} verdicts in {epochs} epochs, median of {repeats}", table
    )


if __name__ == "__main__":
    main()
