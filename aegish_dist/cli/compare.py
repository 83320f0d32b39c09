"""`aegish-dist compare`: is one guard better than another?"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from aegish_dist.cli import EXIT_INCONCLUSIVE, EXIT_WORSE
from aegish_dist.cli.command import FILE, advanced, command, flag
from aegish_dist.cli.opinions import typed_words, with_opinion, with_policies, with_suspicion
from aegish_dist.cli.options import (
    FiniteRange,
    OneOf,
    Utf8,
    completes,
    guards,
    names,
    open_store,
    or_as_json,
    refuse_usage,
    runs_at_hand,
    without_collector,
)
from aegish_dist.cli.printing import note, note_written, put_out, say, shown, to_file
from aegish_dist.findings.comparison import AUROC, ComparisonData, GateVerdict
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.scoring import SuspicionRule
from aegish_dist.pipeline.compare import Question, changed_commands, compare_models, compare_runs
from aegish_dist.pipeline.runs import find_run
from aegish_dist.pipeline.store import Store
from aegish_dist.report.changed import CommandsOf, comparison_json, ending
from aegish_dist.report.comparison import (
    COMPARISON_FORMATS,
    gate_line,
    junit_xml,
    render_comparison,
)
from aegish_dist.statistics.paired_difference import DIFFERENCES

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
@click.option("--run-id", type=Utf8(), metavar="R", help="The run whose guards are compared.")
@names(
    "--runs",
    "BASE,NEW[,NEW...]",
    "Compare the same guards of several runs, each run with the first.",
    shell_complete=completes(runs_at_hand),
)
@guards(
    "--models",
    "ID[,ID...]",
    "Only these guards, the old one first. Default: all of the run, or all that the runs share.",
)
@flag(
    "--all-pairs",
    help="Compare each guard with each, not only with the best; JSON and CSV always do.",
)
@advanced("--force", is_flag=True, help="Compare runs that differ in more than their answers.")
@click.option(
    "--metric",
    type=OneOf([*map(str, DIFFERENCES), AUROC]),
    default="aegish_score",
    show_default=True,
    help="The metric that decides; `auroc` is for guards of one run.",
)
@flag("--gate", help="Answer in one line whether the guards may ship.")
@click.option(
    "--margin",
    type=FiniteRange(0, 1, min_open=True, max_open=True),
    metavar="M",
    help="How much worse a guard may be: 0.02 is two points.",
)
@advanced(
    "--junit",
    type=FILE,
    metavar="FILE",
    help="Write JUnit XML, with --gate.",
)
@click.option(
    "--format",
    "form",
    type=OneOf(COMPARISON_FORMATS),
    help="Default: table. `json` and `csv` carry unrounded numbers.",
)
@or_as_json
@to_file
@with_opinion
@with_suspicion
@with_policies
def compare(
    *,
    run_id: str | None,
    runs: list[str],
    models: list[str],
    all_pairs: bool,
    force: bool,
    metric: str,
    gate: bool,
    margin: float | None,
    junit: Path | None,
    form: str | None,
    output: Path | None,
    opinion: Opinion,
    suspicion: SuspicionRule,
) -> int:
    """Compare guards on the same commands, and gate a new one.

    Differences of the score and of rates with 95 % intervals, then the commands that named guards
    answer differently. `--run-id` compares a run's guards: up to three in pairs, more with the best
    of them; `--runs` compares each guard with itself in other runs. `--gate` exits 0 if the guard
    is surely not worse by M or more, 4 if it surely is, 5 if the data cannot tell.
    """
    judged = {*models, *opinion.contenders}
    refuse_usage(
        (run_id is not None and runs, "--run-id and --runs exclude each other"),
        (runs and metric == AUROC, "--metric auroc compares guards of one run"),
        (runs and opinion.policies, "--policy is compared with guards of one run"),
        (len(runs) == 1, "--runs takes a run and at least one that is compared with it: BASE,NEW"),
        (junit is not None and not gate, "--junit needs --gate"),
        (junit is not None and junit == output, "--junit and --output name the same file"),
        (gate and margin is None, "--gate needs --margin: how much worse a guard may be"),
        (
            gate and not runs and (len(judged) < 2 or not models),
            "--gate needs --models OLD,NEW[,...] within a run",
        ),
    )
    store = open_store()
    # A gate alone answers in one line.
    prints = form is not None or output is not None or not gate
    question = Question(
        opinion,
        metric=metric,
        suspicion=suspicion,
        margin=margin or Question().margin,
        gate=gate,
        force=force,
        changed=prints and form != "csv",
    )
    with without_collector():
        data = _compared(store, run_id, runs, models, question)
    if junit is not None:
        put_out([junit_xml(data)], junit)
        note_written(junit)
    if prints:
        commands_of = partial(changed_commands, store.engine, data)
        _print(data, form or "table", output, commands_of, all_pairs=all_pairs)
    if not gate:
        return 0
    if form is not None and output is None:
        # Standard output holds the document already.
        note(gate_line(data))
    else:
        say(gate_line(data))
    return _EXIT_CODES[data.worst_gate]


def _compared(
    store: Store,
    run_id: str | None,
    named: Sequence[str],
    models: Sequence[str],
    question: Question,
) -> ComparisonData:
    """Compare guards of one run, or the same guards of the runs that are named."""
    engine = store.engine
    if not named:
        run = find_run(engine, "latest" if run_id is None else run_id)
        return compare_models(engine, run, models, question)
    runs = [find_run(engine, name) for name in named]
    # Only now: a run has an id and a name, and `latest` is one of them.
    refuse_usage((len(set(runs)) < len(runs), "--runs names a run twice"))
    return compare_runs(engine, runs, models, question)


def _print(
    data: ComparisonData,
    form: str,
    output: Path | None,
    commands_of: CommandsOf,
    *,
    all_pairs: bool,
) -> None:
    if form == "json":  # piece by piece: many commands may have changed
        put_out(comparison_json(data, commands_of), output)
        if output:
            note_written(output)
        return
    words = typed_words("scoring", "overlay", "policy")

    def draw(width: int | None = None, color: bool = False) -> str:
        table = render_comparison(data, form, all_pairs=all_pairs, width=width, color=color)
        return table + ending(data, form, commands_of, words, width)

    with shown(output) as show:
        show(draw)
