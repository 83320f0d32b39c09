"""Answers and result lines of a batch."""

import random
from collections import Counter

from aegish_dist.core.batches import Unanswered
from aegish_dist.core.model import WireFormat
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.verdict import Completion
from aegish_dist.simulator.batches import (
    BatchAnswer,
    BatchPhase,
    BatchService,
    SimulatedBatch,
    result_lines,
)
from aegish_dist.simulator.behaviour import SimulatedModel
from aegish_dist.simulator.bill import Bill, Tariff
from aegish_dist.simulator.config import BatchPlan, EndFault, RequestFault, SimulatorConfig
from aegish_dist.simulator.dialect import ChatRequest, ErrorAnswer

ANSWER = Completion("BLOCK")
CHATS = {f"t-{place}": ChatRequest("careful", f"ls {place}", 10, 0) for place in range(60)}


def asker(plan: BatchPlan, seed: int = 1) -> BatchService:
    config = SimulatorConfig(seed=seed, batches=plan)
    bill = Bill(Tariff(), {})
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
