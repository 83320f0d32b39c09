"""Which connections a worker's database calls use."""

from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal

import pytest
from sqlalchemy import Engine

from aegish_dist.core.outcome import ErrorClass, Outcome
from aegish_dist.core.verdict import Verdict
from tests.integration.samples import TAR
from tests.integration.stored_runs import a_model, answer, stored_run
from tests.services import HOST, free_port, opened
from workers.store import WorkerDatabase

PAID = Verdict(Outcome.API_ERROR, None, ErrorClass.SERVER, cost_usd=Decimal("0.25"))


@pytest.fixture
def nowhere() -> Iterator[Engine]:
    with opened(f"postgresql://{HOST}:{free_port()}/none") as engine:
        yield engine


def test_a_recount_takes_no_connection_from_look_ups_and_inserts(
    engine: Engine, nowhere: Engine
) -> None:
    """Counting a run goes by a connection of its own; calls do not."""
    models = tuple(a_model(f"test/{number}") for number in range(6))
    stored = stored_run(engine, models=models)
    item = stored.item(TAR, model="test/3")
    answer(engine, stored, {item: PAID})
    database = WorkerDatabase(
        engine.url.render_as_string(hide_password=False).replace("+psycopg", "")
    )
    with closing(database):
        database.engine, connected = nowhere, database.engine
        (spent,) = database.spent([stored.run_id])
        assert spent["test/3"] == 250_000_000
        connected.dispose()
