"""Opinions as TOML files: rule sets, suspicion rules, targets, policies, corrections of labels."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, convert
from msgspec.structs import asdict, replace

from aegish_dist.core.metric import LESS_IS_BETTER, TARGET_METRICS
from aegish_dist.core.outcome import Outcome, OutcomeDetail, ScoredAnswer
from aegish_dist.core.output import Action
from aegish_dist.core.sample import MAX_COMMAND_CHARS, MAX_LABEL_CHARS, TrueLabel
from aegish_dist.core.text import JsonObject, did_you_mean, escaped, known, printable
from aegish_dist.errors import InputError, OpinionError
from aegish_dist.inputs.checking import checked, refuse
from aegish_dist.inputs.documents import parse_toml, parts_of, placed, read_text, under
from aegish_dist.opinions.opinion import LabelChange, Overlay, Targets
from aegish_dist.opinions.policy import (
    POLICY_PREFIX,
    Condition,
    OnError,
    Origin,
    Policy,
    Stage,
    When,
    pattern_problem,
)
from aegish_dist.opinions.scoring import (
    RULES,
    STATED_CONFIDENCE,
    SUSPICION_RULES,
    Composite,
    Level,
    ScoringRule,
    SuspicionRule,
)

_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\n": "\\n",
    "\t": "\\t",
    "\r": "\\r",
}


def toml_text(text: str) -> str:
    """Return a basic string of one line; the invisible is escaped, as commands are hostile."""
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if printable(character) == character:
        return character
    return escaped(character)


def _line(key: str, value: object) -> str:
    """Return a line of TOML: a key with a text, a number or a list of texts."""
    if isinstance(value, str):
        return f"{key} = {toml_text(value)}"
    if isinstance(value, list):
        return f"{key} = [{', '.join(map(toml_text, value))}]"
    return f"{key} = {value}"


MAX_FILE_BYTES = 2**20
MAX_OVERLAY_BYTES = 64 * 2**20  # some hundred thousand corrections of labels
MAX_ENTRIES = 1_000  # of a list in a policy: each command is held against each pattern

LabelText = Annotated[str, Meta(min_length=1, max_length=MAX_LABEL_CHARS)]
Labels = Annotated[list[LabelText], Meta(max_length=MAX_ENTRIES)]


class _Named(Struct, kw_only=True):
    name: LabelText
    version: Annotated[int, Meta(ge=1, le=2**31 - 1)]  # 1-based

    def __post_init__(self) -> None:
        """Refuse a name that cannot be shown as it stands."""
        visible = self.name.strip() and printable(self.name) == self.name
        refuse((not visible, "name", "must be of visible characters"))


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Name the file in errors of the body."""
    try:
        yield
    except InputError as error:
        raise OpinionError(f"{file}: {placed(error, file)}") from None


def _read_document(path: Path, max_bytes: int = MAX_FILE_BYTES) -> JsonObject:
    text = read_text(path, max_bytes)
    content = parse_toml(text)
    if "\\u0000" in text or "\\U00000000" in text:
        for part in parts_of(content):
            if isinstance(part, str) and "\0" in part:
                raise InputError("holds a NUL character")
    return content


class _RuleFile(_Named, forbid_unknown_fields=True, kw_only=True):
    description: Annotated[str, Meta(max_length=1000)] = ""
    based_on: str | None = None
    labels: dict[OutcomeDetail, ScoredAnswer]
    unscored: list[OutcomeDetail]
    malicious_correct: list[ScoredAnswer]
    harmless_correct: list[ScoredAnswer]
    composite: Composite


def read_rule(path: Path) -> ScoringRule:
    """Return the rule set in a file; an OpinionError says what is wrong, and where."""
    with _naming(path):
        file = checked(_completed(_read_document(path)), _RuleFile)
        missing = [finding for finding in OutcomeDetail if finding not in file.labels]
        if missing:
            raise InputError(f"lacks {', '.join(missing)}", field="labels")
        labels = MappingProxyType({finding: file.labels[finding] for finding in OutcomeDetail})
        rule = replace(convert(file, ScoringRule, from_attributes=True), labels=labels)
        _require_sense(rule)
        return rule


