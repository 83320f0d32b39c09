"""From the text of a completion to ALLOW, WARN or BLOCK, as a careful person reads it.

The parser is pure and total: any text of any size gives a `ParsedCompletion`, in time linear in its
size. A change of what is read in any text raises `PARSER_VERSION`.

What counts is a JSON object with a recognised `action`, and where there is no object, a bare
`"action": "..."`. Special tokens, prose and objects without an action are passed over. So are:

- **Drafts**: what stands between the markers of a model that thinks before it answers. A draft
  that nothing closes goes on to the end. A closing tag without an opening one ends a draft that
  the chat template began, unless the text begins with its answer: then it was not thinking.
- **Quotations**: an object that is a part of the command, that stands in quotes, in backticks or
  among other things in a fenced block, or that its sentence calls an example. A command that could
  make models quote it would set its own verdict.

A text that is nothing but an object in quotes or backticks is still an answer. Where the
objects left contradict each other, the last one counts if it stands alone at the end; otherwise
there is no action, and `reason` is `CONTRADICTING`.

Text within a JSON string is never markup, as an object is read as a whole. Where an object breaks
after its action, nothing marks where its strings end: it counts by that action, and nothing after
it but an answer that stands alone at the end.
"""

import json
import re
from contextlib import suppress
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aegish_dist.core.outcome import READ, Outcome, StopKind
from aegish_dist.core.output import ActionJson, Output
from aegish_dist.core.text import JsonObject, clean_text, squeezed
from aegish_dist.core.verdict import Completion, ParsedCompletion, Verdict
from aegish_dist.opinions.mapping import read, version_of

PARSER_VERSION = 3  # 3: drafts by all usual markers, quotations, contradictions

CONTRADICTING = "contradicting actions"  # the `reason` of a text whose actions do that

# Most objects that may be broken or lack an action; then only pairs count. This bounds the time on
# hostile text, whose objects may nest.
MAX_MISSES = 32
MAX_OBJECTS = 1000  # with an action, quoted ones included; the text is read no further
LINE_CHARS = 200  # of a line before or after an object, in which quotes and cues are looked for

ACTIONS = {action.value: action for action in (Outcome.ALLOW, Outcome.WARN, Outcome.BLOCK)}

# A bar after the pair belongs to an echoed answer format: "action": "allow" | "warn" | "block".
PAIR = r'"(?ai:action)"\s*:\s*"\s*(?P<action>(?ai:allow|warn|block))\s*"(?!\s*\|)'
PAIR_THAT_BEGINS_AN_OBJECT = re.compile(r"\{\s*" + PAIR)

# The markers of vLLM's and SGLang's reasoning parsers (read in November 2026), and tags that
# prompts ask for. `<|end|>` and what follows it here end a draft and mean nothing elsewhere.
THOUGHT = (
    r"(?ai:(?:\w{1,9}:)?(?:think(?:ing)?|thoughts?|reason(?:ing)?|analysis|reflection|scratchpad))"
)
DRAFT = (
    rf"<{THOUGHT}>|<\|(?:START_THINKING|begin_of_thought|inner_prefix|content_thinking)\|>"
    r"|<\|open\|>think<\|sep\|>|<\|channel>thought\b|<\|channel\|>(?:analysis|commentary)\b"
    r"|\[(?:THINK|unused16)\]|◁think▷"
)
DRAFT_END = (
    rf"</{THOUGHT}>|<\|(?:END_THINKING|end_of_thought|inner_suffix)\|>"
    r"|<\|close\|>think<\|sep\|>|<channel\|>|\[(?:/THINK|unused17)\]|◁/think▷"
)
DRAFT_ENDS = re.compile(
    rf"{DRAFT_END}|<\|end(?:_message)?\|>|<\|channel\|>final|assistantfinal"
    r"|Here(?:'s| is) my response:"
)
UNMARKED_DRAFT = re.compile(  # harmony whose tokens were stripped, and Granite
    r"\s*(?:analysis(?=[A-Z]|[\s\S]*assistantfinal)"
    r"|Here(?:'s| is) my thought process:(?=[\s\S]*Here(?:'s| is) my response:))"
)
MARK = re.compile(
    rf"(?P<draft>{DRAFT})|(?P<answer>{DRAFT_END})"
    r"|(?:(?P<open>`+)(?:(?<=```)[ \t]*+\w*+\s*+[\[{]?\s*+)?)?"
    r'(?P<object>\{(?=\s*"))|(?P<ticks>`+)|' + PAIR
)
PLAIN_FENCE = re.compile(r"[ \t]*(?:json\w*|te?xt|plaintext|markdown|md)?\s", re.IGNORECASE)
SPAN_ENDS = {ticks: re.compile(rf"(?<!`){ticks}(?!`)|```|\n[ \t]{{,8}}\n") for ticks in ("`", "``")}
QUOTES = dict(zip("'\"`\u2018“„«「", "'\"`\u2019””»」", strict=True))

