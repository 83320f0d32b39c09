"""The report of a worker to the limiter."""

import pytest

from aegish_dist.core.model import RateHint
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.ratelimit.usage_report import REASON_LENGTH, UsageReport


def failed(
    report: UsageReport,
    error_class: ErrorClass,
    retry_after_s: float | None = None,
    *,
    epoch: int = 0,
    probe: bool = False,
    reason: str = "no",
) -> UsageReport:
    report.add_failure(epoch, error_class, retry_after_s, probe=probe, reason=reason)
    return report


def test_answers() -> None:
    report = UsageReport()
    assert not report
    report.enter_epoch(3)
    assert not report
    report.add_answer(3, 40)
    report.add_answer(2, -10)
    assert report == UsageReport(epoch=3, answers=2, epoch_answers=1, alive=True, tokens=30)
    assert report


def test_refusals_of_older_epochs() -> None:
    """A 429 of a call that began before the last decrease is no refusal of this rate."""
    report = UsageReport()
    report.enter_epoch(1)
    failed(report, ErrorClass.RATE_LIMIT, epoch=0)
    failed(report, ErrorClass.RATE_LIMIT, 2.5, epoch=1)
    assert (report.refused, report.limited) == (1, 2)
    report = failed(UsageReport(epoch=1), ErrorClass.RATE_LIMIT, epoch=1)
    report.enter_epoch(2)
    assert report == UsageReport(epoch=2, limited=1, alive=True, reason="no")


def test_pauses() -> None:
    report = UsageReport()
    failed(report, ErrorClass.RATE_LIMIT, 2.0)
    failed(report, ErrorClass.OVERLOADED, 7.0)
    failed(report, ErrorClass.SERVER, 90.0)
    assert report.pause_s == 7.0
    # So long a wait holds for all calls to the model, whatever the failure.
    assert failed(report, ErrorClass.SERVER, 301.0).pause_s == 301.0


def test_failures_in_a_row() -> None:
    """Only failures since the last sign of life count: an answer, or a 429."""
    report = UsageReport()
    classes = (ErrorClass.SERVER, ErrorClass.RATE_LIMIT, ErrorClass.AUTH, ErrorClass.DEADLINE)
    for error_class in (*classes, ErrorClass.BAD_REQUEST):
        failed(report, error_class, reason=f"no {error_class}")
    assert (report.alive, report.failures, report.reason) == (True, 3, "no bad_request")


def test_long_reasons_are_cut() -> None:
    assert failed(UsageReport(), ErrorClass.SERVER, reason="x" * 999).reason == "x" * REASON_LENGTH


@pytest.mark.parametrize(
    ("error_class", "alive"),
    [(ErrorClass.AUTH, False), (ErrorClass.DEADLINE, False), (ErrorClass.RATE_LIMIT, True)],
)
def test_failed_probes(error_class: ErrorClass, alive: bool) -> None:
    report = failed(UsageReport(), error_class, probe=True)
    assert (report.alive, report.probe_failed) == (alive, True)


def test_failures_that_may_have_to_be_paid_for() -> None:
    """They are counted up to the next answer, whatever 429s come between them."""
    lost = UsageReport()
    for error_class in (ErrorClass.MALFORMED, ErrorClass.RATE_LIMIT, ErrorClass.DEADLINE):
        failed(lost, error_class)
    assert lost.unanswered == 2
    later = UsageReport()
    later.add_answer(0, 0)
    failed(later, ErrorClass.CONNECTION)
    assert lost.followed_by(later).unanswered == 1


def test_a_report_that_did_not_arrive() -> None:
    lost = failed(UsageReport(), ErrorClass.SERVER)
    lost.add_answer(0, 5)
    failed(lost, ErrorClass.SERVER)
    later = failed(UsageReport(), ErrorClass.OVERLOADED, 1.5)
    assert lost.followed_by(later) == UsageReport(
        answers=1,
        epoch_answers=1,
        alive=True,
        failures=2,
        overloaded=1,
        pause_s=1.5,
        tokens=5,
        reason="no",
    )


def test_hints_that_did_not_arrive() -> None:
    lost, later = UsageReport(hint=RateHint(60, 59)), UsageReport(hint=RateHint(60, 0))
    assert lost.followed_by(later).hint == RateHint(60, 0)
    assert lost.followed_by(UsageReport()).hint == RateHint(60, 59)
