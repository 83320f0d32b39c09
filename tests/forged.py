"""Messages that no producer sends: damaged ones, and those of a party that can write to the broker."""

import json
from pathlib import Path
from typing import Any

LINES = (Path(__file__).parent / "data/forged_messages.jsonl").read_text("ascii").splitlines()
"""Texts, and what each message has instead of the parts of a sound one."""


def forged_messages(queue: str) -> list[str]:
    """Return messages as they lie in a Redis list, each wrong in one way."""
    return [
        wrong if isinstance(wrong, str) else _message(queue, number, **wrong)
        for number, wrong in enumerate(map(json.loads, LINES))
    ]


def _message(queue: str, number: int, drop: str = "", **parts: Any) -> str:
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
    return json.dumps({name: part for name, part in whole.items() if name != drop})
