"""`aegish-dist simulate-provider`: the fake LLM provider."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from aegish_dist.cli.options import FiniteRange
from aegish_dist.cli.printing import note
from aegish_dist.core.wire import HTTP_FORMATS
from aegish_dist.errors import ConfigError
from aegish_dist.pipeline.simulate import write_catalog
from aegish_dist.recordings import read_recordings
from aegish_dist.simulator.chance import parse_latency
from aegish_dist.simulator.config import Fault, FaultPlan, RateLimit, SimulatorConfig
from aegish_dist.simulator.scenario import read_scenario
from aegish_dist.simulator.server import SimulatorServer, run_forever


def _faults(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[Fault, float]:
    chances: dict[Fault, float] = {}
    for value in values:
        name, _equals, chance = value.partition("=")
        try:
            chances[Fault(name)] = float(chance)
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
    "--batch-duration",
    metavar="KIND:SECONDS",
    help="Seconds that a batch takes, in the same forms.  [default: constant:2]",
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
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a catalog of the served models, for AEGISH_DIST_CATALOG.",
)
def simulate_provider(**options: Any) -> None:
    """Serve the fake LLM provider on 127.0.0.1 until interrupted."""
    recordings = [each for path in options["replays"] for each in read_recordings(path)]

    def ready(server: SimulatorServer) -> None:
        path = options["write_catalog"]
        if path is not None:
            for model in write_catalog(path, server.url, recordings):
                note(
                    f"left out of the catalog: '{model}' is no model id of the form PROVIDER/MODEL"
                )
            note(f"catalog written to {path}")
        note(f"simulated provider at {server.url}")
        if recordings:
            note(f"replaying {len(recordings):,} recorded completions")

    run_forever(_config(options), recordings, ready)


def _config(options: dict[str, Any]) -> SimulatorConfig:
    scenario = options["scenario"]
    config = SimulatorConfig() if scenario is None else read_scenario(scenario)
    hosts = frozenset(host.lower() for host in options["hosts"])
    config = replace(config, port=options["port"], hosts=hosts)
    if options["seed"] is not None:
        config = replace(config, seed=options["seed"])
    if options["latency"]:
        config = replace(config, latency=parse_latency(options["latency"]))
    if options["batch_duration"]:
        plan = replace(config.batches, duration=parse_latency(options["batch_duration"]))
        config = replace(config, batches=plan)
    if options["faults"]:
        if sum(options["faults"].values()) > 1:
            raise ConfigError("the probabilities of --fault add up to more than 1")
        config = replace(config, faults=FaultPlan(options["faults"]))
    if options["requests_per_minute"]:
        limit = RateLimit(options["requests_per_minute"], options["burst"])
        config = replace(config, rate_limit=limit)
    return config
