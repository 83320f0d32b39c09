"""Each fault once, in the middle of a run: nothing is lost or stored twice, next to nothing paid twice."""

import sys
from collections.abc import Iterator

import pytest

from tests.chaos.drill import Drill
from tests.chaos.faults import FAULTS
from tests.chaos.fleet import Host

SEED = 8
LOG_CHARS = 12_000  # of the workers' log, shown where a drill fails


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Keeps a fleet from drill to drill, until one needs another layout or fails."""
    with Host(lambda: tmp_path_factory.mktemp("fleet")) as kept:
        yield kept


NAMES: list[str] = sorted(FAULTS, key=lambda name: str(FAULTS[name].layout))
"""Drills on the same fleet one behind the other."""
QUICK = {"worker-killed", "postgres-killed", "redis-wiped"}  # drills of `make test`


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in NAMES]
)
def test_fault(name: str, host: Host) -> None:
    """The run completes by itself, and what is called again is at most what was in flight."""
    fault = FAULTS[name]
    fleet = host.fleet(fault.layout)
    result = Drill(fleet, fault, SEED).run()
    broken = result.broken(fault)
    if broken:
        sys.stderr.write(f"{result}\n{fleet.cluster.log()[-LOG_CHARS:]}")
        host.close()
    assert not broken
