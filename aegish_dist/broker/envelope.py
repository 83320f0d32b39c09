"""Celery's message for an item as it lies in a Redis list, made once per queue but for the item."""

import base64
import json
import time
import uuid
from typing import Any

from celery import Celery
from kombu import Producer
from kombu.utils.json import dumps

from aegish_dist.broker.messages import ENQUEUED_AT, EVALUATE, encode, queue_name
from aegish_dist.core.verdict import Item


def send(app: Celery, producer: Any, item: Item) -> None:
    """Publish one item to its queue through a producer of kombu."""
    message = app.amqp.as_task_v2(
        str(uuid.uuid4()),
        EVALUATE,
        encode(item),
        {},
        argsrepr="",
        kwargsrepr="",
        ignore_result=True,
    )
    producer.publish(
        message.body,
        exchange="",
        routing_key=queue_name(item.model, item.run_id),
        serializer="json",
        headers={**message.headers, ENQUEUED_AT: time.time()},
        delivery_mode=2,
        **message.properties,
    )


class Envelope:
    """Everything of a queue's messages but the item, the ids and the time."""

    def __init__(self, app: Celery, channel: Any, sample: Item) -> None:
        """Have Celery and kombu make a message, and note where the item goes.

        Args:
            app: The application.
            channel: Of a virtual transport, which decides how a message is written.
            sample: Any item of the queue.
        """
        draft = _Draft(channel)
        send(app, Producer(draft), sample)
        message = draft.message
        task_id = message["headers"]["id"]
        body, enqueued_at = str(uuid.uuid4()), str(uuid.uuid4())
        self._body = base64.b64decode(message["body"]).decode()
        self._body = _with_slots(self._body, {json.dumps(encode(sample)): "arguments"})
        message["body"] = body
        message["headers"][ENQUEUED_AT] = enqueued_at
        message["properties"]["delivery_tag"] = task_id
        self._message = _with_slots(
            dumps(message), {task_id: "id", body: "body", json.dumps(enqueued_at): "enqueued_at"}
        )

    def put(self, item: Item) -> str:
        """Return the message for an item."""
        body = self._body % {"arguments": json.dumps(encode(item))}
        return self._message % {
            "id": uuid.uuid4(),
            "body": base64.b64encode(body.encode()).decode(),
            "enqueued_at": time.time(),
        }


class _Draft:
    """Stands in for a channel and keeps the message that would be sent."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self.message: dict[str, Any] = {}

    def prepare_message(self, *parts: Any) -> dict[str, Any]:
        message: dict[str, Any] = self._channel.prepare_message(*parts)
        return message

    def basic_publish(
        self, message: dict[str, Any], exchange: str, routing_key: str, **_: Any
    ) -> None:
        self._channel._inplace_augment_message(message, exchange, routing_key)
        self.message = message


def _with_slots(text: str, slots: dict[str, str]) -> str:
    text = text.replace("%", "%%")
    for value, name in slots.items():
        text = text.replace(value.replace("%", "%%"), f"%({name})s")
    return text
