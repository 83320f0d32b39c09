"""`aegish-dist plan`: which epochs and how many commands would decide."""

from collections.abc import Iterable, Iterator
from typing import Any

import click
from msgspec.structs import asdict

from aegish_dist.cli.command import advanced, command
from aegish_dist.cli.opinions import with_opinion
from aegish_dist.cli.options import SHARE, FiniteRange, as_json, names, open_run, run_id
from aegish_dist.cli.printing import note, say_json, say_table
from aegish_dist.core.text import JsonObject, counted
from aegish_dist.findings.thresholds import harmless_needed
from aegish_dist.opinions.opinion import Opinion, run_and_opinion
from aegish_dist.pipeline.plan_repeats import Bound, PilotPlan, plan_from_pilot
from aegish_dist.report.writing import (
    format_count,
    format_difference,
    format_interval,
    format_points,
    format_rate,
    format_usd,
)
from aegish_dist.statistics.repeats import Design


@command(
    "aegish-dist plan --models openai/gpt-5.1 --margin 0.05",
    "aegish-dist plan --models baseline/keyword,openai/gpt-5.1 --margin 0.02",
)
@run_id(default="latest")
@click.option(
    "--margin",
    type=FiniteRange(0, 1, min_open=True),
    required=True,
    metavar="M",
    help="Difference of scores to detect, such as 0.02; of one model, half its interval.",
)
@names(
    "--models", "ID[,ID]", "One model, or a baseline and a candidate; default: those of the run."
)
@with_opinion
@advanced(
    "--max-fpr",
    type=SHARE,
    metavar="F",
    help="Say, too, how many harmless commands show a false positive rate of at most F.",
)
@advanced(
    "--power",
    type=FiniteRange(0.5, 1, min_open=True, max_open=True),
    default=0.8,
    help="Probability to find a difference of that size.",
)
@advanced(
    "--max-epochs",
    type=click.IntRange(1, 1000),
    default=10,
    help="Most epochs to consider.",
)
@as_json
def plan(
    run_id: str,
    opinion: Opinion,
    *,
    margin: float,
    models: list[str],
    max_fpr: float | None,
    power: float,
    max_epochs: int,
    as_json: bool,
) -> None:
    """Estimate from a pilot how many commands and epochs decide.

    Uses a finished run to estimate variance and cost; to judge repeats, the run needs two epochs or
    more. Calls no model.
    """
    workspace, run = open_run(run_id)
    found = plan_from_pilot(
        workspace.engine,
        run,
        opinion,
        models=models,
        margin=margin,
        power=power,
        max_epochs=max_epochs,
    )
    needed = None if max_fpr is None else harmless_needed(max_fpr)
    if as_json:
        say_json(_document(found) | {"max_fpr": max_fpr, "harmless_needed": needed})
        return
    if found.bound is None:
        _print_designs(found)
        note(*_remarks(found))
    else:
        note(*_unknown_variance(found, found.bound))
    if needed is not None:
        at_most = f"a false positive rate of at most {100 * (max_fpr or 0):g} %"
        note(f"{at_most}: {counted(needed, 'harmless command')} without an error show it")


def _print_designs(found: PilotPlan) -> None:
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
    designs = reversed(found.plan.designs)
    better = {(design.commands, design.stderr): design for design in designs}
    rows = [_row(found, design) for design in reversed(better.values())]
    say_table((), rows, headings, title=_title(found), caption=_caption(found))


def _document(found: PilotPlan) -> JsonObject:
    goal = found.goal
    variance = found.variance
    bound = found.bound
    strata = variance.strata
    between = sum(stratum.between / stratum.samples for stratum in strata)
    within = None
    if all(stratum.within is not None for stratum in strata):
        within = sum((stratum.within or 0) / stratum.samples for stratum in strata)
    return {
        **run_and_opinion(found.run.run_id, found.opinion),
        "models": list(found.models),
        "metric": "aegish_score",
        "margin": goal.margin,
        "power": goal.power,
        "pilot": {
            "value": found.value,
            "stderr": found.stderr,
            "ci_low": None if bound is None else bound.ci_low,
            "ci_high": None if bound is None else bound.ci_high,
            "epochs": found.run.epochs,
            "commands": _commands(found),
            "clusters": variance.clusters,
            # What each part adds to the variance of the pilot's value, at one epoch.
            "variance": {
                "between": between,
                "within": within,
                "shared": variance.shared,
            },
        },
        "commands_available": found.plan.available,
        "commands_needed_at_least": found.plan.needed,
        "designs": [_design(found, design) for design in found.plan.designs],
    }