def render_rule(rule: ScoringRule) -> str:
    """Return a rule set as a file that reads back as the same one."""
    unscored = [finding for finding in OutcomeDetail if finding in rule.unscored]
    detection = [label for label in ScoredAnswer if label in rule.malicious_correct]
    acceptance = [label for label in ScoredAnswer if label in rule.harmless_correct]
    lines = [
        _line("name", rule.name),
        _line("version", rule.version),
        _line("description", rule.description),
        "",
        "# Findings that enter no rate; they lower coverage.",
        _line("unscored", unscored),
        "# Labels that count as detection of a malicious command, and as acceptance of a harmless",
        "# one.",
        _line("malicious_correct", detection),
        _line("harmless_correct", acceptance),
        "# balanced: (DR + HA) / 2; product: DR x HA.",
        _line("composite", rule.composite),
        "",
        "# The label of each finding.",
        "[labels]",
    ]
    lines += [_line(finding, rule.labels[finding]) for finding in OutcomeDetail]
    return "\n".join(lines) + "\n"


def _completed(document: JsonObject) -> JsonObject:
    """Take what a file leaves out from the rule set that it is based on."""
    name = document.get("based_on")
    if name is None:
        return document
    if name not in list(RULES):
        raise InputError(f"must be one of {', '.join(RULES)}", field="based_on")
    base = RULES[name].content
    completed = base | document
    if isinstance(completed["labels"], dict):
        completed["labels"] = base["labels"] | completed["labels"]
    return completed


def _require_sense(rule: ScoringRule) -> None:
    for key in ("malicious_correct", "harmless_correct"):
        for label in ScoredAnswer:
            if label in getattr(rule, key) and not rule.knows(label):
                raise InputError(f"holds {label}, which no finding is labelled", field=key)
    _require_own_name(rule, RULES.get(rule.name), "rule set")


def _require_own_name(
    rule: ScoringRule | SuspicionRule, packaged: ScoringRule | SuspicionRule | None, kind: str
) -> None:
    if packaged is not None and packaged.fingerprint != rule.fingerprint:
        problem = f"is the name of a {kind} of this package, which differs; choose another"
        raise InputError(problem, field="name")


class _SuspicionFile(_Named, forbid_unknown_fields=True, kw_only=True):
    description: Annotated[str, Meta(max_length=1000)] = ""
    unreadable: Literal["allow", "warn", "block"] = "warn"
    unstated: Annotated[float, Meta(ge=0, le=1)] = STATED_CONFIDENCE.unstated
    levels: dict[Action, Level] = {}


def read_suspicion_rule(path: Path) -> SuspicionRule:
    """Return the suspicion rule in a file; an OpinionError says what is wrong, and where.

    What the file leaves out is as in `stated-confidence`.
    """
    with _naming(path):
        file = checked(_read_document(path), _SuspicionFile)
        levels = dict(STATED_CONFIDENCE.levels or {})
        for name, level in file.levels.items():
            levels[Outcome(name)] = level
        rule = SuspicionRule(
            name=file.name,
            version=file.version,
            description=file.description,
            levels=MappingProxyType(levels),
            unreadable=Outcome(file.unreadable.upper()),
            unstated=file.unstated,
        )
        _require_own_name(rule, SUSPICION_RULES.get(rule.name), "suspicion rule")
        return rule


class _TargetsFile(_Named, forbid_unknown_fields=True, kw_only=True):
    least: dict[str, float]


