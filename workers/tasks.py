"""The task bodies: decode the message, call the pipeline."""

from collections.abc import Mapping
from typing import Any

from celery import shared_task
from celery.exceptions import Reject

from aegish_dist.pipeline.evaluate import Evaluator, ShuttingDownError
from aegish_dist.queue.gate import OverBudgetError, SentBackError
from aegish_dist.queue.messages import ENQUEUED_AT, EVALUATE, decode


@shared_task(name=EVALUATE, ignore_result=True)
async def evaluate(evaluator: Evaluator, request: Mapping[str, Any]) -> None:
    """Bring the item that a message names to its verdict."""
    try:
        item = decode(request["args"])
        await evaluator.evaluate(item, request.get(ENQUEUED_AT))
    except ValueError as error:
        raise Reject(str(error), requeue=False) from error
    except (ShuttingDownError, SentBackError) as error:
        raise Reject("not called", requeue=True) from error
    except OverBudgetError as error:
        # Missing in the store, where `status` shows why.
        raise Reject("over budget", requeue=False) from error
