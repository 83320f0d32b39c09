"""`aegish-dist compare`: is one model better than another?"""

from functools import partial
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from aegish_dist.cli import EXIT_INCONCLUSIVE, EXIT_WORSE
from aegish_dist.cli.command import advanced, command
from aegish_dist.cli.opinions import with_opinion, with_policies, with_suspicion
from aegish_dist.cli.options import (
    FiniteRange,
    OneOf,
    Utf8,
    as_json,
    chosen_form,
    names,
    open_workspace,
    refuse_usage,
    without_collector,
)
from aegish_dist.cli.printing import note, note_written, put_out, say, shown, to_file
from aegish_dist.core.opinion import Opinion
from aegish_dist.pipeline.compare import Question, compare_models, compare_runs
from aegish_dist.pipeline.runs import find_run
from aegish_dist.report.comparison import (
    COMPARISON_FORMATS,
    gate_line,
    junit_xml,
    render_comparison,
    worst,
)
from aegish_dist.report.data import AUROC, ComparisonData
from aegish_dist.report.layout import HEADLINES
from aegish_dist.statistics.gate import GateVerdict

_EXIT_CODES = {
    GateVerdict.SHIPS: 0,
    GateVerdict.WORSE: EXIT_WORSE,
    GateVerdict.INCONCLUSIVE: EXIT_INCONCLUSIVE,
}


@command(
    "aegish-dist compare --models baseline/keyword,openai/gpt-5.1",
    "aegish-dist compare --runs nightly,latest",
    "aegish-dist compare --models baseline/keyword,openai/gpt-5.1 --gate --margin 0.02",
)
@click.option("--run-id", type=Utf8(), metavar="R", help="The run whose models are compared.")
@names(
    "--runs",
    "BASE,NEW[,NEW...]",
    "Compare the same models of several runs; the first is the baseline.",
)
@names(
    "--models",
    "ID[,ID...]",
    "Only these, the baseline first. Default: all of the run, or all that the runs share.",
)
@click.option(
    "--all-pairs",
    is_flag=True,
    help="Compare each model with each, not only with the best; JSON and CSV always do.",
)
@advanced("--force", is_flag=True, help="Compare runs that differ in more than their answers.")
@click.option(
    "--metric",
    type=OneOf((*HEADLINES, AUROC)),
    default="aegish_score",
    show_default=True,
    help="The metric that decides; `auroc` is for models of one run.",
)
@click.option("--gate", is_flag=True, help="Answer in one line whether the candidates may ship.")
@click.option(
    "--margin",
    type=FiniteRange(0, 1, min_open=True, max_open=True),
    metavar="M",
    help="How much worse a candidate may be: 0.02 is two points.",
)
@advanced(
    "--junit",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write JUnit XML, with --gate.",
)
@click.option(
    "--format",
    "form",
    type=OneOf(COMPARISON_FORMATS),
    help="Default: table. `json` and `csv` carry unrounded numbers.",
)
@as_json
@to_file
@with_opinion
@with_suspicion
@with_policies
def compare(opinion: Opinion, **options: Any) -> int:
    """Compare models on the same commands, and gate a candidate.

    Differences of score, detection rate and acceptance rate with 95 % intervals. `--run-id`
    compares a run's models: up to three in pairs, more with the best of them; `--runs` compares
    each model with itself in other runs. The first one named is the baseline. `--gate` exits 0 if
    the candidate is surely not worse by M or more, 4 if it surely is, 5 if the data cannot tell.
    """
    _check(opinion, options)
    form = chosen_form(options["form"], options["as_json"])
    with without_collector():
        data = _compared(opinion, options)
    if options["gate"]:
        return _gate(data, form, options)
    _print(data, form or "table", options)
    return 0


def _check(opinion: Opinion, options: dict[str, Any]) -> None:
    runs, junit, gate = options["runs"], options["junit"], options["gate"]
    refuse_usage(
        (options["run_id"] is not None and runs, "--run-id and --runs exclude each other"),
        (runs and options["metric"] == AUROC, "--metric auroc compares models of one run"),
        (runs and opinion.policies, "--policy is compared with models of one run"),
        (len(runs) == 1, "--runs takes a baseline and at least one other run: BASE,NEW"),
        (junit is not None and not gate, "--junit needs --gate"),
        (
            junit is not None and junit == options["output"],
            "--junit and --output name the same file",
        ),
        (
            gate and options["margin"] is None,
            "--gate needs --margin: how much worse a candidate may be",
        ),
        (
            gate
            and not runs
            and (len({*options["models"], *opinion.contenders}) < 2 or not options["models"]),
            "--gate needs --models BASELINE,CANDIDATE[,...] within a run",
        ),
    )


def _compared(opinion: Opinion, options: dict[str, Any]) -> ComparisonData:
    chosen = {name: options[name] for name in ("metric", "suspicion", "gate", "force")}
    question = Question(opinion, **chosen)
    if options["margin"] is not None:
        question = replace(question, margin=options["margin"])
    engine, models = open_workspace().engine, options["models"]
    if not options["runs"]:
        run = "latest" if options["run_id"] is None else options["run_id"]
        return compare_models(engine, find_run(engine, run), models, question)
    runs = [find_run(engine, run) for run in options["runs"]]
    refuse_usage((len(set(runs)) < len(runs), "--runs names a run twice"))
    return compare_runs(engine, runs, models, question)


def _print(data: ComparisonData, form: str, options: dict[str, Any]) -> None:
    with shown(options["output"]) as show:
        show(partial(render_comparison, data, form, all_pairs=options["all_pairs"]))


def _gate(data: ComparisonData, form: str | None, options: dict[str, Any]) -> int:
    """Print the answer of the gate in one line, on standard error beside a document."""
    output = options["output"]
    if options["junit"] is not None:
        put_out([junit_xml(data)], options["junit"])
        note_written(options["junit"])
    if form or output:
        _print(data, form or "table", options)
    beside = form is not None and output is None
    (note if beside else say)(gate_line(data))
    return _EXIT_CODES[worst(data)]