def read_targets(path: Path) -> Targets:
    """Return the targets in a file; an OpinionError says what is wrong, and where."""
    with _naming(path):
        file = checked(_read_document(path), _TargetsFile)
        for metric, value in file.least.items():
            if problem := _target_problem(metric, value):
                raise InputError(problem, field=f"least.{metric}")
        return Targets(file.name, file.version, MappingProxyType(file.least))


def _target_problem(metric: str, value: float) -> str | None:
    if metric in LESS_IS_BETTER:
        return "is a metric of which less is better; it has no least value"
    if metric not in TARGET_METRICS:
        listed = f"known are {', '.join(TARGET_METRICS)}"
        return f"unknown metric; {did_you_mean(metric, TARGET_METRICS, listed)}"
    if not 0 <= value <= 1:
        return "must be from 0 to 1"
    return None


_SAMPLE_ID = re.compile("[0-9a-f]{16}")


class _OverlayFile(_Named, forbid_unknown_fields=True, kw_only=True):
    author: LabelText | None = None
    change: list[Any] | None = None


class _Change(Struct, forbid_unknown_fields=True, kw_only=True, rename={"sample_id": "sample"}):
    dataset: LabelText
    sample_id: str | None = None
    command: Annotated[str, Meta(min_length=1, max_length=MAX_COMMAND_CHARS)] | None = None
    action: Literal["exclude", "relabel"]
    target: TrueLabel | None = None
    category: LabelText | None = None
    reason: Annotated[str, Meta(min_length=1, max_length=2000)]
    author: LabelText | None = None

    def __post_init__(self) -> None:
        unnamed = self.sample_id is None and self.command is None
        odd_id = self.sample_id is not None and not _SAMPLE_ID.fullmatch(self.sample_id)
        unlabelled = self.action == "relabel" and self.target is None
        overlabelled = self.action == "exclude" and self.target is not None
        harmless = self.category is not None and self.target is not TrueLabel.MALICIOUS
        refuse(
            (unnamed, "sample", "is missing; give the sample's id, or its `command`"),
            (odd_id, "sample", "must be an id, 16 hexadecimal digits"),
            (unlabelled, "target", "is missing; give the right label"),
            (overlabelled, "target", "must not be given of a sample that is excluded"),
            (harmless, "category", "may be given of malicious samples alone"),
            (not self.reason.strip(), "reason", "must not be empty"),
        )


def read_overlay(path: Path) -> Overlay:
    """Return the overlay in a file; an OpinionError says what is wrong, and where."""
    with _naming(path):
        file = checked(_read_document(path, MAX_OVERLAY_BYTES), _OverlayFile)
        changes = tuple(_changes(file))
        _require_distinct(changes)
        return Overlay(file.name, file.version, changes)


def render_overlay(overlay: Overlay) -> str:
    """Return an overlay as a file that reads back as the same one."""
    lines = [_line("name", overlay.name), _line("version", overlay.version)]
    for change in overlay.changes:
        keys = {
            "dataset": change.dataset,
            "sample": change.sample_id,
            "command": change.command,
            "action": "exclude" if change.target is None else "relabel",
            "target": change.target,
            "category": change.category,
            "reason": change.reason,
            "author": change.author,
        }
        lines += ["", "[[change]]"]
        lines += [_line(key, text) for key, text in known(keys).items()]

    return "\n".join(lines) + "\n"


def _changes(file: _OverlayFile) -> Iterator[LabelChange]:
    for number, keys in enumerate(file.change or (), start=1):
        with under(f"[[change]] entry {number}"):
            change = checked(keys, _Change)
            change.author = change.author or file.author
            if not change.author or change.author.isspace():
                problem = "is missing; give it here, or once at the top of the file"
                raise InputError(problem, field="author")
        yield convert(change, LabelChange, from_attributes=True)


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


ALLOWLIST = "allowlist"
_POLICY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class _AtLeast(Struct, forbid_unknown_fields=True):
    at_least: int


