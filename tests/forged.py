"""Messages that no producer sends: damaged ones, and those of a party that can write to the broker."""

import json
from typing import Any


def forged_messages(queue: str) -> list[str]:
    """Return messages as they lie in a Redis list, each wrong in one way."""
    number = 0

    def message(*drop: str, **parts: Any) -> str:
        nonlocal number
        number += 1
        whole = {
            "body": "W1sicnVuIiwgIm1vZGVsIiwgMSwgMSwgMF0sIHt9LCB7fV0=",
            "content-type": "application/json",
            "content-encoding": "utf-8",
            "headers": {"task": "aegish.evaluate"},
            "properties": {
                "delivery_tag": f"forged-{number}",
                "body_encoding": "base64",
                "delivery_info": {"exchange": "", "routing_key": queue},
            }
            | parts.pop("properties", {}),
        } | parts
        return json.dumps({name: part for name, part in whole.items() if name not in drop})

    return [
        "not JSON",
        "[1, 2]",
        '{"properties": {"delivery_tag": 7}}',
        message(headers={"task": {"of": "a map"}}),
        message(headers={"task": ["a", "list"]}),
        message(headers={"task": 7}),
        message(headers={"task": "celery.chain"}),
        message(headers={"task": "\x1b]52;c;aGk=\x07"}),
        message(headers={}),
        message(headers="text"),
        message(headers=["x"]),
        message("headers"),
        message("body"),
        message(body=None),
        message(body=7),
        message(body=["x"]),
        message(body="=not base64="),
        message(body="bm90IEpTT04="),
        message(body="e30="),
        message(body="W10="),
        message(properties={"body_encoding": "unknown"}),
        message(properties={"body_encoding": ["base64"]}),
        message(properties={"body_encoding": 7}),
        message(**{"content-type": ["application/json"]}),
        message(**{"content-type": "application/x-python-serialize"}),
        message(**{"content-type": None}),
        message("content-type"),
        message(**{"content-encoding": "no-such"}),
        message(**{"content-encoding": {"x": 1}}),
        message(headers={"task": "aegish.evaluate", "compression": "zlib"}),
        message(headers={"task": "aegish.evaluate", "compression": ["zlib"]}),
        message(properties={"priority": "high", "delivery_mode": []}),
    ]
