"""The task bodies: decode the message, call the pipeline."""

from collections.abc import Sequence
from typing import Any

from celery import shared_task
from celery.exceptions import Reject

from aegish_dist.pipeline.evaluate import Evaluator, ShuttingDownError
from aegish_dist.queue.messages import EVALUATE, decode


@shared_task(name=EVALUATE, ignore_result=True, Strategy="workers.pool:hand_over")
async def evaluate(evaluator: Evaluator, arguments: Sequence[Any], enqueued_at: Any) -> None:
    """Bring the item that a message names to its verdict."""
    known = isinstance(enqueued_at, int | float)
    try:
        await evaluator.evaluate(decode(arguments), enqueued_at if known else None)
    except ValueError as error:
        raise Reject(str(error), requeue=False) from error
    except ShuttingDownError as error:
        raise Reject("worker stops", requeue=True) from error
