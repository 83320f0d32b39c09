"""The tests' provider of batches: answers, result lines, scripts and the bill."""

import random
from collections import Counter
from decimal import Decimal
from pathlib import Path

from aegish_dist.core.batches import Unanswered
from aegish_dist.core.model import WireFormat
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.verdict import Completion, Usage
from aegish_dist.simulator.behaviour import SimulatedModel
from aegish_dist.simulator.bill import Tariff
from aegish_dist.simulator.dialect import ChatRequest, ErrorAnswer
from tests.batch_server.batches import (
    BatchAnswer,
    BatchPhase,
    BatchService,
    SimulatedBatch,
    result_lines,
)
from tests.batch_server.bill import BatchBill
from tests.batch_server.plan import (
    BatchPlan,
    BatchScenario,
    CallFault,
    EndFault,
    Endpoint,
    RequestFault,
    read_scenario,
)

ANSWER = Completion("BLOCK")
CHATS = {f"t-{place}": ChatRequest("careful", f"ls {place}", 10, 0) for place in range(60)}


def asker(plan: BatchPlan, seed: int = 1) -> BatchService:
    config = BatchScenario(seed=seed, batches=plan)
    bill = BatchBill(Tariff(), {})
    return BatchService(config, lambda name: SimulatedModel(name, config, None, 0.0), bill)


def ask(chats: dict[str, ChatRequest], plan: BatchPlan, seed: int = 1) -> dict[str, BatchAnswer]:
    asked = asker(plan, seed)
    return {name: asked.ask(name, chat, WireFormat.OPENAI) for name, chat in chats.items()}


def test_results_depend_on_the_seed_and_not_on_the_order() -> None:
    plan = BatchPlan(requests={RequestFault.SERVER_ERROR: 0.3, RequestFault.MISSING: 0.2})
    shuffled = dict(random.Random(3).sample(list(CHATS.items()), len(CHATS)))
    assert ask(CHATS, plan) == ask(shuffled, plan)
    assert ask(CHATS, plan) != ask(CHATS, plan, seed=2)


def test_a_request_that_is_asked_again_has_luck_of_its_own() -> None:
    asked = asker(BatchPlan(requests={RequestFault.SERVER_ERROR: 0.5}))
    faults = Counter(asked.ask("t-0", CHATS["t-0"], WireFormat.OPENAI).fault for _ in range(40))
    assert set(faults) == {None, RequestFault.SERVER_ERROR}


def test_errors_have_the_words_of_the_dialect() -> None:
    for fault, error_class in [
        (RequestFault.REFUSED, ErrorClass.BAD_REQUEST),
        (RequestFault.SERVER_ERROR, ErrorClass.SERVER),
    ]:
        answer = ask(CHATS, BatchPlan(requests={fault: 1.0}))["t-0"]
        assert isinstance(answer.outcome, ErrorAnswer)
        assert answer.outcome.error_class is error_class
        assert answer.outcome.message


def test_requests_after_the_end_are_not_answered_and_have_no_fault() -> None:
    batch = SimulatedBatch("b", WireFormat.OPENAI, 0.0, 9.0, EndFault.EXPIRED, 0.5, {}, 2)
    early = BatchAnswer("a", ANSWER, "m", 0.2, RequestFault.DUPLICATE)
    late = BatchAnswer("b", ANSWER, "m", 0.6, RequestFault.DUPLICATE)
    batch.answers = [early, late]
    batch.settle(BatchPhase.EXPIRED)
    assert batch.answers == [early, BatchAnswer("b", Unanswered.EXPIRED, "m", 0.6)]


def lines(fault: RequestFault, chance: float = 0.1) -> list[str]:
    """Return the names of the lines about two requests, the first with a fault."""
    first = BatchAnswer("abc-7-1-0", ANSWER, fault=fault, chance=chance)
    return [line.name for line in result_lines([first, BatchAnswer("abc-8-1-0", ANSWER)])]


