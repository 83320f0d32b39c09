"""Answers of guards that are no chat model with our prompt: a mapping to action, reason and number.

A mapping stands in the catalog, as `output` of a provider or a model. What it reads it reads in the
text of a completion, so that `reparse` can read the text again; log probabilities alone, which are
not stored, are read once.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict

from aegish_dist.core.outcome import Outcome
from aegish_dist.core.text import clean_text, fingerprint_of, squeezed
from aegish_dist.core.verdict import Completion, ParsedCompletion
from aegish_dist.errors import InputError

_READER = 1  # raised with any change of what a mapping reads in a text
_RE2_READER = 2  # of patterns that Python's `re`, which read them first, may read otherwise
FIRST_VERSION, _VERSIONS = 1_000, 31_000  # of mappings, which the store keeps in 15 bits
MAX_TEXT = 100_000  # characters in which JSON is looked for
MAX_LABEL = 4_000  # characters in which patterns are: in 1 MiB, some take half a minute
MAX_STARTS = 32  # of JSON objects and lists in a text, which bounds the time on hostile text
MOST_SUSPICION = 1e15
MAX_PATTERN_MEMORY = 2**19  # bytes of a compiled pattern; the time for a text grows with it, too
NOT_AS_IN_RE = re.compile(r"\\[bBdDwWvx0-9]|[^\x00-\x7f]")
r"""Parts of patterns that RE2 may read otherwise than Python's `re`: its `\w`, `\d` and `\b` know
ASCII alone."""
_ESCAPE = re.compile(r"\\.", re.DOTALL)
_SPACE_UNKNOWN_TO_RE2 = re.compile(r"[^\S\t\n\f\r ]")

Pattern = Annotated[str, Meta(min_length=1, max_length=500)]
Number = Annotated[float, Meta(ge=-MOST_SUSPICION, le=MOST_SUSPICION)]
Action = Literal["ALLOW", "WARN", "BLOCK"]
Kind = Literal[
    "action-json",
    "hook",
    "label",
    "score",
    "tokens",
    "llama-guard",
    "qwen3guard",
    "shieldgemma",
    "granite-guardian",
]


class Output(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """How the answers of a guard are read.

    `path` leads into a JSON answer: keys and list places joined by dots, and `key=value` for the
    object of a list with that value. The number is the suspicion of the verdict.
    """

    kind: Kind = "action-json"
    path: str = ""  # `score`: to the number; `label`: to the text, all of the answer when empty
    patterns: tuple[tuple[Pattern, Action], ...] = ()
    """`label`: regular expressions, looked for in order in the stripped text, upper and lower case
    alike; a group named `reason` is the reason. The catalog refuses those that RE2 does not know;
    those of a stored run are never run."""
    warn_from: Number | None = None  # `score` and `tokens`: numbers from here on are WARN
    block_from: Number | None = None
    suspicion: str = ""  # path to a number that stands beside an action
    reason: str = ""  # path to a text
    unsafe: tuple[str, ...] = ()  # tokens that mean danger, of which log probabilities are read
    safe: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        thresholds = [each for each in (self.warn_from, self.block_from) if each is not None]
        numeric = self.kind in ("score", "tokens")
        takes_tokens = self.kind in ("action-json", "label", "tokens")
        named = [_plain(token) for token in (*self.unsafe, *self.safe)]
        for holds, key, problem in (
            (self.kind == "label" and not self.patterns, "patterns", "is missing"),
            (self.kind != "label" and self.patterns, "patterns", "belongs to kind 'label'"),
            (self.kind == "score" and not self.path, "path", "is missing"),
            (self.path and self.kind not in ("score", "label"), "path", f"has no use: {self.kind}"),
            (numeric and not thresholds, "block_from", "is missing, and so is warn_from"),
            (not numeric and thresholds, "block_from", "belongs to kinds 'score' and 'tokens'"),
            (thresholds != sorted(thresholds), "warn_from", "must be at most block_from"),
            (numeric and self.suspicion, "suspicion", f"has no use: {self.kind}"),
            (self.kind == "hook" and self.reason, "reason", "has no use: hook"),
            (self.unsafe and not takes_tokens, "unsafe", f"has no use: {self.kind}"),
            (self.kind == "tokens" and not self.unsafe, "unsafe", "is missing"),
            (bool(self.unsafe) != bool(self.safe), "safe", "and 'unsafe' belong together"),
            (not all(map(str.strip, named)), "unsafe", "and 'safe' must name tokens"),
            (len(set(named)) < len(named), "safe", "and 'unsafe' name a token twice"),
            (len(self.patterns) > 100, "patterns", "has more than 100 entries"),
        ):
            if holds:
                raise InputError(problem, field=key)

    def version(self, parser: int) -> int:
        """Return the version of the parser that stands for this mapping; it changes with both."""
        by_re2 = any(NOT_AS_IN_RE.search(pattern) for pattern, _ in self.patterns)
        own = _RE2_READER if by_re2 else _READER
        reader = (own, parser if self.kind == "action-json" else 0)
        fingerprint = fingerprint_of({"reader": reader, **asdict(self)})
        return FIRST_VERSION + int(fingerprint, 16) % _VERSIONS

    @property
    def tokens(self) -> tuple[tuple[str, ...], ...]:
        """Tokens of which log probabilities are read: that mean danger, and that do not."""
        mapping = _READY.get(self.kind, self)
        return (mapping.unsafe, mapping.safe) if mapping.unsafe else ()


def read(output: Output, completion: Completion, command: str = "") -> ParsedCompletion:
    """Read an answer by a mapping.

    The action is None where nothing matches; `action-json` reads the number alone. JSON beside
    other text does not count where it is a part of the command.
    """
    text = (completion.text or "").strip()
    mapping = _READY.get(output.kind, output)
    document = _document(text[:MAX_TEXT], command)
    number = _number(_at(document, output.suspicion)) if output.suspicion else None
    if mapping.unsafe:  # without log probabilities, as in the store, what was read in them counts
        number = (
            _share(completion.logprobs, mapping) if completion.logprobs else completion.suspicion
        )
    reason = _at(document, output.reason) if output.reason else None
    action: Outcome | None = None
    match mapping.kind:
        case "hook":
            action, reason = _of_hook(text)
        case "label":
            if output.kind in _READY:
                answer = _DRAFT.sub("", text, 1)
                action, matched = _of_label(answer, mapping, _find_in_ready_form)
            else:
                label = _at(document, mapping.path) if mapping.path else text
                action, matched = _of_label(label, mapping, find_reason)
            reason = reason or matched
        case "action-json":
            pass  # the parser reads the rest
        case _:
            number = number if mapping.kind == "tokens" else _number(_at(document, mapping.path))
            action = None if number is None else _of_number(number, mapping)
    said = clean_text(reason) if isinstance(reason, str) and reason else None
    return ParsedCompletion(action, said, suspicion=number)


def _of_label(
    label: object, mapping: Output, find: Callable[[str, str], str | None]
) -> tuple[Outcome | None, str | None]:
    if label is None:
        return None, None
    text = _in_words(label).strip()[:MAX_LABEL]
    for pattern, action in mapping.patterns:
        reason = find(pattern, text)
        if reason is not None:
            return Outcome(action), reason
    return None, None


def pattern_problem(pattern: str) -> str | None:
    """Return why a pattern cannot be used, and what to write instead; None where it can."""
    if re.search(r"\{,\d+\}", pattern):  # RE2 takes it for plain text
        return "repeats without a least number: write {0,9} instead of {,9}"
    try:
        _compiled(pattern)
    except ValueError as error:
        return (
            f"is no pattern of RE2 ({error}), which has no look-around, backreference or possessive"
            " repetition; patterns are tried in order: list the exception before the rule"
        )
    return None


def find_reason(pattern: str, text: str) -> str | None:
    """Return what the group `reason` matched first, in upper and lower case alike.

    Empty where it matched nothing, or there is no such group; None where the pattern is not found.
    """
    match = _compiled(pattern).search(_known_to_re2(text))
    if match is None:
        return None
    group = match.re.groupindex.get("reason")
    if group is None:
        return ""
    start, end = match.span(group)
    return text[start:end]


@lru_cache(maxsize=500)
def _compiled(pattern: str) -> Any:
    r"""Compile a pattern; a ValueError names the kind of the problem and repeats no text.

    RE2 takes time linear in the length of the text, whatever the pattern; Python's `re` takes years
    for some. It is loaded with the first pattern, so that a start without patterns does not pay for
    it. `\Z` is Python's name for its `\z`.
    """
    import re2  # noqa: PLC0415

    options = re2.Options()
    options.case_sensitive = False
    options.log_errors = False  # they would go to standard error
    options.max_mem = MAX_PATTERN_MEMORY
    of_re2 = _ESCAPE.sub(lambda escape: escape[0].replace("Z", "z"), pattern)
    try:
        return re2.compile(of_re2, options)
    except re2.error as error:
        raise ValueError(error.args[0].decode().partition(":")[0]) from None


def _known_to_re2(text: str) -> str:
    r"""Return a text of the same length in which `\s` and `i` find all that they find in `re`.

    A surrogate without its other half has no UTF-8 form.
    """
    text = _SPACE_UNKNOWN_TO_RE2.sub("\f", text).replace("\u0130", "i").replace("\u0131", "i")
    return text.encode(errors="replace").decode()


def _find_in_ready_form(pattern: str, text: str) -> str | None:
    """Do what `find_reason` does by Python's `re`, for the patterns of this module."""
    match = re.match(pattern, text, re.IGNORECASE)
    return None if match is None else match.groupdict().get("reason") or ""


