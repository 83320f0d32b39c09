"""The task bodies: decode the message, call the pipeline."""

from collections.abc import Mapping
from typing import Any

from celery import shared_task
from celery.exceptions import Reject

from aegish_dist.broker.messages import ENQUEUED_AT, EVALUATE, decode
from aegish_dist.errors import OverBudgetError, RequeueError
from aegish_dist.logs import get_logger
from aegish_dist.pipeline.evaluate import Evaluator

log = get_logger(__name__)

IS_HELD = "is_held"
"""In a request: whether the broker still counts the message as delivered to this worker."""


@shared_task(name=EVALUATE, ignore_result=True, Strategy="workers.pool:hand_over")
async def evaluate(evaluator: Evaluator, request: Mapping[str, Any]) -> None:
    """Bring the item that a message names to its verdict."""
    try:
        item = decode(request["args"])
    except (TypeError, ValueError) as error:
        log.warning("foreign_message", queue=request.get("delivery_info", {}).get("routing_key"))
        raise Reject(str(error), requeue=False) from error
    try:
        await evaluator.evaluate(item, request.get(ENQUEUED_AT), request[IS_HELD])
    except RequeueError as error:
        raise Reject("given back", requeue=True) from error
    except OverBudgetError as error:
        # Missing in the store, where `status` shows why.
        raise Reject("over budget", requeue=False) from error
