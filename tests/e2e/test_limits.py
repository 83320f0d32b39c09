"""Models that fail, throttle or cost too much, and what becomes of the rest of the run."""

from datetime import datetime
from typing import Any

import pytest
from redis import Redis

from tests.cluster import DEADLINE_S, Cluster, Simulator, run, run_json
from tests.defined import defined
from tests.services import wait_until

pytestmark = pytest.mark.long

SLOW = '[[models]]\nid = "{}"\nsimulated = true\nrequests_per_minute = {}'
DEAR = '[[models]]\nid = "simulated/dear"\nsimulated = true\nprice = { per_call = 0.01 }'


@pytest.fixture
def simulator(simulator: Simulator) -> Simulator:
    """A provider that knows a model without access, and a catalog with one that has a price."""
    simulator.start("--seed", "7", scenario="[models.locked.faults]\nauth = 1.0")
    simulator.know(DEAR)
    return simulator


def models_of(status: dict[str, Any]) -> dict[str, tuple[str, int]]:
    return {each["model"]: (each["state"], each["done"]) for each in status["models"]}


def test_a_dead_model_is_parked(alone: dict[str, str], simulator: Simulator) -> None:
    """The others finish although it would fill the worker; its items wait without being called."""
    asked = "--models simulated/locked,simulated/careful --dataset harmless --skip-preflight"
    submitted = run(alone, f"submit {asked}", code=1)
    status = run_json(alone, "status")
    assert "`aegish-dist resume --run-id" in run(alone, "status").stderr
    planned = status["planned"] // 2
    calls = simulator.stats()["requests"]
    assert "parked after too many failures in a row: simulated/locked" in submitted.stderr
    assert models_of(status)["simulated/careful"] == ("complete", planned)
    # Some that failed before the tenth may be given up; the others are not.
    assert status["outcomes"].get("API_ERROR", 0) < 10
    assert calls["careful"] == planned
    assert calls["locked"] < 40


POSTPONE = """
local model = cjson.decode(redis.call('GET', KEYS[1]))
model.parked.at, model.parked.wait = redis.call('TIME')[1] + 3600, 300
redis.call('SET', KEYS[1], cjson.encode(model))
"""


def test_resume_tries_a_parked_model(cluster: Cluster, redis_url: str) -> None:
    """An operator who has repaired the cause need not wait for the next probe, an hour away here."""
    cluster.simulator.start()
    cluster.simulator.stop()
    run_id = cluster.submit("simulated/careful", limit=60)
    cluster.start_worker()
    wait_until(lambda: cluster.status(run_id).state == "parked", "parking", DEADLINE_S)
    with Redis.from_url(redis_url) as client:
        client.eval(POSTPONE, 1, "aegish:limiter:model:simulated/careful")
    cluster.simulator.start()
    assert cluster.resume(run_id) == 60
    cluster.wait_until_complete(run_id)
    assert all(recording.verdict.completion for recording in cluster.verdicts(run_id))


def test_a_cap_on_the_cost(alone: dict[str, str], simulator: Simulator) -> None:
    """A run with a cap ends when it is reached, and says which model is over budget."""
    asked = "--models simulated/dear,baseline/keyword --dataset harmless --max-cost-per-model 0.5"
    submitted = run(alone, f"submit {asked}", code=1)
    status = run_json(alone, "status")
    dear = next(each for each in status["models"] if each["model"] == "simulated/dear")
    assert dear["state"] == "over budget"
    assert dear["cost_usd"] == pytest.approx(0.5)
    assert dear["done"] == simulator.calls("dear") == 50
    assert models_of(status)["baseline/keyword"] == ("complete", dear["planned"])
    assert (status["state"], status["eta_s"]) == ("over budget", None)
    assert "over budget, the rest of its items was not called: simulated/dear" in submitted.stderr
    resumed = run(alone, "resume --run-id latest", code=1)
    assert f"{dear['planned'] - 50} verdicts missing" in resumed.stdout
    assert "--max-cost USD" in resumed.stderr
    assert simulator.calls("dear") == 50


def test_a_raised_cap(alone: dict[str, str], simulator: Simulator) -> None:
    """A run that stopped over budget goes on up to the new cap, what it has cost included."""
    run(alone, "submit --models simulated/dear --limit 90 --max-cost 0.3", code=1)
    assert simulator.calls("dear") == 30
    run(alone, "resume --run-id latest --max-cost 0.45", code=1)
    assert simulator.calls("dear") == 45
    low = run(alone, "resume --run-id latest --max-cost 0.45", code=1)
    assert "--max-cost is $0.45 already" in low.stderr
    none = run(alone, "resume --run-id latest --max-cost-per-model 9", code=1)
    assert "submitted without --max-cost-per-model" in none.stderr
    unknown = run(alone, "submit --models simulated/careful --max-cost 1", code=1)
    assert "its price is unknown" in unknown.stderr


def test_a_cap_over_a_fleet(cluster: Cluster) -> None:
    """Three workers share one budget, and `submit --wait` returns when it is spent."""
    cluster.simulator.start(latency="uniform:0,0.02")
    cluster.simulator.know(DEAR)
    cluster.start_workers(3)
    asked = "--models simulated/dear --dataset harmless --epochs 2 --max-cost 1.2 --wait"
    submitted = run_json(cluster.env, f"submit {asked}", code=1)
    run_id = submitted["run_id"]
    status = cluster.status(run_id)
    assert status.state == "over budget"
    assert status.done == cluster.simulator.calls("dear") == 120
    # Workers that know the old cap notice the new one.
    run(cluster.env, "resume --run-id latest --max-cost 2")
    wait_until(lambda: cluster.status(run_id).done == 200, "the rest", DEADLINE_S)
    wait_until(lambda: cluster.status(run_id).state == "over budget", "it", DEADLINE_S)
    assert cluster.simulator.calls("dear") == 200


@pytest.mark.parametrize("cluster", ["rabbitmq"], indirect=True)
def test_one_limit_over_workers_on_rabbitmq(cluster: Cluster, redis_url: str) -> None:
    """With a Redis beside it, two workers on RabbitMQ share a limit and keep room for others."""
    cluster.simulator.start()
    cluster.simulator.know(SLOW.format("simulated/queued", 600))
    cluster.set(limiter_url=redis_url, concurrency=20)
    cluster.start_workers(2)
    run_id = cluster.submit("simulated/queued", "simulated/careful", limit=80)
    cluster.wait_until_complete(run_id)
    answered: dict[str, list[datetime]] = {}
    for recording in cluster.verdicts(run_id):
        answered.setdefault(recording.model, []).append(defined(recording.verdict.created_at))
    slow_times = sorted(answered["simulated/queued"])
    # 80 calls at 10 a second, after a burst of half a second.
    assert (slow_times[-1] - slow_times[0]).total_seconds() >= (80 - 1 - 6) / 10 - 0.5
    assert max(answered["simulated/careful"]) < slow_times[60]
