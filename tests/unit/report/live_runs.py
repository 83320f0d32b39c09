"""Runs that go on, made up for drawing."""

from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.status import FailedCalls, ModelStatus, RunStatus, State

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def a_model(model: str = "openai/gpt-5.1", **changes: Any) -> ModelStatus:
    """Return a model that is half way: 50 of 100 verdicts, 2 a second, $0.5 so far."""
    usual = ModelStatus(
        model=model,
        planned=100,
        done=50,
        in_flight=8,
        state=State.RUNNING,
        rate_per_s=2.0,
        cost_usd=0.5,
        failed=1,
        replaced=0,
        eta_s=25.0,
        cost_at_end_usd=1.0,
        failed_calls=4,
        retries=3,
        rate_limited=3,
        rate_limited_last_minute=2,
    )
    return replace(usual, **changes)


def an_error(message: str = "Rate limit reached", **changes: Any) -> FailedCalls:
    """Return three 429s."""
    return replace(
        FailedCalls(AT, "openai/gpt-5.1", ErrorClass.RATE_LIMIT, 429, message, 3, 2), **changes
    )


def a_run(*models: ModelStatus, **changes: Any) -> RunStatus:
    """Return a run of these models."""
    costs = [model.cost_usd or 0 for model in models]
    planned, done = sum(m.planned for m in models), sum(m.done for m in models)
    usual = RunStatus(
        run_id="1rwmra9s7",
        origin="submit",
        state=State.RUNNING,
        planned=planned,
        done=done,
        missing=planned - done,
        outcomes={"ALLOW": 20, "BLOCK": 30},
        failed={"API_ERROR": len(models)},
        replaced=0,
        retrying=0,
        models=models,
        eta_s=25.0,
        workers=2,
        name="a name",
        cost_usd=sum(costs),
        cost_at_end_usd=2 * sum(costs),
        max_cost_usd=50.0,
        rate_limited=3 * len(models),
        rate_limited_last_minute=2 * len(models),
        last_errors=(an_error(),),
    )
    return replace(usual, **changes)
