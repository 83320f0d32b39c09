"""Each part of the limiter's script by itself, on a real Redis and in fakeredis."""

from typing import Any

import pytest
import redis
from fakeredis import FakeRedis

from aegish_dist.ratelimit.policy import POLICY
from tests.lua_part import LuaPart

NOW = 1_000.0


@pytest.fixture(params=["redis", "fakeredis"])
def client(request: pytest.FixtureRequest) -> redis.Redis:
    """An empty server of either kind."""
    if request.param == "redis":
        return redis.Redis.from_url(request.getfixturevalue("redis_url"))
    return FakeRedis()


def test_state_is_kept_for_a_day_and_leases_until_they_expire(client: redis.Redis) -> None:
    """A document is read as it was written; leases of the past are dropped."""
    part = LuaPart(client, "state")

    found = part.run(
        "state.write('key', v.document, policy.leases.kept_s)"
        " local document = state.read('key')"
        " state.drop_expired(document.leases, v.now)"
        " return {document = document, missing = state.read('other') == nil,"
        " lowest = {state.lowest(nil, 2), state.lowest(3, nil), state.lowest(5, 4)}}",
        document={"rate": 0.5, "leases": {"a": {"expires": NOW}, "b": {"expires": NOW + 0.1}}},
        now=NOW,
    )

    assert found["document"] == {"rate": 0.5, "leases": {"b": {"expires": NOW + 0.1}}}
    assert (found["missing"], found["lowest"]) == (True, [2, 3, 4])
    assert client.ttl("key") == 86_400


FILL = "local filled = {buckets.fill(v.owner, 'requests', v.rate, v.size, v.used, v.now, policy.buckets)}"


@pytest.mark.parametrize(
    ("bucket", "of", "level"),
    [
        (None, {"rate": 10, "size": 1, "used": 0}, 1),  # a new one holds one call
        ({"level": 2, "at": NOW - 0.2}, {"rate": 10, "size": 1, "used": 0}, 4),
        ({"level": 2, "at": NOW - 9}, {"rate": 10, "size": 1, "used": 0}, 1 + 10 * 0.5),  # burst
        ({"level": 50, "at": NOW}, {"rate": 100, "size": 100, "used": 80}, -30),
        ({"level": 0, "at": NOW}, {"rate": 10, "size": 1, "used": 1e15}, -600),  # a minute's worth
        ({"level": 2, "at": NOW + 5}, {"rate": 10, "size": 1, "used": 0}, 2),  # the clock went back
    ],
)
def test_filling_a_bucket(
    client: redis.Redis, bucket: dict[str, float] | None, of: dict[str, float], level: float
) -> None:
    """Its level follows rate, burst and debt."""
    owner = {} if bucket is None else {"requests": bucket}

    found = LuaPart(client, "state", "buckets").run(
        FILL + " return filled[1].bucket", owner=owner, now=NOW, **of
    )

    assert found == {"level": pytest.approx(level), "at": NOW}


def test_a_rate_that_no_fleet_reaches_has_no_bucket(client: redis.Redis) -> None:
    """Neither has a missing one."""
    part = LuaPart(client, "state", "buckets")
    body = FILL + " return {buckets = #filled, owner = v.owner}"

    found = part.run(body, owner={"epoch": 1}, rate=10_000, size=1, used=0, now=NOW)

    assert found == {"buckets": 0, "owner": {"epoch": 1}}
    assert part.run(body, owner={"epoch": 1}, size=1, used=0, now=NOW)["buckets"] == 0


def test_taking_from_buckets(client: redis.Redis) -> None:
    """The emptiest one decides; the wait is until it holds a batch of a tenth of a second."""
    found = LuaPart(client, "state", "buckets").run(
        "local permits, wait = buckets.take(v.filled, v.wanted, policy.buckets)"
        " local rest, none = buckets.take(v.filled, 0, policy.buckets)"
        " return {permits = permits, wait = wait, levels = {v.filled[1].bucket.level,"
        " v.filled[2].bucket.level}, rest = rest, none = none == nil,"
        " rate = buckets.rate(v.filled)}",
        filled=[
            {"bucket": {"level": 3.9999999}, "rate": 50, "size": 1},
            {"bucket": {"level": 900}, "rate": 2000, "size": 100},
        ],
        wanted=6,
    )

    assert found["permits"] == 4
    assert found["levels"] == [pytest.approx(0, abs=1e-6), 500]
    assert found["wait"] == pytest.approx((50 * 0.1 - 0) / 50)
    assert (found["rest"], found["none"], found["rate"]) == (0, True, 20)


