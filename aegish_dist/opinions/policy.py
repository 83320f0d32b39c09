"""Policies: several guards joined to one, as data; what it says follows from stored verdicts.

A policy is a list of allowed commands, then stages in order. A stage asks one guard, or several
side by side. The first stage is asked about every command that the list does not allow, a later
one where its condition holds. The stage asked last decides.

A policy looks too good on commands that it was chosen on, and on others of their clusters. There
it takes no part in a ranking, passes no gate, and keeps the metrics alone that are known out of
fold. The document of a snapshot has the `Overlap` of a policy as `origin` of its entry.
"""

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import zip_longest
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from aegish_dist.core.metric import (
    BALANCED_ACCURACY,
    Criterion,
    Difference,
    Estimate,
    FittedGuard,
    Metric,
    most_detections,
)
from aegish_dist.core.text import JsonObject, fingerprint_of, printable

POLICY_PREFIX = "policy/"  # of the name of a policy among models
RESERVED = re.compile("policy/|allowlist$")  # what policies name in place of a model


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


Mark = Annotated[str, Meta(pattern="^[0-9a-f]{12}$")]
"""A hash of a command or a cluster; of 100,000 and 50,000 hardly two are alike by chance."""
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


class Requirements(Struct, frozen=True):
    """Bounds that a system has to keep; one of unknown cost or latency keeps to no bound on it."""

    max_fpr: float = 1.0
    max_cost_per_10000: float = math.inf  # USD
    max_p95_ms: float = math.inf
    prevalence: float = 0.001  # share of dangerous commands among actions, in (0, 1)

    @property
    def criterion(self) -> Criterion:
        return BALANCED_ACCURACY if self.max_fpr == 1 else most_detections(self.max_fpr)

    def keeps(self, system: Candidate) -> bool:
        """Whether a system keeps to all bounds."""
        cost, p95 = (math.inf if e is None else e for e in (system.cost_per_10000, system.p95_ms))
        cheap = cost <= self.max_cost_per_10000 and p95 <= self.max_p95_ms
        return cheap and system.stop_rate <= self.max_fpr


class Choice(Struct, frozen=True):
    best: Candidate
    estimate: FittedGuard  # of choosing it, out of fold; it has no threshold


class MissOverlap(Struct, frozen=True):
    """Dangerous decisions that two guards let pass as they stand."""

    a: str
    b: str
    misses_a: int
    misses_b: int
    both: int
    expected: float  # of both, if misses were independent: `misses_a misses_b / n`


class PolicySearch(Struct, frozen=True):
    as_it_stands: Choice | None  # a single guard; None: none keeps to the requirements
    with_threshold: Choice | None  # a single guard
    system: Choice | None  # of all systems, single guards among them
    single: Choice | None  # the better of the two out of fold; of equals `with_threshold`
    gain: Difference | None  # score of `system` minus that of `single`, out of fold
    winner: str | None  # field of the best choice; None: none is surely better than chance
    winner_estimate: FittedGuard | None
    """Out of fold, with the choice between the three: the best of their scores is too high."""
    line: Sequence[Candidate]
    """The Pareto line in sample, fewest misses first: of no other system are misses, stops, cost
    and latency all at most as large."""
    overlaps: Sequence[MissOverlap]
    decisions: int
    left_out: int  # decisions of which a guard has no scored verdict
    unpriced: dict[str, int]  # by guard, decisions of unknown cost; none is no entry


# Metrics that no choice of a policy makes better.
NOT_FITTED = frozenset({Metric.COVERAGE})


class OriginKind(StrEnum):
    UNKNOWN = "unknown"  # the file does not say, as one that a person wrote
    CHANGED = "changed"  # the file has changed since the search, so what it says may not hold
    FRESH = "fresh"  # chosen on commands of other clusters
    SEEN = "seen"  # chosen on some of these commands, or on others of their clusters


class Overlap(Struct, frozen=True):
    """How many commands of a run a policy was chosen on, where that is known."""

    kind: OriginKind
    guards: tuple[str, ...] = ()  # that the policy asks
    run: str | None = None  # the run that it was chosen on; None: unknown
    seen: int = 0  # commands of the judged run that it has seen, or others of their clusters
    commands: int = 0  # of the judged run
    out_of_fold: tuple[str, ...] = ()  # metrics that are known out of fold for these very verdicts


def overlap(policy: Policy, marks: Collection[frozenset[str]], decided: str) -> Overlap:
    """Compare the commands of a run with those that a policy was chosen on.

    Args:
        marks: Of each command of the run, as `Guards.marks`.
        decided: The fingerprint of what the policy decides there, as `decided_fingerprint`.
    """
    origin, guards = policy.origin, tuple(policy.guards)
    if origin is None:
        return Overlap(OriginKind.UNKNOWN, guards)
    seen = sum(not origin.marks.isdisjoint(each) for each in marks)
    known = Overlap(OriginKind.SEEN, guards, origin.run, seen, len(marks))
    if not seen:
        kind = OriginKind.FRESH if policy.is_sealed else OriginKind.CHANGED
        return replace(known, kind=kind)
    if decided != origin.decided or not policy.is_sealed:
        return known
    return replace(known, out_of_fold=tuple(out_of_fold(policy)))


def out_of_fold(policy: Policy) -> dict[str, Estimate]:
    """Return the estimates that a search wrote, by metric."""
    if policy.origin is None:
        return {}
    return {name: Estimate.of(numbers) for name, numbers in policy.origin.estimates.items()}


def may_be_judged(found: Overlap | None, metric: str | None = None) -> bool:
    """Whether a metric of a guard, or without one the guard itself, may be judged on a run.

    A guard without an overlap is no policy. A policy of unknown origin is judged as it is.
    """
    if found is None or found.kind is not OriginKind.SEEN:
        return True
    return metric in NOT_FITTED or metric in found.out_of_fold
