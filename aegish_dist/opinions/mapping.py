"""How an answer is read by a mapping: to an action, a reason and a number.

A mapping reads only the text of a completion, so that `reparse` can read the text again; log
probabilities alone, which are not stored, are read once.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

from msgspec.structs import asdict

from aegish_dist.core.outcome import Outcome
from aegish_dist.core.output import (
    MOST_SUSPICION,
    ActionJson,
    GraniteGuardian,
    Hook,
    Label,
    LlamaGuard,
    Logprobs,
    Output,
    Qwen3Guard,
    Ready,
    Score,
    ShieldGemma,
    plain_token,
)
from aegish_dist.core.text import clean_text, fingerprint_of, squeezed
from aegish_dist.core.verdict import Completion, ParsedCompletion

_READER = 1  # raised with any change of what a mapping reads in a text
_RE2_READER = 2  # of patterns that Python's `re`, which read them first, may read otherwise
# Of mappings; the store keeps versions in 15 bits.
FIRST_VERSION = 1_000
_VERSIONS = 31_000
MAX_TEXT = 100_000  # characters in which JSON is looked for
MAX_LABEL = 4_000  # characters in which patterns are: in 1 MiB, some take half a minute
MAX_STARTS = 32  # of JSON objects and lists in a text, which bounds the time on hostile text
MAX_PATTERN_MEMORY = 2**19  # bytes of a compiled pattern; the time for a text grows with it, too
# Parts of patterns that RE2 may read otherwise than Python's `re`: its `\w`, `\d` and `\b` know
# ASCII alone.
NOT_AS_IN_RE = re.compile(r"\\[bBdDwWvx0-9]|[^\x00-\x7f]")
_ESCAPE = re.compile(r"\\.", re.DOTALL)
_SPACE_UNKNOWN_TO_RE2 = re.compile(r"[^\S\t\n\f\r ]")


# What stands in a fingerprint for each key that a kind does not have.
_UNUSED = {
    "path": "",
    "patterns": (),
    "warn_from": None,
    "block_from": None,
    "suspicion": "",
    "reason": "",
    "unsafe": (),
    "safe": (),
}


def version_of(mapping: Output, parser: int) -> int:
    """Return the version of the parser that stands for a mapping; it changes with both."""
    patterns = mapping.patterns if isinstance(mapping, Label) else ()
    by_re2 = any(NOT_AS_IN_RE.search(pattern) for pattern, _ in patterns)
    own = _RE2_READER if by_re2 else _READER
    reader = (own, parser if isinstance(mapping, ActionJson) else 0)
    content = {"reader": reader, "kind": mapping.kind}
    content |= _UNUSED | asdict(mapping)
    fingerprint = fingerprint_of(content)
    return FIRST_VERSION + int(fingerprint, 16) % _VERSIONS


def tokens_of(mapping: Output) -> tuple[tuple[str, ...], ...]:
    """Return the tokens whose log probabilities are read: those of danger, and the others."""
    form = _READY.get(type(mapping), mapping)
    if isinstance(form, ActionJson | Label | Logprobs) and form.unsafe:
        return (form.unsafe, form.safe)
    return ()


def read(
    output: Output,
    completion: Completion,
    command: str = "",
) -> ParsedCompletion:
    """Read an answer by a mapping.

    The action is None where nothing matches; `action-json` reads the number alone. JSON beside
    other text does not count where it is a part of the command.
    """
    text = (completion.text or "").strip()
    document = _document(text[:MAX_TEXT], command)
    number = _number(_at(document, _path_of_number(output)))
    if tokens := tokens_of(output):
        # Without log probabilities, as in the store, what was read in them counts.
        logprobs = completion.logprobs
        number = _share(logprobs, tokens) if logprobs else completion.suspicion

    action: Outcome | None = None
    reason = None if isinstance(output, Hook) else _at(document, output.reason)
    matched: object = None
    if isinstance(output, Hook):
        action, matched = _of_hook(text)
    elif isinstance(output, Label):
        label = _at(document, output.path) if output.path else text
        action, matched = _of_label(label, output, find_reason)
    elif isinstance(output, Ready):
        # Guards that think first write their verdict behind the draft.
        answer = _DRAFT.sub("", text, 1)
        action, matched = _of_label(answer, _READY[type(output)], _find_in_ready_form)
    elif isinstance(output, Score | Logprobs) and number is not None:
        action = _of_number(number, output)

    reason = reason or matched
    said = clean_text(reason) if isinstance(reason, str) and reason else None
    return ParsedCompletion(action, said, suspicion=number)


def _path_of_number(output: Output) -> str:
    match output:
        case Score():
            return output.path
        case Logprobs():
            return ""
    return output.suspicion


def _of_label(
    label: object, mapping: Label, find: Callable[[str, str], str | None]
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
    if match is None:
        return None
    return match.groupdict().get("reason") or ""


def _of_number(number: float, mapping: Score | Logprobs) -> Outcome:
    if mapping.block_from is not None and number >= mapping.block_from:
        return Outcome.BLOCK
    above = mapping.warn_from is not None and number >= mapping.warn_from
    if above:
        return Outcome.WARN
    return Outcome.ALLOW


# Words of the hooks of Claude Code, Codex, Cursor and Gemini CLI.
_DECISIONS = {
    **dict.fromkeys(("allow", "approve"), Outcome.ALLOW),
    **dict.fromkeys(("ask", "defer"), Outcome.WARN),
    **dict.fromkeys(("deny", "block"), Outcome.BLOCK),
}
_EXIT = re.compile(r"(?:\A|\n)exit code ([0-9]+)\Z")


def _of_hook(text: str) -> tuple[Outcome | None, object]:
    """Read what an agent would: exit code 2 denies, and a hook without a decision lets pass.

    JSON counts where it is all that the hook says: what stands beside may repeat the command.
    """
    code = _EXIT.search(text, max(0, len(text) - 20))
    if code and code[1] == "2":
        return Outcome.BLOCK, text[: code.start()][:MAX_TEXT]
    if code and code[1] != "0":
        return None, None
    document, end = _json_at(text, 0)
    if not isinstance(document, dict) or end != len(text):
        is_silent = code is not None and not code.start()
        return Outcome.ALLOW if is_silent else None, None

    if document.get("continue") is False:  # whatever else it decides
        return Outcome.BLOCK, document.get("stopReason")
    for place in (document.get("hookSpecificOutput"), document):
        if isinstance(place, dict):
            for key in ("permissionDecision", "permission", "decision"):
                if place.get(key) is not None:
                    reason = place.get("permissionDecisionReason", place.get("reason"))
                    return _DECISIONS.get(str(place[key]).lower()), reason

    return Outcome.ALLOW, None


def _document(text: str, command: str) -> object:
    """Return the first JSON object or list of a text that repeats none of the command, or None."""
    end = 0
    echoed = squeezed(command)
    for mark in islice(re.finditer(r"[{\[]", text), MAX_STARTS):
        start = mark.start()
        if start < end:
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
    if len(digits) < 16:
        return int(digits)
    return float(digits)


def _in_words(found: object) -> str:
    if isinstance(found, str):
        return found
    return json.dumps(found)


def _at(document: object, path: str) -> object:
    """Return what a path leads to in a JSON document; None without a path, and where nothing is."""
    if not path:
        return None
    for part in path.split("."):
        key, named, value = part.partition("=")
        if isinstance(document, dict):
            document = document.get(part)
        elif not isinstance(document, list):
            return None
        elif named:
            document = _first_with(document, key, value)
        elif part.isdecimal() and len(part) < 6 and int(part) < len(document):
            document = document[int(part)]
        else:
            return None

    return document


def _first_with(entries: list[object], key: str, value: str) -> object:
    """Return the first object of a list in which a key has a value; None without one."""
    for entry in entries:
        if isinstance(entry, dict) and _in_words(entry.get(key)) == value:
            return entry
    return None


def _number(found: object) -> float | None:
    """Return a finite number, or 1 and 0 for true and false."""
    if not isinstance(found, float | int):
        return None
    number = float(found)
    if abs(number) <= MOST_SUSPICION:
        return number
    return None


def _share(
    logprobs: Sequence[Mapping[str, float]], tokens: Sequence[Sequence[str]]
) -> float | None:
    """Return P(unsafe) / (P(unsafe) + P(safe)) at the first token that is one of those named.

    Where none is, the place counts at which they are the most likely. Logprobs are compared without
    white space and in lower case.
    """
    unsafe, safe = ({plain_token(token) for token in side} for side in tokens)
    most = 0.0
    share = None
    for candidates in logprobs:
        if not candidates:
            continue
        of_unsafe = _probability(candidates, unsafe)
        total = of_unsafe + _probability(candidates, safe)
        first = plain_token(next(iter(candidates)))  # the one that was said
        if first in unsafe | safe and total > 0:
            return of_unsafe / total
        if total > most:
            most = total
            share = of_unsafe / total

    return share


def _probability(candidates: Mapping[str, float], tokens: Collection[str]) -> float:
    """Return the probability that the next token is one of these."""
    logprobs = [logprob for token, logprob in candidates.items() if plain_token(token) in tokens]
    return sum(map(math.exp, logprobs))


_DRAFT = re.compile(r"\A\s*<think>.*?(?:</think>\s*|\Z)", re.DOTALL)


# Formats as the model cards of the four families state them (read in November 2026). Their patterns
# are ours, and `re` reads them in linear time: each begins where the text does, and goes back over
# one repetition at most.
_READY: Mapping[type[Output], Label] = {
    LlamaGuard: Label(
        patterns=((r"\Aunsafe\b\s*(?P<reason>.*)", "BLOCK"), (r"\Asafe\b", "ALLOW")),
        unsafe=("unsafe", "uns"),  # some tokenizers part the word
        safe=("safe",),
    ),
    Qwen3Guard: Label(
        patterns=(
            (r"\ASafety:\s*Unsafe\b(?:\s*Categories:\s*(?P<reason>.*))?", "BLOCK"),
            (r"\ASafety:\s*Controversial\b(?:\s*Categories:\s*(?P<reason>.*))?", "WARN"),
            (r"\ASafety:\s*Safe\b", "ALLOW"),
        ),
    ),
    ShieldGemma: Label(
        patterns=((r"\A\W*yes\b", "BLOCK"), (r"\A\W*no\b", "ALLOW")),
        unsafe=("Yes",),
        safe=("No",),
    ),
    GraniteGuardian: Label(
        patterns=(
            (r"\A(?:<score>)?\s*yes\b", "BLOCK"),
            (r"\A(?:<score>)?\s*no\b", "ALLOW"),
        ),
        unsafe=("Yes",),
        safe=("No",),
    ),
}
