"""Every alert made to fire by its fault, and to clear by its remedy, on a real Prometheus.

Run `python benchmarks/alert_drill.py [ALERT...]`; takes about a quarter of an hour for all. Needs
redis-server and prometheus. The rules are those of deploy/prometheus/, their minutes shortened to
seconds (`monitored.shortened`); labels, expressions and other bounds are the same. A drill waits
until no alert fires, strikes, waits for the alert, mends, and waits until it is silent.

`fired` and `cleared` are seconds after fault and remedy. `with it` are other alerts that fired
meanwhile: consequences of the same fault.
"""

import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import click
from alert_faults import DRILLS, AlertDrill
from alert_stand import Stand
from measuring import laid_out

from tests.services import wait_until

FIRES_S = 150.0
CLEARS_S = 150.0


@dataclass(frozen=True, slots=True)
class Drilled:
    """Result of one drill."""

    fired_s: float | None
    """Seconds from the fault until the alert fired; None: it did not."""
    cleared_s: float | None
    """Seconds from the remedy until it was silent; None: it was not."""
    others: tuple[str, ...]


def drill(stand: Stand, of: AlertDrill) -> Drilled:
    """Make an alert fire and clear; stops waiting for either after a while."""
    wait_until(lambda: not stand.prometheus.firing(), f"calm before {of.alert}", CLEARS_S)
    others: set[str] = set()

    def seen(fires: bool) -> float | None:
        began = time.monotonic()
        while time.monotonic() - began < (FIRES_S if fires else CLEARS_S):
            firing = stand.prometheus.firing()
            others.update(firing)
            if (of.alert in firing) is fires:
                return time.monotonic() - began
            time.sleep(0.2)
        return None

    with of.strike(stand):
        fired_s = seen(True)
    cleared_s = seen(False)
    stand.cancel()
    return Drilled(fired_s, cleared_s, tuple(sorted(others - {of.alert})))


def line(of: AlertDrill, result: Drilled) -> str:
    """Return a row of the table."""
    times = ("never" if s is None else f"{s:.1f} s" for s in (result.fired_s, result.cleared_s))
    others = ", ".join(result.others)
    return f"| {of.alert} | {of.fault} | {' | '.join(times)} | {others} |"


@click.command(help=laid_out(__doc__))
@click.argument("alerts", nargs=-1, metavar="[ALERT...]")
@click.option(
    "--logs", type=click.Path(path_type=Path), help="A new folder for logs and Prometheus' data."
)
def main(*, alerts: tuple[str, ...], logs: Path | None) -> None:
    """Drill and print the table; exit 1 when an alert did not fire or did not clear."""
    chosen = [each for each in DRILLS if not alerts or each.alert in alerts]
    missed = []
    with ExitStack() as stack:
        home = logs or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="alerts")))
        home.mkdir(parents=True, exist_ok=True)
        stand = stack.enter_context(Stand(home))
        print("| alert | fault; remedy | fired | cleared | with it |\n|---|---|---:|---:|---|")
        for each in chosen:
            result = drill(stand, each)
            print(line(each, result), flush=True)
            if None in (result.fired_s, result.cleared_s):
                missed.append(each.alert)
    if missed:
        raise click.ClickException(f"not as it should be: {', '.join(missed)}")


if __name__ == "__main__":
    main()
