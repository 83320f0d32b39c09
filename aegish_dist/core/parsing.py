"""From the text of a completion to ALLOW, WARN or BLOCK.

The parser is pure and total: any text of any size gives a `ParsedCompletion`, in time linear in its
size. A change of what is read in any text raises `PARSER_VERSION`.

What counts is the first JSON object with a recognised `action`: what stands outside `<think>`
before what stands inside, and there an object that opens a fenced block before any other. Special
tokens, prose and objects without an action are passed over.

Models quote the command, and a command may hold tags, fences and verdicts of its own. Therefore:

- Text within a JSON string is never markup, as an object is read as a whole. Where an object breaks
  after its action, nothing marks where its strings end: it counts by that action, and nothing after
  it but an answer that stands alone behind the last `</think>`.
- A completion that begins with its answer was not thinking: a `</think>` without `<think>` in it
  is text.
- Of several parts outside `<think>` the one counts that is nothing but an answer and stands last,
  since thoughts that quote a command seem to end in the middle. Where such parts follow upon each
  other, it is the first of them.
"""

import json
import re
from contextlib import suppress

from msgspec import Struct, field

from aegish_dist.core.outcome import Outcome, StopKind
from aegish_dist.core.text import clean_text
from aegish_dist.core.verdict import Completion, ParsedCompletion, Verdict

PARSER_VERSION = 2  # 2: keys in any letter case; quoted text is no markup

MAX_MISSES = 32
"""Most objects that may be broken or lack an action, inside and outside `<think>` each; then only
pairs count. This bounds the time on hostile text, whose objects may nest."""

ACTIONS = {action.value: action for action in (Outcome.ALLOW, Outcome.WARN, Outcome.BLOCK)}

# A bar after the pair belongs to an echoed answer format: "action": "allow" | "warn" | "block".
PAIR = r'"(?ai:action)"\s*:\s*"\s*(?P<action>(?ai:allow|warn|block))\s*"(?!\s*\|)'
BROKEN_OBJECT = re.compile(r"\{\s*" + PAIR)
MARK = re.compile(
    r"(?P<think>(?i:<think>))|(?P<answer>(?i:</think>))"
    r'|(?P<fence>```\w*+\s*+\{?)?(?P<object>\{(?=\s*"))|' + PAIR
)
FRAME = re.compile(r"(?:\s|<\|\w*\|>|```\w*)*+")  # allowed around an answer that stands alone

# Not strict: models put literal line breaks into strings. Integers as floats: `int` takes
# quadratic time on thousands of digits.
DECODER = json.JSONDecoder(strict=False, parse_int=float)


class _Scope(Struct):
    """The answers read outside `<think>`, or those read inside."""

    firsts: dict[int, ParsedCompletion] = field(default_factory=dict)
    """The first answer in a fence (0), in any other object (1), and as the last resort (2)
    `"action": "..."` wherever no object was read."""
    misses: int = 0  # objects that are broken or yielded no action

    def first(self) -> ParsedCompletion | None:
        """Return the answer that counts in this scope; None when no action was read."""
        return self.firsts[min(self.firsts)] if self.firsts else None


class _Object(Struct):
    parsed: ParsedCompletion
    start: int
    end: int | None  # None when the object is broken


