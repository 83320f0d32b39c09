"""Rankings: order by score, tie groups by paired tests."""

from aegish_dist.core.comparison import adjusted, compare
from aegish_dist.core.estimates import Estimate
from aegish_dist.core.ranking import Place, rank
from aegish_dist.core.sample import Target
from aegish_dist.core.scoring import DEFAULT_RULE
from tests.unit.core.paired_values import table


def _scores(**values: float | None) -> dict[str, Estimate]:
    return {model: Estimate(value=value) for model, value in values.items()}


def _p(**pairs: float | None) -> dict[frozenset[str], float | None]:
    """P values by pair of models with names of one letter."""
    return {frozenset(pair): p for pair, p in pairs.items()}


def test_a_group_holds_what_does_not_differ_from_its_leader() -> None:
    """C differs from A and leads the next group, though not from B; D is compared with C."""
    scores = _scores(c=0.92, b=0.93, a=0.95, d=0.90)
    p = _p(ab=0.3, ac=0.049, ad=0.2, bc=0.8, bd=0.01, cd=0.05)
    assert rank(scores, p) == [
        Place(1, 1, "a", 0.95),
        Place(2, 1, "b", 0.93),
        Place(3, 2, "c", 0.92),
        Place(4, 2, "d", 0.90),
    ]


def test_a_pair_without_p_is_alike() -> None:
    """Neither where it is None nor where it is absent."""
    places = rank(_scores(a=0.9, b=0.5, c=0.1), _p(ab=None))
    assert [place.tie_group for place in places] == [1, 1, 1]


def test_equal_scores_go_by_id() -> None:
    """The order of equals is stable."""
    assert [place.model for place in rank(_scores(b=0.5, a=0.5), {})] == ["a", "b"]


def test_undefined_scores_come_last_and_unranked() -> None:
    """A model without a score is below a score of 0."""
    places = rank(_scores(a=None, z=0.0), {})
    assert places == [Place(1, 1, "z", 0.0), Place(None, None, "a", None)]


def test_four_samples_of_a_hundred_part_no_two_models() -> None:
    """All right against four wrong: the stderr of the first is 0, the exact McNemar p is 0.125."""
    harmless = table(100, 0, 0, 0, Target.HARMLESS)
    [found] = adjusted([compare(table(96, 4, 0, 0) + harmless, DEFAULT_RULE)])
    score = found.metrics["aegish_score"]
    scores = {"a": Estimate(value=score.a, stderr=0.0), "b": Estimate(value=score.b, stderr=0.01)}
    places = rank(scores, {frozenset("ab"): score.p_adjusted})
    assert [place.tie_group for place in places] == [1, 1]
