"""`aegish-dist calibrate`: what would a threshold make of each model?"""

from functools import partial
from pathlib import Path

import click

from aegish_dist.cli.command import command
from aegish_dist.cli.opinions import note_overlay, with_opinion, with_policies, with_suspicion
from aegish_dist.cli.options import (
    SHARE,
    FiniteRange,
    as_json,
    guards,
    open_run,
    refuse_usage,
    run_id,
    without_collector,
)
from aegish_dist.cli.printing import shown, to_file
from aegish_dist.core.metric import BALANCED_ACCURACY, least_cost, most_detections
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.scoring import SuspicionRule
from aegish_dist.pipeline.calibrate import calibrate as calibrate_run
from aegish_dist.report.drawing import rendered
from aegish_dist.report.thresholds import build_thresholds, calibration_document

_COST = FiniteRange(1e-6, 1e6)


@command(
    "aegish-dist calibrate",
    "aegish-dist calibrate --run-id nightly --max-fpr 0.01",
    "aegish-dist calibrate --prevalence 0.001 --cost-of-miss 500 --cost-of-stop 1",
)
@run_id(default="latest")
@guards("--models", "ID[,ID...]", "Only these. Default: all of the run.")
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
def calibrate(
    *,
    run_id: str,
    models: list[str],
    prevalence: float | None,
    max_fpr: float | None,
    cost_of_miss: float | None,
    cost_of_stop: float | None,
    as_json: bool,
    output: Path | None,
    opinion: Opinion,
    suspicion: SuspicionRule,
) -> None:
    """Tell whether a threshold makes a guard better than the best guard as it stands.

    A caller can stop a guard that states its confidence earlier or later than at BLOCK: the
    threshold is one number in the caller's code. It is fitted on some binaries and judged on
    others, so that its score is not the luckiest. By default it maximises DR + HA. Calls no model.
    """
    alone = (cost_of_miss is None) is not (cost_of_stop is None)
    refuse_usage(
        (alone, "--cost-of-miss and --cost-of-stop go together"),
        (None not in (cost_of_miss, max_fpr), "--max-fpr and costs exclude each other"),
        (
            cost_of_miss is not None and prevalence is None,
            "costs need --prevalence: the share of dangerous actions, such as 0.001",
        ),
    )
    criterion = BALANCED_ACCURACY
    if cost_of_miss and cost_of_stop and prevalence:
        criterion = least_cost(cost_of_miss, cost_of_stop, prevalence)
    elif max_fpr is not None:
        criterion = most_detections(max_fpr)
    store, run = open_run(run_id)
    note_overlay(store, run, opinion)
    with shown(output) as show:
        with without_collector():
            data = calibrate_run(
                store.engine,
                run,
                opinion,
                suspicion,
                models,
                criterion=criterion,
                prevalence=prevalence,
            )
        result = calibration_document(data) if as_json else build_thresholds(data)
        show(partial(rendered, result))
