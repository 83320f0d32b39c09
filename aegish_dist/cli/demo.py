"""`aegish-dist demo`: one keyless run, from dataset to leaderboard."""

from functools import partial
from itertools import chain, count
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from aegish_dist.cli.options import open_workspace
from aegish_dist.cli.printing import note, shown
from aegish_dist.cli.status import status_shown
from aegish_dist.core.model import CallParameters
from aegish_dist.core.opinion import Opinion
from aegish_dist.datasets.bundled import bundled_names, load_bundled
from aegish_dist.models import Catalog
from aegish_dist.pipeline.control import run_embedded
from aegish_dist.pipeline.plan import RunPlan
from aegish_dist.pipeline.report import report_data
from aegish_dist.pipeline.runs import recent_runs
from aegish_dist.pipeline.simulate import (
    SimulatorConfig,
    catalog_for,
    one_of_each_format,
    simulator_thread,
)
from aegish_dist.pipeline.submit import create_run
from aegish_dist.prompts.loading import load_prompt
from aegish_dist.report.formats import render
from aegish_dist.settings import load_settings

MODELS = (
    *("baseline/always-block", "baseline/always-allow", "baseline/keyword"),
    *one_of_each_format(),
)


@click.command()
def demo() -> None:
    """Run the whole pipeline once, without keys and without a server to install.

    Asks three baselines, and a simulated model in each wire format, about the bundled datasets, on
    an embedded PostgreSQL, and prints the report. The simulated models answer over HTTP from this
    machine; their numbers say nothing about any real model.
    """
    with simulator_thread(SimulatorConfig()) as simulator, TemporaryDirectory() as directory:
        catalog = Path(directory) / "simulated.toml"
        catalog.write_text(catalog_for(simulator.url))
        workspace = open_workspace(
            load_settings({"database_url": None, "broker_url": None, "catalog": catalog})
        )
        taken = {each.name for each in recent_runs(workspace.engine, limit=2**31 - 1)}
        names = chain(["demo"], (f"demo-{number}" for number in count(2)))
        name = next(each for each in names if each not in taken)
        submission = _submission(workspace.catalog, name)
        simulated = sum(spec.simulated for spec in submission.models)
        note(
            f"asking {len(submission.models)} models ({simulated} of them simulated) about"
            f" {sum(len(d.samples) for d in submission.datasets)} commands"
        )
        run = create_run(workspace.engine, submission)
        with status_shown(here=True) as show:
            run_embedded(workspace.engine, workspace.app, run, show)
    data = report_data(workspace.engine, run.run_id, Opinion())
    with shown(None) as show:
        show(partial(render, data, "table"))


def _submission(catalog: Catalog, name: str) -> RunPlan:
    return RunPlan(
        models=catalog.resolve(MODELS, {}),
        datasets=tuple(load_bundled(name) for name in bundled_names()),
        prompt=load_prompt("guard"),
        parameters=CallParameters(time_limit_s=30),
        epochs=1,
        name=name,
    )
