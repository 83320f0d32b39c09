"""Scenario files, fault plans, scripts, the token bucket, and the page that explains them."""

import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from aegish_dist.errors import ConfigError
from aegish_dist.simulator.bill import Bill, Tariff
from aegish_dist.simulator.config import (
    BatchPlan,
    CallFault,
    EndFault,
    Endpoint,
    Fault,
    FaultPlan,
    ModelConfig,
    RateLimit,
    RequestFault,
    SimulatorConfig,
    TokenBucket,
    parse_script,
    parse_words,
    read_scenario,
)
from aegish_dist.simulator.personas import parse_latency

COMPLETE = """
seed = 7
port = 8080
require_key = true
vary_repeats = true
latency = "lognormal:0.8,0.4"

[faults]
rate_limit = 0.02
hang = 0
retry_after_s = 0.5
hang_s = 30

[rate_limit]
requests_per_minute = 600
burst = 20

[models."simulated/hasty"]
latency = "constant:0"
script = ["ok", 429, "hang"]
persona = "careful"

[models."a/b:c"]
faults = { reset = 1.0 }
rate_limit = { requests_per_minute = 1.5 }
"""


def read(tmp_path: Path, text: str) -> SimulatorConfig:
    path = tmp_path / "scenario.toml"
    path.write_text(text)
    return read_scenario(path)


def test_every_key_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, COMPLETE) == SimulatorConfig(
        seed=7,
        port=8080,
        require_key=True,
        vary_repeats=True,
        latency=parse_latency("lognormal:0.8,0.4"),
        faults=FaultPlan({Fault.RATE_LIMIT: 0.02, Fault.HANG: 0.0}, retry_after_s=0.5, hang_s=30.0),
        rate_limit=RateLimit(600.0, 20),
        models={
            "simulated/hasty": ModelConfig(
                latency=parse_latency("constant:0"),
                script=(None, Fault.RATE_LIMIT, Fault.HANG),
                persona="careful",
            ),
            "a/b:c": ModelConfig(faults=FaultPlan({Fault.RESET: 1.0}), rate_limit=RateLimit(1.5)),
        },
    )


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, "") == SimulatorConfig()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("seed =", "scenario.toml: is not valid TOML"),
        ("sed = 1", "scenario.toml: key 'sed': unknown key; known are seed, "),
        ("seed = 1.5", "scenario.toml: key 'seed': must be a whole number"),
        ("seed = true", "key 'seed': must be a whole number"),
        ("port = 70000", "port is 70000"),
        ("require_key = 1", "key 'require_key': must be true or false"),
        ("latency = 1", "key 'latency': must be text"),
        ("latency = 'slow'", "key 'latency': latency 'slow' is not"),
        ("faults = 1", "key 'faults': must be a table"),
        ("[faults]\nfire = 1", "key 'faults.fire': unknown key; known are rate_limit, "),
        ("[faults]\nreset = 'x'", "key 'faults.reset': must be a number"),
        ("[faults]\nreset = 2", "key 'faults': reset is 2"),
        ("[faults]\nhang_s = -1", "key 'faults': hang_s is -1"),
        ("[rate_limit]\nburst = 2", "key 'rate_limit.requests_per_minute': is missing"),
        ("[models.m]\nscript = 'ok'", "key 'models.m.script': must be a list"),
        ("[models.m]\nscript = ['no']", "key 'models.m.script': 'no' is not one of"),
        ("[models.m]\npersona = 'me'", "key 'models.m': persona 'me' is not one of"),
        ("[models.m]\nseed = 1", "key 'models.m.seed': unknown key"),
        ("[batches.requests]\nlate = 0.1", "batches.requests"),
        ("[batches.calls.create]\nmissing = 0.1", "batches.calls"),
        ("[batches.calls.buy]\nlost = 0.1", "batches.calls"),
        ('[batches.scripts]\ncreate = ["late"]', "batches.scripts.create': 'late' is not one of"),
        ("[batches]\nrequests = { missing = 2.0 }", "missing is 2.0"),
        ("[price]\ninput = -1", "price': input is -1"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert problem in str(caught.value)
    assert "scenario.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml: cannot be read"):
        read_scenario(tmp_path / "absent.toml")
    (tmp_path / "latin.toml").write_bytes(b"# \xe9")
    with pytest.raises(ConfigError, match=r"latin\.toml: line 1: is not UTF-8"):
        read_scenario(tmp_path / "latin.toml")


BATCHES = """
[price]
input = 2.5
output = 10

[models.dear.price]
input = 5
cached_input = 0.5

[batches]
duration = "constant:0.1"
list_lag_s = 0.2
retry_after_s = 0.3
hang_s = 5
share = 0.25

[batches.requests]
missing = 0.01

[batches.ends]
expired = 0.5

[batches.calls.results]
truncated = 0.125

[batches.scripts]
create = ["ok", "lost"]
"""


def test_prices_and_batches_are_read(tmp_path: Path) -> None:
    assert read(tmp_path, BATCHES) == SimulatorConfig(
        price=Tariff(Decimal("2.5"), Decimal(10)),
        models={"dear": ModelConfig(price=Tariff(Decimal(5), cached_input=Decimal("0.5")))},
        batches=BatchPlan(
            duration=parse_latency("constant:0.1"),
            list_lag_s=0.2,
            retry_after_s=0.3,
            hang_s=5.0,
            share=0.25,
            requests={RequestFault.MISSING: 0.01},
            ends={EndFault.EXPIRED: 0.5},
            calls={Endpoint.RESULTS: {CallFault.TRUNCATED: 0.125}},
            scripts={Endpoint.CREATE: (None, CallFault.LOST)},
        ),
    )


