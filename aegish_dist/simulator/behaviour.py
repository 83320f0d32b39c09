"""Decisions of a simulated model about each request, simulated or replayed: no I/O and no clock."""

import heapq
import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from itertools import count
from operator import attrgetter
from statistics import fmean

from msgspec import Struct
from msgspec.structs import asdict, replace

from aegish_dist.core.outcome import ErrorClass, Outcome, StopKind
from aegish_dist.core.verdict import Completion, Usage, VerdictRecord, completion_of
from aegish_dist.simulator.config import (
    REFUSALS,
    Capacity,
    Fault,
    ModelConfig,
    RateLimit,
    SimulatorConfig,
    parse_script,
    pick,
)
from aegish_dist.simulator.dialect import (
    UNLIMITED,
    Allowance,
    Answer,
    ChatRequest,
    ErrorAnswer,
    command_in,
    usage_of,
)
from aegish_dist.simulator.personas import (
    NO_LATENCY,
    Draws,
    compose,
    draw,
    parse_latency,
    persona_for,
)

# Records by command and, in their order, by epoch.
Recorded = dict[str, dict[int, VerdictRecord]]


class Replay:
    """Recorded verdicts by model and command; of several generations the last one counts."""

    def __init__(self, recordings: Iterable[VerdictRecord]) -> None:
        self._models: dict[str, Recorded] = {}
        for recording in sorted(recordings, key=attrgetter("epoch", "generation")):
            commands = self._models.setdefault(recording.model, {})
            takes = commands.setdefault(recording.command, {})
            takes[recording.epoch] = recording

    def __bool__(self) -> bool:
        return bool(self._models)

    def of(self, model: str) -> Recorded:
        """Return what was recorded of an id, or of the longest that ends with it after a slash."""
        if model in self._models:
            return self._models[model]
        matches = [known for known in self._models if known.endswith(f"/{model}")]
        nearest = min((known.count("/") for known in matches), default=0)
        best = [known for known in matches if known.count("/") == nearest]
        if len(best) == 1:
            return self._models[best[0]]
        return {}


_DEFAULT_OUTPUT_TOKENS = 4096


class Response(Struct, frozen=True):
    """Response to one request, before it is put into a dialect's envelope."""

    outcome: Completion | ErrorAnswer | None
    fault: Fault | None = None
    delay_s: float = 0.0  # service time in seconds, without the wait for a place


class TokenBucket:
    """Counts requests against a limit, by the clock of its caller."""

    def __init__(self, limit: RateLimit, now_s: float) -> None:
        self.limit = limit
        self._per_second = limit.requests_per_minute / 60
        self._tokens = float(limit.burst)
        self._updated_s = now_s

    def take(self, now_s: float) -> float:
        """Take one request; return 0, or the seconds until one would be accepted."""
        refilled = self._tokens + (now_s - self._updated_s) * self._per_second
        self._tokens = min(float(self.limit.burst), refilled)
        self._updated_s = now_s
        # A client that waits exactly so long must not fail on the last bit of a float.
        if self._tokens >= 1 - 1e-9:
            self._tokens = max(0.0, self._tokens - 1)
            return 0.0

        return (1 - self._tokens) / self._per_second

    @property
    def allowance(self) -> Allowance:
        full_in_s = (self.limit.burst - self._tokens) / self._per_second
        return Allowance(int(self.limit.requests_per_minute), int(self._tokens), full_in_s)


MAX_PLACES = 100_000


class Places:
    """Calls at work, each in a place, and the queue behind them, by the clock of its caller.

    There are as many places as answer `per_second` calls at the mean of the unloaded latency. A
    place is held a little longer than that where it takes no whole number of them. A caller that
    leaves does not free its place: few servers see that a client is gone.
    """

    def __init__(self, capacity: Capacity, quantile: Callable[[float], float]) -> None:
        self._longest_s = capacity.longest_queue_s
        # The mean of a distribution is that of its quantile function over [0, 1].
        midpoints = [(number + 0.5) / 1000 for number in range(1000)]
        self._mean_s = fmean(map(quantile, midpoints))
        # Little's law: calls at work = rate times their mean time.
        at_work = math.ceil(capacity.per_second * self._mean_s)
        places = min(max(1, at_work), MAX_PLACES)
        # By the same law, rounded places keep the rate if each is held this long in the mean.
        self._mean_held_s = places / capacity.per_second
        self._free_at_s = [-math.inf] * places

    def is_full(self, now_s: float) -> bool:
        return self._free_at_s[0] - now_s > self._longest_s

    def take(self, service_s: float, now_s: float) -> float:
        """Take the first free place; return the seconds until the answer."""
        begin_s = max(now_s, self._free_at_s[0])
        share = service_s / self._mean_s if self._mean_s else 1.0
        heapq.heapreplace(self._free_at_s, begin_s + share * self._mean_held_s)
        return begin_s - now_s + service_s