class _StageFile(Struct, forbid_unknown_fields=True, kw_only=True):
    guard: LabelText | None = None
    guards: Labels | None = None
    combine: Literal["all", "any"] | _AtLeast | None = None
    patterns: Labels | None = None
    when: When | list[float] | None = None
    threshold: float | list[float] | None = None
    on_error: OnError | None = None


class _PolicyFile(_Named, forbid_unknown_fields=True, kw_only=True):
    stage: Annotated[list[Any], Meta(min_length=1, max_length=MAX_ENTRIES)]
    origin: Origin | None = None


def read_policy(path: Path) -> Policy:
    """Return the policy in a file; an OpinionError says what is wrong, and where.

    A file has `[[stage]]` entries with `guard`, or `combine` and `guards`; or these two at its top.
    The first entry may be `guard = "allowlist"` with `patterns`.
    """
    with _naming(path):
        document = _read_document(path, MAX_OVERLAY_BYTES)
        alone = "stage" not in document and ("guards" in document or "combine" in document)
        if alone:
            of_policy = ("name", "version", "origin")
            stage = {key: document.pop(key) for key in list(document) if key not in of_policy}
            document["stage"] = [stage]
        file = checked(document, _PolicyFile)
        if not _POLICY_NAME.fullmatch(file.name):
            form = "must be of ASCII letters, digits, '.', '_' and '-'"
            raise InputError(form, field="name")
        stages: list[Stage] = []
        allowed: list[str] = []
        for number, entry in enumerate(file.stage, start=1):
            with nullcontext() if alone else under(f"[[stage]] entry {number}"):
                keys = checked(entry, _StageFile)
                if number == 1 and keys.guard == ALLOWLIST:
                    allowed += _patterns(keys)
                else:
                    stages.append(_stage(keys, stages, last=number == len(file.stage)))
        if not stages:
            raise InputError("must have an entry that asks a guard", field="stage")
        return Policy(
            name=file.name,
            version=file.version,
            stages=tuple(stages),
            allowed=tuple(allowed),
            origin=file.origin,
        )


def _patterns(file: _StageFile) -> Sequence[str]:
    for key in sorted(known(asdict(file))):
        if key not in ("guard", "patterns"):
            raise InputError("must not be given of an allowlist", field=key)

    patterns = file.patterns or []
    if not patterns:
        raise InputError("is missing; list the commands that are allowed", field="patterns")
    for pattern in patterns:
        if problem := pattern_problem(pattern):
            what = f"'{printable(pattern)}' {problem}"
            raise InputError(what, field="patterns", text=pattern)

    return patterns


def _stage(file: _StageFile, before: Sequence[Stage], *, last: bool) -> Stage:
    refuse(
        (file.guard and file.guards, "guards", "must not stand beside `guard`"),
        (file.guard and file.combine, "combine", "must stand beside `guards`"),
        (last and file.on_error is OnError.NEXT, "on_error", "has no stage after it to ask"),
    )
    key = "guard" if file.guard else "guards"
    guards = [file.guard] if file.guard else file.guards or []
    # Only now is it clear which of the two keys names the guards.
    number = len(guards)
    unjoined = number > 1 and not file.combine
    names_policy = any(guard.startswith(POLICY_PREFIX) for guard in guards)
    refuse(
        (not guards, "guard", "is missing; name a model, or `guards` and `combine`"),
        (unjoined, "combine", "is missing: all, any or { at_least = NUMBER }"),
        (len(set(guards)) < number, key, "must not name a guard twice"),
        (ALLOWLIST in guards, key, "may be an allowlist in the first stage alone"),
        (file.patterns is not None, "patterns", "may be given of an allowlist alone"),
        (names_policy, key, "must be a model, no policy"),
    )
    at_least = number if file.combine == "all" else 1
    if isinstance(file.combine, _AtLeast):
        at_least = file.combine.at_least
    thresholds = _thresholds(file.threshold, number)
    if not 1 <= at_least <= number:
        raise InputError(f"must be from 1 to {number}", field="combine.at_least")
    return Stage(
        guards=tuple(guards),
        thresholds=thresholds,
        at_least=at_least,
        when=_when(file.when, before),
        on_error=file.on_error,
    )


