"""Outcomes: the result of one item, as coarse as it is stored and as fine as a rule may need.

From the stored `Outcome`, stop reason and error class follows `OutcomeDetail`, which a scoring rule
turns into a `ScoredAnswer`.
"""

from enum import StrEnum


class StopKind(StrEnum):
    """Four kinds that the raw stop reasons of all providers are mapped to."""

    STOP = "stop"
    MAX_TOKENS = "max_tokens"  # the output or context limit cut the answer
    # The provider withheld or cut the answer: filter, safety block or refusal.
    CONTENT_FILTER = "content_filter"
    OTHER = "other"


class ErrorClass(StrEnum):
    """Why an attempt brought no completion."""

    DEADLINE = "deadline"
    RATE_LIMIT = "rate_limit"  # 429: too many requests; passes with time
    QUOTA = "quota"  # the budget or credit is spent; does not pass with time
    AUTH = "auth"  # 401, 403, or no key
    BAD_REQUEST = "bad_request"  # 400, 413, 422 and other refusals of the request itself
    NOT_FOUND = "not_found"  # 404, or a redirect: no such model or endpoint here
    OVERLOADED = "overloaded"  # 503, 529: the provider is busy
    SERVER = "server"  # any other 5xx, and what passes like one
    CONNECTION = "connection"
    MALFORMED = "malformed"  # not what the wire format promises, or larger than the cap

    @property
    def words(self) -> str:
        """Return what people read; a deadline that was missed is a timeout, as TIMEOUT_ERROR is."""
        return "timeout" if self is ErrorClass.DEADLINE else self.value


# Statuses from 400 to 499 that HTTP defines (IANA, HTTP Status Code Registry).
_HTTP_REFUSALS = frozenset({*range(400, 419), *range(421, 427), 428, 429, 431, 451})
# Those which by RFC 9110, 4918 and 8470 do not hold for a later attempt: the server waited too
# long, was at work on something else, or got the call over a connection of another host. Providers
# send 424 where a model failed to generate, and their own clients try 409 again.
_PASSING = frozenset({408, 409, 421, 423, 424, 425})


def is_passing(status: int) -> bool:
    """Return whether a status from 400 to 499 is trouble that passes, as one from 500 is.

    A status that HTTP does not define is of a gateway before the model: 499, 460 and 444 of nginx
    and load balancers say that they gave up on the call, 498 of Groq that it has no capacity.
    """
    return status in _PASSING or (400 <= status < 500 and status not in _HTTP_REFUSALS)


class Outcome(StrEnum):
    """Result of one item, before any scoring rule judges it."""

    ALLOW = "ALLOW"
    WARN = "WARN"
    BLOCK = "BLOCK"
    TIMEOUT_ERROR = "TIMEOUT_ERROR"  # empty, null or blank completion, or no answer in time
    FORMAT_ERROR = "FORMAT_ERROR"
    API_ERROR = "API_ERROR"


# Outcomes that were read in a text. If the store has no text, it was deleted since.
READ = frozenset({Outcome.ALLOW, Outcome.WARN, Outcome.BLOCK, Outcome.FORMAT_ERROR})


class OutcomeDetail(StrEnum):
    """The finest distinction a scoring rule can make between verdicts."""

    ALLOW = "ALLOW"
    WARN = "WARN"
    BLOCK = "BLOCK"
    UNREADABLE = "UNREADABLE"
    EMPTY = "EMPTY"  # the provider answered with no text, and neither filter nor limit explains it
    EMPTY_FILTERED = "EMPTY_FILTERED"  # no text, and the stop reason is a content filter or refusal
    EMPTY_CUT = "EMPTY_CUT"  # no text, and the stop reason is a token limit
    DEADLINE = "DEADLINE"
    API_FAILURE = "API_FAILURE"


_BY_OUTCOME = {
    Outcome.ALLOW: OutcomeDetail.ALLOW,
    Outcome.WARN: OutcomeDetail.WARN,
    Outcome.BLOCK: OutcomeDetail.BLOCK,
    Outcome.FORMAT_ERROR: OutcomeDetail.UNREADABLE,
    Outcome.API_ERROR: OutcomeDetail.API_FAILURE,
}


_EMPTY_BY_STOP: dict[StopKind | None, OutcomeDetail] = {
    StopKind.CONTENT_FILTER: OutcomeDetail.EMPTY_FILTERED,
    StopKind.MAX_TOKENS: OutcomeDetail.EMPTY_CUT,
}


def find(
    outcome: Outcome, stop_kind: StopKind | None, error_class: ErrorClass | None
) -> OutcomeDetail:
    if outcome is not Outcome.TIMEOUT_ERROR:
        return _BY_OUTCOME[outcome]
    if error_class is ErrorClass.DEADLINE:
        return OutcomeDetail.DEADLINE
    return _EMPTY_BY_STOP.get(stop_kind, OutcomeDetail.EMPTY)


# Findings, sorted, with their numbers of verdicts: ((BLOCK, 2), (WARN, 1)).
OutcomeDetails = tuple[tuple[OutcomeDetail, int], ...]


class ScoredAnswer(StrEnum):
    """The name that a rule set gives to a finding."""

    ALLOW = "ALLOW"
    WARN = "WARN"
    BLOCK = "BLOCK"
    TIMEOUT_ERROR = "TIMEOUT_ERROR"
    FORMAT_ERROR = "FORMAT_ERROR"
    API_ERROR = "API_ERROR"
    CONTENT_FILTER = "CONTENT_FILTER"
    TOKEN_LIMIT = "TOKEN_LIMIT"  # noqa: S105  # nosec B105 # a stop reason, no secret
    PARSE_ERROR = "PARSE_ERROR"


# Error classes that all rule sets report; None where a rule set does not know the class.
ERROR_LABELS = (ScoredAnswer.TIMEOUT_ERROR, ScoredAnswer.FORMAT_ERROR, ScoredAnswer.API_ERROR)

# Error classes that only rule sets which know them report.
RULE_ERROR_LABELS = (
    ScoredAnswer.CONTENT_FILTER,
    ScoredAnswer.TOKEN_LIMIT,
    ScoredAnswer.PARSE_ERROR,
)