MARKUP = r"</?\w+>|<\|start\|>assistant|<\|channel\|>final|<\|\w*\|>|[`~]{3,}\w*"
FRAME = re.compile(rf"(?:[\s*_]|{MARKUP})*+")  # allowed around an answer that stands alone
WRAPPING = re.compile(rf"(?:{DRAFT_END}|{MARKUP}|[\s\"'`])*+")
SEPARATOR = re.compile(rf"(?:[\s,;*_\]}}-]|{MARKUP})*+")  # between and after objects of a list

SENTENCE_END = re.compile(r"(?<!e\.g)[.!?]\s|[。\uff01\uff1f\n]")
EXAMPLE = re.compile(  # in the sentence before an object
    r"^\W*(?:(?:for|here(?:'s| is)|an?|zum|ein|par|un|por|per) )*"
    r"(?:examples?|instance|e\.g\.|beispiel|exemple|ejemplo|exemplo|esempio|пример|например)\b"
    r"(?! output:)"
    r"|\bif (?:i|it) (?:were|could|had)\b"
    r"|^\W*(?:the )?(?:(?:expected|required|valid|output|response|answer) )*(?:format|schema)\b"
    r"|\b(?:format|schema|template) (?:is|must be)\W*$"
    r"|\b(?:normally|usually|otherwise)\b[^:]*\b(?:answer|respond|return|say|reply|be)\b[^:]*$"
    r"|\b(?:can[\u2019']?t|cannot|won[\u2019']?t|will not|(?:un|not )able to|refuse to)\s+"
    r"(?:\w+\s+)?(?:answer|respond|reply|output|produce|provide|give|return|say|write|use)\b[^:]*$"
    r"|\b(?:for example|for instance|like|such as|instead of|rather than|which would be"
    r"|prints|echoes|contains|injects|decodes to|not|never|nor|ignor(?:e|es|ed|ing)),?\s*$"
    r"|(?:n[\u2019']t|e\.g\.,?|例えば|例如)\s*$",
    re.IGNORECASE,
)
REMARK = re.compile(r"[ \t]+(?:(?:would|could|might|may)(?! also)|was|were|is not|isn[\u2019']t)\b")
ALTERNATIVE = re.compile(
    r"\b(?:if|unless|else|otherwise|option|alternative|case|when|or|part|command \d+)\b", re.I
)
SET_OUT = re.compile(r"[^\w>]*|.*[:\uff1a][\s*_]*", re.DOTALL)  # before code that answers
LABEL = re.compile(r"(?!\s*(?:[-*+|]|\d+[.)])\s*$).*[:\uff1a.!?。][\s*_]*", re.DOTALL)

# Not strict: models put literal line breaks into strings. Integers as floats: `int` takes
# quadratic time on thousands of digits.
DECODER = json.JSONDecoder(strict=False, parse_int=float)


class _Object(Struct):
    parsed: ParsedCompletion
    opening: int  # where it begins, or the code that begins with it
    start: int
    end: int | None  # None when the object is broken
    ticks: str  # that open this code


