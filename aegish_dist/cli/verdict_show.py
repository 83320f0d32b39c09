"""`aegish-dist verdicts show`: one command and what every model said about it."""

import click

from aegish_dist.cli.context import open_workspace
from aegish_dist.cli.options import Utf8, as_json, comma_list, run_id, with_opinion
from aegish_dist.cli.printing import say_json, say_lines
from aegish_dist.core.opinion import Opinion
from aegish_dist.pipeline.runs import find_run
from aegish_dist.pipeline.show_verdicts import show_sample
from aegish_dist.report.verdict_detail import detail_json, detail_lines


@click.command()
@click.argument("sample", type=Utf8())
@run_id(default="latest")
@with_opinion
@click.option(
    "--models",
    multiple=True,
    type=Utf8(),
    callback=comma_list,
    metavar="ID[,ID...]",
    help="Verdicts of these models. Default: all.",
)
@click.option(
    "--dataset", type=Utf8(), metavar="NAME", help="Where several datasets hold the command."
)
@click.option("--full", is_flag=True, help="Print long texts whole.")
@as_json
def show(
    sample: str,
    run_id: str,
    opinion: Opinion,
    *,
    models: list[str],
    dataset: str | None,
    full: bool,
    as_json: bool,
) -> None:
    """Show one command and every verdict about it.

    SAMPLE is a sample id, its first digits, a command, or a text that stands in one command alone.
    Of every model, epoch and retry: completion, reason, tokens, cost, times, and the attempts that
    failed. Texts of models are shown with everything invisible escaped; `--json` has them exact.
    """
    workspace = open_workspace()
    found = find_run(workspace.engine, run_id)
    shown = show_sample(workspace.engine, found, sample, opinion, models=models, dataset=dataset)
    if as_json:
        say_json(detail_json(shown, opinion))
        return
    say_lines("\n".join(detail_lines(shown, opinion, full=full)))
