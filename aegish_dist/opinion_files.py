"""TOML out: the few forms that the files of opinions need.

Parts that the files of rule sets, targets and overlays share.

Rule sets in files: whole, or as changes of one that has a name.

Targets in files: the least values of metrics.

Overlays in files: corrections of labels, each with a reason and an author.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct

from aegish_dist.core.opinion import LabelChange, Overlay, Targets
from aegish_dist.core.outcome import OutcomeDetail, ScoredAnswer
from aegish_dist.core.sample import MAX_COMMAND_CHARS, MAX_LABEL_CHARS, TrueLabel
from aegish_dist.core.scoring import RULES, Composite, ScoringRule
from aegish_dist.core.text import printable
from aegish_dist.errors import InputError, OpinionError
from aegish_dist.inputs.checking import checked
from aegish_dist.inputs.documents import parse_toml, read_text
from aegish_dist.statistics.metrics import METRICS

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def toml_text(text: str) -> str:
    r"""Return a text as a basic string of one line.

    Everything that would be invisible is escaped, so that neither a terminal nor a reader is
    deceived by a file: commands are hostile.
    """
    return f'"{"".join(map(_escaped, text))}"'


def toml_texts(texts: Iterable[str]) -> str:
    """Return texts as an array of one line."""
    return f"[{', '.join(map(toml_text, texts))}]"


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if printable(character) == character:
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


MAX_FILE_BYTES = 64 * 2**20
"""Room for some hundred thousand corrections of labels."""

Version = Annotated[int, Meta(ge=1, le=2**31 - 1)]
LabelText = Annotated[str, Meta(min_length=1, max_length=MAX_LABEL_CHARS)]


class Named(Struct, kw_only=True):
    """The keys that every file has."""

    name: LabelText
    version: Version
    """1-based."""

    def __post_init__(self) -> None:
        """Refuse a name that cannot be shown as it stands."""
        if not self.name.strip() or printable(self.name) != self.name:
            raise InputError("must be of visible characters", field="name")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in errors of the body."""
    try:
        yield
    except InputError as error:
        what = f"{error}, not {error.found}" if error.found else str(error)
        raise OpinionError(f"{path}: {what}") from None


