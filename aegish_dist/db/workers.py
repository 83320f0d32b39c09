"""Which workers live, and how many items each holds."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from aegish_dist.db.tables import WorkerRow

ALIVE_S = 10
"""A worker reports every second; one silent for this long does not count."""
FORGET_S = 86_400


@dataclass(frozen=True, slots=True)
class Fleet:
    """The workers that reported lately."""

    workers: int
    in_flight: Mapping[tuple[str, str], int]
    """Items held, by run id and model."""


def report_worker(session: Session, name: str, in_flight: Mapping[tuple[str, str], int]) -> None:
    """Write down that a worker lives and what it holds, by run id and model."""
    held = [
        {"run": run_id, "model": model, "items": items}
        for (run_id, model), items in sorted(in_flight.items())
        if items
    ]
    statement = insert(WorkerRow).values(name=name, in_flight=held, seen_at=func.now())
    session.execute(
        statement.on_conflict_do_update(
            index_elements=["name"],
            set_={"in_flight": statement.excluded.in_flight, "seen_at": func.now()},
        )
    )


def forget_worker(session: Session, name: str) -> None:
    """Remove a worker that ends, and those that ended without saying so."""
    silent = func.now() - func.make_interval(0, 0, 0, 0, 0, 0, FORGET_S)
    session.execute(
        delete(WorkerRow).where((WorkerRow.name == name) | (WorkerRow.seen_at < silent))
    )


def living_fleet(session: Session) -> Fleet:
    """Return the workers that reported lately."""
    recent = func.now() - func.make_interval(0, 0, 0, 0, 0, 0, ALIVE_S)
    rows = session.scalars(select(WorkerRow.in_flight).where(WorkerRow.seen_at > recent)).all()
    held: Counter[tuple[str, str]] = Counter()
    for row in rows:
        for entry in row:
            held[entry["run"], entry["model"]] += entry["items"]
    return Fleet(len(rows), held)