class _Reader:
    """Reads one text from left to right."""

    def __init__(self, text: str, command: str) -> None:
        self._text = text
        self._command = _quotable(command)
        self._objects: list[_Object] = []
        self._pairs: set[Outcome] = set()
        self._firm: int | None = None  # objects before one broke; those after it hardly count
        self._leads = False  # whether the text begins with its answer
        self._thought = False
        self._draft_end = 0  # of the last draft, behind which an answer may begin
        self._last_end: int | None = None  # where the last end of a draft begins, once looked for
        self._quoted_until = 0
        self._separated_until = 0  # up to where nothing but a separator follows the last object
        self._ticks = ""  # that close the code that began with the last object
        self._ticked = False
        self._seen = self._misses = 0

    def read(self) -> ParsedCompletion:
        opening = UNMARKED_DRAFT.match(self._text)
        position = self._after_draft(opening) if opening else 0
        while mark := MARK.search(self._text, position):
            if mark["draft"]:
                position = self._after_draft(mark)
            elif mark["answer"]:
                position = self._after_stray_end(mark)
            elif mark["ticks"]:
                position = self._after_ticks(mark)
            else:
                position = self._collect(mark)
            if (self._leads and self._firm) or self._seen == MAX_OBJECTS:
                break

        return self._decide()

    def _after_draft(self, mark: re.Match[str]) -> int:
        """Return where the draft ends that begins here."""
        text = self._text
        start = mark.start()
        end = mark.end()
        if start < self._quoted_until:
            return end
        if self._last_end is None:
            ends = [found.start() for found in DRAFT_ENDS.finditer(text)]
            self._last_end = max(ends, default=-1)

        if self._last_end < end:
            # A marker within a line that nothing closes is one that the sentence speaks of.
            if FRAME.fullmatch(self._line_before(start)):
                return len(text)
            return end

        closing = DRAFT_ENDS.search(text, end)
        self._thought = True
        self._draft_end = closing.end() if closing else end
        return self._draft_end

    def _after_stray_end(self, mark: re.Match[str]) -> int:
        """End the draft that the chat template began, unless this is none; return where."""
        text = self._text
        start, end = mark.span()
        spoken_of = text[start - 1 : start] == " " and re.match(r" \w", text[end : end + 2])
        if spoken_of or self._leads or start < self._quoted_until:
            return end
        if self._objects and (last := self._objects[-1].end) is not None:
            # From where the last look ended: such tags may be all that follows.
            ends = SEPARATOR.match(text, max(last, self._separated_until), start)
            self._separated_until = ends.end() if ends else start
            if self._separated_until == start:
                return end

        if not self._thought and self._firm is None:
            self._objects = []
            self._pairs = set()

        self._thought = True
        self._draft_end = end
        return end

    def _after_ticks(self, mark: re.Match[str]) -> int:
        """Note where a code span ends, or a fenced block that does not begin with an object."""
        text = self._text
        ticks = mark["ticks"]
        start, end = mark.span()
        if start < self._quoted_until:
            return end
        is_first = not self._ticked
        self._ticked = True
        if ticks == self._ticks:
            self._ticks = ""
            return end

        if pattern := SPAN_ENDS.get(ticks):
            closing = pattern.search(text, end)
            self._quoted_until = closing.end() if closing and closing[0] == ticks else 0
            return end

        close = text.find(ticks, end)
        is_all = (
            is_first
            and PLAIN_FENCE.match(text, end)
            and FRAME.fullmatch(text, 0, start)
            and FRAME.fullmatch(text, close)
        )
        self._quoted_until = 0 if close == -1 or is_all else close + len(ticks)
        return end

    def _collect(self, mark: re.Match[str]) -> int:
        """Read the object or pair found here; return where the search continues."""
        if mark["action"]:
            if mark.start() >= self._quoted_until and not self._is_of_command(*mark.span()):
                self._pairs.add(ACTIONS[mark["action"].upper()])
            return mark.end()

        start = mark.start("object")
        ticks = self._opening_ticks(mark)
        if self._misses == MAX_MISSES:
            return mark.end()
        parsed, end = _read_object(self._text, start)
        if parsed.action is not None:
            self._seen += 1
            opening = mark.start() if ticks else start
            found = _Object(
                parsed=parsed,
                opening=opening,
                start=start,
                end=end,
                ticks=ticks,
            )
            if not self._is_quoted(found) and not self._is_example(found):
                self._add(found)

        if parsed.action is None or end is None:
            self._misses += 1
            return mark.end()

        return end

    def _opening_ticks(self, mark: re.Match[str]) -> str:
        """Return the backticks before an object, unless they close what stands before them."""
        ticks = mark["open"] or ""
        if mark.start() < self._quoted_until:
            return ""
        if not ticks:
            return ""
        self._ticks = "" if ticks == self._ticks else ticks
        self._ticked = True
        return self._ticks

    def _add(self, found: _Object) -> None:
        text = self._text
        if not self._objects and not self._thought:
            frame = FRAME.match(text, 0, found.start)
            after_frame = frame.end() if frame else 0
            self._leads = text[after_frame : found.start] in ("", "{", "[")
        self._objects.append(found)
        if found.end is None and self._firm is None:
            self._firm = len(self._objects)

    def _is_quoted(self, found: _Object) -> bool:
        """Whether an object is a part of the command, of code or of a quotation."""
        text = self._text
        start = found.start
        is_whole = found.end is not None
        end = found.end or _end_of_pair(text, start)
        if start < self._quoted_until:
            if end <= self._quoted_until:
                return True
            self._quoted_until = 0  # the object reaches beyond: that was no quotation

        if self._is_of_command(start, end):
            return True
        line_before = self._line_before(found.opening)
        if found.ticks:
            is_fence = len(found.ticks) >= 3
            return not is_fence and not SET_OUT.fullmatch(line_before)
        left = text[start - 1 : start]
        if left in QUOTES:
            line_after, _, _ = text[end : end + LINE_CHARS].partition("\n")
            return not is_whole or QUOTES[left] in line_after

        # A quotation may also begin earlier in the line, and end right behind the object.
        right = text[end : end + 1]
        return any(right == close and quote in line_before for quote, close in QUOTES.items())

    def _is_of_command(self, start: int, end: int) -> bool:
        return _is_within(self._command, self._text[start:end])

    def _is_example(self, found: _Object) -> bool:
        """Whether the sentence that an object stands in calls it an example, or denies it."""
        if EXAMPLE.search(self._sentence_before(found.opening)):
            return True
        return found.end is not None and REMARK.match(self._text, found.end) is not None

    def _line_before(self, end: int) -> str:
        start = max(self._draft_end, end - LINE_CHARS)
        line_start = self._text.rfind("\n", start, end) + 1
        return self._text[max(start, line_start) : end]

    def _sentence_before(self, end: int) -> str:
        """Return what of the sentence around an object stands before it, also on a line above."""
        above = self._text[max(self._draft_end, end - LINE_CHARS) : end].rstrip("\n\t *_")
        lead = above if above.endswith((":", "\uff1a")) else self._line_before(end)
        return SENTENCE_END.split(lead)[-1]

    def _decide(self) -> ParsedCompletion:
        objects = self._objects
        if not objects:
            return self._of_pairs()
        counted = objects[: self._firm]
        agree = len({each.parsed.action for each in counted}) == 1
        if (not agree or len(counted) < len(objects)) and self._stands_alone(objects[-1]):
            return objects[-1].parsed
        if not agree and not self._leads_to_variants(counted[0]):
            return ParsedCompletion(None, CONTRADICTING)
        for each in counted:
            if len(each.ticks) > 2:
                return each.parsed

        return counted[0].parsed

    def _of_pairs(self) -> ParsedCompletion:
        """Decide by what is left of objects that break off: pairs of the key and an action."""
        if len(self._pairs) > 1:
            return ParsedCompletion(None, CONTRADICTING)
        return ParsedCompletion(next(iter(self._pairs), None))

    def _stands_alone(self, last: _Object) -> bool:
        """Whether the last object is the answer at the end, and no alternative to one before."""
        text = self._text
        opening = last.opening
        if last.end is None or not FRAME.fullmatch(text, last.end):
            return False
        before = self._objects[-2].end if len(self._objects) > 1 else None
        if before is not None and SEPARATOR.fullmatch(text, before, opening):
            return False
        line = self._line_before(opening)
        if not (FRAME.fullmatch(line) or LABEL.fullmatch(line)):
            return False
        return ALTERNATIVE.search(self._sentence_before(opening)) is None

    def _leads_to_variants(self, first: _Object) -> bool:
        """Whether answers are set out as code, for parts or conditions, and then explained.

        The first one is the answer, unless it allows: what allows must be beyond doubt.
        """
        said = first.parsed
        end = self._objects[-1].end or 0
        is_full = said.action is not Outcome.ALLOW and said.reason is not None
        return bool(first.ticks) and is_full and not SEPARATOR.fullmatch(self._text, end)


