"""The answers of a batch's requests, and the lines that report them: no I/O and no clock.

Every decision is a draw that belongs to model, command and how often batches asked it before, so
that results depend neither on the order of the requests nor on other batches.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aegish_dist.core.batch import Unanswered
from aegish_dist.core.completion import Completion
from aegish_dist.core.verdict import ErrorClass
from aegish_dist.core.wire import WireFormat
from aegish_dist.simulator.batch_plan import BatchPlan, RequestFault
from aegish_dist.simulator.batches.batch import NamedRequest, RequestOutcome, ResultLine
from aegish_dist.simulator.behaviour import SimulatedModel
from aegish_dist.simulator.chance import draw
from aegish_dist.simulator.dialect import ChatRequest, ErrorAnswer, command_in, dialect_of
from aegish_dist.simulator.faults import Fault, pick

_WITHHELD = {
    RequestFault.EMPTY: Fault.EMPTY,
    RequestFault.CONTENT_FILTER: Fault.CONTENT_FILTER,
    RequestFault.TOKEN_LIMIT: Fault.TOKEN_LIMIT,
}
_ERRORS = {
    RequestFault.REFUSED: ErrorClass.BAD_REQUEST,
    RequestFault.SERVER_ERROR: ErrorClass.SERVER,
}


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    """A request of a batch with the outcome that it has if the batch lasts long enough."""

    name: str
    model: str
    """Model that it asks; empty when it is not valid."""
    moment: float
    """Part of the batch's time after which it is answered, in (0, 1)."""
    outcome: Completion | ErrorAnswer
    fault: RequestFault | None = None
    """Its fault; None for none."""
    chance: float = 0.0
    """Decides between the variants of its fault, in (0, 1)."""


class BatchAnswers:
    """Asks the simulated models what batches ask them."""

    def __init__(self, seed: int, plan: BatchPlan, model: Callable[[str], SimulatedModel]) -> None:
        self._seed = seed
        self._faults = plan.requests
        self._model = model
        self._asked: Counter[tuple[str, str]] = Counter()

    def ask(self, request: NamedRequest, wire: WireFormat) -> BatchAnswer:
        """Answer one request."""
        chat = request.chat
        if isinstance(chat, ErrorAnswer):
            moment = draw(self._seed, "batch", request.name).latency
            return BatchAnswer(request.name, "", moment, chat)
        command = command_in(chat.user)
        times = str(self._count(chat, command))
        draws = draw(self._seed, "batch", chat.model, command, times)
        fault = pick(self._faults, draws.luck)
        outcome = self._outcome(chat, command, fault, wire)
        return BatchAnswer(request.name, chat.model, draws.latency, outcome, fault, draws.form)

    def _count(self, chat: ChatRequest, command: str) -> int:
        """Return how often batches asked this before, and count it."""
        asked = (chat.model, command)
        self._asked[asked] += 1
        return self._asked[asked] - 1

    def _outcome(
        self, chat: ChatRequest, command: str, fault: RequestFault | None, wire: WireFormat
    ) -> Completion | ErrorAnswer:
        if fault in _ERRORS:
            return _error(_ERRORS[fault], chat.model, wire)
        if fault is RequestFault.MISSING:
            return _error(ErrorClass.SERVER, chat.model, wire)
        withheld = None if fault is None else _WITHHELD.get(fault)
        outcome = self._model(chat.model).answer(chat, command, withheld).outcome
        return _error(ErrorClass.SERVER, chat.model, wire) if outcome is None else outcome


def _error(error_class: ErrorClass, model: str, wire: WireFormat) -> ErrorAnswer:
    words = dialect_of(wire).ERRORS[error_class].message
    return ErrorAnswer(error_class, words.format(model=model))


def outcomes_at(
    answers: Sequence[BatchAnswer], progress: float, unanswered: Unanswered
) -> list[RequestOutcome]:
    """Return the outcomes of a batch that ended after a part of its time.

    Args:
        progress: The part, in [0, 1].
    """
    return [each.outcome if each.moment <= progress else unanswered for each in answers]


def result_lines(
    answers: Sequence[BatchAnswer], outcomes: Sequence[RequestOutcome]
) -> list[ResultLine]:
    """Return the lines that report the outcomes, with the faults of the requests.

    Args:
        outcomes: Their outcomes, in the same order.
    """
    lines: list[ResultLine] = []
    second: list[ResultLine] = []
    for answer, outcome in zip(answers, outcomes, strict=True):
        begun = not isinstance(outcome, Unanswered)
        fault = answer.fault if begun else None
        if fault is not RequestFault.MISSING:
            lines.append(ResultLine(answer.name, outcome, fault is RequestFault.MALFORMED))
        if fault is RequestFault.DUPLICATE:
            second.append(ResultLine(answer.name, outcome))
        if fault is RequestFault.FOREIGN:
            second.append(ResultLine(_foreign(answer), outcome))
    return lines + second


def _foreign(answer: BatchAnswer) -> str:
    """Return a name that the batch does not have: of another token, or of another request."""
    if answer.chance < 0.5:
        return ("1" if answer.name[:1] == "0" else "0") + answer.name[1:]
    return f"{answer.name}9"
