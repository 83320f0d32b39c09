"""Functions of the parts of the limiter's script, on a real Redis and in fakeredis."""

import json
from collections.abc import Callable
from operator import itemgetter
from typing import Any, cast

import msgspec
import pytest
import redis
from fakeredis import FakeRedis

from aegish_dist.ratelimit.shared_limiter import script
from aegish_dist.ratelimit.usage_report import POLICY
from tests.recorded import lines_of

NOW = 1_000.0
PARTS = script("state", "buckets", "leases", "pacing", "congestion", "breaker", "budget")
Lua = Callable[..., Any]


@pytest.fixture(params=["redis", "fakeredis"])
def client(request: pytest.FixtureRequest) -> redis.Redis:
    """An empty server of either kind."""
    if request.param == "redis":
        return redis.Redis.from_url(request.getfixturevalue("redis_url"))
    return FakeRedis()


@pytest.fixture
def lua(client: redis.Redis) -> Lua:
    """Runs Lua statements after the parts: `v` holds the values, `policy` the `Policy`."""

    def run(body: str, **values: object) -> Any:
        text = f"""{PARTS}
local policy, v = cjson.decode(ARGV[1]), cjson.decode(ARGV[2])
local function body() {body} end
return cjson.encode(body())"""
        told = json.dumps({"now": NOW} | values)
        return json.loads(client.eval(text, 0, msgspec.json.encode(POLICY), told))

    return run


def test_state_is_kept_for_a_day_and_leases_until_they_expire(
    client: redis.Redis, lua: Lua
) -> None:
    """A document is read as it was written; leases of the past are dropped."""
    found = lua(
        "state.write('key', v.document, policy.leases.kept_s)"
        " local document = state.read('key')"
        " state.drop_expired(document.leases, v.now)"
        " return {document = document, missing = state.read('other') == nil}",
        document={"rate": 0.5, "leases": {"a": {"expires": NOW}, "b": {"expires": NOW + 0.1}}},
    )

    kept = {"rate": 0.5, "leases": {"b": {"expires": NOW + 0.1}}}
    assert found == {"document": kept, "missing": True}
    assert client.ttl("key") == 86_400


FILL = "local filled = {buckets.fill(v.owner, 'requests', v.rate, v.size, v.used, v.now, policy.buckets)}"


@pytest.mark.parametrize("case", lines_of("limiter_buckets.jsonl"), ids=itemgetter("why"))
def test_filling_a_bucket(lua: Lua, case: dict[str, Any]) -> None:
    """Its level follows rate, burst and debt."""
    owner = {} if case["bucket"] is None else {"requests": case["bucket"]}
    body = FILL + " return {filled = filled[1] and filled[1].bucket, owned = v.owner.requests}"

    found = lua(body, owner=owner, **case["of"])

    if case["level"] is None:
        assert not found
    else:
        full = {"level": pytest.approx(case["level"]), "at": NOW}
        assert found == {"filled": full, "owned": full}


