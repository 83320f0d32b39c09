"""The one rule for failed calls: whose trouble a failure is, and what becomes of the item.

A failure is the row's own (stored as its outcome), the model's, or trouble of key, account, host or
parameters. Trouble is never a verdict: the item goes back to its queue, the model is parked after
some failures in a row in the fleet, and probes find out when the trouble ends.
`docs/explanation/failures.md` has the rule as a table. Pure: the caller calls, waits and asks for
the evidence.
"""

from enum import IntEnum, StrEnum

from msgspec import Struct

from aegish_dist.core.outcome import ErrorClass, Outcome

BASE_S = 1.0  # longest wait after the first failed attempt; doubles with each one
CAP_S = 60.0  # longest wait that the provider did not ask for
# If the provider asks for a longer wait, the model is parked, so that no item is held so long.
LONGEST_RETRY_AFTER_S = 300.0
# Failed probes of a parked model after which a further failed probe may settle its item. This
# bounds the number of calls.
LAST_PROBES = 5


class Proof(IntEnum):
    """The weakest proof that a failure is the row's own, from the hardest to the easiest."""

    NEVER = 0  # the failure is never the row's own
    ANSWER_MEANWHILE = 1  # a later call was answered in this process: the model works
    ANSWER_IN_RUN = 2  # or else: the model has answered in this run and is not parked
    CIRCUIT_CLOSED = 3  # or else: the circuit of the model is closed


class Kind(Struct, frozen=True):
    proof: Proof
    outcome: Outcome = Outcome.API_ERROR
    attempts: int = 1  # calls for an item, the first included, before `proof` is looked for
    alive: bool = False  # the model itself refused the call; other failures count for the breaker
    pauses: bool = False  # whether a Retry-After holds for the model, not only for this call
    charged: bool = False  # whether the provider may have worked on the call: expected usage counts
    ends_probing: bool = False  # whether a probe may settle its item after `LAST_PROBES`


KINDS = {
    ErrorClass.AUTH: Kind(Proof.NEVER),
    ErrorClass.QUOTA: Kind(Proof.NEVER),
    ErrorClass.NOT_FOUND: Kind(Proof.NEVER),
    ErrorClass.RATE_LIMIT: Kind(Proof.ANSWER_MEANWHILE, attempts=10, alive=True, pauses=True),
    ErrorClass.OVERLOADED: Kind(Proof.ANSWER_MEANWHILE, attempts=6, pauses=True),
    # Most broken connections break while an answer is awaited.
    ErrorClass.CONNECTION: Kind(Proof.ANSWER_MEANWHILE, attempts=6, charged=True),
    ErrorClass.SERVER: Kind(Proof.ANSWER_IN_RUN, attempts=6),
    ErrorClass.MALFORMED: Kind(Proof.ANSWER_IN_RUN, attempts=6, charged=True, ends_probing=True),
    ErrorClass.BAD_REQUEST: Kind(Proof.ANSWER_IN_RUN, ends_probing=True),
    # Not tried again: the call may have been paid for, and some commands make a model think.
    ErrorClass.DEADLINE: Kind(
        Proof.CIRCUIT_CLOSED, Outcome.TIMEOUT_ERROR, charged=True, ends_probing=True
    ),
}
# Either the provider refuses the key, or a firewall takes a command for an attack; in the second
# case other calls with the same key are answered.
FORBIDDEN = Kind(Proof.ANSWER_MEANWHILE)


class Failure(Struct, frozen=True):
    error_class: ErrorClass
    attempt: int
    retry_after_s: float | None = None
    probe: bool = False
    status: int | None = None
    cut: bool = False  # the connection broke after a long wait for an answer that may be paid for
    empty: bool = False  # the call was answered, without a text and without a reason for that

    @property
    def kind(self) -> Kind:
        forbidden = self.error_class is ErrorClass.AUTH and self.status == 403
        return FORBIDDEN if forbidden else KINDS[self.error_class]


class Evidence(Struct, frozen=True):
    circuit_open: bool = False  # whether its circuit is open: it is not called, except by probes
    failed_probes: int = 0
    answered: bool | None = None  # a call begun later was answered; None: it is still under way
    answered_in_run: bool | None = None  # as the store says; None: not looked up yet
    congested: bool = False  # whether calls queued at the provider while this one was under way


class RetryAfter(Struct, frozen=True):
    seconds: float


class GiveUp(Struct, frozen=True):
    """Try no more: the failure is the row's own."""

    outcome: Outcome


class Step(StrEnum):
    GIVE_BACK = "give back"  # return the item to its queue without a verdict
    AWAIT_ANSWER = "await answer"  # find out whether a later call is answered, then decide again
    ASK_STORE = "ask store"  # find out whether it has answered in this run, then decide again


def decide(failure: Failure, evidence: Evidence, jitter: float) -> RetryAfter | GiveUp | Step:
    """Decide what follows a failed attempt: a wait, the outcome to store, or another step.

    A wait begins at the longer of half the backoff and the provider's Retry-After; `jitter`, in
    [0, 1), adds up to half the backoff, so that a fleet does not retry in step.
    """
    kind = failure.kind
    asked_s = failure.retry_after_s or 0.0
    if evidence.circuit_open:
        return _of_open_circuit(kind, failure, evidence)
    if kind.proof is Proof.NEVER or asked_s > LONGEST_RETRY_AFTER_S:
        return Step.GIVE_BACK
    if failure.attempt < kind.attempts:
        half_s = min(CAP_S, BASE_S * 2 ** (failure.attempt - 1)) / 2
        return RetryAfter(max(half_s, asked_s) + half_s * jitter)
    return _of_exhausted(kind, evidence)


def _of_exhausted(kind: Kind, evidence: Evidence) -> GiveUp | Step:
    if evidence.congested and kind.proof is Proof.CIRCUIT_CLOSED:
        return Step.GIVE_BACK  # the deadline was missed in the queue
    if evidence.answered is None and kind.attempts == 1:
        return Step.AWAIT_ANSWER  # others have had their chance while this item was tried again
    if evidence.answered or kind.proof is Proof.CIRCUIT_CLOSED:
        return GiveUp(kind.outcome)
    if kind.proof is Proof.ANSWER_IN_RUN:
        return _if_answered_in_run(kind, evidence)
    return Step.GIVE_BACK


def _of_open_circuit(kind: Kind, failure: Failure, evidence: Evidence) -> GiveUp | Step:
    last_probe = failure.probe and evidence.failed_probes >= LAST_PROBES
    if not last_probe or not (kind.ends_probing or failure.cut):
        return Step.GIVE_BACK
    if kind.charged:
        return GiveUp(kind.outcome)
    return _if_answered_in_run(kind, evidence)


def _if_answered_in_run(kind: Kind, evidence: Evidence) -> GiveUp | Step:
    if evidence.answered_in_run is None:
        return Step.ASK_STORE
    return GiveUp(kind.outcome) if evidence.answered_in_run else Step.GIVE_BACK


def counts_for_pause(error_class: ErrorClass, retry_after_s: float | None) -> bool:
    """Return whether the wait that the provider asked for holds for all calls to the model."""
    return KINDS[error_class].pauses or (retry_after_s or 0.0) > LONGEST_RETRY_AFTER_S
