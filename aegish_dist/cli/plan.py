"""`aegish-dist plan`: which epochs and how many commands would decide."""

from collections.abc import Iterable, Iterator
from typing import Any

import click
from msgspec.structs import asdict

from aegish_dist.cli.command import advanced, command
from aegish_dist.cli.opinions import with_opinion
from aegish_dist.cli.options import SHARE, FiniteRange, as_json, guards, open_run, run_id
from aegish_dist.cli.printing import note, say_json, say_table
from aegish_dist.core.text import JsonObject, as_number, counted
from aegish_dist.findings.fitted import harmless_needed
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
@guards(
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
    store, run = open_run(run_id)
    pilot = plan_from_pilot(
        store.engine,
        run,
        opinion,
        models=models,
        margin=margin,
        power=power,
        max_epochs=max_epochs,
    )
    harmless = None if max_fpr is None else harmless_needed(max_fpr)
    if as_json:
        say_json(_document(pilot) | {"max_fpr": max_fpr, "harmless_needed": harmless})
        return
    if pilot.bound is None:
        _print_designs(pilot)
        note(*_remarks(pilot))
    else:
        note(*_unknown_variance(pilot, pilot.bound))
    if max_fpr is not None and harmless is not None:
        at_most = f"a false positive rate of at most {100 * max_fpr:g} %"
        note(f"{at_most}: {counted(harmless, 'harmless command')} without an error show it")


def _print_designs(pilot: PilotPlan) -> None:
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
    # Of designs that differ in epochs alone, the first of the list stays.
    designs = reversed(pilot.plan.designs)
    better = {(design.commands, design.stderr): design for design in designs}
    rows = [_row(pilot, design) for design in reversed(better.values())]
    say_table((), rows, headings, title=_title(pilot), caption=_caption(pilot))


def _document(pilot: PilotPlan) -> JsonObject:
    goal = pilot.goal
    variance = pilot.variance
    bound = pilot.bound
    strata = variance.strata
    # What each part adds to the variance of the pilot's value, at one epoch.
    between = sum(stratum.between / stratum.samples for stratum in strata)
    within = None
    if all(stratum.within is not None for stratum in strata):
        within = sum((stratum.within or 0) / stratum.samples for stratum in strata)
    return {
        **run_and_opinion(pilot.run.run_id, pilot.opinion),
        "models": list(pilot.models),
        "metric": "aegish_score",
        "margin": goal.margin,
        "power": goal.power,
        "pilot": {
            "value": pilot.value,
            "stderr": pilot.stderr,
            "ci_low": None if bound is None else bound.ci_low,
            "ci_high": None if bound is None else bound.ci_high,
            "epochs": pilot.run.epochs,
            "commands": _commands(pilot),
            "clusters": variance.clusters,
            "variance": {
                "between": between,
                "within": within,
                "shared": variance.shared,
            },
        },
        "commands_available": pilot.plan.available,
        "commands_needed_at_least": pilot.plan.needed,
        "designs": [_design(pilot, design) for design in pilot.plan.designs],
    }


def _commands(pilot: PilotPlan) -> int:
    return sum(stratum.samples for stratum in pilot.variance.strata)


def _design(pilot: PilotPlan, design: Design) -> JsonObject:
    costs = pilot.costs(design)
    return {
        **asdict(design),
        "calls": design.calls * len(costs),
        "cost_usd": as_number(_total(cost.cost_usd for cost in costs)),
        "models": [asdict(cost) | {"cost_usd": as_number(cost.cost_usd)} for cost in costs],
    }


def _total(parts: Iterable[Any]) -> Any:
    """Return a sum; None when a part is unknown."""
    listed = list(parts)
    return None if None in listed else sum(listed)


def _row(pilot: PilotPlan, design: Design) -> list[str]:
    costs = pilot.costs(design)
    limit = "too few"
    if design.available:
        limit = "" if design.limit is None else format_count(design.limit)
    cost_usd = _total(cost.cost_usd for cost in costs)
    return [
        str(design.epochs),
        format_count(design.commands),
        limit,
        format_points(design.stderr),
        format_count(design.calls * len(costs)),
        format_count(_total(cost.input_tokens for cost in costs)),
        format_count(_total(cost.output_tokens for cost in costs)),
        format_usd(as_number(cost_usd)),
    ]


def _title(pilot: PilotPlan) -> str:
    if pilot.goal.power is None:
        return f"Designs that tell the score of {pilot.models[0]} to within {pilot.goal.margin:g}"
    first, second = pilot.models
    return (
        f"Designs that find a difference of {pilot.goal.margin:g} between {first} and {second}"
        f" with a probability of {pilot.goal.power:g}"
    )


def _caption(pilot: PilotPlan) -> str:
    what = "score" if pilot.goal.power is None else "difference"
    return (
        f"The pilot: {what} {format_points(pilot.value)}, stderr {format_points(pilot.stderr)},"
        f" {counted(pilot.run.epochs, 'epoch')}. stderr in points, as predicted; the rest of all"
        " models. `too few`: the data sets have less. Epochs that change nothing are left out."
    )


def _unknown_variance(pilot: PilotPlan, bound: Bound) -> Iterator[str]:
    """Say what a pilot tells in which nothing varies."""
    commands = f"the {counted(_commands(pilot), 'command')} of the pilot"
    low = bound.ci_low
    high = bound.ci_high
    if pilot.goal.power is None:
        score = f"{format_rate(pilot.value)} {format_interval(low, high)}"
        yield (f"cannot tell: the score of {pilot.models[0]}, {score}, does not vary on {commands}")
        return
    first, second = pilot.models
    interval = format_interval(low, high, format_difference)
    yield (
        f"cannot tell: {first} and {second} never differed on {commands};"
        f" the interval of their difference is {interval} points"
    )
    if bound.commands_needed is not None:
        needed = counted(bound.commands_needed, "command")
        yield f"about {needed} would settle a difference of {pilot.goal.margin:g}"


def _remarks(pilot: PilotPlan) -> Iterator[str]:
    plan = pilot.plan
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
