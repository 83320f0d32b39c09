"""`aegish-dist simulate-provider`: the fake LLM provider."""

from pathlib import Path
from typing import Any

import click

from aegish_dist.cli.options import FiniteRange
from aegish_dist.cli.printing import note
from aegish_dist.core.model import HTTP_FORMATS
from aegish_dist.interchange.verdict_files import read_recordings
from aegish_dist.pipeline.simulate import (
    Fault,
    SimulatorServer,
    run_forever,
    simulator_config,
    write_catalog,
)


def _faults(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, float]:
    chances: dict[str, float] = {}
    for value in values:
        name, _equals, chance = value.partition("=")
        try:
            chances[Fault(name).value] = float(chance)
        except ValueError:
            known = ", ".join(fault.value for fault in Fault)
            raise click.BadParameter(f"'{value}' is not NAME=PROBABILITY; names: {known}") from None
    return chances


FORMATS = ", ".join(f"{api.title} ({api.simulated_root or '/'})" for api in HTTP_FORMATS.values())
HELP = f"""Serve the fake LLM provider on 127.0.0.1 until interrupted.

It speaks {FORMATS}, batches included, needs no key, and answers like simulated models or with
recorded completions.
"""
EXAMPLE = """\b
Try it:
  aegish-dist simulate-provider --write-catalog sim.toml &
  AEGISH_DIST_CATALOG=sim.toml aegish-dist submit --models simulated/careful"""


@click.command(help=HELP, epilog=EXAMPLE)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8099,
    show_default=True,
    help="Port on 127.0.0.1; 0 takes a free one.",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Also answer requests for this host, where a relay makes it reachable; repeatable.",
)
@click.option("--seed", type=int, help="Decides answers, latencies and faults.")
@click.option(
    "--latency",
    metavar="KIND:SECONDS",
    help="`constant:1`, `uniform:0.5,1.5`, `lognormal:1,0.4` or `exponential:1`;"
    " default: each simulated model's own.",
)
@click.option(
    "--fault",
    "faults",
    multiple=True,
    callback=_faults,
    metavar="NAME=PROBABILITY",
    help="For instance `rate_limit=0.05`; repeatable.",
)
@click.option(
    "--requests-per-minute",
    type=FiniteRange(0, min_open=True),
    help="Answer 429 above this rate, per model.",
)
@click.option(
    "--burst",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Requests that may come at once below that rate.",
)
@click.option(
    "--scenario",
    type=click.Path(path_type=Path),
    help="A TOML file with all of this, also per model and as scripts, and with faults of batches.",
)
@click.option(
    "--replay",
    "replays",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Answer with recorded completions: an Inspect AI log or a verdict export; repeatable.",
)
@click.option(
    "--write-catalog",
    "catalog",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a catalog of the served models, for AEGISH_DIST_CATALOG.",
)
def simulate_provider(replays: tuple[Path, ...], catalog: Path | None, **options: Any) -> None:
    """Serve the fake LLM provider on 127.0.0.1 until interrupted."""
    recordings = [each for path in replays for each in read_recordings(path)]

    def ready(server: SimulatorServer) -> None:
        if catalog is not None:
            out = "left out of the catalog: '{}' is no model id of the form PROVIDER/MODEL"
            note(*map(out.format, write_catalog(catalog, server.url, recordings)))
            note(f"catalog written to {catalog}")
        note(f"simulated provider at {server.url}")
        if recordings:
            note(f"replaying {len(recordings):,} recorded completions")

    run_forever(simulator_config(**options), recordings, ready)