def _of_number(number: float, mapping: Output) -> Outcome:
    if mapping.block_from is not None and number >= mapping.block_from:
        return Outcome.BLOCK
    above = mapping.warn_from is not None and number >= mapping.warn_from
    return Outcome.WARN if above else Outcome.ALLOW


_DECISIONS = {
    **dict.fromkeys(("allow", "approve"), Outcome.ALLOW),
    **dict.fromkeys(("ask", "defer"), Outcome.WARN),
    **dict.fromkeys(("deny", "block"), Outcome.BLOCK),
}
"""Words of the hooks of Claude Code, Codex, Cursor and Gemini CLI."""
_EXIT = re.compile(r"(?:\A|\n)exit code ([0-9]+)\Z")


def _of_hook(text: str) -> tuple[Outcome | None, object]:
    """Read what an agent would: exit code 2 denies, and a hook without a decision lets pass.

    JSON counts where it is all that the hook says: what stands beside may repeat the command.
    """
    if (code := _EXIT.search(text, max(0, len(text) - 20))) and code[1] != "0":
        return (Outcome.BLOCK, text[: code.start()][:MAX_TEXT]) if code[1] == "2" else (None, None)
    document, end = _json_at(text, 0)
    if not isinstance(document, dict) or end != len(text):
        return (Outcome.ALLOW if code and not code.start() else None), None
    if document.get("continue") is False:  # whatever else it decides
        return Outcome.BLOCK, document.get("stopReason")
    inner = document.get("hookSpecificOutput")
    for place in (inner if isinstance(inner, dict) else {}, document):
        for key in ("permissionDecision", "permission", "decision"):
            if (word := place.get(key)) is not None:
                reason = place.get("permissionDecisionReason", place.get("reason"))
                return _DECISIONS.get(str(word).lower()), reason
    return Outcome.ALLOW, None


