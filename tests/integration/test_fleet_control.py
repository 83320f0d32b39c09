"""How a fleet of limiters finds the limit of a provider that does not tell it, in virtual time."""

import asyncio

import pytest

from tests.simulated_fleet import Provider, SimulatedFleet
from tests.virtual_time import run_virtually

pytestmark = pytest.mark.long

WORKERS = 4
CLIENTS = 60


async def watch(provider: Provider, seconds: float) -> None:
    """Let a fleet call a provider for so long."""
    fleet = SimulatedFleet(provider, WORKERS, CLIENTS)
    await asyncio.sleep(seconds)
    await fleet.kill()


@pytest.mark.parametrize("tells", [True, False])
def test_an_unknown_limit_is_found_and_used(tells: bool) -> None:
    """After a minute a fleet uses 95 % of the limit at least, with 1 % of refusals at most."""
    provider = Provider(tells)

    run_virtually(watch(provider, 120))

    used, refused = provider.share(60, 120)
    assert used >= 0.95
    assert refused <= 0.01
    assert provider.share(0, 120)[1] <= 0.02
