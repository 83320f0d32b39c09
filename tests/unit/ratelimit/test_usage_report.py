"""What a worker gathers for the limiter."""

import pytest

from aegish_dist.core.limits import RateHint
from aegish_dist.core.verdict import ErrorClass
from aegish_dist.ratelimit.protocol import UsageReport
from aegish_dist.ratelimit.usage_report import News


def test_answers() -> None:
    """Answers count, those of the present epoch once more, and so do unexpected tokens."""
    news = News()
    news.enter_epoch(3)
    news.answer(3, 40)
    news.answer(2, -10)

    assert news.take() == UsageReport(epoch=3, answers=2, epoch_answers=1, alive=True, tokens=30)
    assert not news


def test_refusals_of_older_epochs() -> None:
    """A 429 of a call that was let through before the last decrease is no refusal of this rate."""
    news = News()
    news.enter_epoch(1)
    news.failure(0, ErrorClass.RATE_LIMIT, None, probe=False, words="no")
    news.failure(1, ErrorClass.RATE_LIMIT, 2.5, probe=False, words="no")
    assert news.take().refused == 1

    news.failure(1, ErrorClass.RATE_LIMIT, None, probe=False, words="no")
    news.enter_epoch(2)
    assert news.take() == UsageReport(epoch=2, alive=True, reason="no")


def test_pauses() -> None:
    """The longest wait that a throttled or overloaded provider asks for counts; others do not."""
    news = News()
    news.failure(0, ErrorClass.RATE_LIMIT, 2.0, probe=False, words="no")
    news.failure(0, ErrorClass.OVERLOADED, 7.0, probe=False, words="no")
    news.failure(0, ErrorClass.SERVER, 90.0, probe=False, words="no")

    assert (news.take().pause_s, news.take().pause_s) == (7.0, 0.0)


def test_long_pauses() -> None:
    """A wait that nothing is held for is the model's, whatever the failure."""
    news = News()
    news.failure(0, ErrorClass.SERVER, 301.0, probe=False, words="no")

    assert news.take().pause_s == 301.0


def test_failures_in_a_row() -> None:
    """Only failures since the last sign of life count: an answer, or a 429."""
    news = News()
    classes = (ErrorClass.SERVER, ErrorClass.RATE_LIMIT, ErrorClass.AUTH, ErrorClass.DEADLINE)
    for error_class in (*classes, ErrorClass.BAD_REQUEST):
        news.failure(0, error_class, None, probe=False, words=f"no {error_class}")

    told = news.take()

    assert (told.alive, told.failures, told.reason) == (True, 3, "no bad_request")


@pytest.mark.parametrize("error_class", [ErrorClass.AUTH, ErrorClass.DEADLINE])
def test_failed_probes(error_class: ErrorClass) -> None:
    """A probe has failed unless the provider showed a sign of life."""
    news = News()
    news.failure(0, error_class, None, probe=True, words="no")

    assert news.take().probe_failed


def test_refused_probe() -> None:
    """A 429 is a sign of life, though no answer."""
    news = News()
    news.failure(0, ErrorClass.RATE_LIMIT, None, probe=True, words="no")

    told = news.take()

    assert (told.alive, told.probe_failed) == (True, True)


def test_calls_that_were_paid_for_in_vain() -> None:
    """They are counted up to the next answer, a 429 between them notwithstanding."""
    news = News()
    for error_class in (ErrorClass.MALFORMED, ErrorClass.RATE_LIMIT, ErrorClass.DEADLINE):
        news.failure(0, error_class, None, probe=False, words="no")
    told = news.take()
    assert told.unanswered == 2
    news.answer(0, 0)
    news.failure(0, ErrorClass.CONNECTION, None, probe=False, words="no")

    news.put_back(told)

    assert news.take().unanswered == 1


def test_news_that_did_not_arrive() -> None:
    """They are told together with what came after them."""
    news = News()
    news.failure(0, ErrorClass.SERVER, None, probe=False, words="no")
    news.answer(0, 5)
    news.failure(0, ErrorClass.SERVER, None, probe=False, words="no")
    lost = news.take()
    news.failure(0, ErrorClass.OVERLOADED, 1.5, probe=False, words="no")
    news.put_back(lost)

    assert news.take() == UsageReport(
        answers=1,
        epoch_answers=1,
        alive=True,
        failures=2,
        overloaded=1,
        pause_s=1.5,
        tokens=5,
        reason="no",
    )


def test_hints() -> None:
    """The newest hint is told; only another limit is worth telling at once."""
    news = News()

    assert news.hint(RateHint(60, 59))
    assert not news.hint(RateHint(60, 58))
    assert news.hint(RateHint(120, 100))
    told = news.take()
    assert told.hint == RateHint(120, 100)


def test_hints_that_did_not_arrive() -> None:
    """A newer one replaces them whole, above all when it says that nothing is left."""
    news = News()
    news.hint(RateHint(60, 59))
    lost = news.take()
    news.hint(RateHint(60, 0))
    news.put_back(lost)
    assert news.take().hint == RateHint(60, 0)

    news.put_back(lost)
    assert news.take().hint == RateHint(60, 59)
