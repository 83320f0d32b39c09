"""Answers and result lines of a batch."""

import random
from collections import Counter

from aegish_dist.core.batches import Unanswered
from aegish_dist.core.model import WireFormat
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.verdict import Completion
from aegish_dist.simulator.batch_lifecycle import (
    BatchAnswer,
    BatchRunner,
    NamedRequest,
    outcomes_at,
    result_lines,
)
from aegish_dist.simulator.behaviour import SimulatedModel
from aegish_dist.simulator.bill import Bill
from aegish_dist.simulator.config import BatchPlan, RequestFault, SimulatorConfig
from aegish_dist.simulator.dialect import ChatRequest, ErrorAnswer

ANSWER = Completion("BLOCK")


def answers(plan: BatchPlan, seed: int = 1) -> BatchRunner:
    config = SimulatorConfig(seed=seed)
    models: dict[str, SimulatedModel] = {}

    def model(name: str) -> SimulatedModel:
        return models.setdefault(name, SimulatedModel(name, config, None, 0.0))

    return BatchRunner(seed, plan, model, Bill())


def requests(number: int) -> list[NamedRequest]:
    return [
        NamedRequest(f"t-{place}", ChatRequest("careful", f"ls {place}", 10, 0))
        for place in range(number)
    ]


def ask(given: list[NamedRequest], plan: BatchPlan, seed: int = 1) -> dict[str, BatchAnswer]:
    asked = answers(plan, seed)
    return {each.name: asked.ask(each, WireFormat.OPENAI) for each in given}


def test_results_depend_on_the_seed_and_not_on_the_order() -> None:
    plan = BatchPlan(requests={RequestFault.SERVER_ERROR: 0.3, RequestFault.MISSING: 0.2})
    given = requests(60)
    shuffled = random.Random(3).sample(given, len(given))
    assert ask(given, plan) == ask(shuffled, plan)
    assert ask(given, plan) != ask(given, plan, seed=2)


def test_a_request_that_is_asked_again_has_luck_of_its_own() -> None:
    asked = answers(BatchPlan(requests={RequestFault.SERVER_ERROR: 0.5}))
    (request,) = requests(1)
    faults = Counter(asked.ask(request, WireFormat.OPENAI).fault for _ in range(40))
    assert set(faults) == {None, RequestFault.SERVER_ERROR}


def test_errors_have_the_words_of_the_dialect() -> None:
    for fault, error_class in [
        (RequestFault.REFUSED, ErrorClass.BAD_REQUEST),
        (RequestFault.SERVER_ERROR, ErrorClass.SERVER),
    ]:
        (answer,) = ask(requests(1), BatchPlan(requests={fault: 1.0})).values()
        assert isinstance(answer.outcome, ErrorAnswer)
        assert answer.outcome.error_class is error_class
        assert answer.outcome.message


def test_requests_after_the_end_are_not_answered() -> None:
    early, late = BatchAnswer("a", "m", 0.2, ANSWER), BatchAnswer("b", "m", 0.6, ANSWER)
    found = outcomes_at([early, late], 0.5, Unanswered.EXPIRED)
    assert found == [ANSWER, Unanswered.EXPIRED]


def lines(fault: RequestFault, chance: float = 0.1) -> list[tuple[str, bool]]:
    """Return name and state of the lines about two requests, the first with a fault."""
    name = "abc-7-1-0"
    given = [
        BatchAnswer(name, "m", 0.1, ANSWER, fault, chance),
        BatchAnswer("abc-8-1-0", "m", 0.2, ANSWER),
    ]
    return [(line.name, line.broken) for line in result_lines(given, [ANSWER, ANSWER])]


def test_faults_of_lines() -> None:
    whole, other = ("abc-7-1-0", False), ("abc-8-1-0", False)
    assert lines(RequestFault.MISSING) == [other]
    assert lines(RequestFault.DUPLICATE) == [whole, other, whole]
    assert lines(RequestFault.MALFORMED) == [("abc-7-1-0", True), other]
    assert lines(RequestFault.FOREIGN) == [whole, other, ("0bc-7-1-0", False)]
    assert lines(RequestFault.FOREIGN, 0.9) == [whole, other, ("abc-7-1-09", False)]


def test_a_request_that_was_not_begun_has_no_fault() -> None:
    answer = BatchAnswer("a", "m", 0.9, ANSWER, RequestFault.DUPLICATE)
    (line,) = result_lines([answer], [Unanswered.EXPIRED])
    assert (line.outcome, line.broken) == (Unanswered.EXPIRED, False)