def test_a_refusal_empties_a_bucket(client: redis.Redis) -> None:
    """Debts stay, and a model without a bucket gets an empty one."""
    part = LuaPart(client, "state", "buckets")
    body = "buckets.drain(v.owner, 'requests', v.now) return v.owner.requests"

    levels = [
        part.run(body, owner=owner, now=NOW)["level"]
        for owner in (
            {},
            {"requests": {"level": 5, "at": NOW}},
            {"requests": {"level": -5, "at": NOW}},
        )
    ]

    assert levels == [0, 0, -5]


@pytest.mark.parametrize(
    ("limit", "wants", "slots"),
    [
        (100, 10, 10 + (100 - 30 - 10) // 3),  # enough: two claimants share the rest in three
        (30, 20, 15),  # too few: half of the limit
        (24, 20, 12),
        (18, 5, 5),
    ],
)
def test_shares_of_the_concurrency(client: redis.Redis, limit: int, wants: int, slots: int) -> None:
    """Beside another worker that wants 30 and holds few."""
    found = LuaPart(client, "state", "leases").run(
        "return {share = leases.share(v.leases, 'a', v.limit, v.wants),"
        " free = leases.share(v.leases, 'a', nil, v.wants) == nil,"
        " in_flight = leases.in_flight(v.leases, 'a', 2)}",
        leases={
            "b": {"slots": 5, "held": 4, "wants": 30},
            "a": {"slots": 9, "held": 9, "wants": 9},
        },
        limit=limit,
        wants=wants,
    )

    assert found == {"share": slots, "free": True, "in_flight": 2 + 4}


def test_renewing_a_lease(client: redis.Redis) -> None:
    """It covers what is held, and is given back by a worker that wants nothing."""
    found = LuaPart(client, "state", "leases").run(
        "leases.renew(v.leases, 'a', 3, 4, 6, v.now, policy.leases)"
        " leases.renew(v.leases, 'b', 3, 0, 0, v.now, policy.leases)"
        " return v.leases",
        leases={"b": {"slots": 1}},
        now=NOW,
    )

    assert found == {"a": {"slots": 4, "held": 4, "wants": 6, "expires": NOW + 5}}


REPORT: dict[str, Any] = {
    "epoch": 0,
    "answers": 0,
    "epoch_answers": 0,
    "refused": 0,
    "overloaded": 0,
    "alive": False,
    "failures": 0,
    "unanswered": 0,
    "probe_failed": False,
    "pause_s": 0.0,
    "tokens": 0,
}


def paced(client: redis.Redis, model: dict[str, Any], **values: Any) -> dict[str, Any]:
    """Return a model's document after a report; a missing one is begun."""
    report = {**REPORT, **values.pop("report", {})}
    fleet = {"waiting": 5, "in_flight": 0, **values}
    body = (
        "pacing.init(v.model, v.now, policy.pacing)"
        " v.model.drained = pacing.update(v.model, v.report, v.fleet, v.now, policy.pacing)"
        " return v.model"
    )
    document: dict[str, Any] = LuaPart(client, "state", "pacing").run(
        body, model=model, report=report, fleet=fleet, now=NOW
    )
    return document


RATED = {
    **{"since": 0, "epoch": 0, "epoch_at": NOW - 60, "answers": 500, "refusals": 0, "recent": 50},
    **{"counted_at": NOW, "pause_until": 0, "overloaded_at": 0, "grown_at": NOW - 1, "rate": 10},
}
"""A model with a goodput of ten calls a second (50 / 5 s), a minute after its last decrease."""


def test_slow_start(client: redis.Redis) -> None:
    """A new model has a window of 20 calls in flight, and each answer adds one."""
    model = paced(client, {"leases": {}}, report={"answers": 7, "alive": True})

    assert (model["window"], model["epoch"], model["drained"]) == (27, 0, False)
    assert "rate" not in model


def test_decrease(client: redis.Redis) -> None:
    """A refusal takes a tenth of a rate that the goodput confirms, and begins an epoch."""
    model = paced(client, {**RATED, "top": 10}, report={"refused": 1})

    assert (model["rate"], model["top"]) == (pytest.approx(9.0), pytest.approx(10.0))
    assert (model["epoch"], model["epoch_at"], model["answers"]) == (1, NOW, 0)
    assert model["drained"]


def test_a_decrease_far_above_the_limit_goes_by_the_refusals(client: redis.Redis) -> None:
    """Of 250 calls in 1.25 s 50 were refused and few are answered yet: 160 a second are accepted."""
    fast = {**RATED, "rate": 200, "top": 190, "recent": 800, "epoch_at": NOW - 1.25}

    model = paced(client, {**fast, "answers": 10}, report={"refused": 50})

    assert (model["rate"], model["top"]) == (pytest.approx(144.0), pytest.approx(160.0))


def test_refusals_soon_after_a_decrease_belong_to_it(client: redis.Redis) -> None:
    """The rate stays; the bucket is emptied all the same."""
    model = paced(client, {**RATED, "epoch_at": NOW - 0.9}, report={"refused": 3})

    assert (model["rate"], model["epoch"], model["drained"]) == (10, 0, True)


def test_a_rate_without_any_answer_is_remembered(client: redis.Redis) -> None:
    """It is halved while every call is refused, and used again with the first answer."""
    model = paced(client, {**RATED, "answers": 0, "top": 12}, report={"refused": 1})
    assert (model["rate"], model["remembered"]) == (5, {"rate": 10, "top": 12})

    back = paced(client, model, report={"epoch": 1, "answers": 1, "epoch_answers": 1})
    assert (back["rate"], back["top"], back["resumed"]) == (10, 12, True)
    assert "remembered" not in back


@pytest.mark.parametrize(
    ("top", "rate", "grown"),
    [
        (None, 10.0, 11.0),  # a tenth a second before the first refusal
        (20.0, 10.0, 10.6),  # 3 % of the top a second
        (10.0, 10.0, 10.08),  # near it 0.2 % times the square of two minutes
    ],
)
def test_increase(client: redis.Redis, top: float | None, rate: float, grown: float) -> None:
    """Answers let the rate grow, by a second's worth since it last did."""
    model = {**RATED, "rate": rate, "epoch_at": NOW - 120}
    if top is not None:
        model["top"] = top

    assert paced(client, model, report={"answers": 3})["rate"] == pytest.approx(grown)
    assert paced(client, model, report={"answers": 3}, waiting=0)["rate"] == rate


def test_a_rate_that_reaches_the_known_limit_is_dropped(client: redis.Redis) -> None:
    """The known limit holds from then on."""
    assert "rate" not in paced(client, {**RATED, "rate": 9.9}, report={"answers": 1}, given=10)


def test_pauses(client: redis.Redis) -> None:
    """An overload pauses for a second, a Retry-After for as long as it says, up to five minutes."""
    part = LuaPart(client, "state", "pacing")
    body = (
        "local asked = pacing.pause(v.model, v.report, v.now, policy.pacing)"
        " return {asked = asked, pause_until = v.model.pause_until}"
    )
    model = {"pause_until": 0, "overloaded_at": NOW - 6}

    found = [
        part.run(body, model=model, report={**REPORT, **report}, now=NOW)
        for report in ({"overloaded": 2}, {"pause_s": 300}, {"pause_s": 301}, {})
    ]

    assert found == [
        {"pause_until": NOW + 1},
        {"pause_until": NOW + 300},
        {"pause_until": 0, "asked": 301},
        {"pause_until": 0},
    ]


def broken(
    client: redis.Redis, model: dict[str, Any], asked_s: float | None = None, **report: Any
) -> dict[str, Any]:
    """Return a model's document after a report to its circuit breaker."""
    body = (
        "breaker.init(v.model)"
        " v.model.closed = breaker.update(v.model, v.report, v.asked_s, v.now, policy.breaker)"
        " return v.model"
    )
    values: dict[str, Any] = {} if asked_s is None else {"asked_s": asked_s}
    document: dict[str, Any] = LuaPart(client, "state", "breaker").run(
        body, model=model, report={**REPORT, **report}, now=NOW, **values
    )
    return document


def test_a_circuit_opens_and_closes(client: redis.Redis) -> None:
    """Ten failures open it, a failed probe doubles the wait, and an answer closes it."""
    closed = broken(client, {}, failures=POLICY.breaker.failures - 1)
    assert "parked" not in closed

    opened = broken(client, closed, failures=1, reason="HTTP 500")
    assert opened["parked"] == {"wait": 2, "at": NOW + 2, "failed": 0}
    assert opened["reason"] == "HTTP 500"

    probed = broken(client, opened, failures=1, probe_failed=True)
    assert probed["parked"] == {"wait": 4, "at": NOW + 4, "failed": 1}

    back = broken(client, probed, alive=True, answers=1)
    assert (back["closed"], back["failures"]) == (True, 0)
    assert "parked" not in back


def test_failures_that_are_paid_for_open_the_circuit(client: redis.Redis) -> None:
    """Whatever 429s come between them; only an answer ends the count."""
    before = broken(client, {}, alive=True, unanswered=POLICY.breaker.unanswered - 1)
    assert "parked" not in before

    assert "parked" in broken(client, before, alive=True, unanswered=1)
    assert "parked" not in broken(client, before, alive=True, answers=1, unanswered=0)


def test_a_long_wait_opens_the_circuit(client: redis.Redis) -> None:
    """For an hour at most; answers that come during it do not close it."""
    opened = broken(client, {}, asked_s=7200, alive=True)
    assert opened["parked"] == {"wait": 2, "at": NOW + 3600, "failed": 2, "asked": True}

    assert "parked" in broken(client, opened, alive=True, answers=1)


def test_one_probe_at_a_time(client: redis.Redis) -> None:
    """It goes to the first worker that may begin one; unused, to the next that asks."""
    part = LuaPart(client, "state", "breaker")
    ask = "breaker.probe(v.model, '{}', {}, {}, v.now)"
    model = {"parked": {"wait": 2, "at": NOW, "failed": 0}, "leases": {"a": {}, "b": {}}}
    steps = [("c", False, False), ("a", False, True), ("b", False, True), ("a", True, True)]
    steps += [("a", False, True), ("b", False, True)]

    found = part.run(
        "return {"
        + ", ".join(ask.format(name, str(p).lower(), str(m).lower()) for name, p, m in steps)
        + "}",
        model=model,
        now=NOW,
    )

    assert found == [False, True, False, False, False, True]


def test_a_probe_on_request(client: redis.Redis) -> None:
    """It may begin at once, and the waits start again."""
    found = LuaPart(client, "state", "breaker").run(
        "breaker.probe_now(v.model, policy.breaker) return v.model.parked",
        model={"parked": {"wait": 300, "at": NOW, "failed": 9}},
    )

    assert found == {"wait": 1, "at": 0, "failed": 0}


def test_a_ledger(client: redis.Redis) -> None:
    """The cost up to now and that of all calls in flight bound the calls that may begin."""
    part = LuaPart(client, "state", "budget")
    body = (
        "budget.spend(v.ledger, v.run, 'lab/a', v.now)"
        " local room, over = budget.room(v.ledger, v.run, 'w|lab/a', 'lab/a')"
        " budget.reserve(v.ledger, v.run, 'w|lab/a', 'lab/a', room, v.now, policy.leases)"
        " return {room = room, over = over, ledger = v.ledger}"
    )
    ledger = {
        **{"total": 50, "models": {"lab/a": 20}},
        "leases": {
            "x|lab/a": {"cost": 15, "model": "lab/a", "expires": NOW + 1},
            "y|lab/b": {"cost": 5, "model": "lab/b", "expires": NOW + 1},
            "dead|lab/a": {"cost": 99, "model": "lab/a", "expires": NOW - 1},
        },
    }
    run = {"waiting": 9, "held": 10, "estimate": 10, "spent": 5}

    whole = part.run(body, ledger=ledger, run={**run, "cap": 105}, now=NOW)
    each = part.run(body, ledger=ledger, run={**run, "model_cap": 70}, now=NOW)
    over = part.run(body, ledger=ledger, run={**run, "cap": 55}, now=NOW)

    assert (whole["room"], whole["over"]) == (2, False)  # 105 - 55 - (10 + 15 + 5) = 20
    assert (each["room"], each["over"]) == (2, False)  # 70 - 25 - (10 + 15) = 20
    assert (over["room"], over["over"]) == (0, True)
    assert (whole["ledger"]["total"], whole["ledger"]["models"]) == (55, {"lab/a": 25})
    assert whole["ledger"]["leases"]["w|lab/a"] == {
        **{"cost": 10 + 2 * 10, "model": "lab/a"},
        "expires": NOW + 5,
    }
    assert "dead|lab/a" not in whole["ledger"]["leases"]
