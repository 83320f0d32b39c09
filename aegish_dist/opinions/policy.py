"""Policies: several guards joined to one, as data; what it says follows from stored verdicts.

A policy is a list of allowed commands, then stages in order. A stage asks one guard, or several
side by side. The first stage is asked about every command that the list does not allow, a later
one where its condition holds. The stage asked last decides.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise, zip_longest
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from aegish_dist.core.outcome import OutcomeDetail
from aegish_dist.core.text import JsonObject, did_you_mean, fingerprint_of, printable
from aegish_dist.errors import OpinionError
from aegish_dist.opinions.scoring import ScoringRule
from aegish_dist.opinions.suspicion import Guard, Guards, Mark

POLICY_PREFIX = "policy/"  # of the name of a policy among models
RESERVED = re.compile("policy/|allowlist$")  # what policies name in place of a model
_ACTIONS = (OutcomeDetail.ALLOW, OutcomeDetail.WARN, OutcomeDetail.BLOCK)
_SEVERITY = {action: severity for severity, action in enumerate(_ACTIONS)}
_ALLOW, _WARN, _BLOCK = _SEVERITY.values()


class When(StrEnum):
    """When a later stage is asked."""

    ALWAYS = "always"
    WARN = "warn"  # the stage asked last decided WARN
    ERROR = "error"  # a guard of the stage asked last gave a scored answer without an action
    DISAGREEMENT = "disagreement"  # the stages asked so far did not all decide the same


class OnError(StrEnum):
    """How a scored answer without an action counts."""

    STOP = "stop"
    ALLOW = "allow"
    NEXT = "next"  # nothing: the next stage is asked, whatever its condition


Condition = When | tuple[float, float]
"""When a stage is asked: by its word, or by a closed range of the suspicion so far."""
Column = Sequence[float | None]  # by decision; None where it is unknown


class Stage(Struct, frozen=True):
    guards: tuple[str, ...]  # at least one, no two equal; all of them are asked
    thresholds: tuple[float, ...] = ()
    """By guard, the suspicion from which on it stops; it allows below. Empty: actions decide."""
    at_least: int = 1  # how many guards have to stop: 1 is "any", their number is "all"
    when: Condition = When.ALWAYS
    on_error: OnError | None = None
    """None: the answer's suspicion decides where there are thresholds; elsewhere it stops."""

    @property
    def parts(self) -> list[tuple[str, float | None]]:
        """Each guard with its threshold."""
        return list(zip_longest(self.guards, self.thresholds))


_Fingerprint = Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]


class Origin(Struct, frozen=True, forbid_unknown_fields=True):
    """What a search chose a policy on; there its numbers are too good."""

    run: str
    decided: _Fingerprint  # `decided_fingerprint` there
    marks: frozenset[Mark]  # of commands and clusters, as `Guards.marks`
    estimates: Mapping[str, Mapping[str, int | float]] = {}
    """Out of fold, by metric and field of an estimate; what is undefined is left out."""
    seal: _Fingerprint = ""  # of all that and of the stages, made by `sealed`


