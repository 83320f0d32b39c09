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
from contextlib import suppress
from dataclasses import dataclass, field

from aegish_dist.core.completion import Completion
from aegish_dist.core.verdict import Outcome, ParsedCompletion, Verdict

PARSER_VERSION = 1
"""Stored with every verdict; a higher one may read the same text differently."""

MAX_MISSES = 32
"""Objects tried in vain, or broken, before only the pairs count, inside and outside `<think>` each:
bounds the time on hostile text, whose objects may nest."""

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
    """What was read outside, or inside, `<think>`."""

    fenced: list[ParsedCompletion] = field(default_factory=list)
    """Objects that open a fenced block."""
    plain: list[ParsedCompletion] = field(default_factory=list)
    """All other objects, nested ones included."""
    pairs: list[ParsedCompletion] = field(default_factory=list)
    """The last resort: `"action": "..."` wherever no object was read."""
    misses: int = 0
    """Objects that are broken or yielded no action."""


def parse(text: str | None) -> ParsedCompletion:
    """Read action, reason and confidence in the text of a completion.

    Args:
        text: Any text; None where there was none.

    Returns:
        All None when the text yields no action; reason and confidence are None too when only
        malformed JSON does.
    """
    for scope in _scopes(text or ""):
        for found in (scope.fenced, scope.plain, scope.pairs):
            if found:
                return found[0]
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
    """Sort what can be read into what stands outside and what stands inside `<think>`."""
    outside, inside = _Scope(), _Scope()
    thinking = thought = False
    position = 0
    while mark := MARK.search(text, position):
        position = mark.end()
        if mark["think"]:
            thinking = thought = True
        elif mark["answer"]:
            if not thought:  # some chat templates swallow the opening tag
                outside, inside = _Scope(), outside
            thinking, thought = False, True
        else:
            position = _collect(mark, inside if thinking else outside)
    return outside, inside


def _collect(mark: re.Match[str], scope: _Scope) -> int:
    """Read the object or pair found here; return where to look on."""
    if mark["action"]:
        scope.pairs.append(ParsedCompletion(ACTIONS[mark["action"].upper()]))
        return mark.end()
    if scope.misses == MAX_MISSES:
        return mark.end()
    parsed, end = _read_object(mark.string, mark.start("object"))
    if parsed.action is not None:
        (scope.fenced if mark["fence"] else scope.plain).append(parsed)
    if parsed.action is None or end is None:
        scope.misses += 1
        return mark.end()
    return end


def _read_object(text: str, start: int) -> tuple[ParsedCompletion, int | None]:
    """Read the object that starts here; return what it says and its end, None if it is broken."""
    try:
        found, end = DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return _read_broken(text, start), None
    return _read_fields(found), end


def _read_broken(text: str, start: int) -> ParsedCompletion:
    """Undo doubled braces, or else take the action that the object starts with."""
    if text[start - 1 : start] == "{":
        single = text[start:].replace("{{", "{").replace("}}", "}")
        with suppress(ValueError, RecursionError):
            return _read_fields(DECODER.raw_decode(single)[0])
    broken = BROKEN_OBJECT.match(text, start)
    return ParsedCompletion(ACTIONS[broken["action"].upper()] if broken else None)


def _read_fields(found: dict[str, object]) -> ParsedCompletion:
    action, reason, confidence = (found.get(key) for key in ("action", "reason", "confidence"))
    return ParsedCompletion(
        action=ACTIONS.get(action.strip().upper()) if isinstance(action, str) else None,
        reason=reason if isinstance(reason, str) else None,
        confidence=confidence if isinstance(confidence, float) and 0 <= confidence <= 1 else None,
    )