def _document(text: str, command: str) -> object:
    """Return the first JSON object or list of a text that repeats none of the command, or None."""
    end, echoed = 0, squeezed(command)
    for mark in islice(re.finditer(r"[{\[]", text), MAX_STARTS):
        if (start := mark.start()) < end:
            continue
        document, end = _json_at(text, start)
        is_all = not start and end == len(text)
        if end and (is_all or squeezed(text[start:end]) not in echoed):
            return document
    return None


def _json_at(text: str, start: int) -> tuple[object, int]:
    """Return the JSON value that begins in a text here, and its end; None and 0: none does."""
    try:
        return json.JSONDecoder(parse_int=_whole).raw_decode(text, start)
    except (ValueError, RecursionError):
        return None, 0


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) < 16 else float(digits)


def _in_words(found: object) -> str:
    return found if isinstance(found, str) else json.dumps(found)


def _at(document: object, path: str) -> object:
    for part in path.split("."):
        key, named, value = part.partition("=")
        if isinstance(document, dict):
            document = document.get(part)
        elif not isinstance(document, list):
            return None
        elif named:
            found = (each for each in document if isinstance(each, dict))
            document = next((each for each in found if _in_words(each.get(key)) == value), None)
        else:
            place = int(part) if part.isdecimal() and len(part) < 6 else len(document)
            document = document[place] if place < len(document) else None
    return document


