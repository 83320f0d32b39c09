"""The rule for failed calls, as a table."""

from itertools import product

import pytest
from msgspec.structs import replace

from aegish_dist.core.failures import (  # fmt: skip
    LAST_PROBES,
    Evidence,
    Failure,
    GiveUp,
    RetryAfter,
    Step,
    decide,
)
from aegish_dist.core.outcome import ErrorClass, Outcome

TROUBLE = [ErrorClass.AUTH, ErrorClass.QUOTA, ErrorClass.NOT_FOUND]
PASSING = {
    ErrorClass.RATE_LIMIT: 10,
    ErrorClass.OVERLOADED: 6,
    ErrorClass.SERVER: 6,
    ErrorClass.CONNECTION: 6,
    ErrorClass.MALFORMED: 6,
}
API_ERROR, TIMEOUT_ERROR = GiveUp(Outcome.API_ERROR), GiveUp(Outcome.TIMEOUT_ERROR)
MEANWHILE = Evidence(answered=True)
NOTHING = Evidence(answered=False, answered_in_run=False)
ONCE = Evidence(answered=False, answered_in_run=True)
PARKED = Evidence(circuit_open=True, answered=True, answered_in_run=True)


def exhausted(error_class: ErrorClass) -> Failure:
    return Failure(error_class, PASSING.get(error_class, 1))


@pytest.mark.parametrize(
    ("error_class", "evidence"),
    [*product(TROUBLE, (Evidence(), MEANWHILE, NOTHING, ONCE)), *product(ErrorClass, (PARKED,))],
)
def test_trouble_of_key_account_and_host_and_of_a_parked_model_is_never_a_verdict(
    error_class: ErrorClass, evidence: Evidence
) -> None:
    for attempt in (1, 100):
        assert decide(Failure(error_class, attempt), evidence, 0.5) is Step.GIVE_BACK


@pytest.mark.parametrize(("error_class", "attempts"), PASSING.items())
def test_passing_failures_are_tried_again_up_to_their_number_of_attempts(
    error_class: ErrorClass, attempts: int
) -> None:
    for attempt, evidence, cut in product(
        range(1, attempts), (Evidence(), MEANWHILE, NOTHING), (False, True)
    ):
        failure = Failure(error_class, attempt, cut=cut)
        assert isinstance(decide(failure, evidence, 0.0), RetryAfter)
    assert decide(Failure(error_class, attempts), MEANWHILE, 0.0) == API_ERROR


@pytest.mark.parametrize(
    ("error_class", "meanwhile", "once", "never"),
    [
        (ErrorClass.BAD_REQUEST, API_ERROR, API_ERROR, Step.GIVE_BACK),
        (ErrorClass.SERVER, API_ERROR, API_ERROR, Step.GIVE_BACK),
        (ErrorClass.MALFORMED, API_ERROR, API_ERROR, Step.GIVE_BACK),
        (ErrorClass.CONNECTION, API_ERROR, Step.GIVE_BACK, Step.GIVE_BACK),
        (ErrorClass.OVERLOADED, API_ERROR, Step.GIVE_BACK, Step.GIVE_BACK),
        (ErrorClass.RATE_LIMIT, API_ERROR, Step.GIVE_BACK, Step.GIVE_BACK),
        (ErrorClass.DEADLINE, TIMEOUT_ERROR, TIMEOUT_ERROR, TIMEOUT_ERROR),
    ],
)
def test_whose_fault_an_exhausted_item_is(
    error_class: ErrorClass, meanwhile: Outcome | Step, once: Outcome | Step, never: Outcome | Step
) -> None:
    found = [decide(exhausted(error_class), each, 0.5) for each in (MEANWHILE, ONCE, NOTHING)]
    assert found == [meanwhile, once, never]


def test_a_403_may_be_meant_for_the_command() -> None:
    """It is the key's, unless others are answered meanwhile; a 401 always is."""
    refused = Failure(ErrorClass.AUTH, 1, status=403)
    found = [decide(refused, each, 0.5) for each in (Evidence(), MEANWHILE, ONCE, NOTHING, PARKED)]
    assert found == [Step.AWAIT_ANSWER, API_ERROR, *3 * [Step.GIVE_BACK]]
    assert decide(replace(refused, status=401), MEANWHILE, 0.5) is Step.GIVE_BACK