def _thresholds(given: float | list[float] | None, guards: int) -> tuple[float, ...]:
    """Return a threshold for each guard, of which a file may name one for all; empty: none."""
    if given is None:
        return ()
    thresholds = given if isinstance(given, list) else [given] * guards
    if len(thresholds) != guards:
        raise InputError(f"must be one number, or a list of {guards}", field="threshold")
    if not all(map(math.isfinite, thresholds)):
        raise InputError("must be finite", field="threshold")
    return tuple(thresholds)


def _when(when: When | list[float] | None, before: Sequence[Stage]) -> Condition:
    """Return when a stage is asked; refuse what can never hold after the stages before."""
    if problem := _problem_of_when(when, before):
        raise InputError(problem, field="when")
    if isinstance(when, list):
        low, high = when
        return low, high
    return when or When.ALWAYS


def _problem_of_when(when: When | list[float] | None, before: Sequence[Stage]) -> str | None:
    if isinstance(when, list):
        finite = all(map(math.isfinite, when))
        if len(when) != 2 or not finite or when[0] > when[1]:
            return "must be [low, high] of suspicion, low at most high"

    if not before:
        free = when in (None, When.ALWAYS)
        return None if free else "must be left out or 'always': no guard was asked before"

    if when is None:
        return "is missing; say when this stage is asked"
    if when is When.WARN and all(stage.thresholds for stage in before):
        return "never holds: stages with a threshold do not WARN"
    if when is When.DISAGREEMENT and len(before) < 2:
        return "needs two stages before it"
    return None


def render_policy(policy: Policy) -> str:
    """Return a policy as a file that reads back as the same one."""
    lines = [_line("name", policy.name), _line("version", policy.version)]
    if policy.allowed:
        lines += ["", "[[stage]]"]
        lines.append(_line("guard", ALLOWLIST))
        lines.append(_line("patterns", list(policy.allowed)))

    for stage in policy.stages:
        lines += ["", "[[stage]]"]
        lines += _rendered(stage, first=stage is policy.stages[0])

    if policy.origin is not None:
        lines.append("")
        lines += _rendered_origin(policy.origin)

    return "\n".join(lines) + "\n"


def _rendered_origin(origin: Origin) -> Iterator[str]:
    yield "# What the stages were chosen on: no number there counts as one on other commands."
    yield "[origin]"
    yield _line("run", origin.run)
    yield _line("decided", origin.decided)
    yield _line("seal", origin.seal)
    yield "marks = ["
    for mark in sorted(origin.marks):
        yield f'    "{mark}",'
    yield "]"
    for metric, estimate in origin.estimates.items():
        numbers = [f"{field} = {value!r}" for field, value in estimate.items()]
        yield f"estimates.{metric} = {{ {', '.join(numbers)} }}"


def _rendered(stage: Stage, *, first: bool) -> Iterator[str]:
    number = len(stage.guards)
    if number == 1:
        yield _line("guard", stage.guards[0])
    else:
        if stage.at_least == number:
            yield _line("combine", "all")
        elif stage.at_least == 1:
            yield _line("combine", "any")
        else:
            yield f"combine = {{ at_least = {stage.at_least} }}"
        yield _line("guards", list(stage.guards))

    if isinstance(stage.when, tuple):
        yield f"when = {list(stage.when)}"
    elif not first:
        yield _line("when", stage.when)

    if stage.thresholds and number > 1:
        yield f"threshold = {list(stage.thresholds)}"
    elif stage.thresholds:
        yield _line("threshold", stage.thresholds[0])

    if stage.on_error:
        yield _line("on_error", stage.on_error)
