"""The messages of a sample of Inspect AI, and the event of the call that they stand for.

Data frames of messages are made of events, the viewer shows both. Long texts of the event are
attachments, so that none stands in a sample more often than Inspect AI itself would write it.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aegish_dist.core.run import Messages, Prompt
from aegish_dist.core.verdict_record import VerdictRecord

ATTACHED_FROM_CHARS = 100
"""Longer texts are attachments, as Inspect AI has it."""


def text_id(*parts: object) -> str:
    """Return an id of 22 hexadecimal digits, always the same for the same parts."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:22]


@dataclass(frozen=True, slots=True)
class Conversation:
    """Makes the messages of the samples of one log."""

    prompt: Prompt | None
    """Was sent with each command; None where it is unknown."""
    model: str
    config: Mapping[str, Any]
    created_at: str
    """When the run was submitted: the time of calls that have none."""

    def messages(
        self, uuid: str, record: VerdictRecord, output: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Return system text, command and answer, each where there is one."""
        texts = Messages("", record.command)
        if self.prompt is not None:
            texts = self.prompt.render(record.command)
        messages: list[dict[str, Any]] = []
        if texts.system:
            messages.append({"role": "system", "content": texts.system})
        messages.append({"role": "user", "content": texts.user, "source": "input"})
        messages += [choice["message"] for choice in output["choices"]]
        for number, message in enumerate(messages):
            message["id"] = f"{uuid}{number}"
        return messages

    def transcript(
        self,
        sample: Mapping[str, Any],
        messages: Sequence[dict[str, Any]],
        output: Mapping[str, Any],
        error: str | None,
    ) -> dict[str, Any]:
        """Return events and attachments of a sample."""
        attachments: dict[str, str] = {}
        said = [_attached(message, attachments) for message in messages]
        answered = len(output["choices"])
        choices = [
            choice | {"message": message}
            for choice, message in zip(output["choices"], said[len(said) - answered :], strict=True)
        ]
        event: dict[str, Any] = {
            "event": "model",
            "uuid": f"{sample['uuid']}e",
            "timestamp": sample.get("started_at", self.created_at),
            "working_start": 0,
            "model": self.model,
            "input": said[: len(said) - answered],
            "tools": [],
            "tool_choice": "none",
            "config": self.config,
            "output": {name: value for name, value in output.items() if name != "completion"}
            | {"choices": choices},
        }
        optional = {
            "error": error,
            "completed": sample.get("completed_at"),
            "working_time": sample.get("working_time"),
        }
        event |= {name: value for name, value in optional.items() if value is not None}
        return {"events": [event], "attachments": attachments}


def _attached(message: dict[str, Any], attachments: dict[str, str]) -> dict[str, Any]:
    text = message["content"]
    if len(text) <= ATTACHED_FROM_CHARS:
        return message
    name = text_id(text)
    attachments[name] = text
    return message | {"content": f"attachment://{name}"}
