"""The retry policy as a table."""

import pytest

from aegish_dist.core.verdict import ErrorClass, Outcome
from aegish_dist.providers.retry import GiveUp, RetryAfter, decide

TRANSIENT = [
    ErrorClass.OVERLOADED,
    ErrorClass.SERVER,
    ErrorClass.CONNECTION,
    ErrorClass.MALFORMED,
]
FINAL = [ErrorClass.AUTH, ErrorClass.QUOTA, ErrorClass.BAD_REQUEST, ErrorClass.NOT_FOUND]


@pytest.mark.parametrize("error_class", FINAL)
def test_failures_that_asking_again_cannot_help_are_final(error_class):
    assert decide(error_class, 1, 1.0, 0.5) == GiveUp(Outcome.API_ERROR)


def test_a_missed_deadline_is_final_and_a_timeout():
    assert decide(ErrorClass.DEADLINE, 1, None, 0.5) == GiveUp(Outcome.TIMEOUT_ERROR)


@pytest.mark.parametrize(
    ("error_class", "attempts"),
    [(ErrorClass.RATE_LIMIT, 10), *((error_class, 6) for error_class in TRANSIENT)],
)
def test_transient_failures_are_retried_up_to_their_number_of_attempts(error_class, attempts):
    retried = [decide(error_class, attempt, None, 0.0) for attempt in range(1, attempts)]
    assert all(isinstance(decision, RetryAfter) for decision in retried)
    assert decide(error_class, attempts, None, 0.0) == GiveUp(Outcome.API_ERROR)


@pytest.mark.parametrize(
    ("attempt", "jitter", "seconds"),
    [(1, 0.0, 0.5), (1, 0.5, 0.75), (2, 0.0, 1.0), (3, 0.5, 3.0), (7, 0.0, 30.0), (9, 0.5, 45.0)],
)
def test_wait_doubles_up_to_the_cap_with_half_of_it_random(attempt, jitter, seconds):
    assert decide(ErrorClass.RATE_LIMIT, attempt, None, jitter) == RetryAfter(seconds)


@pytest.mark.parametrize(
    ("retry_after_s", "jitter", "seconds"),
    [(20.0, 0.0, 20.0), (20.0, 0.5, 20.25), (0.0, 0.0, 0.5), (300.0, 0.0, 300.0)],
)
def test_retry_after_is_a_minimum_with_jitter_on_top(retry_after_s, jitter, seconds):
    assert decide(ErrorClass.RATE_LIMIT, 1, retry_after_s, jitter) == RetryAfter(seconds)


def test_a_provider_that_asks_for_more_than_five_minutes_is_given_up():
    assert decide(ErrorClass.RATE_LIMIT, 1, 301.0, 0.0) == GiveUp(Outcome.API_ERROR)


def test_every_class_of_failure_has_a_decision_at_every_attempt():
    for error_class in ErrorClass:
        for attempt in range(1, 100):
            assert isinstance(decide(error_class, attempt, None, 0.9), RetryAfter | GiveUp)
