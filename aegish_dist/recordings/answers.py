"""What recorded answers have in common, whatever file they stand in."""

from aegish_dist.core.completion import StopKind
from aegish_dist.core.verdict import ErrorClass, Outcome, Verdict

STOP_KINDS = {
    "stop": StopKind.STOP,
    "eos": StopKind.STOP,
    "end_turn": StopKind.STOP,
    "stop_sequence": StopKind.STOP,
    "length": StopKind.MAX_TOKENS,
    "max_tokens": StopKind.MAX_TOKENS,
    "model_length": StopKind.MAX_TOKENS,
    "content_filter": StopKind.CONTENT_FILTER,
    "refusal": StopKind.CONTENT_FILTER,
    "safety": StopKind.CONTENT_FILTER,
}
"""Lower-case words of Inspect AI and of the providers."""


def stop_kind_of(stop_reason: str | None) -> StopKind | None:
    """Normalise a stop reason; None for None."""
    if stop_reason is None:
        return None
    return STOP_KINDS.get(stop_reason.lower(), StopKind.OTHER)


def unanswered(error_class: ErrorClass) -> Verdict:
    """Make the verdict of an item that no attempt brought a completion for."""
    late = error_class is ErrorClass.DEADLINE
    outcome = Outcome.TIMEOUT_ERROR if late else Outcome.API_ERROR
    return Verdict(outcome, completion=None, error_class=error_class)