class _Reader:
    """Reads one text from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._outside, self._inside = _Scope(), _Scope()
        self._thinking = self._thought = False
        self._leads = False  # whether the text begins with its answer
        self._firm: ParsedCompletion | None = None
        """The answer that counted where an object outside `<think>` broke."""
        self._alone: ParsedCompletion | None = None
        """The answer that stands alone behind the last tag."""
        self._part = 0  # where the part outside `<think>` begins that is being read
        self._head: _Object | None = None  # the first object with an action in that part

    def read(self) -> ParsedCompletion:
        position = 0
        while mark := MARK.search(self._text, position):
            position = mark.end()
            if mark["think"]:
                self._think(mark.start())
            elif mark["answer"]:
                self._answer(mark)
            else:
                position = self._collect(mark)
            if self._leads and self._firm:
                return self._firm
        if not self._thinking:
            self._end_part(len(self._text))
        alone = None if self._leads else self._alone
        found = alone or self._firm or self._outside.first() or self._inside.first()
        return found or ParsedCompletion(None)

    def _think(self, at: int) -> None:
        if not self._thinking:
            self._end_part(at)
        self._thinking = self._thought = True

    def _answer(self, mark: re.Match[str]) -> None:
        if self._leads and not self._thinking:
            return
        if self._thinking:
            self._alone = None
        else:
            self._end_part(mark.start())
        if not self._thought:  # some chat templates swallow the opening tag
            self._outside, self._inside, self._alone = _Scope(), self._outside, None
        self._thinking, self._thought = False, True
        self._part, self._head = mark.end(), None

    def _end_part(self, end: int) -> None:
        """End a part outside `<think>`, and note whether it is nothing but an answer."""
        head = self._head
        opened = FRAME.match(self._text, self._part, end)
        if head is None and opened and opened.end() == end:
            return  # nothing stands here
        is_all = (
            head is not None
            and head.end is not None
            and FRAME.fullmatch(self._text, head.end, end) is not None
            and self._opens(head)
        )
        self._alone = (self._alone or head.parsed) if head and is_all else None

    def _opens(self, head: _Object) -> bool:
        before = FRAME.match(self._text, self._part, head.start)
        return before is not None and self._text[before.end() : head.start] in ("", "{")

    def _collect(self, mark: re.Match[str]) -> int:
        """Read the object or pair found here; return where the search continues."""
        scope = self._inside if self._thinking else self._outside
        if mark["action"]:
            scope.firsts.setdefault(2, ParsedCompletion(ACTIONS[mark["action"].upper()]))
            return mark.end()
        if scope.misses == MAX_MISSES:
            return mark.end()
        parsed, end = _read_object(self._text, mark.start("object"))
        if parsed.action is not None:
            scope.firsts.setdefault(0 if mark["fence"] else 1, parsed)
            if not self._thinking:
                self._note(_Object(parsed, mark.start("object"), end))
        if parsed.action is None or end is None:
            scope.misses += 1
            return mark.end()
        return end

    def _note(self, found: _Object) -> None:
        """Note what an object outside `<think>` says about the text that follows it."""
        if self._head is None:
            self._head = found
            self._leads |= not self._thought and self._opens(found)
        if found.end is None and self._firm is None:
            self._firm = self._outside.first()


def parse(text: str | None) -> ParsedCompletion:
    """Read action, reason and confidence; all None when the text yields no action."""
    return _Reader(text or "").read()


def outcome_of(text: str | None, parsed: ParsedCompletion) -> Outcome:
    """Return the outcome of a completion with this text, in which `parsed` was read."""
    if text is None or not text.strip():
        return Outcome.TIMEOUT_ERROR
    return parsed.action or Outcome.FORMAT_ERROR


def says_nothing(completion: Completion) -> bool:
    """Return whether an answer is empty, and no limit or filter of the model made it so."""
    explained = completion.stop_kind in {StopKind.MAX_TOKENS, StopKind.CONTENT_FILTER}
    return not (explained or (completion.text or "").strip())


def judge(completion: Completion) -> Verdict:
    """Make the verdict of a completion; callers add other facts by `msgspec.structs.replace`."""
    parsed = parse(completion.text)
    return Verdict(
        outcome=outcome_of(completion.text, parsed),
        completion=completion,
        reason=parsed.reason,
        confidence=parsed.confidence,
        parser_version=PARSER_VERSION,
    )


def _read_object(text: str, start: int) -> tuple[ParsedCompletion, int | None]:
    """Read the object that starts here; return its content and its end, None if it is broken."""
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
    named = {key.lower(): value for key, value in found.items()} | found
    action, reason, confidence = (named.get(key) for key in ("action", "reason", "confidence"))
    return ParsedCompletion(
        action=ACTIONS.get(action.strip().upper()) if isinstance(action, str) else None,
        reason=clean_text(reason) if isinstance(reason, str) else None,
        confidence=confidence if isinstance(confidence, float) and 0 <= confidence <= 1 else None,
    )