def test_faults_of_lines() -> None:
    whole, other = "abc-7-1-0", "abc-8-1-0"
    assert lines(RequestFault.MISSING) == [other]
    assert lines(RequestFault.DUPLICATE) == [whole, other, whole]
    assert lines(RequestFault.MALFORMED) == [whole, other]
    assert lines(RequestFault.FOREIGN) == [whole, other, "0bc-7-1-0"]
    assert lines(RequestFault.FOREIGN, 0.9) == [whole, other, "abc-7-1-09"]


def test_a_malformed_line_is_cut_in_the_middle() -> None:
    batch = SimulatedBatch("b", WireFormat.OPENAI, 0.0, 9.0, None, 1.0, {}, 1)
    batch.answers = [BatchAnswer("a", ANSWER, fault=RequestFault.MALFORMED)]
    assert batch.written(lambda line, _: {"name": line.name}) == b'{"name\n'


def test_faults_of_calls_follow_script_then_chance() -> None:
    plan = BatchPlan(
        calls={Endpoint.CREATE: {CallFault.RESET: 0.5}},
        scripts={Endpoint.CREATE: ("ok", "lost")},
    )
    found = [plan.call_fault(Endpoint.CREATE, place, 0.2) for place in range(3)]
    assert found == [None, CallFault.LOST, CallFault.RESET]
    assert plan.call_fault(Endpoint.CREATE, 2, 0.7) is None
    assert plan.call_fault(Endpoint.POLL, 0, 0.2) is None


SCENARIO = """
seed = 7

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


def test_every_key_of_a_scenario_is_read(tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(SCENARIO)
    plan = BatchPlan(
        duration="constant:0.1",
        list_lag_s=0.2,
        retry_after_s=0.3,
        hang_s=5,
        share=0.25,
        requests={RequestFault.MISSING: 0.01},
        ends={EndFault.EXPIRED: 0.5},
        calls={Endpoint.RESULTS: {CallFault.TRUNCATED: 0.125}},
        scripts={Endpoint.CREATE: ["ok", "lost"]},
    )
    assert read_scenario(path) == BatchScenario(seed=7, batches=plan)


TARIFF = Tariff(input=2, output=8, cached_input=0.5)
USAGE = Usage(input_tokens=1_000, output_tokens=100, cache_read_tokens=400)
# 600 fresh tokens at 2, 400 cached ones at 0.5, 100 generated ones at 8, each per million.
LIVE_USD = Decimal("0.0022")


def test_an_answer_in_a_batch_costs_its_share() -> None:
    bill = BatchBill(TARIFF, {}, share=0.5)
    bill.charge("m", USAGE, readable=True)
    for name in ("a-1", "a-2"):
        bill.charge_request("m", name, USAGE, readable=True)
    entry = bill.as_dict()["models"]["m"]
    assert Decimal(entry["live"]["usd"]) == LIVE_USD
    assert Decimal(entry["batch"]["usd"]) == LIVE_USD
    assert Decimal(entry["usd"]) == Decimal(bill.as_dict()["usd"]) == 2 * LIVE_USD
    assert (entry["batch"]["requests"], entry["batch"]["output_tokens"]) == (2, 200)


def test_an_answer_that_no_client_can_read_is_charged_and_named() -> None:
    bill = BatchBill(TARIFF, {})
    bill.charge_request("m", "a-1", USAGE, readable=False)
    bill.charge("m", USAGE, readable=False)
    entry = bill.as_dict()["models"]["m"]
    assert entry["batch_unreadable"] == entry["batch"]
    assert Decimal(entry["live_unreadable"]["usd"]) == LIVE_USD


def test_a_second_payment_shows() -> None:
    bill = BatchBill(Tariff(), {})
    for name in ("a-1", "b-1", "a-1"):
        bill.count_batch(name)
        bill.charge_request("m", name, USAGE, readable=True)
    found = bill.as_dict()
    assert (found["batches"], found["tokens"], found["charged_twice"]) == (3, 2, 1)
    assert found["tokens_used_twice"] == ["a"]
