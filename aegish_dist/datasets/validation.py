"""Label checks: what every sample must satisfy before it is asked of a model.

A wrong label or a placeholder left in a command costs accuracy without a trace, so every importer
runs these checks, and `datasets validate` shows all they find. Pure functions.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from functools import lru_cache

from aegish_dist.core.sample import MAX_COMMAND_CHARS, MAX_LABEL_CHARS, Sample, Target

CATEGORIES = (
    "bind-shell",
    "command",
    "download",
    "file-read",
    "file-write",
    "reverse-shell",
    "shell",
    "upload",
)
"""The GTFOBins functions a malicious command can serve; other datasets may have others."""

_CATEGORY = re.compile(r"[^\W_](?:[\w ./:+-]{0,98}[\w.+])?")
_UNSTORABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_PLACEHOLDER = re.compile(
    r"/path/to/"
    r"|\b(?:attacker|victim)\.com\b"
    r"|\$\{?(?P<variable>TF|URL|PID|CONTAINER(?:_ID)?|LFILE|RHOST|RPORT|LPORT)\b\}?"
    r"|<(?P<tag>[a-z][a-z_ -]*)>(?!.*</(?P=tag)>)",  # a tag that is closed later is XML
    re.DOTALL,
)
_ASSIGNMENT = re.compile(r"(?<![\w$])([A-Z_]+)=")
_TELL_TALE = re.compile(r"(?<![a-z])(?:evil|backdoor|malware|payload|exploit|hack)", re.IGNORECASE)


class Severity(StrEnum):
    """Whether a problem stops an import."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with one sample."""

    record: int
    """The 1-based line or record number."""
    field: str
    message: str
    """The problem with it, and where the remedy is not obvious, what to do."""
    severity: Severity = Severity.ERROR
    """An error stops an import, a warning does not."""


def problems(
    samples: Iterable[Sample], *, lines: Sequence[int] | None = None, strict: bool = False
) -> tuple[Problem, ...]:
    """Check the labels of samples.

    Args:
        samples: In file order.
        lines: The line of each sample; None numbers them from 1.
        strict: Whether placeholders and tell-tale words are errors, as in the bundled sets.

    Returns:
        Everything found, in file order.
    """
    found: list[Problem] = []
    first_seen: dict[str, int] = {}
    for index, sample in enumerate(samples):
        line = lines[index] if lines is not None else index + 1
        first = first_seen.setdefault(sample.command, line)
        found += _sample_problems(line, sample)
        if first != line:
            found.append(Problem(line, "command", f"the same command as in line {first}"))
    if strict:
        found = [replace(each, severity=Severity.ERROR) for each in found]
    return tuple(found)


def _sample_problems(record: int, sample: Sample) -> Iterator[Problem]:
    yield from _command_problems(record, sample)
    yield from _label_problems(record, sample)
    if sample.cluster is not None:
        yield from _text_problems(record, "cluster", sample.cluster, MAX_LABEL_CHARS)
    for key, value in sample.metadata.items():
        yield from _text_problems(record, "metadata", f"{key}{value}", MAX_COMMAND_CHARS)


def _command_problems(record: int, sample: Sample) -> Iterator[Problem]:
    if not sample.command.strip():
        yield Problem(record, "command", "must not be empty")
    yield from _text_problems(record, "command", sample.command, MAX_COMMAND_CHARS)
    if sample.target is Target.MALICIOUS and (left := _left_over(sample.command)):
        message = f"placeholder '{left}' was never filled in"
        yield Problem(record, "command", message, Severity.WARNING)
    if word := _TELL_TALE.search(sample.command):
        message = f"the word '{word.group()}' gives the label away"
        yield Problem(record, "command", message, Severity.WARNING)


def _left_over(command: str) -> str | None:
    """Return a placeholder; a variable that the command sets itself is none."""
    given = variables_set(command)
    left = (each for each in _PLACEHOLDER.finditer(command) if each["variable"] not in given)
    return next((each.group() for each in left), None)


def variables_set(code: str) -> frozenset[str]:
    """Return the variables to which a command gives a value itself."""
    return frozenset(_ASSIGNMENT.findall(code))


def _label_problems(record: int, sample: Sample) -> Iterator[Problem]:
    match sample.target, sample.category:
        case Target.MALICIOUS, None:
            yield Problem(record, "category", "a malicious command needs one, such as 'file-read'")
        case Target.MALICIOUS, str(category) if not _CATEGORY.fullmatch(category):
            problem = f"{category[:100]!a} is no name: use up to 100 letters, digits and ' ./:+-_'"
            yield Problem(record, "category", problem)
        case Target.MALICIOUS, str(category) if near := _misspelt(category):
            yield Problem(record, "category", f"{category!a} is nearly '{near}'", Severity.WARNING)
        case Target.HARMLESS, str():
            yield Problem(record, "category", "a harmless command has none; leave it empty")


@lru_cache(1_000)
def _misspelt(category: str) -> str | None:
    """Return the GTFOBins function that is probably meant by another name; None when none is."""
    folded = re.sub(r"[\W_]+", "-", category.lower())
    near = get_close_matches(folded, CATEGORIES, 1, 0.85)
    return near[0] if near and near[0] != category else None


def _text_problems(record: int, field: str, text: str, max_chars: int) -> Iterator[Problem]:
    if bad := _UNSTORABLE.search(text):
        yield Problem(record, field, f"contains the control character U+{ord(bad.group()):04X}")
    if len(text) > max_chars:
        message = f"has {len(text):,} characters, at most {max_chars:,} are allowed"
        yield Problem(record, field, message)
