"""What Celery's own tools see of a worker: its pool, its remote commands and its task events."""

from types import SimpleNamespace
from typing import Any

import pytest
from celery.concurrency import get_implementation
from celery.events.state import State
from celery.exceptions import Reject
from structlog.testing import capture_logs

from aegish_dist.broker.messages import EVALUATE
from tests.services import queue_application
from workers.consumer import RemoteCommands
from workers.tasks import Delivery, hand_over

ENDS = {
    "SUCCESS": (None, {}),
    "RETRY": (Reject("requeued"), {"requeue": True}),
    "FAILURE": (KeyError("bug"), {"requeue": False}),
}


@pytest.mark.parametrize("groups", [["worker"], None])
def test_events_on_demand(groups: list[str] | None) -> None:
    """A receiver of Celery's sees each task from its message to its end, where `-E` asks for it."""
    app, state, taken = queue_application(None), State(), list[Delivery]()
    with app.connection_for_write() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": state.event})
        with receiver.consumer_context() as (receiving, *_):
            sender = app.events.Dispatcher(connection, hostname="w", groups=groups)
            consumer = SimpleNamespace(
                event_dispatcher=sender, pool=SimpleNamespace(take=taken.append)
            )
            on_message = hand_over(SimpleNamespace(run=None, name=EVALUATE), app, consumer)
            for uuid in ENDS:
                on_message(message(uuid))
            for delivery, (error, how) in zip(taken, ENDS.values(), strict=True):
                if delivery.events is not None:
                    delivery.events.ended(error, **how)
            sender.send("worker-heartbeat", freq=2)
            while state.event_count < (1 if groups else 1 + 3 * len(ENDS)):
                receiving.drain_events(timeout=5)
    seen = {uuid: (task.state, task.name) for uuid, task in state.tasks.items()}
    assert seen == ({} if groups else {uuid: (uuid, EVALUATE) for uuid in ENDS})
    if groups is None:
        assert state.tasks["FAILURE"].exception == "KeyError('bug')"
        assert state.tasks["SUCCESS"].args == "['run', 'lab/x']"


def message(uuid: str) -> Any:
    payload = [["run", "lab/x"], {}, {}]
    return SimpleNamespace(
        payload=payload, headers={"id": uuid}, delivery_info={}, channel=None, delivery_tag=1
    )


def test_a_refused_command_names_ours() -> None:
    """And it is logged once: Flower repeats its commands every 5 s."""
    commands = RemoteCommands({"ping": dict})
    with capture_logs() as logged:
        answers = {name: commands[name](None)["error"] for name in ("stats", "revoke", "stats")}
    assert "`aegish-dist status`" in answers["stats"]
    assert "`aegish-dist cancel`" in answers["revoke"]
    assert [each["command"] for each in logged] == ["'stats'", "'revoke'"]
    assert {each["log_level"] for each in logged} == {"info"}
    assert commands["ping"] is dict


@pytest.mark.parametrize("pool", ["threads", "solo"])
def test_another_pool_is_refused_in_one_line(pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AEGISH_DIST_BROKER_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("AEGISH_DIST_DATABASE_URL", "postgresql://127.0.0.1:1/none")
    from workers.app import app  # noqa: PLC0415  it builds its application when it is imported

    with pytest.raises(SystemExit, match="leave out --pool and set their number with -c N"):
        app.Worker(pool=get_implementation(pool), hostname="w")