def parse(text: str | None, command: str = "") -> ParsedCompletion:
    """Read action, reason and confidence; all None when the text yields no action.

    What the text repeats of the command that the model was asked about is no answer.
    """
    text = text or ""
    return _usual(text, command) or _whole(text, command) or _Reader(text, command).read()


class _UsualObject(Struct, forbid_unknown_fields=True):
    """What prompts ask for."""

    action: Literal["ALLOW", "WARN", "BLOCK"]
    reason: str | None = None
    confidence: float | None = None


_USUAL = msgspec.json.Decoder(_UsualObject)


def _usual(text: str, command: str) -> ParsedCompletion | None:
    """As `_whole`, in a third of the time, where the text is what prompts ask for."""
    if not text.startswith("{") or _quotable(command):
        return None
    try:
        found = _USUAL.decode(text)
    except ValueError:
        return None
    return _content(ACTIONS[found.action], found.reason, found.confidence)


def _whole(text: str, command: str) -> ParsedCompletion | None:
    """Return the object that is all of the text, the usual case; None where more stands."""
    opening = WRAPPING.match(text)
    start = opening.end() if opening else 0
    if not text.startswith("{", start):
        return None
    parsed, end = _read_object(text, start)
    if parsed.action is None or end is None or not WRAPPING.fullmatch(text, end):
        return None
    if _is_within(_quotable(command), text[start:end]):
        return None
    return parsed


