"""`aegish-dist simulate-provider`: the fake LLM provider; and `demo`, one keyless run on it."""

import shlex
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from aegish_dist.cli.command import FILE, PORT_NUMBER, advanced, command, file_option
from aegish_dist.cli.options import FiniteRange, read_into
from aegish_dist.cli.printing import note, note_next, shown
from aegish_dist.cli.report import draw_page, page_path
from aegish_dist.cli.status import Shown
from aegish_dist.cli.workspace import open_workspace
from aegish_dist.core.model import HTTP_FORMATS, CallParameters
from aegish_dist.core.output import Output
from aegish_dist.core.text import JsonObject, did_you_mean, known
from aegish_dist.errors import ConfigError
from aegish_dist.interchange.verdict_files import read_rows
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.pipeline.plan import Request
from aegish_dist.pipeline.report import ReportPart, report_data
from aegish_dist.pipeline.runs import find_run, recent_runs
from aegish_dist.pipeline.simulate import (
    Fault,
    Simulator,
    SimulatorConfig,
    SimulatorServer,
    catalog_for,
    one_of_each_format,
    run_forever,
    simulator_config,
    simulator_thread,
    write_catalog,
)
from aegish_dist.pipeline.submit import start_run
from aegish_dist.report.drawing import draw_table
from aegish_dist.report.sections import one_screen
from aegish_dist.settings import load_settings

MODELS = (
    *("baseline/always-block", "baseline/always-allow", "baseline/keyword"),
    *one_of_each_format(),
)
FIRST = next(iter(one_of_each_format()))


def _faults(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, float]:
    chances: dict[str, float] = {}
    names = [fault.value for fault in Fault]
    for value in values:
        name, _equals, chance = value.partition("=")
        try:
            chances[Fault(name).value] = float(chance)
        except ValueError:
            hint = "such as `rate_limit=0.05`"
            if name not in names:
                hint = did_you_mean(name, names, f"names: {', '.join(names)}")
            raise click.BadParameter(f"'{value}' is not NAME=PROBABILITY; {hint}") from None
    return chances


FORMATS = ", ".join(f"{api.title} ({api.simulated_root or '/'})" for api in HTTP_FORMATS.values())
HELP = f"""Serve the fake LLM provider on 127.0.0.1 until interrupted.

It speaks {FORMATS}, needs no key, and answers like simulated models or with recorded completions.
"""


def given_values(
    *,
    port: int,
    hosts: tuple[str, ...],
    seed: int | None,
    latency: str | None,
    faults: dict[str, float],
    requests_per_minute: float | None,
    burst: int,
) -> JsonObject:
    """Return what stands in place of the values of a scenario."""
    limit = {"requests_per_minute": requests_per_minute, "burst": burst}
    return known(
        {
            "port": port,
            "hosts": hosts or None,
            "seed": seed,
            "latency": latency,
            "faults": faults or None,
            "rate_limit": None if requests_per_minute is None else limit,
        }
    )


