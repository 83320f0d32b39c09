"""Which connections a worker's database calls use."""

from collections.abc import Iterator
from decimal import Decimal

import pytest
from sqlalchemy import Engine

from aegish_dist.core.outcome import ErrorClass, Outcome
from aegish_dist.core.verdict import Verdict
from aegish_dist.db.engine import open_engine
from aegish_dist.errors import StoreAwayError
from aegish_dist.models import CatalogCredentials
from tests.integration.stored_runs import TAR, a_model, a_run, answer, store
from tests.services import HOST, free_port
from workers.store import RECOUNT_CONNECTIONS, Store

PAID = Verdict(Outcome.API_ERROR, None, ErrorClass.SERVER, cost_usd=Decimal("0.25"))


@pytest.fixture
def nowhere() -> Iterator[Engine]:
    opened = open_engine(f"postgresql://{HOST}:{free_port()}/none")
    yield opened
    opened.dispose()


def test_a_recount_takes_no_connection_from_look_ups_and_inserts(
    engine: Engine, nowhere: Engine
) -> None:
    """Counting a run goes by a connection of its own; calls do not."""
    models = tuple(a_model(f"test/{number}") for number in range(6))
    stored = store(engine, a_run(models=models))
    item = stored.item(TAR, model="test/3")
    answer(engine, stored, {item: PAID})
    credentials = CatalogCredentials(None, {})
    url = engine.url.render_as_string(hide_password=False).replace("+psycopg", "")
    recounts = open_engine(url, pool_size=RECOUNT_CONNECTIONS)

    counting, calling = Store(nowhere, recounts, credentials), Store(engine, nowhere, credentials)

    (spent,) = counting.spent([stored.run_id])
    assert spent["test/3"] == 250_000_000
    (found,) = calling.look_up([item])
    assert found is not None
    assert found.done
    with pytest.raises(StoreAwayError):
        counting.look_up([item])
    recounts.dispose()
