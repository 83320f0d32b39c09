"""Serve the provider of batches until interrupted, as `aegish-dist simulate-provider` is served.

The catalog that it writes says what a request of a batch costs.
"""

from pathlib import Path

import click
from msgspec.structs import replace

from aegish_dist.pipeline.simulate import write_catalog
from aegish_dist.simulator.server import SimulatorServer, run_forever
from tests.batch_server.bill import SHARE
from tests.batch_server.server import BatchScenario, BatchSimulator, read_scenario

PRICED = ('wire = "openai"', 'wire = "anthropic"')


@click.command(help=__doc__)
@click.option("--port", type=int, default=0)
@click.option("--latency")
@click.option("--scenario", type=click.Path(path_type=Path))
@click.option("--write-catalog", "catalog", type=click.Path(path_type=Path))
def main(*, port: int, latency: str | None, scenario: Path | None, catalog: Path | None) -> None:
    config = BatchScenario() if scenario is None else read_scenario(scenario)
    config = replace(config, port=port, latency=latency or config.latency)

    def ready(server: SimulatorServer) -> None:
        if catalog is not None:
            unfinished = catalog.with_suffix(".part")
            write_catalog(unfinished, server.url, (), config.models)
            text = unfinished.read_text()
            for line in PRICED:
                text = text.replace(line, f"{line}\nbatch_share = {SHARE}")
            unfinished.write_text(text)
            unfinished.rename(catalog)

    run_forever(BatchSimulator(config), ready)


if __name__ == "__main__":
    main()
