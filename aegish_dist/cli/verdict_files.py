"""`aegish-dist verdicts import|export|recover`: results in and out."""

from contextlib import suppress
from functools import partial
from pathlib import Path

import click

from aegish_dist.cli.context import open_workspace, without_collector
from aegish_dist.cli.options import Utf8, as_json, comma_list, run_id
from aegish_dist.cli.printing import binary_output, note, say, say_json
from aegish_dist.core.cost import Price
from aegish_dist.core.scoring import DEFAULT_RULE
from aegish_dist.core.words import counted
from aegish_dist.errors import CatalogError, DatasetError
from aegish_dist.files import is_stream
from aegish_dist.models import Catalog
from aegish_dist.pipeline.export_formats import FOLDERS, ExportFormat, export_as
from aegish_dist.pipeline.export_verdicts import export_file, export_lines
from aegish_dist.pipeline.import_verdicts import import_verdicts
from aegish_dist.pipeline.opinions import load_opinions
from aegish_dist.pipeline.runs import find_run


@click.command("import")
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
    workspace = open_workspace()
    price_of = partial(_list_price, workspace.catalog) if price else None
    with without_collector():
        stored = import_verdicts(workspace.engine, files, name, price_of)
    if as_json:
        # Not among the keys that scripts rely on, so it stands there only where there are any.
        doubtful = {"negative_times": stored.negative_times} if stored.negative_times else {}
        say_json(
            {
                "run_id": stored.run_id,
                "verdicts": stored.verdicts,
                "models": stored.models,
                "samples": stored.samples,
                **doubtful,
            }
        )
        return
    say(stored.run_id)
    note(
        f"{counted(stored.verdicts, 'verdict')} of {counted(stored.models, 'model')} about"
        f" {counted(stored.samples, 'sample')}"
    )
    if stored.negative_times:
        note(
            f"{stored.negative_times:,} verdicts carry a time below zero, a fault of some versions"
            " of Inspect AI; it counts as unknown"
        )


def _list_price(catalog: Catalog, model: str) -> Price | None:
    with suppress(CatalogError):
        return catalog.resolve([model], {})[0].price
    return None


@click.command("recover")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def recover_(files: tuple[Path, ...]) -> None:
    """Store answers that workers left in files.

    FILES are named in the log of the worker. Each is removed once it is stored; lines that cannot
    be stored are kept beside it.
    """
    from aegish_dist.pipeline.spool import recover  # noqa: PLC0415

    engine = open_workspace().engine
    for path in files:
        found = recover(engine, path)
        note(
            f"{path}: {counted(found.stored, 'answer')} stored,"
            f" {found.present:,} were there already"
        )
        if found.kept is not None:
            raise DatasetError(
                f"{found.damaged:,} lines cannot be stored and are kept there ({found.problem})",
                source=str(found.kept),
            )


@click.command()
@run_id()
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE|DIR",
    help="A .jsonl or .parquet file, or the folder for a format of several files.",
)
@click.option(
    "--format",
    "chosen",
    type=click.Choice([each.value for each in ExportFormat]),
    help="Default: what the suffix of the file says, JSONL without a file.",
)
@click.option(
    "--correct",
    multiple=True,
    type=Utf8(),
    callback=comma_list,
    metavar="RULES[,RULES...]",
    help="Also whether each verdict is correct, by rule set: names, files, or `all`.",
)
@click.option(
    "--overlay",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Corrections of labels that --correct applies first.",
)
def export(
    run_id: str,
    output: Path | None,
    chosen: str | None,
    correct: list[str],
    overlay: Path | None,
) -> None:
    """Write every verdict of a run.

    `jsonl` and `parquet` have one record per verdict; importing them gives the same run.
    `--correct` adds a column for each rule set, such as `correct_aegish-5.3`: true, false, or null
    where the rule set leaves the verdict out. It is an opinion, so importing passes over it.

    `inspect` writes a log of Inspect AI for each model and dataset into a folder, for
    `inspect view --log-dir DIR` and `samples_df`; importing the logs gives the same run as well.
    Each rule set of --correct is a scorer; without it there is one, aegish-5.3. An unscored verdict
    is an error sample, never a 0. Logs of the same run are replaced; other files stay, and one that
    is in the way stops the export.

    `every-eval-ever` writes a record of Every Eval Ever 0.3.0 for each model and rule set of
    --correct, with score, interval and method of every metric, and beside it a line for each scored
    verdict. The same verdicts give the same files.
    """
    names = correct or ([DEFAULT_RULE.name] if overlay is not None and chosen in FOLDERS else [])
    opinions = [each for name in names for each in load_opinions(name, None, overlay)]
    engine = open_workspace().engine
    found = find_run(engine, run_id)
    if output is None:
        if chosen not in (None, ExportFormat.JSONL):
            raise click.UsageError(f"--format {chosen} needs a path: add -o")
        with binary_output() as stream:
            export_lines(engine, found, stream, opinions)
        return
    if chosen is None:
        export_file(engine, found, output, opinions)
        written = []
    else:
        written = export_as(ExportFormat(chosen), engine, found, output, opinions)
    if not is_stream(output):
        files = f"{counted(len(written), 'file')} " if written else ""
        note(f"{files}written to {output}")