def read_document(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        InputError: It cannot be read, is no TOML, or holds a character that no store takes.
    """
    text = read_text(path, MAX_FILE_BYTES)
    content = parse_toml(text)
    if "\\u0000" in text or "\\U00000000" in text:
        _refuse_nul(content)
    return content


def _refuse_nul(content: dict[str, Any]) -> None:
    left: list[object] = [content]
    while left:
        match left.pop():
            case dict() as table:
                left.extend([*table, *table.values()])
            case list() as array:
                left.extend(array)
            case str() as text if "\0" in text:
                raise InputError("holds a NUL character")


T = TypeVar("T")


class _RuleFile(Named, forbid_unknown_fields=True, kw_only=True):
    description: Annotated[str, Meta(max_length=1000)] = ""
    based_on: str | None = None
    labels: dict[OutcomeDetail, ScoredAnswer]
    unscored: list[OutcomeDetail]
    malicious_correct: list[ScoredAnswer]
    harmless_correct: list[ScoredAnswer]
    composite: Composite


def read_rule(path: Path) -> ScoringRule:
    """Read a rule set.

    Raises:
        OpinionError: It cannot be used; names file and key.
    """
    with naming(path):
        file = checked(_completed(read_document(path)), _RuleFile)
        missing = [finding for finding in OutcomeDetail if finding not in file.labels]
        if missing:
            raise InputError(f"lacks {', '.join(missing)}", field="labels")
        rule = ScoringRule(
            name=file.name,
            version=file.version,
            description=file.description,
            labels=MappingProxyType({finding: file.labels[finding] for finding in OutcomeDetail}),
            unscored=frozenset(file.unscored),
            malicious_correct=frozenset(file.malicious_correct),
            harmless_correct=frozenset(file.harmless_correct),
            composite=file.composite,
        )
        _require_sense(rule)
        return rule


def render_rule(rule: ScoringRule) -> str:
    """Return a rule set as a file that reads back as the same one."""
    lines = [
        f"name = {toml_text(rule.name)}",
        f"version = {rule.version}",
        f"description = {toml_text(rule.description)}",
        "",
        "# Findings that enter no rate; they lower coverage.",
        f"unscored = {toml_texts(_in_order(rule.unscored, OutcomeDetail))}",
        "# Labels that count as detection of a malicious command, and as acceptance of a harmless",
        "# one.",
        f"malicious_correct = {toml_texts(_in_order(rule.malicious_correct, ScoredAnswer))}",
        f"harmless_correct = {toml_texts(_in_order(rule.harmless_correct, ScoredAnswer))}",
        "# balanced: (DR + HA) / 2; product: DR x HA.",
        f"composite = {toml_text(rule.composite)}",
        "",
        "# The label of each finding.",
        "[labels]",
        *(f"{finding} = {toml_text(rule.labels[finding])}" for finding in OutcomeDetail),
    ]
    return "\n".join(lines) + "\n"


def _completed(document: dict[str, Any]) -> dict[str, Any]:
    """Take what a file leaves out from the rule set that it is based on."""
    name = document.get("based_on")
    if name is None:
        return document
    if name not in list(RULES):
        raise InputError(f"must be one of {', '.join(RULES)}", field="based_on")
    base = parse_toml(render_rule(RULES[name]))
    completed = {key: base[key] for key in base.keys() - {"name", "version", "description"}}
    labels = document.get("labels", {})
    if isinstance(labels, dict):
        labels = base["labels"] | labels
    return completed | document | {"labels": labels}


def _require_sense(rule: ScoringRule) -> None:
    for key in ("malicious_correct", "harmless_correct"):
        for label in _in_order(getattr(rule, key), ScoredAnswer):
            if not rule.knows(label):
                raise InputError(f"holds {label}, which no finding is labelled", field=key)
    named = RULES.get(rule.name)
    if named is not None and named.fingerprint != rule.fingerprint:
        problem = "is the name of a rule set of this package, which differs; choose another"
        raise InputError(problem, field="name")


def _in_order(values: Iterable[T], order: Iterable[T]) -> list[T]:
    chosen = set(values)
    return [each for each in order if each in chosen]


LESS_IS_BETTER = frozenset({"false_positive_rate", "brier", "ece", "flip_rate"}) | {
    name for name in METRICS if name.endswith(("_error_rate", "_filter_rate"))
} | {"token_limit_rate"}  # fmt: skip
"""Metrics of which no least value makes sense."""
TARGET_METRICS = tuple(name for name in METRICS if name not in LESS_IS_BETTER)


class _TargetsFile(Named, forbid_unknown_fields=True, kw_only=True):
    least: dict[str, float]


def read_targets(path: Path) -> Targets:
    """Read targets.

    Raises:
        OpinionError: They cannot be used; names file and key.
    """
    with naming(path):
        file = checked(read_document(path), _TargetsFile)
        for metric, value in file.least.items():
            _check(metric, value)
        return Targets(file.name, file.version, MappingProxyType(file.least))


def render_targets(targets: Targets) -> str:
    """Return targets as a file that reads back as the same ones."""
    lines = [f"name = {toml_text(targets.name)}", f"version = {targets.version}", "", "[least]"]
    return (
        "\n".join([*lines, *(f"{name} = {least}" for name, least in targets.least.items())]) + "\n"
    )


def _check(metric: str, value: float) -> None:
    field = f"least.{metric}"
    if metric in LESS_IS_BETTER:
        raise InputError("is a metric of which less is better; it has no least value", field=field)
    if metric not in TARGET_METRICS:
        raise InputError(f"unknown metric; known are {', '.join(TARGET_METRICS)}", field=field)
    if not 0 <= value <= 1:
        raise InputError("must be from 0 to 1", field=field)


_SAMPLE_ID = re.compile("[0-9a-f]{16}")


class _OverlayFile(Named, forbid_unknown_fields=True, kw_only=True):
    author: LabelText | None = None
    change: list[Any] | None = None


class _Change(Struct, forbid_unknown_fields=True, kw_only=True):
    dataset: LabelText
    sample: str | None = None
    command: Annotated[str, Meta(min_length=1, max_length=MAX_COMMAND_CHARS)] | None = None
    action: Literal["exclude", "relabel"]
    target: TrueLabel | None = None
    category: LabelText | None = None
    reason: Annotated[str, Meta(min_length=1, max_length=2000)]
    author: LabelText | None = None

    def __post_init__(self) -> None:
        """Refuse keys that contradict each other."""
        if self.sample is None and self.command is None:
            raise InputError("is missing; give the sample's id, or its `command`", field="sample")
        if self.sample is not None and not _SAMPLE_ID.fullmatch(self.sample):
            raise InputError("must be an id, 16 hexadecimal digits", field="sample")
        if self.action == "relabel" and self.target is None:
            raise InputError("is missing; give the right label", field="target")
        if self.action == "exclude" and self.target is not None:
            raise InputError("must not be given of a sample that is excluded", field="target")
        if self.category is not None and self.target is not TrueLabel.MALICIOUS:
            raise InputError("may be given of malicious samples alone", field="category")
        if not self.reason.strip():
            raise InputError("must not be empty", field="reason")


def read_overlay(path: Path) -> Overlay:
    """Read an overlay.

    Raises:
        OpinionError: It cannot be used; names file, change and key.
    """
    with naming(path):
        file = checked(read_document(path), _OverlayFile)
        changes = tuple(_changes(file))
        _require_distinct(changes)
        return Overlay(file.name, file.version, changes)


def render_overlay(overlay: Overlay) -> str:
    """Return an overlay as a file that reads back as the same one.

    The texts of a change are escaped, so that hostile commands neither leave their string nor
    deceive a reader.
    """
    head = f"name = {toml_text(overlay.name)}\nversion = {overlay.version}\n"
    return head + "".join(map(_rendered, overlay.changes))


def _changes(file: _OverlayFile) -> Iterator[LabelChange]:
    for number, keys in enumerate(file.change or (), start=1):
        try:
            change = checked(keys, _Change)
            author = change.author or file.author
            if author is None or not author.strip():
                problem = "is missing; give it here, or once at the top of the file"
                raise InputError(problem, field="author")
        except InputError as error:
            raise _of_change(number, error) from None
        yield LabelChange(
            dataset=change.dataset,
            sample_id=change.sample,
            command=change.command,
            target=change.target,
            category=change.category,
            reason=change.reason,
            author=author,
        )


def _of_change(number: int, error: InputError) -> InputError:
    what = f"{error}, not {error.found}" if error.found else str(error)
    return InputError(f"[[change]] entry {number}: {what}")


def _require_distinct(changes: Iterable[LabelChange]) -> None:
    """Refuse two changes of a sample; where one gives no id, the datasets of a run tell."""
    first: dict[tuple[str, str], int] = {}
    for number, change in enumerate(changes, start=1):
        sample = change.sample_id or f"command {change.command}"
        other = first.setdefault((change.dataset, sample), number)
        if other != number:
            raise InputError(
                f"[[change]] entries {other} and {number} are of one sample, {change} of dataset "
                f"'{change.dataset}'; keep one of them"
            )


def _rendered(change: LabelChange) -> str:
    keys = {
        "dataset": change.dataset,
        "sample": change.sample_id,
        "command": change.command,
        "action": "exclude" if change.excludes else "relabel",
        "target": change.target,
        "category": change.category,
        "reason": change.reason,
        "author": change.author,
    }
    lines = [f"{key} = {toml_text(text)}\n" for key, text in keys.items() if text is not None]
    return "\n[[change]]\n" + "".join(lines)
