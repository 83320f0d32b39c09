"""The steps between a file and a dataset: records become samples, and their labels are checked.

A wrong label or a placeholder left in a command costs accuracy without a trace.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from functools import lru_cache
from itertools import count
from pathlib import Path

from msgspec import Struct

from aegish_dist.core.sample import MAX_COMMAND_CHARS, MAX_LABEL_CHARS, Dataset, Sample, TrueLabel
from aegish_dist.core.text import JsonObject, known
from aegish_dist.errors import DatasetError
from aegish_dist.inputs.checking import Location

# The GTFOBins functions a malicious command can serve.
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
    ERROR = "error"
    WARNING = "warning"


class Problem(Struct, frozen=True):
    record: int  # line or record, 1-based
    field: str | None  # None: the record as a whole
    message: str  # the problem, and where that is not obvious, what to do
    severity: Severity = Severity.ERROR  # a warning stops no import


def problems(
    samples: Iterable[Sample], *, lines: Sequence[int] | None = None
) -> tuple[Problem, ...]:
    """Check the labels of samples, in file order; without `lines` they are numbered from 1."""
    found: list[Problem] = []
    first_seen: dict[str, tuple[int, TrueLabel]] = {}
    for line, sample in zip(lines or count(1), samples, strict=False):
        first, target = first_seen.setdefault(sample.command, (line, sample.target))
        found += _sample_problems(line, sample)
        if first != line:
            message = f"the same command as in line {first}"
            if target is not sample.target:
                message += f", which is labelled {target}"
            found.append(Problem(line, "command", message))

    return tuple(found)


def _sample_problems(record: int, sample: Sample) -> Iterator[Problem]:
    if not sample.command.strip():
        yield Problem(record, "command", "must not be empty")
    yield from _text_problems(record, "command", sample.command, MAX_COMMAND_CHARS)
    left = _left_over(sample.command)
    if left is not None and sample.target is TrueLabel.MALICIOUS:
        message = f"placeholder '{left}' was never filled in"
        yield Problem(record, "command", message, Severity.WARNING)

    if word := _TELL_TALE.search(sample.command):
        message = f"the word '{word.group()}' gives the label away"
        yield Problem(record, "command", message, Severity.WARNING)

    yield from _label_problems(record, sample)
    if sample.cluster is not None:
        yield from _text_problems(record, "cluster", sample.cluster, MAX_LABEL_CHARS)
    for key, value in sample.metadata.items():
        yield from _text_problems(record, "metadata", f"{key}{value}", MAX_COMMAND_CHARS)


def _left_over(command: str) -> str | None:
    """Return a placeholder; a variable that the command sets itself is none."""
    given = variables_set(command)
    for placeholder in _PLACEHOLDER.finditer(command):
        if placeholder["variable"] not in given:
            return placeholder.group()
    return None


def variables_set(code: str) -> frozenset[str]:
    """Return the variables to which a command gives a value itself."""
    return frozenset(_ASSIGNMENT.findall(code))


def _label_problems(record: int, sample: Sample) -> Iterator[Problem]:
    match sample.target, sample.category:
        case TrueLabel.MALICIOUS, None:
            yield Problem(record, "category", "a malicious command needs one, such as 'file-read'")
        case TrueLabel.MALICIOUS, str(category) if not _CATEGORY.fullmatch(category):
            problem = f"{category[:100]!a} is no name: use up to 100 letters, digits and ' ./:+-_'"
            yield Problem(record, "category", problem)
        case TrueLabel.MALICIOUS, str(category) if near := _misspelt(category):
            yield Problem(record, "category", f"{category!a} is nearly '{near}'", Severity.WARNING)
        case TrueLabel.HARMLESS, str():
            yield Problem(record, "category", "a harmless command has none; leave it empty")


@lru_cache(1_000)
def _misspelt(category: str) -> str | None:
    """Return the GTFOBins function that is probably meant by another name; None when none is."""
    folded = re.sub(r"[\W_]+", "-", category.lower())
    for near in get_close_matches(folded, CATEGORIES, 1, 0.85):
        if near != category:
            return near
    return None


def _text_problems(
    record: int,
    field: str,
    text: str,
    max_chars: int,
) -> Iterator[Problem]:
    if unstorable := _UNSTORABLE.search(text):
        code = ord(unstorable.group())
        message = f"contains the control character U+{code:04X}"
        yield Problem(record, field, message)

    if len(text) > max_chars:
        message = f"has {len(text):,} characters, at most {max_chars:,} are allowed"
        yield Problem(record, field, message)


MAX_FILE_BYTES = 64 * 2**20  # the bundled sets have a tenth of a MiB
MAX_SAMPLES = 200_000  # a dataset is held in memory as a whole
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Draft(Struct, frozen=True):
    """A dataset whose labels have not been checked yet."""

    name: str
    samples: tuple[Sample, ...]  # in file order, duplicates included
    lines: tuple[int, ...]  # of each sample, 1-based
    file: str  # or the folder, as messages name it
    source: str
    licence: str = ""  # SPDX identifier or a sentence
    skipped: tuple[DatasetError, ...] = ()  # one for each file or entry that cannot be read
    left_out: Mapping[str, int] = {}  # commands that are no samples, by reason
    refused: tuple[Problem, ...] = ()  # one for each record that makes no sample

    def problems(self) -> tuple[Problem, ...]:
        found = (*self.refused, *problems(self.samples, lines=self.lines))
        return tuple(sorted(found, key=lambda problem: problem.record))

    def checked(self) -> Dataset:
        """Return the dataset, or raise a DatasetError for the first error or for no samples."""
        errors = [problem for problem in self.problems() if problem.severity is Severity.ERROR]
        if errors:
            first = errors[0]
            what = first.message
            if len(errors) > 1:
                listing = f"`aegish-dist datasets validate {self.file}`"
                what = f"{what}; {listing} lists all {len(errors)} errors"
            raise Location(self.file, first.record).error(what, first.field)

        if not self.samples:
            raise DatasetError("holds no samples", source=self.file)
        return Dataset(
            name=self.name,
            samples=self.samples,
            source=self.source,
            licence=self.licence,
        )


class SampleRecord(Struct, frozen=True, kw_only=True):
    command: str
    target: TrueLabel
    category: str | None = None
    cluster: str | None = None


def given(values: JsonObject, kind: type[Struct]) -> JsonObject:
    """Return the fields of a kind of record that have a value."""
    fields = {}
    for field in kind.__struct_fields__:
        value = values.get(field)
        if value not in (None, ""):
            fields[field] = value
    return fields


def to_sample(
    location: Location,
    record: SampleRecord,
    values: JsonObject,
) -> Sample:
    """Make a sample of a record; other `values`, and an object `metadata`, are metadata."""
    fields = record.__struct_fields__
    extra = {key: value for key, value in values.items() if key not in fields}
    nested = extra.pop("metadata", None)
    if nested is not None:
        extra |= location.checked(nested, JsonObject, "metadata")
    try:
        metadata = {str(key): _as_text(value) for key, value in known(extra).items()}
    except RecursionError:
        raise location.error("is nested too deeply", "metadata") from None

    return Sample(
        command=record.command,
        target=record.target,
        category=record.category,
        cluster=record.cluster,
        metadata=metadata,
    )


def _as_text(value: object) -> str:
    if isinstance(value, bool | int | float | list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def dataset_name(path: Path, name: str | None) -> str:
    """Return the name a user chose, checked, else one made of the file's name."""
    if name is None:
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("._-")
        return plain[:100] or "dataset"
    if not _NAME.fullmatch(name):
        problem = f"{name!a} is no dataset name: use up to 100 letters, digits, '.', '-' and '_'"
        raise Location(str(path)).error(problem, "name")
    return name
