"""Options that say what counts as right, and notes on corrections of labels."""

from pathlib import Path

import click
from click.core import ParameterSource
from msgspec.structs import replace

from aegish_dist.cli.command import FILE, Advanced, advanced, file_option
from aegish_dist.cli.options import (
    SHARE,
    FiniteRange,
    Utf8,
    completes,
    read_into,
    together,
)
from aegish_dist.cli.printing import note
from aegish_dist.core.text import known
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.policy import Requirements
from aegish_dist.opinions.scoring import DEFAULT_RULE, OWN_NUMBER, RULES, SUSPICION_RULES
from aegish_dist.pipeline.opinions import (
    load_opinion,
    load_policies,
    load_suspicion_rule,
    overlay_notes,
)
from aegish_dist.pipeline.store import Store

# Adds `--scoring`, `--targets` and `--overlay`.
with_opinion_options = together(
    click.option(
        "--scoring",
        type=Utf8(),
        default=DEFAULT_RULE.name,
        metavar="NAME|FILE",
        shell_complete=completes(RULES),
        help=f"The rule set: {', '.join(RULES)}, or a file with your own.",
    ),
    file_option(
        "--targets",
        cls=Advanced,
        help="Values from which a metric is a PASS. Default: the reference benchmark's.",
    ),
    file_option(
        "--overlay", cls=Advanced, help="Corrections of labels, applied before anything is counted."
    ),
)

# Adds these options, read into the parameter `opinion`.
with_opinion = read_into("opinion", load_opinion, with_opinion_options)


with_suspicion = read_into(
    "suspicion",
    load_suspicion_rule,
    advanced(
        "--suspicion",
        type=Utf8(),
        default=OWN_NUMBER.name,
        metavar="NAME|FILE",
        shell_complete=completes(SUSPICION_RULES),
        help="How dangerous a guard finds a command:"
        f" {', '.join(SUSPICION_RULES)}, or a file with your own rule.",
    ),
)


def _with_policies(opinion: Opinion, policy: tuple[Path, ...]) -> Opinion:
    return replace(opinion, policies=load_policies(policy))


# Adds `--policy`, laid upon the opinion that `with_opinion` reads before.
with_policies = read_into(
    "opinion",
    _with_policies,
    click.option(
        "--policy",
        multiple=True,
        type=FILE,
        metavar="FILE",
        help="A policy file: its guard, `policy/NAME`, stands among the models. Repeatable.",
    ),
)


def _requirements(
    max_fpr: float | None,
    max_cost_per_1000: float | None,
    max_p95_ms: float | None,
    prevalence: float | None,
) -> Requirements | None:
    """Return the bounds that are given; None without any."""
    cost = None if max_cost_per_1000 is None else 10 * max_cost_per_1000
    given = known(
        {
            "max_fpr": max_fpr,
            "max_cost_per_10000": cost,
            "max_p95_ms": max_p95_ms,
            "prevalence": prevalence,
        }
    )
    return Requirements(**given) if given else None


_POSITIVE = FiniteRange(0, min_open=True)
with_bounds = read_into(
    "bounds",
    _requirements,
    click.option(
        "--max-fpr",
        type=SHARE,
        metavar="F",
        help="Detect the most with a false positive rate of at most F.",
    ),
    click.option(
        "--max-cost-per-1000",
        type=_POSITIVE,
        metavar="C",
        help="USD that 1,000 commands may cost.",
    ),
    click.option(
        "--max-p95-ms",
        type=_POSITIVE,
        metavar="T",
        help="Milliseconds that 95 % of the commands may take.",
    ),
    click.option(
        "--prevalence",
        type=SHARE,
        metavar="P",
        help="Share of dangerous commands in use. Default: 0.001.",
    ),
)


def refuse_an_opinion(of: str = "--snapshot", *further: str) -> None:
    """Refuse what a stored snapshot would leave without effect."""
    for option in ("scoring", "targets", "overlay", *further):
        if typed_words(option):
            what = "a run" if option == "run-id" else "a rule set"
            raise click.UsageError(f"{of} has {what} of its own; leave out --{option}")


def typed_words(*options: str) -> list[str]:
    """Return the words of this command line that set these options."""
    context = click.get_current_context()
    words = []
    for option in options:
        name = option.replace("-", "_")
        # A default is no word of the user, even where it says the same.
        if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        typed = context.params[name]
        for value in typed if isinstance(typed, tuple) else (typed,):
            words += [f"--{option}", str(value)]
    return words


def note_overlay(store: Store, run_id: str, opinion: Opinion) -> None:
    """Print which part of an overlay a run does not ask; one that does not fit it is refused."""
    note(*overlay_notes(store.engine, run_id, opinion))


def note_what_counts(store: Store, run_id: str, opinion: Opinion, snapshot: int | None) -> None:
    """Note the same for what is shown; of a stored snapshot, refuse an opinion of one's own.

    A snapshot has its opinion; None stands for the verdicts as they are now.
    """
    if snapshot is None:
        note_overlay(store, run_id, opinion)
    else:
        refuse_an_opinion()