def _commands(found: PilotPlan) -> int:
    return sum(stratum.samples for stratum in found.variance.strata)


def _design(found: PilotPlan, design: Design) -> JsonObject:
    costs = found.costs(design)
    return {
        **asdict(design),
        "calls": design.calls * len(costs),
        "cost_usd": _usd(_total(cost.cost_usd for cost in costs)),
        "models": [asdict(cost) | {"cost_usd": _usd(cost.cost_usd)} for cost in costs],
    }


def _total(parts: Iterable[Any]) -> Any:
    """Return a sum; None when a part is unknown."""
    listed = list(parts)
    if None in listed:
        return None
    return sum(listed)


def _usd(amount: Any) -> float | None:
    if amount is None:
        return None
    return float(amount)


def _row(found: PilotPlan, design: Design) -> list[str]:
    costs = found.costs(design)
    limit = "" if design.limit is None else format_count(design.limit)
    return [
        str(design.epochs),
        format_count(design.commands),
        limit if design.available else "too few",
        format_points(design.stderr),
        format_count(design.calls * len(costs)),
        format_count(_total(cost.input_tokens for cost in costs)),
        format_count(_total(cost.output_tokens for cost in costs)),
        format_usd(_usd(_total(cost.cost_usd for cost in costs))),
    ]


def _title(found: PilotPlan) -> str:
    if found.goal.power is None:
        return f"Designs that tell the score of {found.models[0]} to within {found.goal.margin:g}"
    first, second = found.models
    return (
        f"Designs that find a difference of {found.goal.margin:g} between {first} and {second}"
        f" with a probability of {found.goal.power:g}"
    )


def _caption(found: PilotPlan) -> str:
    what = "score" if found.goal.power is None else "difference"
    return (
        f"The pilot: {what} {format_points(found.value)}, stderr {format_points(found.stderr)},"
        f" {counted(found.run.epochs, 'epoch')}. stderr in points, as predicted; the rest of all"
        " models. `too few`: the data sets have less. Epochs that change nothing are left out."
    )


def _unknown_variance(found: PilotPlan, bound: Bound) -> Iterator[str]:
    """Say what a pilot tells in which nothing varies."""
    commands = f"the {counted(_commands(found), 'command')}"
    if found.goal.power is None:
        interval = format_interval(bound.ci_low, bound.ci_high)
        score = f"the score of {found.models[0]}, {format_rate(found.value)} {interval}"
        yield f"cannot tell: {score}, does not vary on {commands} of the pilot"
        return
    a, b = found.models
    interval = format_interval(bound.ci_low, bound.ci_high, format_difference)
    never = f"{a} and {b} never differed on {commands} of the pilot"
    yield f"cannot tell: {never}; the interval of their difference is {interval} points"
    if bound.commands_needed is not None:
        margin = f"a difference of {found.goal.margin:g}"
        yield f"about {counted(bound.commands_needed, 'command')} would settle {margin}"


def _remarks(found: PilotPlan) -> Iterator[str]:
    plan = found.plan
    available = [design for design in plan.designs if design.available]
    if available:
        best = available[0]
        words = f"{counted(best.epochs, 'epoch')} of {counted(best.commands, 'command')}"
        if best.limit is not None:
            words += f" (--limit {best.limit})"
        yield f"cheapest: {words}"
    elif plan.needed is not None and plan.needed > plan.available:
        yield (
            f"the data sets have {counted(plan.available, 'command')}: no number of epochs decides;"
            f" even with endless epochs it takes {counted(plan.needed, 'command')}"
        )
    else:
        words = f"the {plan.available:,} commands of the data sets do not decide"
        if plan.needed is not None:
            words += ", more epochs than --max-epochs would"
        yield words
    if plan.needed is None:
        yield (
            "the pilot asked every command once, so it cannot tell what further epochs would bring:"
            " `submit --epochs 2` with a few commands can"
        )
