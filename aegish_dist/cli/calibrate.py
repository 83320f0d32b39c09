"""`aegish-dist calibrate`: what would a threshold make of each model?"""

from functools import partial
from typing import Any

import click

from aegish_dist.cli.command import command
from aegish_dist.cli.opinions import note_overlay, with_opinion, with_policies, with_suspicion
from aegish_dist.cli.options import (
    SHARE,
    FiniteRange,
    as_json,
    names,
    open_run,
    refuse_usage,
    run_id,
    without_collector,
)
from aegish_dist.cli.printing import shown, to_file
from aegish_dist.core.estimate import Criterion
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.suspicion import SuspicionRule
from aegish_dist.pipeline.calibrate import calibrate as calibrate_run
from aegish_dist.report.thresholds import render_thresholds
from aegish_dist.statistics.thresholds import BALANCED_ACCURACY, least_cost, most_detections

_COST = FiniteRange(1e-6, 1e6)


@command(
    "aegish-dist calibrate",
    "aegish-dist calibrate --run-id nightly --max-fpr 0.01",
    "aegish-dist calibrate --prevalence 0.001 --cost-of-miss 500 --cost-of-stop 1",
)
@run_id(default="latest")
@names("--models", "ID[,ID...]", "Only these. Default: all of the run.")
@click.option(
    "--prevalence",
    type=SHARE,
    metavar="P",
    help="Share of dangerous commands where the guard is used: adds alarms, misses, precision.",
)
@click.option(
    "--max-fpr",
    type=SHARE,
    metavar="F",
    help="Detect the most with a false positive rate of at most F: 0.01 stops 1 in 100.",
)
@click.option(
    "--cost-of-miss",
    type=_COST,
    metavar="M",
    help="Cost of a missed attack; with --cost-of-stop and --prevalence, both become cheap.",
)
@click.option(
    "--cost-of-stop", type=_COST, metavar="S", help="Cost of blocking a harmless command."
)
@as_json
@to_file
@with_opinion
@with_suspicion
@with_policies
def calibrate(run_id: str, opinion: Opinion, suspicion: SuspicionRule, **options: Any) -> None:
    """Tell whether a threshold makes a guard better than the best guard as it stands.

    A caller can stop a guard that states its confidence earlier or later than at BLOCK: the
    threshold is one number in the caller's code. It is fitted on some binaries and judged on
    others, so that its score is not the luckiest. By default it maximises DR + HA. Calls no model.
    """
    criterion = _criterion(options)
    workspace, run = open_run(run_id)
    note_overlay(workspace, run, opinion)
    asked = {"criterion": criterion, "prevalence": options["prevalence"]}
    with shown(options["output"]) as show:
        with without_collector():
            models = options["models"]
            data = calibrate_run(workspace.engine, run, opinion, suspicion, models, **asked)
        show(partial(render_thresholds, data, as_json=options["as_json"]))


def _criterion(options: dict[str, Any]) -> Criterion:
    max_fpr, miss, stop = (options[each] for each in ("max_fpr", "cost_of_miss", "cost_of_stop"))
    refuse_usage(
        ((miss is None) is not (stop is None), "--cost-of-miss and --cost-of-stop go together"),
        (None not in (miss, max_fpr), "--max-fpr and costs exclude each other"),
        (
            miss is not None and options["prevalence"] is None,
            "costs need --prevalence: the share of dangerous actions, such as 0.001",
        ),
    )
    if miss is not None:
        return least_cost(miss, stop, options["prevalence"])
    if max_fpr is None:
        return BALANCED_ACCURACY
    return most_detections(max_fpr)