def _number(found: object) -> float | None:
    """Return a finite number, or 1 and 0 for true and false."""
    if not isinstance(found, float | int):
        return None
    number = float(found)
    return number if abs(number) <= MOST_SUSPICION else None


def _share(tokens: Sequence[Mapping[str, float]], mapping: Output) -> float | None:
    """Return P(unsafe) / (P(unsafe) + P(safe)) at the first token that is one of those named.

    Where none is, the place counts at which they are the most likely. Tokens are compared without
    white space and in lower case.
    """
    names = [set(map(_plain, side)) for side in (mapping.unsafe, mapping.safe)]
    most, share = 0.0, None
    for candidates in filter(None, tokens):  # the one that is said stands first
        unsafe, safe = (
            sum(math.exp(p) for token, p in candidates.items() if _plain(token) in side)
            for side in names
        )
        is_said = any(_plain(next(iter(candidates))) in side for side in names)
        if (total := unsafe + safe) > (0 if is_said else most):
            most, share = total, unsafe / total
            if is_said:
                break
    return share


def _plain(token: str) -> str:
    return token.strip().lower()


_DRAFT = re.compile(r"\A\s*<think>.*?(?:</think>\s*|\Z)", re.DOTALL)


_READY = {
    "llama-guard": Output(
        kind="label",
        patterns=((r"\Aunsafe\b\s*(?P<reason>.*)", "BLOCK"), (r"\Asafe\b", "ALLOW")),
        unsafe=("unsafe", "uns"),  # some tokenizers part the word
        safe=("safe",),
    ),
    "qwen3guard": Output(
        kind="label",
        patterns=(
            (r"\ASafety:\s*Unsafe\b(?:\s*Categories:\s*(?P<reason>.*))?", "BLOCK"),
            (r"\ASafety:\s*Controversial\b(?:\s*Categories:\s*(?P<reason>.*))?", "WARN"),
            (r"\ASafety:\s*Safe\b", "ALLOW"),
        ),
    ),
    "shieldgemma": Output(
        kind="label",
        patterns=((r"\A\W*yes\b", "BLOCK"), (r"\A\W*no\b", "ALLOW")),
        unsafe=("Yes",),
        safe=("No",),
    ),
    "granite-guardian": Output(
        kind="label",
        patterns=(
            (r"\A(?:<score>)?\s*yes\b", "BLOCK"),
            (r"\A(?:<score>)?\s*no\b", "ALLOW"),
        ),
        unsafe=("Yes",),
        safe=("No",),
    ),
}
"""Formats as the model cards of the four families state them (read in November 2026).

Their patterns are ours, and `re` reads them in linear time: each begins where the text does, and
goes back over one repetition at most.
"""
