"""`aegish-dist verdicts`: results in and out."""

import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import click

from aegish_dist.cli.context import Workspace, print_json, without_collector
from aegish_dist.cli.options import Utf8, as_json, run_id
from aegish_dist.core.cost import Price
from aegish_dist.errors import CatalogError
from aegish_dist.models import Catalog
from aegish_dist.pipeline.move_verdicts import export_file, export_lines, import_verdicts
from aegish_dist.pipeline.submit import find_run


@click.group()
def verdicts() -> None:
    """Import and export verdicts, logs of Inspect AI included."""


@verdicts.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--name", type=Utf8(), default="", help="A name for the run.")
@click.option(
    "--price",
    is_flag=True,
    help="Price answers that carry tokens but no cost at today's list prices.",
)
@as_json
def import_(files: tuple[Path, ...], name: str, price: bool, as_json: bool) -> None:
    """Store recorded verdicts as one run.

    FILES are logs of Inspect AI (.eval), verdict lines (.jsonl) or the same as .parquet. A wrong
    line stops the import, and nothing of it is kept.
    """
    workspace = Workspace()
    price_of = partial(_list_price, workspace.catalog) if price else None
    with without_collector():
        stored = import_verdicts(workspace.engine, files, name, price_of)
    if as_json:
        print_json(
            {
                "run_id": stored.run_id,
                "verdicts": stored.verdicts,
                "models": stored.models,
                "samples": stored.samples,
            }
        )
        return
    click.echo(stored.run_id)
    click.echo(
        f"{stored.verdicts:,} verdicts of {stored.models} models about {stored.samples:,} samples",
        err=True,
    )


def _list_price(catalog: Catalog, model: str) -> Price | None:
    with suppress(CatalogError):
        return catalog.resolve([model], {})[0].price
    return None


@verdicts.command()
@run_id()
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A .jsonl or .parquet file.")
def export(run_id: str, output: Path | None) -> None:
    """Write every verdict of a run.

    One JSON object per line; importing them gives the same run.
    """
    engine = Workspace().engine
    found = find_run(engine, run_id)
    if output is None:
        export_lines(engine, found, sys.stdout.buffer)
    else:
        export_file(engine, found, output)
        click.echo(f"written to {output}", err=True)
