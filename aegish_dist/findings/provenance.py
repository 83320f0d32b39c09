"""What a policy was chosen on, and which of its numbers on a run may be judged.

A policy looks too good on commands that it was chosen on, and on others of their clusters. There
it takes no part in a ranking, passes no gate, and keeps the metrics alone that are known out of
fold. The document of a snapshot has the `Overlap` of a policy as `origin` of its entry.
"""

from collections.abc import Collection
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from aegish_dist.core.metric import Estimate, Metric
from aegish_dist.opinions.policy import Policy

# Metrics that no choice of a policy makes better.
NOT_FITTED = frozenset({Metric.COVERAGE})


class OriginKind(StrEnum):
    UNKNOWN = "unknown"  # the file does not say, as one that a person wrote
    CHANGED = "changed"  # the file has changed since the search, so what it says may not hold
    FRESH = "fresh"  # chosen on commands of other clusters
    SEEN = "seen"  # chosen on some of these commands, or on others of their clusters


class Overlap(Struct, frozen=True):
    """What is known of the commands of a run and those that a policy was chosen on."""

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
