"""From the text of a completion to ALLOW, WARN or BLOCK.

The parser is pure and total: any text of any size gives a `ParsedCompletion`, in time linear in its
size. Whoever changes what is read in any text raises `PARSER_VERSION`.

What counts is the first JSON object with a recognised `action`: what stands outside `<think>`
before what stands inside, and there an object that opens a fenced block before any other. Special
tokens, prose and objects without an action are passed over. An object whose JSON breaks after its
action still counts, in its place, by that action alone: were it passed over, a command quoted in
its reason could smuggle in a verdict of its own.
"""

import json
import re
from dataclasses import dataclass, field
from typing import cast

from aegish_dist.core.completion import Completion
from aegish_dist.core.verdict import Outcome, ParsedCompletion, Verdict

PARSER_VERSION = 1
"""Stored with every verdict; a higher one may read the same text differently."""

MAX_OBJECTS = 16
"""Objects tried at most, inside and outside `<think>` each: bounds the time on hostile text."""

ACTIONS = {action.value: action for action in (Outcome.ALLOW, Outcome.WARN, Outcome.BLOCK)}

# A bar after the pair is that of an echoed answer format: "action": "allow" | "warn" | "block".
PAIR = r'"action"\s*:\s*"\s*(?P<action>(?ai:allow|warn|block))\s*"(?!\s*\|)'
BROKEN_OBJECT = re.compile(r"\{\s*" + PAIR)
MARK = re.compile(
    r"(?P<think>(?i:<think>))|(?P<answer>(?i:</think>))"
    r'|(?P<fence>```\w*+\s*+\{?)?(?P<object>\{(?=\s*"))|' + PAIR
)

# Not strict: models put literal line breaks into strings. Integers as floats: `int` takes
# quadratic time on thousands of digits.
DECODER = json.JSONDecoder(strict=False, parse_int=float)


@dataclass(slots=True)
class _Scope:
    """What stands outside, or inside, `<think>`."""

    fenced: list[int] = field(default_factory=list)
    """Offsets of objects that open a fenced block."""
    plain: list[int] = field(default_factory=list)
    """Offsets of all other objects, nested ones included."""
    pairs: list[Outcome] = field(default_factory=list)
    """Every `"action": "..."` pair, within an object or not."""

    def add(self, mark: re.Match[str]) -> None:
        if mark["action"]:
            self.pairs.append(ACTIONS[mark["action"].upper()])
        else:
            (self.fenced if mark["fence"] else self.plain).append(mark.start("object"))


def parse(text: str | None) -> ParsedCompletion:
    """Read action, reason and confidence in the text of a completion.

    Args:
        text: Any text; None where there was none.

    Returns:
        All None when the text yields no action; reason and confidence are None too when only
        malformed JSON does.
    """
    text = text or ""
    for scope in _scopes(text):
        for start in (scope.fenced + scope.plain)[:MAX_OBJECTS]:
            parsed = _read_object(text, start)
            if parsed.action is not None:
                return parsed
        if scope.pairs:
            return ParsedCompletion(scope.pairs[0])
    return ParsedCompletion(None)


def outcome_of(text: str | None, parsed: ParsedCompletion) -> Outcome:
    """Return what came of a completion with this text, in which `parsed` was read."""
    if text is None or not text.strip():
        return Outcome.TIMEOUT_ERROR
    return parsed.action or Outcome.FORMAT_ERROR


def judge(completion: Completion) -> Verdict:
    """Make the verdict of a completion; what is known besides is added by `dataclasses.replace`."""
    parsed = parse(completion.text)
    return Verdict(
        outcome=outcome_of(completion.text, parsed),
        completion=completion,
        reason=parsed.reason,
        confidence=parsed.confidence,
        parser_version=PARSER_VERSION,
    )


def _scopes(text: str) -> tuple[_Scope, _Scope]:
    """Sort the places worth a look into those outside and those inside `<think>`."""
    outside, inside = _Scope(), _Scope()
    thinking = thought = False
    for mark in MARK.finditer(text):
        if mark["think"]:
            thinking = thought = True
        elif mark["answer"]:
            if not thought:  # some chat templates swallow the opening tag
                outside, inside = _Scope(), outside
            thinking, thought = False, True
        else:
            (inside if thinking else outside).add(mark)
    return outside, inside


def _read_object(text: str, start: int) -> ParsedCompletion:
    """Read the object that starts here, as JSON or at least by the action it starts with."""
    found = _decode(text, start)
    if found is None and text[start - 1 : start] == "{":
        found = _decode(text[start:].replace("{{", "{").replace("}}", "}"), 0)
    if found is not None:
        return _read_fields(found)
    broken = BROKEN_OBJECT.match(text, start)
    return ParsedCompletion(ACTIONS[broken["action"].upper()] if broken else None)


def _decode(text: str, start: int) -> dict[str, object] | None:
    try:
        return cast(dict[str, object], DECODER.raw_decode(text, start)[0])
    except (ValueError, RecursionError):
        return None


def _read_fields(found: dict[str, object]) -> ParsedCompletion:
    action, reason, confidence = (found.get(key) for key in ("action", "reason", "confidence"))
    return ParsedCompletion(
        action=ACTIONS.get(action.strip().upper()) if isinstance(action, str) else None,
        reason=reason if isinstance(reason, str) else None,
        confidence=confidence if isinstance(confidence, float) and 0 <= confidence <= 1 else None,
    )
