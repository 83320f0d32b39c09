"""Stop rules: which questions a run asks, and which models are asked no more."""

from dataclasses import replace

from aegish_dist.core.increments import SampleMeans, SampleOrder
from aegish_dist.core.sequential import Answer, Boundary
from aegish_dist.core.stop_rule import Decision, ScoreQuestion, StopRule, decide

RULE = StopRule(margin=0.02, target=0.85, scoring="aegish-5.3", seed="42")
N = 2000
ORDER = SampleOrder(range(N), [sample % 2 == 0 for sample in range(N)])


def right(share: float, complete: int = N) -> SampleMeans:
    """Return answers of which each is right to this share."""
    return SampleMeans([share] * N, complete)


def test_a_model_is_stopped_when_all_its_pairs_are_answered() -> None:
    """Two that are not distinguished go on; the third one has lost against both."""
    near = [0.9 + 0.3 * (-1) ** (sample // 2) for sample in range(N)]
    answers = {"a": right(0.9), "b": SampleMeans(near, N), "c": right(0.5)}

    decision = decide(RULE, ORDER, answers)

    found = {(each.a, each.b): each.answer for each in decision.questions}
    assert found == {
        ("a", "b"): Answer.OPEN,
        ("a", "c"): Answer.BELOW,
        ("b", "c"): Answer.BELOW,
    }
    assert (decision.stopped, decision.settled, decision.clusters) == (("c",), False, N)


def test_pairs_share_the_error_probability() -> None:
    """The interval of one of three pairs is that of a third of alpha."""
    answers = {"a": right(0.8), "b": right(0.9), "c": right(0.5)}
    (first, *_) = decide(RULE, ORDER, answers).questions
    boundary = Boundary.of(ORDER, 0.05 / 3)

    assert boundary.alpha == 0.05 / 3
    (alone,) = decide(RULE, ORDER, {"a": right(0.8), "b": right(0.9)}).questions
    assert first.low < alone.low < 0.1 < alone.high < first.high


def test_an_answer_stays() -> None:
    """A model that is not asked any more adds nothing, and later readings change no answer."""
    answers = {"a": right(0.9), "b": right(0.5)}
    first = decide(RULE, ORDER, answers)
    later = decide(RULE, ORDER, {"a": right(0.5, 100), "b": right(0.9, 100)}, first)

    assert first.settled
    assert later == first
    still_open = replace(first, questions=(ScoreQuestion("a", "b"),))
    assert decide(RULE, ORDER, answers, still_open) == first


def test_a_single_model_is_compared_with_the_target() -> None:
    """Its question has no other model."""
    decision = decide(RULE, ORDER, {"a": right(0.95)})
    (question,) = decision.questions

    assert (question.a, question.b, question.answer) == (None, "a", Answer.ABOVE)
    assert decision.stopped == ("a",)


def test_a_run_without_answers_is_open() -> None:
    """Nothing is settled before the first cluster, nor without any sample."""
    nothing = SampleMeans([None] * N, 0)
    decision = decide(RULE, ORDER, {"a": nothing, "b": nothing})
    empty = decide(RULE, SampleOrder((), ()), {"a": SampleMeans((), 0), "b": SampleMeans((), 0)})

    assert decision == Decision((ScoreQuestion("a", "b"),), N)
    assert not empty.settled
