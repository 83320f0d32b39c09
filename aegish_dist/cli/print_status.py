"""How far a run is, as `status` prints it and as it is left behind where a run was watched."""

import sys

from aegish_dist.cli.printing import errors_are_on_terminal, note_lines, output_is_terminal
from aegish_dist.cli.tables import TextTable, in_columns, print_table, terminal_console
from aegish_dist.core.status import ModelStatus, RunStatus, State


def print_status(current: RunStatus, *, stderr: bool = False) -> None:
    """Print how far a run is: to a terminal what its live view shows, else a table.

    Args:
        stderr: Whether to print on standard error, otherwise on standard output.
    """
    if errors_are_on_terminal() if stderr else output_is_terminal():
        _print_drawn(current, stderr=stderr)
    elif stderr:
        note_lines(in_columns(_table(current)))
    else:
        print_table(_table(current))


def _print_drawn(current: RunStatus, *, stderr: bool) -> None:
    from aegish_dist.report.live.screen import Canvas, Scene, draw  # noqa: PLC0415

    console = terminal_console(stderr=stderr)
    canvas = Canvas(console.width, sys.maxsize, console.options.ascii_only)
    for line in draw(Scene(current), canvas):
        console.print(line, no_wrap=True, overflow="crop", crop=False)


def _table(current: RunStatus) -> TextTable:
    eta = "" if not current.eta_s else f", about {current.eta_s:.0f} s left"
    return TextTable(
        ("Model", "State"),
        [_row(model, current.workers) for model in current.models],
        ("Done", "Planned", "Failed", "Replaced", "In flight", "Per second", "Cost $"),
        title=f"Run {current.run_id}: {current.state}, {current.done:,} of {current.planned:,}"
        + eta,
        caption="  ".join(f"{name} {number:,}" for name, number in current.outcomes.items()),
    )


def _row(model: ModelStatus, workers: int) -> tuple[str, ...]:
    return (
        model.model,
        _state(model, workers),
        f"{model.done:,}",
        f"{model.planned:,}",
        f"{model.failed:,}",
        f"{model.replaced:,}",
        f"{model.in_flight:,}",
        f"{model.rate_per_s:.1f}",
        "-" if model.cost_usd is None else f"{model.cost_usd:.4f}",
    )


def _state(model: ModelStatus, workers: int) -> str:
    from aegish_dist.report.live.words import batch_words  # noqa: PLC0415  only where it prints

    state, batches = _own_state(model, workers), batch_words(model)
    return f"{state}; {batches}" if batches else state


def _own_state(model: ModelStatus, workers: int) -> str:
    if model.reason is None:
        return model.state
    if model.state is State.PARKED:
        return f"{model.state}: {model.reason}"
    return f"{model.state}: no worker may call it ({workers} running): {model.reason}"