class SimulatedModel:
    """One model of the provider: its configuration, and the requests counted so far."""

    def __init__(
        self,
        name: str,
        config: SimulatorConfig,
        replay: Replay | None,
        now_s: float,
    ) -> None:
        own = config.models.get(name, ModelConfig())
        self.faults = own.faults or config.faults
        self._name = name
        self._seed = config.seed
        self._persona = persona_for(name)
        self._script = None if own.script is None else deque(parse_script(own.script))
        # Without a chance of any fault nothing is drawn for it.
        chances = self.faults.chances
        self._chances = {fault: chance for fault, chance in chances.items() if chance}
        limit = own.rate_limit or config.rate_limit
        self._bucket = None if limit is None else TokenBucket(limit, now_s)
        self._recorded = None if replay is None else replay.of(name)
        usual = self._persona.latency if replay is None else NO_LATENCY
        self._latency = parse_latency(own.latency or config.latency or usual)
        self._places = None if own.capacity is None else Places(own.capacity, self._latency)
        # How often a command came before.
        self._attempts: defaultdict[str, count[int]] = defaultdict(count)
        self._answers: defaultdict[str, count[int]] = defaultdict(count)

    def admit(self, now_s: float) -> ErrorAnswer | None:
        """Count a request against the limit; None when it is within and the queue not too long."""
        if self._bucket is not None and (wait_s := self._bucket.take(now_s)):
            return ErrorAnswer(ErrorClass.RATE_LIMIT, retry_after_s=wait_s)
        if self._places is not None and self._places.is_full(now_s):
            return ErrorAnswer(ErrorClass.OVERLOADED)
        return None

    def latency_s(self, response: Response, now_s: float) -> float:
        """Take a place if they are limited; return the seconds until the answer is sent."""
        service_s = response.delay_s
        if self._places is None:
            return service_s
        return self._places.take(service_s, now_s)

    @property
    def allowance(self) -> Allowance:
        if self._bucket is None:
            return UNLIMITED
        return self._bucket.allowance

    def respond(self, chat: ChatRequest) -> Response:
        command = command_in(chat.user)
        fault = self._next_fault(command)
        if fault is Fault.HANG:
            return Response(None, fault)
        if fault not in REFUSALS:
            return self.answer(chat, command, fault)
        wait_s = None
        if fault is Fault.RATE_LIMIT and self.faults.retry_after_s != "absent":
            wait_s = self.faults.retry_after_s
        return Response(ErrorAnswer(REFUSALS[fault], retry_after_s=wait_s), fault)

    def answer(
        self,
        chat: ChatRequest,
        command: str,
        fault: Fault | None = None,
    ) -> Response:
        """Answer a request, live or of a batch, perhaps with a fault that leaves an answer."""
        # The same draws for every attempt at a command: a retry changes no answer.
        draws = draw(self._seed, "answer", self._name, command)
        delay_s = self._latency(draws.latency)
        withheld = _withheld(chat, fault, draws)
        if withheld is not None:
            return Response(withheld, fault, delay_s)
        if self._recorded is not None:
            return self._replayed(chat, command, fault, delay_s)
        text = compose(self._persona, command, draws, strict=chat.form.is_json)
        hidden = round(self._persona.reasoning_tokens * (0.5 + draws.length))
        usage = usage_of(chat, len(text), hidden)
        return Response(_answer(chat, text, usage), fault, delay_s)

    def _next_fault(self, command: str) -> Fault | None:
        if self._script is not None:
            if self._script:
                return self._script.popleft()
            return None

        if not self._chances:
            return None
        attempt = next(self._attempts[command])
        luck = draw(self._seed, "fault", self._name, command, str(attempt)).luck
        return pick(self._chances, luck)

    def _replayed(
        self,
        chat: ChatRequest,
        command: str,
        fault: Fault | None,
        delay_s: float,
    ) -> Response:
        takes = list((self._recorded or {}).get(command, {}).values())
        if not takes:
            message = f"no recording of model {chat.model} for this command"
            return Response(ErrorAnswer(ErrorClass.NOT_FOUND, message))

        turn = next(self._answers[command])
        recorded = takes[turn % len(takes)]
        completion = completion_of(recorded)
        if completion is not None:
            named = replace(completion, model=completion.model or chat.model)
            answer = Answer(**asdict(named), form=chat.form)
            return Response(answer, fault, delay_s)

        if recorded.outcome is Outcome.API_ERROR:
            return Response(ErrorAnswer(ErrorClass.SERVER, "the recorded call failed"), fault)
        return Response(None, Fault.HANG)


def _withheld(
    chat: ChatRequest,
    fault: Fault | None,
    draws: Draws,
) -> Completion | None:
    """Return the answer of a fault that leaves no text; providers send it as none or as empty."""
    match fault:
        case Fault.EMPTY:
            return _answer(chat, "", usage_of(chat, 0, 0))
        case Fault.CONTENT_FILTER:
            text = None if draws.length < 0.5 else ""
            return _answer(chat, text, usage_of(chat, 0, 0), StopKind.CONTENT_FILTER)
        case Fault.TOKEN_LIMIT:
            spent = chat.max_output_tokens or _DEFAULT_OUTPUT_TOKENS
            return _answer(chat, "", usage_of(chat, 0, spent), StopKind.MAX_TOKENS)
        case _:
            return None


def _answer(
    chat: ChatRequest,
    text: str | None,
    usage: Usage,
    kind: StopKind = StopKind.STOP,
) -> Completion:
    return Answer(
        text,
        stop_kind=kind,
        usage=usage,
        model=chat.model,
        form=chat.form,
    )
