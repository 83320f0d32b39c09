"""The fixtures of whole fleets."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster, Simulator, environment


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str) -> Iterator[Cluster]:
    """A cluster on Redis, or on the broker of an indirect parameter; nothing is started yet."""
    broker_url = request.getfixturevalue(f"{getattr(request, 'param', 'redis')}_url")
    with Cluster(tmp_path, postgres_url, broker_url) as prepared:
        yield prepared


@pytest.fixture
def instant(cluster: Cluster) -> None:
    """Start the cluster's simulated provider, which answers at once."""
    cluster.simulator.start()


@pytest.fixture
def simulator(tmp_path: Path) -> Iterator[Simulator]:
    with Simulator(tmp_path) as prepared:
        yield prepared


@pytest.fixture
def alone(home: Path, simulator: Simulator) -> dict[str, str]:
    """The settings of commands without servers: the store and a worker are inside each of them."""
    return environment(home=home, catalog=simulator.catalog, concurrency=20)