def test_pick_divides_the_unit_interval() -> None:
    plan = FaultPlan({Fault.RATE_LIMIT: 0.25, Fault.HANG: 0.5})
    picks = [plan.pick(luck) for luck in (0.1, 0.24, 0.26, 0.74, 0.76, 0.99)]
    limit, hang = Fault.RATE_LIMIT, Fault.HANG
    assert picks == [limit, limit, hang, hang, None, None]
    assert FaultPlan().pick(1e-12) is None


def test_script_words() -> None:
    script = parse_script(["ok", "429", "529", "hang", "content_filter"])
    assert script == (None, Fault.RATE_LIMIT, Fault.OVERLOADED, Fault.HANG, Fault.CONTENT_FILTER)


def test_faults_of_batches_follow_script_then_chance() -> None:
    lost, reset = CallFault.LOST, CallFault.RESET
    plan = BatchPlan(
        calls={Endpoint.CREATE: {reset: 0.5}},
        scripts={Endpoint.CREATE: parse_words(["ok", "lost"], CallFault)},
    )
    found = [plan.call_fault(Endpoint.CREATE, place, 0.2) for place in range(3)]
    assert found == [None, lost, reset]
    assert plan.call_fault(Endpoint.CREATE, 2, 0.7) is None
    assert plan.call_fault(Endpoint.POLL, 0, 0.2) is None


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        (lambda: FaultPlan({Fault.RESET: 1.1}), "reset is 1.1"),
        (lambda: FaultPlan({Fault.RESET: -0.1}), "reset is -0.1"),
        (lambda: FaultPlan({Fault.RESET: float("nan")}), "reset is nan"),
        (lambda: FaultPlan({Fault.RESET: 0.6, Fault.HANG: 0.6}), "add up to 1.2"),
        (lambda: BatchPlan(requests={RequestFault.MISSING: 1.5}), "missing is 1.5"),
        (lambda: BatchPlan(ends={EndFault.EXPIRED: 0.6, EndFault.FAILED: 0.6}), "add up to 1.2"),
        (lambda: BatchPlan(calls={Endpoint.POLL: {CallFault.LOST: -1.0}}), "lost is -1.0"),
        (lambda: BatchPlan(list_lag_s=-1.0), "list_lag_s is -1.0"),
        (lambda: BatchPlan(share=float("nan")), "share is nan"),
        (lambda: RateLimit(0), "requests_per_minute is 0"),
        (lambda: RateLimit(-1), "requests_per_minute is -1"),
        (lambda: RateLimit(float("nan")), "requests_per_minute is nan"),
        (lambda: RateLimit(1, 0), "burst is 0"),
        (lambda: parse_script(["ok", "418"]), "'418' is not one of ok, 401"),
    ],
)
def test_an_impossible_plan_is_refused(plan: Callable[[], object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        plan()


def test_burst_then_rate() -> None:
    bucket = TokenBucket(RateLimit(requests_per_minute=60, burst=2), now_s=100.0)
    assert [bucket.take(100.0), bucket.take(100.0)] == [0.0, 0.0]
    assert bucket.take(100.0) == 1.0
    assert bucket.take(100.25) == 0.75
    assert bucket.take(101.0) == 0.0
    assert bucket.take(101.0) == 1.0


def test_a_long_pause_refills_only_the_burst() -> None:
    bucket = TokenBucket(RateLimit(requests_per_minute=6_000, burst=3), now_s=0.0)
    bucket.take(0.0)
    assert (bucket.remaining, bucket.full_in_s) == (2, 0.01)
    assert [bucket.take(1_000.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.01]


def test_waiting_the_stated_time_is_enough() -> None:
    bucket, now_s = TokenBucket(RateLimit(requests_per_minute=7), now_s=0.0), 0.0
    bucket.take(now_s)
    for _ in range(200):
        now_s += bucket.take(now_s)
        assert bucket.take(now_s) == 0.0


PAGE = (Path(__file__).parents[3] / "docs" / "simulator.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize(
    ("title", "faults"),
    [
        ("Faults of a batch's requests", RequestFault),
        ("Faults of a whole batch", EndFault),
        ("Faults of HTTP requests about batches", CallFault),
    ],
)
def test_each_fault_has_its_row(title: str, faults: type[RequestFault]) -> None:
    assert re.findall(r"^\| `(\w+)` \|", section(title), re.MULTILINE) == list(faults)


def test_the_kinds_of_requests_are_named() -> None:
    text = section("Faults of HTTP requests about batches").partition("\n|")[0]
    assert all(f"`{endpoint}`" in text for endpoint in Endpoint)


def test_the_example_is_a_scenario(tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(section("A scenario").partition("```toml\n")[2].partition("```")[0])
    assert read_scenario(path).batches.list_lag_s == 0.5


def test_the_keys_of_the_bill_are_those_of_the_page() -> None:
    rows = "".join(re.findall(r"^\| (`.*?) \|", section("The bill"), re.MULTILINE))
    assert all(f"`{key}`" in rows for key in Bill().as_dict() if key != "models")
