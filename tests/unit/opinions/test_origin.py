"""What a policy was chosen on, against the commands of a run; expected values by hand."""

import pytest

from aegish_dist.opinions.guards import Guards
from aegish_dist.opinions.policy import (
    Origin,
    OriginKind,
    Overlap,
    Policy,
    Stage,
    may_be_judged,
    overlap,
)
from tests.guards import Asked, samples_of

DECIDED = "0123456789abcdef"
ESTIMATES: dict[str, dict[str, int | float]] = {"aegish_score": {"value": 0.8, "n": 3}}


def marks(*samples: tuple[str, str | None]) -> list[frozenset[str]]:
    """Return the marks of samples that have these commands and clusters."""
    asked = [Asked(malicious=True, cluster=cluster) for _, cluster in samples]
    return Guards(samples_of(asked, [command for command, _ in samples]), 2, []).marks


def chosen_on(*samples: tuple[str, str | None]) -> Policy:
    origin = Origin("r1", DECIDED, frozenset().union(*marks(*samples)), ESTIMATES)
    return Policy("p", 1, (Stage(("a",)),)).sealed(origin)


@pytest.mark.parametrize(
    ("asked", "seen"),
    [
        ([("ls", None), ("pwd", None)], 0),
        ([("ls", None), ("id", None)], 1),
        ([("tar x", None), ("tar y", None)], 1),  # the command is the same, its cluster is gone
        ([("tar z", "tar"), ("find", "find")], 1),  # another command of the cluster
        ([("id", "tar"), ("tar x", "other")], 2),
        ([("tar", "id"), ("find", None)], 0),  # a cluster is no command of the same name
        ([("id ", None), ("ID", None)], 0),
    ],
)
def test_commands_are_seen_by_themselves_or_by_their_cluster(
    asked: list[tuple[str, str | None]], seen: int
) -> None:
    found = overlap(chosen_on(("id", None), ("tar x", "tar")), marks(*asked), "0" * 16)
    kind = OriginKind.SEEN if seen else OriginKind.FRESH
    assert (found.kind, found.seen, found.commands) == (kind, seen, 2)
    assert (found.run, found.guards, found.out_of_fold) == ("r1", ("a",), ())


def test_what_is_known_out_of_fold_holds_for_the_very_decisions_and_stages() -> None:
    policy, asked = chosen_on(("id", None)), marks(("id", None))
    assert overlap(policy, asked, DECIDED).out_of_fold == ("aegish_score",)
    assert overlap(policy, asked, "f" * 16).out_of_fold == ()
    other = Policy("p", 1, (Stage(("a",), (0.5,)),), origin=policy.origin)
    assert overlap(other, asked, DECIDED).out_of_fold == ()
    assert overlap(other, asked, DECIDED).kind is OriginKind.SEEN
    assert overlap(other, marks(("ls", None)), DECIDED).kind is OriginKind.CHANGED
    by_hand = Policy("p", 1, (Stage(("a",)),))
    assert overlap(by_hand, asked, DECIDED) == Overlap(OriginKind.UNKNOWN, ("a",))


def test_only_what_was_not_fitted_here_may_be_judged() -> None:
    seen = overlap(chosen_on(("id", None)), marks(("id", None)), DECIDED)
    judged = {name: may_be_judged(seen, name) for name in ("aegish_score", "coverage", "accuracy")}
    assert judged == {"aegish_score": True, "coverage": True, "accuracy": False}
    assert not may_be_judged(seen)
    for kind in (OriginKind.UNKNOWN, OriginKind.CHANGED, OriginKind.FRESH):
        assert may_be_judged(Overlap(kind), "accuracy")
        assert may_be_judged(Overlap(kind))
    assert may_be_judged(None, "accuracy")
