"""When a run stops asking: its stop rule, and what the rule says about the answers so far."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from aegish_dist.core.increments import SampleMeans, SampleOrder
from aegish_dist.core.sequential import ALPHA, Answer, Boundary, read_difference, read_score


@dataclass(frozen=True, slots=True)
class StopRule:
    """Stop asking a model once every question about it is answered."""

    margin: float
    """A smaller difference of scores does not matter, in (0, 1)."""
    target: float
    """Score that the only model of a run is compared with."""
    scoring: str
    seed: str
    """Decides the order of the clusters."""
    alpha: float = ALPHA
    """Probability that any of the answers is wrong."""


@dataclass(frozen=True, slots=True)
class ScoreQuestion:
    """How the scores of two models differ, or how far one lies from the target."""

    a: str | None
    """The baseline; None: the target."""
    b: str
    """The model that lies above, below or within."""
    answer: Answer = Answer.OPEN
    """Whether and how it is answered; an answer stays."""
    value: float | None = None
    """The estimate; None before the first cluster."""
    low: float = -1.0
    high: float = 1.0
    """Upper bound."""
    clusters: int = 0
    samples: int = 0
    """Samples with a scored answer on each side."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The last reading of a run under its rule."""

    questions: tuple[ScoreQuestion, ...]
    """Every pair of models, or the only model."""
    clusters: int
    stopped: tuple[str, ...] = field(default=())
    final: bool = False
    """Whether nothing more was to be asked when it was read."""
    read_at: str = ""
    """When it was read, in ISO 8601; empty before it is stored."""

    @property
    def settled(self) -> bool:
        """Whether every question is answered."""
        return all(question.answer is not Answer.OPEN for question in self.questions)


def decide(
    rule: StopRule,
    order: SampleOrder,
    answers: Mapping[str, SampleMeans],
    before: Decision | None = None,
) -> Decision:
    """Read every question that is not answered yet.

    Args:
        before: The reading before; what it answers is not read again.
    """
    known = {(each.a, each.b): each for each in before.questions} if before else {}
    pairs = list(_pairs(list(answers)))
    boundary = Boundary.of(order, rule.alpha / len(pairs))
    questions = tuple(
        found
        if (found := known.get(pair)) is not None and found.answer is not Answer.OPEN
        else _read(rule, order, answers, pair, boundary)
        for pair in pairs
    )
    asked = {
        model for each in questions if each.answer is Answer.OPEN for model in (each.a, each.b)
    }
    stopped = tuple(model for model in answers if model not in asked)
    return Decision(questions, len(set(order.places)), stopped)


def _pairs(models: Sequence[str]) -> Iterator[tuple[str | None, str]]:
    if len(models) == 1:
        yield None, models[0]
    yield from combinations(models, 2)


def _read(
    rule: StopRule,
    order: SampleOrder,
    answers: Mapping[str, SampleMeans],
    pair: tuple[str | None, str],
    boundary: Boundary,
) -> ScoreQuestion:
    a, b = pair
    if a is None:
        reading = read_score(order, answers[b], boundary, rule.target, rule.margin)
    else:
        reading = read_difference(order, answers[a], answers[b], boundary, rule.margin)
    return ScoreQuestion(
        a,
        b,
        reading.answer,
        reading.value,
        reading.low,
        reading.high,
        reading.clusters,
        reading.samples,
    )
