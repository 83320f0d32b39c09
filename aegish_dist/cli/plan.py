"""`aegish-dist plan`: which epochs and how many commands would decide."""

from decimal import Decimal
from typing import Any

import click

from aegish_dist.cli.opinions import with_opinion
from aegish_dist.cli.options import FiniteRange, as_json, comma_list, open_workspace, run_id
from aegish_dist.cli.printing import TextTable, note, print_table, say_json
from aegish_dist.core.opinion import Opinion
from aegish_dist.core.text import counted
from aegish_dist.pipeline.plan_repeats import PilotPlan, PlannedCost, plan_from_pilot
from aegish_dist.pipeline.runs import find_run
from aegish_dist.report.numbers import format_count, format_points, format_usd
from aegish_dist.statistics.repeats import Design


@click.command()
@run_id(default="latest")
@click.option(
    "--margin",
    type=FiniteRange(0, 1, min_open=True),
    required=True,
    metavar="M",
    help="Difference of scores to tell apart, such as 0.02; of one model how exact its score is"
    " to be.",
)
@click.option(
    "--models",
    multiple=True,
    callback=comma_list,
    metavar="ID[,ID]",
    help="One model, or a baseline and a candidate; default: those of the run.",
)
@with_opinion
@click.option(
    "--power",
    type=FiniteRange(0.5, 1, min_open=True, max_open=True),
    default=0.8,
    show_default=True,
    help="Probability to find a difference of that size.",
)
@click.option(
    "--max-epochs",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    help="Most epochs to consider.",
)
@as_json
def plan(run_id: str, opinion: Opinion, as_json: bool, **asked: Any) -> None:
    """Say how many commands and epochs would decide, from a pilot run.

    The pilot's answers tell how much commands differ and, with two epochs or more, how much a
    command's answers do; its verdicts tell what a call takes. No model is called.
    """
    engine = open_workspace().engine
    found = plan_from_pilot(engine, find_run(engine, run_id), opinion, **asked)
    if as_json:
        say_json(document(found))
        return
    _print(found)


def document(found: PilotPlan) -> dict[str, Any]:
    """Return the machine interface of a plan."""
    goal, plan = found.goal, found.plan
    return {
        "run_id": found.run.run_id,
        "scoring": found.opinion.rule.name,
        "opinion": found.opinion.provenance,
        "models": list(found.models),
        "metric": "aegish_score",
        "margin": goal.margin,
        "power": goal.power,
        "pilot": {
            "value": found.value,
            "stderr": found.stderr,
            "epochs": found.run.epochs,
            "commands": sum(each.samples for each in found.variance.strata),
            "clusters": found.variance.clusters,
            "variance": _variance(found),
        },
        "commands_available": plan.available,
        "commands_needed_at_least": plan.needed,
        "designs": [_design(found, design) for design in plan.designs],
    }


def _variance(found: PilotPlan) -> dict[str, Any]:
    """Return what each part adds to the variance of the pilot's value, at one epoch."""
    strata = found.variance.strata
    known = all(each.within is not None for each in strata)
    return {
        "between": sum(each.between / each.samples for each in strata),
        "within": sum((each.within or 0) / each.samples for each in strata) if known else None,
        "shared": found.variance.shared,
    }


def _design(found: PilotPlan, design: Design) -> dict[str, Any]:
    costs = found.costs(design)
    return {
        "epochs": design.epochs,
        "commands": design.commands,
        "limit": design.limit,
        "available": design.available,
        "stderr": design.stderr,
        "calls": design.calls * len(costs),
        "cost_usd": _number(_total(costs)),
        "models": [
            {
                "model": cost.model,
                "calls": cost.calls,
                "input_tokens": cost.input_tokens,
                "output_tokens": cost.output_tokens,
                "cost_usd": _number(cost.cost_usd),
            }
            for cost in costs
        ],
    }


def _total(costs: list[PlannedCost]) -> Decimal | None:
    known = [cost.cost_usd for cost in costs if cost.cost_usd is not None]
    return sum(known, Decimal(0)) if len(known) == len(costs) else None


def _number(amount: Decimal | None) -> float | None:
    return None if amount is None else float(amount)


def _print(found: PilotPlan) -> None:
    headings = (
        "epochs",
        "commands",
        "--limit",
        "stderr",
        "calls",
        "input tokens",
        "output",
        "cost",
    )
    rows = [_row(found, design) for design in found.plan.designs]
    print_table(TextTable((), rows, headings, title=_title(found), caption=_caption(found)))
    for line in _remarks(found):
        note(line)


def _title(found: PilotPlan) -> str:
    if found.goal.power is None:
        return f"Designs that tell the score of {found.models[0]} to within {found.goal.margin:g}"
    first, second = found.models
    return (
        f"Designs that find a difference of {found.goal.margin:g} between {first} and {second}"
        f" with a probability of {found.goal.power:g}"
    )


def _row(found: PilotPlan, design: Design) -> list[str]:
    costs = found.costs(design)
    limit = "" if design.limit is None else format_count(design.limit)
    return [
        str(design.epochs),
        format_count(design.commands),
        limit if design.available else "too few",
        format_points(design.stderr),
        format_count(design.calls * len(costs)),
        format_count(_sum([cost.input_tokens for cost in costs])),
        format_count(_sum([cost.output_tokens for cost in costs])),
        format_usd(_number(_total(costs))),
    ]


def _sum(parts: list[int | None]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _caption(found: PilotPlan) -> str:
    what = "score" if found.goal.power is None else "difference"
    return (
        f"The pilot: {what} {format_points(found.value)}, stderr {format_points(found.stderr)},"
        f" {counted(found.run.epochs, 'epoch')}. stderr in points, as predicted; calls,"
        " tokens in and out and cost of all models. `too few`: the data sets have fewer commands."
    )


def _remarks(found: PilotPlan) -> list[str]:
    plan = found.plan
    best = next((design for design in plan.designs if design.available), None)
    remarks = []
    if best is not None:
        limit = "" if best.limit is None else f" (--limit {best.limit})"
        epochs = counted(best.epochs, "epoch")
        commands = counted(best.commands, "command")
        remarks.append(f"cheapest: {epochs} of {commands}{limit}")
    elif plan.needed is not None and plan.needed > plan.available:
        remarks.append(
            f"the data sets have {counted(plan.available, 'command')}: no number of epochs decides;"
            f" even with endless epochs it takes {counted(plan.needed, 'command')}"
        )
    else:
        remarks.append(
            f"the {plan.available:,} commands of the data sets do not decide"
            + (", more epochs than --max-epochs would" if plan.needed is not None else "")
        )
    if plan.needed is None:
        remarks.append(
            "the pilot asked every command once, so it cannot tell what further epochs would bring:"
            " `submit --epochs 2` with a few commands can"
        )
    return remarks