class Policy(Struct, frozen=True):
    """One guard made of several."""

    name: str
    version: int
    stages: tuple[Stage, ...]  # at least one
    allowed: tuple[str, ...] = ()  # patterns of commands that no guard is asked about
    origin: Origin | None = None  # None: a person wrote it

    @property
    def guards(self) -> list[str]:
        """The guards that may be asked, each once."""
        return list(dict.fromkeys(name for stage in self.stages for name in stage.guards))

    @property
    def content(self) -> JsonObject:
        """Everything that changes a number, in JSON types."""
        return {
            "allowed": sorted(set(self.allowed)),
            "stages": [[dict(s.parts), s.at_least, s.when, s.on_error] for s in self.stages],
        }

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that change with anything that changes a number."""
        return fingerprint_of(self.content)

    @property
    def is_sealed(self) -> bool:
        """Whether nothing has changed since the search chose the stages."""
        return self.origin is not None and self.origin.seal == self._seal(self.origin)

    def sealed(self, origin: Origin) -> "Policy":
        return replace(self, origin=replace(origin, seal=self._seal(origin)))

    def _seal(self, origin: Origin) -> str:
        chosen_on = {**asdict(origin), "marks": sorted(origin.marks), "seal": ""}
        return fingerprint_of([self.content, chosen_on])


class Candidate(Struct, frozen=True):
    """A system and its rates on the decisions that it is chosen on."""

    policy: Policy
    miss_rate: float  # of dangerous decisions
    stop_rate: float  # of harmless decisions
    cost_per_10000: float | None  # USD per 10,000 actions at the prevalence
    p95_ms: float | None  # of the latency at the prevalence

    @property
    def cost_per_1000(self) -> float | None:
        if self.cost_per_10000 is None:
            return None
        return self.cost_per_10000 / 10


_PLAIN = r"A-Za-z0-9_@%+=:,./~\-"
_PLAIN_COMMAND = re.compile(rf"[{_PLAIN} \t]+")
_PATTERN = re.compile(rf"[{_PLAIN}]+(?: [{_PLAIN}*?]+)*")


def pattern_problem(pattern: str) -> str | None:
    """Return why a pattern of allowed commands cannot be used; None where it can.

    A pattern is a program and words, matched one by one with those of a command: `*` stands for any
    characters of a word, `?` for one, and `**` as the last word for any number of words.

    An allowed command holds nothing but ASCII letters and digits, blanks, tabs and `_@%+=:,./~-`:
    no second command, redirection, substitution, variable, quote or wildcard. An assignment in
    front is another program. Options are words like others: `sort **` allows `sort -o FILE`.
    """
    if not _PATTERN.fullmatch(pattern):
        characters = "ASCII letters, digits and _@%+=:,./~-"
        return f"must be a program and words of {characters}, with * and ? after the program alone"
    misplaced = "**" in pattern.removesuffix(" **")
    if misplaced:
        return "may have ** as its last word only"
    return None


class Allowlist:
    """The patterns of allowed commands, compared with a command all at once.

    Each place in a pattern has a bit, which is set while the command's characters so far lead to
    it; the next character moves all bits together (Baeza-Yates and Gonnet 1992, "A new approach to
    text searching"). So the time is linear in the command's length for any wildcards. RE2 takes a
    minute for 10,000 characters and 1,000 patterns full of wildcards.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        text = "".join(pattern.replace(" **", "\t**") + "\n" for pattern in patterns)
        # For each place its character, and the number of stars before it.
        characters = ""
        stars = ""
        for before, character in re.findall(r"(\**)([^*])", text):
            characters += character
            stars += str(len(before))
        self._starts = _bits("\n" + characters[:-1], "\n")
        self._ends = _bits(characters, "\n\t")
        # By character of a command: which bits it moves on, and which it leaves where they are.
        self._moves: dict[str, tuple[int, int]] = {}
        in_word = _bits(stars, "12")
        for character in {*characters, "?"}:
            self._moves[character] = (_bits(characters, character + "?"), in_word)
        self._moves[" "] = (_bits(characters, " \t"), _bits(stars, "2"))

    def allows(self, command: str) -> bool:
        if not _PLAIN_COMMAND.fullmatch(command):
            return False
        reached = self._starts
        for character in " ".join(command.split()):
            moving, staying = self._moves.get(character, self._moves["?"])
            # A place with a star before it may also stay where it is.
            moved = (reached & moving) << 1
            reached = moved | reached & staying
            if not reached:
                return False
        return reached & self._ends != 0


def _bits(text: str, characters: str) -> int:
    """Return a number whose bit I is set where the Ith character of a text is one of these."""
    digits = {}
    for character in set(text):
        digits[ord(character)] = "1" if character in characters else "0"
    # A number is written with its lowest bit at the end.
    first_bit_last = text.translate(digits)[::-1]
    return int("0" + first_bit_last, 2)


class _Answer(NamedTuple):
    severity: int | None  # None: an error that decides nothing, or unscored
    suspicion: float | None
    error: bool = False
    cost_usd: float | None = None
    latency_ms: float | None = None


_UNSCORED = _Answer(None, None)
_ERRORS = {OnError.STOP: _BLOCK, OnError.ALLOW: _ALLOW, OnError.NEXT: None, None: _BLOCK}


def apply_policy(policy: Policy, guards: Guards) -> Guard:
    """Return what the joined guard says, from what its guards said.

    A stage of several guards takes the `at_least`-th severest of their actions, and the
    `at_least`-th largest of their suspicions. Cost is the sum over the guards asked, latency the
    sum over stages of the slowest guard; both are None where a part is unknown. A decision is
    unscored where a guard that had to be asked has no scored verdict, even if others settle it.

    The suspicion is that of the stage asked last; for an allowed command the lowest of the guards.
    A ROC curve has to pass through the policy's own decisions. Where suspicions do not order them
    as outcomes do (scales or thresholds differ, errors stop), each is the severity of its outcome:
    0 for ALLOW, 1 for WARN, 2 for BLOCK. The AUROC is then that of the decisions alone.

    Raises:
        OpinionError: A guard of the policy is not among those given.
    """
    known = {guard.name: guard for guard in guards.guards}
    for name in policy.guards:
        if name not in known:
            hint = did_you_mean(name, known, f"known are {', '.join(map(printable, known))}")
            policy_asks = f"policy '{printable(policy.name)}' asks {printable(name)}"
            raise OpinionError(f"{policy_asks}, of which there are no verdicts; {hint}")
    asked = [known[name] for name in policy.guards]
    passed = _passed(policy, guards)
    passing = _Answer(_ALLOW, _lowest(asked), cost_usd=0.0, latency_ms=0.0)
    answers = []
    for row, decision in enumerate(guards.decisions):
        answer = passing
        if decision.sample not in passed:
            answer = _decide(policy.stages, known, row)
        answers.append(answer)
    severities = [answer.severity for answer in answers]
    return Guard(
        name=POLICY_PREFIX + policy.name,
        findings=[None if severity is None else _ACTIONS[severity] for severity in severities],
        suspicion=_ordered(severities, [answer.suspicion for answer in answers]),
        cost_usd=[answer.cost_usd for answer in answers],
        latency_ms=[answer.latency_ms for answer in answers],
        simulated=any(guard.simulated for guard in asked),
    )


def _passed(policy: Policy, guards: Guards) -> set[int]:
    """Return the samples whose commands the policy allows unasked."""
    if not policy.allowed:
        return set()
    allowlist = Allowlist(policy.allowed)
    samples = {decision.sample for decision in guards.decisions}
    return {sample for sample in samples if allowlist.allows(guards.commands[sample])}


def _lowest(guards: Sequence[Guard]) -> float:
    """Return the lowest suspicion of any verdict; 0 without one."""
    suspicions: list[float] = []
    for guard in guards:
        suspicions += [suspicion for suspicion in guard.suspicion if suspicion is not None]
    return min(suspicions, default=0.0)


def decided_fingerprint(decided: Guard, guards: Guards, rule: ScoringRule) -> str:
    """Return a hash of what a policy decides about which commands, and by which rule it counts."""
    marks = [sorted(mark) for mark in guards.marks]
    labels = [(decision.sample, decision.dangerous) for decision in guards.decisions]
    return fingerprint_of([rule.content, marks, labels, list(decided.findings)])


def _decide(stages: Sequence[Stage], known: Mapping[str, Guard], row: int) -> _Answer:
    asked: list[_Answer] = []
    for stage in stages:
        if not asked or _is_asked(stage.when, asked):
            answer = _ask(stage, known, row)
            if answer.suspicion is None:
                return _UNSCORED
            asked.append(answer)
    costs = [answer.cost_usd for answer in asked]
    times = [answer.latency_ms for answer in asked]
    return asked[-1]._replace(cost_usd=_total(costs), latency_ms=_total(times))


def _ask(stage: Stage, known: Mapping[str, Guard], row: int) -> _Answer:
    """Return what a stage says; unscored where one of its guards is."""
    answers = []
    for name, threshold in stage.parts:
        answers.append(_answer(known[name], threshold, stage.on_error, row))
    severities, suspicions, errors, costs, times = zip(*answers, strict=True)
    if None in suspicions:
        return _UNSCORED
    place = -stage.at_least
    return _Answer(
        severity=None if None in severities else sorted(severities)[place],
        suspicion=sorted(suspicions)[place],
        error=any(errors),
        cost_usd=_total(costs),
        latency_ms=None if None in times else max(times),
    )


def _answer(guard: Guard, threshold: float | None, on_error: OnError | None, row: int) -> _Answer:
    finding = guard.findings[row]
    suspicion = guard.suspicion[row]
    if finding is None or suspicion is None:
        return _UNSCORED
    error = finding not in _SEVERITY
    if error and (on_error or threshold is None):
        severity = _ERRORS[on_error]
    elif threshold is None:
        severity = _SEVERITY[finding]
    elif suspicion >= threshold:
        severity = _BLOCK
    else:
        severity = _ALLOW
    return _Answer(
        severity=severity,
        suspicion=suspicion,
        error=error,
        cost_usd=guard.cost_usd[row],
        latency_ms=guard.latency_ms[row],
    )


def _is_asked(when: Condition, asked: Sequence[_Answer]) -> bool:
    last = asked[-1]
    if last.severity is None or last.suspicion is None:
        return True
    if isinstance(when, tuple):
        low, high = when
        return low <= last.suspicion <= high
    match when:
        case When.ALWAYS:
            return True
        case When.WARN:
            return last.severity == _WARN
        case When.ERROR:
            return last.error
        case When.DISAGREEMENT:
            return len({answer.severity for answer in asked} - {None}) > 1


def _ordered(severities: Sequence[int | None], suspicions: Column) -> Column:
    """Return the suspicions where they order the decisions, and else the severities."""
    kinds = set()
    for suspicion, severity in zip(suspicions, severities, strict=True):
        if suspicion is not None and severity is not None:
            kinds.add((suspicion, severity))
    for (suspicion, severity), (larger, severer) in pairwise(sorted(kinds)):
        # They order nothing: one suspicion has two outcomes, or a larger one a milder outcome.
        if suspicion == larger or severity > severer:
            return [None if severity is None else float(severity) for severity in severities]
    return suspicions


def _total(parts: Column) -> float | None:
    known = [part for part in parts if part is not None]
    if len(known) == len(parts):
        return math.fsum(known)
    return None


def explain(policy: Policy) -> list[str]:
    """Return in plain sentences what a policy does; foreign names are safe to print."""
    name = printable(policy.name)
    lines = [f"Policy '{name}', version {policy.version}, content {policy.fingerprint}."]
    condition = "about every command"
    if policy.allowed:
        patterns = printable(", ".join(f"'{pattern}'" for pattern in policy.allowed))
        lines.append(f"A command that matches one of these passes unasked: {patterns}.")
        condition = "about every other command"
    for number, stage in enumerate(policy.stages):
        if number:
            condition = _condition(stage.when)
        lines.append(" ".join(_asking(stage, condition)))
    if len(policy.stages) > 1:
        lines.append("The stage asked last decides. Cost and latency add up over the stages asked.")
    lines.append("A command is unscored if a guard that has to be asked has no scored verdict.")
    return lines


def _asking(stage: Stage, condition: str) -> Iterator[str]:
    *names, last = map(printable, stage.guards)
    several = bool(names)
    if several:
        yield f"{', '.join(names)} and {last} are asked {condition}."
    else:
        yield f"{last} is asked {condition}."
    for name, threshold in zip([*names, last], stage.thresholds, strict=False):
        yield f"{name} stops from a suspicion of {threshold!r} on and allows below it."
    if not stage.thresholds:
        counts = "Their actions count" if several else "Its action counts"
        yield f"{counts}: ALLOW, WARN or BLOCK."
    if several:
        needed = {1: "One", len(stage.guards): "All"}
        yield f"{needed.get(stage.at_least, f'At least {stage.at_least}')} of them must stop."
    words = {
        None: "counts by its suspicion" if stage.thresholds else "stops",
        OnError.STOP: "stops",
        OnError.ALLOW: "allows",
        OnError.NEXT: "decides nothing, and the next stage is asked",
    }
    yield f"An answer without an action {words[stage.on_error]}."


def _condition(when: Condition) -> str:
    if isinstance(when, tuple):
        return f"where the suspicion so far is from {when[0]!r} to {when[1]!r}"
    return {
        When.ALWAYS: "in every case",
        When.WARN: "where the decision so far is WARN",
        When.ERROR: "where the stage before gave an answer without an action",
        When.DISAGREEMENT: "where the stages before disagree",
    }[when]