def _quotable(command: str) -> str:
    """Return what of a command an answer may repeat that looks like an answer."""
    return squeezed(command) if "action" in command.lower() else ""


def _is_within(command: str, text: str) -> bool:
    return bool(command) and squeezed(text) in command


def outcome_of(text: str | None, parsed: ParsedCompletion) -> Outcome:
    """Return the outcome of a completion with this text, in which `parsed` was read."""
    if text is None or not text.strip():
        return Outcome.TIMEOUT_ERROR
    return parsed.action or Outcome.FORMAT_ERROR


def says_nothing(completion: Completion) -> bool:
    """Return whether an answer is empty, and no limit or filter of the model made it so."""
    explained = completion.stop_kind in {StopKind.MAX_TOKENS, StopKind.CONTENT_FILTER}
    return not (explained or (completion.text or "").strip())


def holds_action(output: Output | None, completion: Completion) -> bool:
    return judge(completion, "", output).outcome in READ - {Outcome.FORMAT_ERROR}


def judge(
    completion: Completion,
    command: str = "",
    output: Output | None = None,
) -> Verdict:
    """Make the verdict of a completion; callers add other facts by `msgspec.structs.replace`.

    Args:
        output: The mapping of the guard's answers; None: the JSON that our prompts ask for.
    """
    parsed = ParsedCompletion(None)
    version = PARSER_VERSION
    if output is not None:
        parsed = read(output, completion, command)
        version = version_of(output, PARSER_VERSION)

    if output is None or isinstance(output, ActionJson):
        parsed = replace(parse(completion.text, command), suspicion=parsed.suspicion)
    if parsed.suspicion is not None:
        completion = replace(completion, suspicion=parsed.suspicion)
    return Verdict(
        outcome=outcome_of(completion.text, parsed),
        completion=completion,
        reason=parsed.reason,
        confidence=parsed.confidence,
        parser_version=version,
    )


def _read_object(text: str, start: int) -> tuple[ParsedCompletion, int | None]:
    """Read the object that starts here; return its content and its end, None if it is broken."""
    try:
        found, end = DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return _read_broken(text, start), None
    return _read_fields(found), end


def _end_of_pair(text: str, start: int) -> int:
    """Return where the pair ends that a broken object begins with, or else its start."""
    pair = PAIR_THAT_BEGINS_AN_OBJECT.match(text, start)
    return start if pair is None else pair.end()


def _read_broken(text: str, start: int) -> ParsedCompletion:
    """Undo doubled braces, or else take the action that the object starts with."""
    if text[start - 1 : start] == "{":
        single = text[start:].replace("{{", "{").replace("}}", "}")
        with suppress(ValueError, RecursionError):
            fields, _ = DECODER.raw_decode(single)
            return _read_fields(fields)

    broken = PAIR_THAT_BEGINS_AN_OBJECT.match(text, start)
    if broken is None:
        return ParsedCompletion(None)
    return ParsedCompletion(ACTIONS[broken["action"].upper()])


def _read_fields(found: JsonObject) -> ParsedCompletion:
    fields = {key.lower(): value for key, value in found.items()} | found
    action = fields.get("action")
    reason = fields.get("reason")
    confidence = fields.get("confidence")
    return _content(
        ACTIONS.get(action.strip().upper()) if isinstance(action, str) else None,
        reason if isinstance(reason, str) else None,
        confidence if isinstance(confidence, float) else None,
    )


def _content(
    action: Outcome | None, reason: str | None, confidence: float | None
) -> ParsedCompletion:
    if confidence is not None and not 0 <= confidence <= 1:
        confidence = None
    if reason is not None:
        reason = clean_text(reason)
    return ParsedCompletion(action, reason, confidence)
