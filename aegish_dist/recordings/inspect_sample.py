"""The labelled command behind a sample of an Inspect AI log."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from aegish_dist.core.sample import Target
from aegish_dist.core.verdict_record import Command
from aegish_dist.recordings.inspect_facts import LABELS
from aegish_dist.recordings.inspect_fields import Fields
from aegish_dist.recordings.verdict_lines import encode

REFERENCE = "attachment://"
SENTENCE = "Validate this command: "
OPENING_TAG, CLOSING_TAG = "<command>", "</command>"
TARGETS = {
    "BLOCK": Target.MALICIOUS,
    "MALICIOUS": Target.MALICIOUS,
    "ALLOW": Target.HARMLESS,
    "HARMLESS": Target.HARMLESS,
}
"""The label of a command by its expected answer. WARN is accepted beside either: it decides only
where it stands alone, and then for malicious."""


def labelled_sample(fields: Fields) -> dict[str, Any]:
    """Return the fields of a `VerdictRecord` that say what it is about, dataset apart.

    Raises:
        DatasetError: There is no command or no target.
    """
    metadata = fields.part("metadata")
    return {
        "command": _command(fields),
        "target": _target(fields),
        "category": metadata.label("category"),
        "cluster": metadata.label("binary") or metadata.label("cluster"),
        "metadata": _metadata(metadata),
    }


def joined_text(message: Fields, field: str, attachments: Mapping[str, object]) -> str | None:
    """Return the text of a message: a string, or parts of which those with text count.

    Args:
        attachments: Long texts of the sample, which only their names stand for.
    """
    if not isinstance(message.values.get(field), list):
        return resolved(message.get(field), attachments)
    texts = (part.get("text") for part in message.parts(field) if part.get("type") == "text")
    return "\n".join(resolved(text, attachments) or "" for text in texts)


def resolved(text: str | None, attachments: Mapping[str, object]) -> str | None:
    """Return the text that a name of an attachment stands for; any other text as it is."""
    if text is None or not text.startswith(REFERENCE):
        return text
    attached = attachments.get(text.removeprefix(REFERENCE))
    return attached if isinstance(attached, str) else text


def _command(fields: Fields) -> str:
    command = _unwrapped(_input_text(fields) or "")
    return Fields({"input": command}, fields.source).required_label("input", Command)


def _input_text(fields: Fields) -> str | None:
    """The input, or what the user said last where it is a conversation."""
    if not isinstance(fields.values.get("input"), list):
        text: str | None = fields.get("input")
        return text
    said = [each for each in fields.parts("input") if each.get("role") == "user"]
    attachments = fields.part("attachments").values
    return joined_text(said[-1], "content", attachments) if said else None


def _unwrapped(text: str) -> str:
    """Take the command out of the words or tags that a prompt puts around it."""
    if text.startswith(SENTENCE):
        return text.removeprefix(SENTENCE)
    _, opening, rest = text.partition(OPENING_TAG)
    command, closing, after = rest.rpartition(CLOSING_TAG)
    if opening and closing and not after.strip():
        return command.removeprefix("\n").removesuffix("\n")
    return text


def _target(fields: Fields) -> Target:
    for expected in (_target_words(fields), set(_scored_words(fields))):
        targets = {TARGETS[word] for word in expected & TARGETS.keys()}
        if len(targets) == 1:
            return targets.pop()
        if not targets and "WARN" in expected:
            return Target.MALICIOUS
    raise fields.error("does not tell whether the command is malicious or harmless", "target")


def _target_words(fields: Fields) -> set[str]:
    target = fields.values.get("target")
    words = target if isinstance(target, list) else [target]
    return {word.strip().upper() for word in words if isinstance(word, str)}


def _scored_words(fields: Fields) -> Iterator[str]:
    """Yield the expected answers that the scorers of the log went by."""
    scores = fields.part("scores")
    for scorer in scores.values:
        yield (scores.part(scorer).part("metadata").get("expected") or "").upper()


def _metadata(fields: Fields) -> dict[str, str]:
    """Texts and plain numbers; anything nested says nothing about a command."""
    found: dict[str, str] = {}
    for key, value in fields.values.items():
        if key in LABELS:
            continue
        if isinstance(value, int | Decimal):
            found[key] = encode(value)
        elif isinstance(value, str):
            found[key] = value
    return found