@command(
    "aegish-dist simulate-provider --write-catalog sim.toml & sleep 2",
    "AEGISH_DIST_CATALOG=sim.toml aegish-dist submit --models simulated/careful",
    help=HELP,
)
@read_into(
    "given",
    given_values,
    click.option(
        "--port",
        type=PORT_NUMBER,
        default=8099,
        help="Port on 127.0.0.1; 0 takes a free one.",
    ),
    advanced(
        "--allow-host",
        "hosts",
        multiple=True,
        metavar="NAME",
        help="Also answer requests for this host, where a relay makes it reachable; repeatable.",
    ),
    advanced("--seed", type=int, help="Decides answers, latencies and faults."),
    click.option(
        "--latency",
        metavar="KIND:SECONDS",
        help="`constant:1`, `uniform:0.5,1.5`, `lognormal:1,0.4` or `exponential:1`;"
        " default: each simulated model's own.",
    ),
    click.option(
        "--fault",
        "faults",
        multiple=True,
        callback=_faults,
        metavar="NAME=PROBABILITY",
        help="For instance `rate_limit=0.05`; repeatable.",
    ),
    click.option(
        "--requests-per-minute",
        type=FiniteRange(0, min_open=True),
        help="Answer 429 above this rate, per model.",
    ),
    advanced(
        "--burst",
        type=click.IntRange(1),
        default=20,
        help="Requests that may come at once below that rate.",
    ),
)
@advanced(
    "--scenario",
    type=FILE,
    help="A TOML file with all of this, also per model and as scripts.",
)
@click.option(
    "--replay",
    "replays",
    multiple=True,
    type=FILE,
    help="Answer with recorded completions: an Inspect AI log or a verdict export; repeatable.",
)
@file_option(
    "--write-catalog",
    "catalog",
    help="Write a catalog of the served models, for AEGISH_DIST_CATALOG.",
)
def simulate_provider(
    *,
    given: JsonObject,
    scenario: Path | None,
    replays: tuple[Path, ...],
    catalog: Path | None,
) -> None:
    # Tried without the file: an error is one of an option then, and says how to type it.
    try:
        simulator_config(None, given)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    recordings = []
    for path in replays:
        recordings += [row.record for row in read_rows(path)]
    own = load_settings().catalog
    outputs: dict[str, Output] = {}
    # The catalog in use may be the one that is to be written, and absent yet.
    if recordings and own is not None and own.exists():
        here = open_workspace().catalog
        models = dict.fromkeys(recording.model for recording in recordings)
        outputs = known({model: here.output_of(model) for model in models})

    def ready(server: SimulatorServer) -> None:
        unnamed: list[str] = []
        if catalog is not None:
            unnamed = write_catalog(catalog, server.url, recordings, config.models, outputs)
            for name in unnamed:
                problem = f"'{name}' is no model id of the form PROVIDER/MODEL"
                note(f"left out of the catalog: {problem}")
            note(f"catalog written to {catalog}")
        note(f"simulated provider at {server.url}; Ctrl-C ends it")
        if recordings:
            note(f"replaying {len(recordings):,} recorded completions")
        if catalog is None:
            note("to ask it, let it write a catalog: --write-catalog sim.toml")
            return
        named = [record.model for record in recordings if record.model not in unnamed]
        first = named[0] if named else FIRST
        note_next(_ask_simulated(catalog, first), OPEN)

    config = simulator_config(scenario, given)
    run_forever(Simulator(config, recordings), ready)


@command("aegish-dist demo")
def demo() -> None:
    """Run the whole pipeline once, without keys and without a server to install.

    Asks three baselines, and a simulated model in each wire format, about the bundled datasets, on
    an embedded PostgreSQL, prints the report, and writes its page to report-RUN.html here. The
    simulated models answer over HTTP from this machine; their numbers say nothing about any real
    model.
    """
    with (
        simulator_thread(Simulator(SimulatorConfig())) as simulator,
        TemporaryDirectory() as directory,
    ):
        catalog = Path(directory) / "simulated.toml"
        catalog.write_text(catalog_for(simulator.url))
        workspace = open_workspace(
            load_settings({"database_url": None, "broker_url": None, "catalog": catalog})
        )
        taken = {run.name for run in recent_runs(workspace.engine)}
        name = "demo"
        number = 1
        while name in taken:
            number += 1
            name = f"demo-{number}"
        request = Request(
            models=MODELS,
            parameters=CallParameters(time_limit_s=30),
            name=name,
            preflight=False,
        )
        try:
            start_run(workspace, request, Shown(here=True))
        except KeyboardInterrupt as error:
            # `resume` would miss the simulator, which ends with this command.
            raise KeyboardInterrupt("before the end: `aegish-dist demo` starts again") from error
    run_id = find_run(workspace.engine, name)
    data = report_data(workspace.engine, run_id, Opinion(), parts={ReportPart.ADVICE})
    with shown(None) as show:
        show(partial(draw_table, one_screen(data, commands=False)))
    with shown(page_path(workspace, run_id)) as show:
        show(draw_page(workspace, data))
    providers = workspace.catalog.providers.values()
    if any(workspace.environ.get(provider.key_variable) for provider in providers):
        note_next("aegish-dist init", "aegish-dist submit --run-file experiment.toml", OPEN)
    else:
        serve = "aegish-dist simulate-provider --write-catalog sim.toml & sleep 2"
        note_next(serve, _ask_simulated(Path("sim.toml"), FIRST), "aegish-dist init")


OPEN = "aegish-dist report --open"


def _ask_simulated(catalog: Path, model: str) -> str:
    where = f"AEGISH_DIST_CATALOG={shlex.quote(str(catalog))}"
    return f"{where} aegish-dist submit --models {model} --limit 50"