def test_evidence_is_asked_for_only_where_it_decides() -> None:
    refused, late = exhausted(ErrorClass.BAD_REQUEST), exhausted(ErrorClass.DEADLINE)
    assert decide(refused, Evidence(), 0.5) is Step.AWAIT_ANSWER
    assert decide(late, Evidence(), 0.5) is Step.AWAIT_ANSWER
    assert decide(refused, Evidence(answered=False), 0.5) is Step.ASK_STORE
    # While an item was tried six times, others were called as well: nothing is worth waiting for.
    assert decide(exhausted(ErrorClass.OVERLOADED), Evidence(), 0.5) is Step.GIVE_BACK
    assert decide(exhausted(ErrorClass.SERVER), Evidence(), 0.5) is Step.ASK_STORE


@pytest.mark.parametrize(
    ("failure", "once", "never"),
    [
        (exhausted(ErrorClass.DEADLINE), TIMEOUT_ERROR, TIMEOUT_ERROR),
        (exhausted(ErrorClass.MALFORMED), API_ERROR, API_ERROR),
        (exhausted(ErrorClass.BAD_REQUEST), API_ERROR, Step.GIVE_BACK),
        (exhausted(ErrorClass.SERVER), Step.GIVE_BACK, Step.GIVE_BACK),
        (exhausted(ErrorClass.CONNECTION), Step.GIVE_BACK, Step.GIVE_BACK),
        # A call whose connection is cut after a long wait was probably worked on, and is paid for.
        (replace(exhausted(ErrorClass.CONNECTION), cut=True), API_ERROR, API_ERROR),
        (exhausted(ErrorClass.AUTH), Step.GIVE_BACK, Step.GIVE_BACK),
    ],
)
def test_probes_that_may_cost_settle_their_item_in_the_end(
    failure: Failure, once: Outcome | Step, never: Outcome | Step
) -> None:
    """So that a run ends whose provider never answers; what costs nothing is tried for ever."""
    probe = replace(failure, probe=True)
    parked = [
        replace(each, circuit_open=True, failed_probes=LAST_PROBES, answered=None)
        for each in (ONCE, NOTHING)
    ]
    assert [decide(probe, each, 0.5) for each in parked] == [once, never]
    early = replace(parked[0], failed_probes=LAST_PROBES - 1)
    assert decide(probe, early, 0.5) is Step.GIVE_BACK
    assert decide(failure, parked[0], 0.5) is Step.GIVE_BACK


@pytest.mark.parametrize(
    ("attempt", "retry_after_s", "jitter", "seconds"),
    [
        *((1, None, 0.0, 0.5), (1, None, 0.5, 0.75), (2, None, 0.0, 1.0), (3, None, 0.5, 3.0)),
        *((7, None, 0.0, 30.0), (9, None, 0.5, 45.0)),
        # Retry-After is a minimum with jitter on top.
        *((1, 20.0, 0.0, 20.0), (1, 20.0, 0.5, 20.25), (1, 0.0, 0.0, 0.5), (1, 300.0, 0.0, 300.0)),
    ],
)
def test_wait_doubles_up_to_the_cap_with_half_of_it_random(
    attempt: int, retry_after_s: float | None, jitter: float, seconds: float
) -> None:
    failure = Failure(ErrorClass.RATE_LIMIT, attempt, retry_after_s)
    assert decide(failure, Evidence(), jitter) == RetryAfter(seconds)


def test_no_item_waits_longer_than_five_minutes() -> None:
    for error_class in PASSING:
        assert decide(Failure(error_class, 1, 301.0), Evidence(), 0.0) is Step.GIVE_BACK


def test_every_failure_ends_in_something() -> None:
    flags, maybe = (False, True), (None, False, True)
    for error_class, attempt, parked, probes, answered, in_run, probe in product(
        ErrorClass, (1, 6, 99), flags, (0, 99), maybe, maybe, flags
    ):
        evidence = Evidence(parked, probes, answered, in_run)
        step = decide(Failure(error_class, attempt, None, probe), evidence, 0.9)
        if step is Step.AWAIT_ANSWER:
            assert evidence.answered is None
        elif step is Step.ASK_STORE:
            assert evidence.answered_in_run is None
        else:
            assert isinstance(step, RetryAfter | GiveUp) or step is Step.GIVE_BACK