def test_taking_from_buckets(lua: Lua) -> None:
    """The emptiest one decides; the wait is until it holds a batch of a tenth of a second."""
    found = lua(
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


def test_a_refusal_empties_a_bucket(lua: Lua) -> None:
    """Debts stay, and a model without a bucket gets an empty one."""
    body = "buckets.drain(v.owner, 'requests', v.now) return v.owner.requests"
    for level, drained in ((None, 0), (5, 0), (-5, -5)):
        owner = {} if level is None else {"requests": {"level": level, "at": NOW}}
        assert lua(body, owner=owner)["level"] == drained


@pytest.mark.parametrize(
    ("limit", "wants", "slots"),
    [
        (100, 10, 10 + (100 - 30 - 10) // 3),  # enough: two claimants share the rest in three
        (30, 20, 15),  # too few: half of the limit
        (24, 20, 12),
        (25, 20, 13),  # the odd one for the first to ask
        (18, 5, 5),
    ],
)
def test_shares_of_the_concurrency(lua: Lua, limit: int, wants: int, slots: int) -> None:
    """Beside another worker that wants 30 and holds few."""
    found = lua(
        "return {share = leases.share(v.leases, 'a', v.limit, v.wants),"
        " free = leases.share(v.leases, 'a', nil, v.wants) == nil}",
        leases={
            "b": {"slots": 5, "held": 4, "wants": 30},
            "a": {"slots": 9, "held": 9, "wants": 9},
        },
        limit=limit,
        wants=wants,
    )

    assert found == {"share": slots, "free": True}


def test_renewing_a_lease(lua: Lua) -> None:
    """It covers what is held, and is given back by a worker that wants nothing."""
    found = lua(
        "leases.renew(v.leases, 'a', 3, 4, 6, v.now, policy.leases)"
        " leases.renew(v.leases, 'b', 3, 0, 0, v.now, policy.leases)"
        " return v.leases",
        leases={"b": {"slots": 1}},
    )

    assert found == {"a": {"slots": 4, "held": 4, "wants": 6, "expires": NOW + 5}}


COUNTS = "epoch begun answers epoch_answers refused limited overloaded failures unanswered"
REPORT: dict[str, Any] = dict.fromkeys((*COUNTS.split(), "pause_s", "tokens"), 0)
REPORT |= {"alive": False, "probe_failed": False}


def paced(lua: Lua, model: dict[str, Any], **values: Any) -> dict[str, Any]:
    """Return a model's document after a report; a missing one is begun."""
    report = {**REPORT, **values.pop("report", {})}
    fleet = {"waiting": 5, "in_flight": 0, **values}
    body = (
        "pacing.init(v.model, nil, v.now, policy.pacing)"
        " v.model.drained = pacing.update(v.model, v.report, v.fleet, v.now, policy.pacing)"
        " return v.model"
    )
    return cast(dict[str, Any], lua(body, model=model, report=report, fleet=fleet))


RATED = {
    "since": 0,
    "epoch": 0,
    "epoch_at": NOW - 60,
    "answers": 500,
    "begun": 500,
    "refusals": 0,
    "recent": 50,
    "counted_at": NOW,
    "pause_until": 0,
    "overloaded_at": 0,
    "grown_at": NOW - 1,
    "rate": 10,
}
"""A model with ten calls a second (50 / 5 s), a minute after its last decrease."""


@pytest.mark.parametrize("case", lines_of("limiter_refusals.jsonl"), ids=itemgetter("why"))
def test_refusals(lua: Lua, case: dict[str, Any]) -> None:
    changed = RATED | case["changes"]
    known = {name: value for name, value in changed.items() if value is not None}
    model = paced(lua, known, report=case["report"])
    for name, value in case["found"].items():
        assert model.get(name) == pytest.approx(value), name


@pytest.mark.parametrize(
    ("top", "rate", "grown"),
    [
        (None, 10.0, 11.0),  # a tenth a second before the first refusal
        (20.0, 10.0, 10.4),  # 2 % of the top a second
        (10.0, 10.0, 11.0),  # near it 0.2 % times the square of the time, a tenth at most
    ],
)
def test_increase(lua: Lua, top: float | None, rate: float, grown: float) -> None:
    """Answers let the rate grow, by a second's worth since it last did."""
    model = {**RATED, "rate": rate, "epoch_at": NOW - 120}
    if top is not None:
        model["top"] = top

    assert paced(lua, model, report={"answers": 3})["rate"] == pytest.approx(grown)
    assert paced(lua, model, report={"answers": 3}, waiting=0)["rate"] == rate
    assert paced(lua, model, report={"answers": 0})["rate"] == rate


def test_a_rate_that_reaches_the_known_limit_is_dropped(lua: Lua) -> None:
    """The known limit holds from then on."""
    assert "rate" not in paced(lua, {**RATED, "rate": 9.9}, report={"answers": 1}, given=10)


def broken(lua: Lua, model: dict[str, Any], now: float = NOW, **report: Any) -> dict[str, Any]:
    """Return the model after a report of answers or refusals to its circuit breaker."""
    body = (
        "breaker.init(v.model)"
        " breaker.update(v.model, v.report, nil, v.at, policy.breaker)"
        " return v.model"
    )
    values = {"model": model, "report": REPORT | {"alive": True} | report, "at": now}
    return cast(dict[str, Any], lua(body, **values))


def test_failures_that_are_paid_for_open_the_circuit(lua: Lua) -> None:
    """Whatever 429s come between them; only an answer ends the count."""
    before = broken(lua, {}, unanswered=POLICY["breaker"]["unanswered"] - 1)
    assert "parked" not in before
    assert "parked" in broken(lua, before, unanswered=1)
    assert "parked" not in broken(lua, before, answers=1, unanswered=0)


def test_nothing_but_refusals_for_minutes_opens_the_circuit(lua: Lua) -> None:
    """One that comes later opens it, and keeps it open; an answer ends it."""
    since, longest = broken(lua, {}), POLICY["breaker"]["refused_s"]
    assert "parked" not in broken(lua, since, NOW + longest)
    assert "parked" not in broken(lua, since, NOW + 2 * longest, alive=False), "it only waited"
    late = broken(lua, since, NOW + longest + 1)
    assert late["parked"]["at"] == NOW + longest + 1 + POLICY["breaker"]["first_probe_s"]
    probed = broken(lua, late, NOW + longest + 3, probe_failed=True)["parked"]
    assert (probed["failed"], probed["wait"]) == (1, 4.0)
    later = {**late, "parked": {**probed, "wait": 64}}
    for after, wait in ((10 * longest, longest), (100 * longest, 300.0)):
        assert broken(lua, later, NOW + after, probe_failed=True)["parked"]["wait"] == min(
            wait, 128
        )
    answered = broken(lua, late, NOW + longest + 3, answers=1)
    assert "parked" not in answered
    assert "parked" not in broken(lua, answered, NOW + longest + 4)
