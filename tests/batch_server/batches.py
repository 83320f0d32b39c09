"""Batches: their requests over HTTP, and their lives.

The module of a wire format with batches has a tuple `ROUTES`: method, path, kind of request, and
the function that replies. Any root may precede a path. What a path names as `batch` or `file` is
the function's first argument.

Each batch has one task, which gives way to live calls between a few requests. Every decision is a
draw that belongs to model, command and how often batches asked it before, so that results depend
neither on the order of the requests nor on other batches.
"""

import asyncio
import json
import math
import re
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from importlib import import_module
from itertools import count
from typing import Any, TypeVar

from aiohttp import web
from msgspec import Struct, field
from msgspec.structs import replace

from aegish_dist.core.batches import Unanswered
from aegish_dist.core.model import HTTP_FORMATS, WireFormat
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.verdict import Completion
from aegish_dist.errors import InputError
from aegish_dist.simulator.behaviour import SimulatedModel
from aegish_dist.simulator.config import REFUSALS, Fault, pick
from aegish_dist.simulator.dialect import (
    UNLIMITED,
    Call,
    ChatRequest,
    ErrorAnswer,
    Exchange,
    command_in,
    dialect_of,
    encode,
    json_response,
)
from aegish_dist.simulator.personas import draw, parse_latency
from tests.batch_server.bill import BatchBill
from tests.batch_server.plan import BatchScenario, CallFault, EndFault, Endpoint, RequestFault

# Requests between two chances for other tasks: about 5 ms.
_SLICE = 50
_MAX_PROBLEMS = 20
# Factor on the duration of a slow batch.
_SLOWER = 5

BatchPhase = StrEnum(
    "BatchPhase", "VALIDATING IN_PROGRESS CANCELLING COMPLETED EXPIRED CANCELLED FAILED"
)
"""How far a batch is; each dialect has words of its own for it. One that failed was refused as a
whole, and no request was begun."""


NamedRequest = tuple[str, ChatRequest | ErrorAnswer]
"""A request of a batch; an error when it is not valid, which fails this request alone."""


def refusal(words: str, param: str | None = None) -> ErrorAnswer:
    return ErrorAnswer(ErrorClass.BAD_REQUEST, words, param)


def read(
    reader: Callable[[dict[str, Any], str], ChatRequest], body: dict[str, Any], model: str
) -> ChatRequest | ErrorAnswer:
    """Read a request of a batch, with the reader of its dialect."""
    try:
        return reader(body, model)
    except InputError as error:
        return refusal(error.what, error.field)


class BatchProblem(Struct, frozen=True):
    code: str
    message: str
    line: int | None = None  # 1-based line of the input file; None when no line is at fault


class BatchAnswer(Struct, frozen=True):
    """A request of a batch with its outcome, and a line of the results that reports it."""

    name: str
    outcome: Completion | ErrorAnswer | Unanswered
    model: str = ""  # model that it asks; empty when it is not valid
    moment: float = 0.0  # part of the batch's time after which it is answered, in (0, 1)
    fault: RequestFault | None = None
    chance: float = 0.0  # decides between the variants of its fault, in (0, 1)


class StoredFile(Struct, frozen=True):
    id: str
    name: str
    purpose: str
    content: bytes
    created_s: float


class SimulatedBatch(Struct):
    """A batch; its task alone changes it, apart from `cancel`."""

    id: str
    wire: WireFormat
    created_s: float
    due_s: float  # Unix time at which it ends unless it is cancelled
    fault: EndFault | None
    limit: float  # part of its time after which no request is begun, in [0, 1]
    facts: dict[str, Any]
    """Facts that its dialect repeats in each description: metadata, input file."""
    size: int  # requests, 0 until they are known to be valid
    phase: BatchPhase = BatchPhase.VALIDATING
    cancelled_s: float | None = None
    ended_s: float | None = None
    problems: list[BatchProblem] = field(default_factory=list)
    answers: list[BatchAnswer] = field(default_factory=list)
    """In the order of their moments; outcomes are final when it has ended."""
    files: dict[str, str] = field(default_factory=dict)
    cancelling: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def has_ended(self) -> bool:
        return self.ended_s is not None

    @property
    def progress(self) -> float:
        """Part of its time in which it has worked, in [0, 1]."""
        passed_s = min(time.time(), self.cancelled_s or math.inf) - self.created_s
        whole_s = self.due_s - self.created_s
        return min(self.limit, passed_s / whole_s if whole_s > 0 else 1.0)

    @property
    def counts(self) -> tuple[int, int]:
        """How many requests are answered so far, and how many ended without an answer."""
        if not self.has_ended:
            progress = self.progress
            return sum(each.moment <= progress for each in self.answers), 0
        answered = sum(isinstance(each.outcome, Completion) for each in self.answers)
        return answered, len(self.answers) - answered

    def cancel(self) -> None:
        """Begin no further request; without effect once it is cancelled or ended."""
        if self.cancelled_s is None and not self.has_ended:
            self.cancelled_s = time.time()
            self.phase = BatchPhase.CANCELLING
            self.cancelling.set()

    def settle(self, phase: BatchPhase) -> None:
        """Decide which requests were begun in time; a batch that failed has an error for each."""
        expired = phase is BatchPhase.EXPIRED
        late = Unanswered.EXPIRED if expired else Unanswered.CANCELLED
        reached = self.limit if self.cancelled_s is None else self.progress
        self.answers = [
            each if each.moment <= reached else replace(each, outcome=late, fault=None)
            for each in self.answers
        ]
        if self.fault is EndFault.FAILED:
            failed = ErrorAnswer(ErrorClass.SERVER, "Internal server error")
            self.answers = [replace(each, outcome=failed) for each in self.answers]

    def written(
        self,
        body: Callable[[BatchAnswer, Call], dict[str, Any]],
        kept: Callable[[BatchAnswer], bool] = lambda _: True,
    ) -> bytes:
        """Return the bytes of its results, one JSON object a line."""
        content = bytearray()
        for place, line in enumerate(result_lines(self.answers)):
            if kept(line):
                entry = encode(body(line, Call(f"{self.id}{place:06x}", self.created_s))).encode()
                is_cut = line.fault is RequestFault.MALFORMED
                content += (entry[: len(entry) // 2] if is_cut else entry) + b"\n"
        return bytes(content)


def result_lines(answers: Iterable[BatchAnswer]) -> list[BatchAnswer]:
    """Return the lines that report some answers, with the faults of these."""
    lines: list[BatchAnswer] = []
    second: list[BatchAnswer] = []
    for answer in answers:
        if answer.fault is not RequestFault.MISSING:
            lines.append(answer)
        if answer.fault is RequestFault.DUPLICATE:
            second.append(answer)
        if answer.fault is RequestFault.FOREIGN:
            # A name that the batch does not have: of another token, or of another request.
            token = "1" if answer.name[:1] == "0" else "0"
            name = token + answer.name[1:] if answer.chance < 0.5 else f"{answer.name}9"
            second.append(replace(answer, name=name))
    return lines + second


_WITHHELD: Mapping[RequestFault | None, Fault] = {
    RequestFault(each): each for each in (Fault.EMPTY, Fault.CONTENT_FILTER, Fault.TOKEN_LIMIT)
}
_ERRORS: Mapping[RequestFault | None, ErrorClass] = {
    RequestFault.REFUSED: ErrorClass.BAD_REQUEST,
    RequestFault.SERVER_ERROR: ErrorClass.SERVER,
    RequestFault.MISSING: ErrorClass.SERVER,
}
_QUOTA = BatchProblem("token_limit_exceeded", "Enqueued token limit reached for this model.")


Item = TypeVar("Item")
Source = Iterable[NamedRequest | BatchProblem]
AtEnd = Callable[["BatchStore", SimulatedBatch], None]


class BatchStore:
    """The batches and files of one dialect; they end with the process."""

    def __init__(self, wire: WireFormat, service: "BatchService") -> None:
        self.batches: dict[str, SimulatedBatch] = {}
        self.files: dict[str, StoredFile] = {}
        self.uploads: dict[str, tuple[str, bytearray]] = {}
        """Name of each file that arrives in parts, and what has come of it."""
        self.tasks: set[asyncio.Task[None]] = set()
        self.wire = wire
        self._service = service
        self._numbers = count()

    def add_file(self, name: str, purpose: str, content: bytes) -> StoredFile:
        file = StoredFile(new_id(), name, purpose, content, time.time())
        self.files[file.id] = file
        return file

    def create(
        self,
        source: Source,
        facts: dict[str, Any],
        at_end: AtEnd = lambda _store, _batch: None,
        *,
        size: int = 0,
    ) -> SimulatedBatch:
        """Begin a batch of requests as they are read, which any problem refuses as a whole.

        `at_end` leaves files, with the answers in place, just before the batch counts as ended;
        `size` is the number of requests if they are valid already.
        """
        config, now_s = self._service.config, time.time()
        draws = draw(config.seed, "batch end", self.wire, str(next(self._numbers)))
        fault = pick(config.batches.ends, draws.luck)
        duration_s = parse_latency(config.batches.duration)(draws.latency)
        due_s = now_s + duration_s * (_SLOWER if fault is EndFault.SLOW else 1)
        limit = draws.length if fault in (EndFault.EXPIRED, EndFault.CANCELLED) else 1.0
        batch = SimulatedBatch(new_id(), self.wire, now_s, due_s, fault, limit, facts, size)
        self.batches[batch.id] = batch
        task = asyncio.create_task(self._carry_out(batch, source, at_end))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return batch

    def page(self, limit: int, after: str) -> tuple[list[SimulatedBatch], bool]:
        """Return the page of the list after an identifier, newest first, and whether more follow.

        After an unknown or empty identifier comes the first page.
        """
        known_s = time.time() - self._service.config.batches.list_lag_s
        newest = [batch for batch in self.batches.values() if batch.created_s <= known_s][::-1]
        first = next((place for place, each in enumerate(newest, 1) if each.id == after), 0)
        return newest[first : first + limit], len(newest) > first + limit

    async def _carry_out(self, batch: SimulatedBatch, source: Source, at_end: AtEnd) -> None:
        requests = await self._read(batch, source)
        phase = BatchPhase.FAILED if batch.problems else await self._answer(batch, requests)
        batch.ended_s = time.time()
        at_end(self, batch)
        batch.phase = phase

    async def _read(self, batch: SimulatedBatch, source: Source) -> list[NamedRequest]:
        requests: list[NamedRequest] = []
        async for request in _in_slices(source):
            if not isinstance(request, BatchProblem):
                requests.append(request)
            elif len(batch.problems) < _MAX_PROBLEMS:
                batch.problems.append(request)
        self._service.bill.count_batch(requests[0][0] if requests else "")
        if batch.fault is EndFault.FAILED and self.wire is not WireFormat.ANTHROPIC:
            batch.problems.append(_QUOTA)
        if not batch.problems:
            batch.size = len(requests)
        return requests

    async def _answer(self, batch: SimulatedBatch, requests: list[NamedRequest]) -> BatchPhase:
        answers = [self._service.ask(*each, self.wire) async for each in _in_slices(requests)]
        batch.answers = sorted(answers, key=lambda answer: answer.moment)
        if batch.phase is BatchPhase.VALIDATING:
            batch.phase = BatchPhase.IN_PROGRESS
        with suppress(TimeoutError):
            async with asyncio.timeout(batch.due_s - time.time()):
                await batch.cancelling.wait()
        phase = BatchPhase.COMPLETED
        if batch.cancelled_s is not None or batch.fault is EndFault.CANCELLED:
            phase = BatchPhase.CANCELLED
        elif batch.fault is EndFault.EXPIRED:
            phase = BatchPhase.EXPIRED
        if phase is BatchPhase.EXPIRED and self.wire is WireFormat.GOOGLE:
            batch.answers = []  # which this provider does not keep
        batch.settle(phase)
        for answer in batch.answers:
            if isinstance(answer.outcome, Completion):
                readable = answer.fault is not RequestFault.MALFORMED
                usage = answer.outcome.usage
                bill = self._service.bill
                bill.charge_request(answer.model, answer.name, usage, readable=readable)
        return phase


async def _in_slices(items: Iterable[Item]) -> AsyncIterator[Item]:
    """Yield items, with a chance for other tasks between slices of them."""
    for place, item in enumerate(items):
        if place % _SLICE == 0:
            await asyncio.sleep(0)
        yield item


def new_id() -> str:
    return secrets.token_hex(12)


class BatchService:
    def __init__(
        self, config: BatchScenario, model: Callable[[str], SimulatedModel], bill: BatchBill
    ) -> None:
        self.faults: Counter[str] = Counter()
        """Faults of requests about batches so far, by `ENDPOINT.FAULT`."""
        self.config = config
        self.bill = bill
        self._model = model
        # How often a model was asked about a command before, and how often each endpoint.
        self._asked: defaultdict[tuple[str, str], count[int]] = defaultdict(count)
        self._served: defaultdict[Endpoint, count[int]] = defaultdict(count)
        wires = (wire for wire, api in HTTP_FORMATS.items() if api.batches)
        self._stores = [BatchStore(wire, self) for wire in wires]
        self._routes = [
            (method, re.compile(rf"(?:/.*)?{path}"), endpoint, reply, store)
            for store in self._stores
            for method, path, endpoint, reply in import_module(
                f"tests.batch_server.{store.wire}"
            ).ROUTES
        ]

    async def handle(self, request: web.BaseRequest, id: str) -> web.StreamResponse | None:
        """Answer one HTTP request; None when it is not about batches."""
        for method, path, endpoint, reply, store in self._routes:
            found = path.fullmatch(request.path)
            if found is not None and method == request.method:
                exchange = Exchange(request, dialect_of(store.wire), id)
                return await self._serve(endpoint, reply, BatchCall(exchange, store, found))
        return None

    def ask(self, name: str, chat: ChatRequest | ErrorAnswer, wire: WireFormat) -> BatchAnswer:
        """Return the outcome that a request has if its batch lasts long enough."""
        if isinstance(chat, ErrorAnswer):
            return BatchAnswer(name, chat, moment=draw(self.config.seed, "batch", name).latency)
        command = command_in(chat.user)
        times = next(self._asked[chat.model, command])
        draws = draw(self.config.seed, "batch", chat.model, command, str(times))
        fault = pick(self.config.batches.requests, draws.luck)
        outcome: Completion | ErrorAnswer | None = None
        if fault not in _ERRORS:
            outcome = self._model(chat.model).answer(chat, command, _WITHHELD.get(fault)).outcome
        if outcome is None:
            error_class = _ERRORS.get(fault, ErrorClass.SERVER)
            words = dialect_of(wire).ERRORS[error_class].message
            outcome = ErrorAnswer(error_class, words.format(model=chat.model))
        return BatchAnswer(name, outcome, chat.model, draws.latency, fault, chance=draws.form)

    async def _serve(
        self, endpoint: Endpoint, replies: "Replies", call: "BatchCall"
    ) -> web.StreamResponse:
        exchange = call.exchange
        # The address of an upload that was begun is a key in itself: clients send no other there.
        begun = call.request.query.get("upload_id") in call.store.uploads
        if not begun and not exchange.is_authorised:
            return exchange.refuse(ErrorAnswer(ErrorClass.AUTH), "", UNLIMITED)
        fault = self._next_fault(endpoint)
        if fault in REFUSALS:
            wait_s = self.config.batches.retry_after_s if fault is CallFault.RATE_LIMIT else None
            error = ErrorAnswer(REFUSALS[fault], retry_after_s=wait_s)
            return exchange.refuse(error, "this model", UNLIMITED)
        if fault is CallFault.RESET:
            return await exchange.break_off(b"", reset=True)
        reply = await call.reply(replies)
        if isinstance(reply, ErrorAnswer):
            return exchange.refuse(reply, "", UNLIMITED)
        response = json_response(200, reply, {}) if isinstance(reply, dict) else reply
        response.headers.update(exchange.dialect.headers(UNLIMITED, Call(exchange.id, time.time())))
        return await self._respond(exchange, response, fault)

    def _next_fault(self, endpoint: Endpoint) -> CallFault | None:
        place = next(self._served[endpoint])
        luck = draw(self.config.seed, "batch call", endpoint, str(place)).luck
        fault = self.config.batches.call_fault(endpoint, place, luck)
        if fault is not None:
            self.faults[f"{endpoint}.{fault}"] += 1
        return fault

    async def _respond(
        self, exchange: Exchange, response: web.Response, fault: CallFault | None
    ) -> web.StreamResponse:
        content = response.body if isinstance(response.body, bytes) else b""
        match fault:
            case CallFault.LATE_ERROR:
                return exchange.refuse(ErrorAnswer(ErrorClass.SERVER), "", UNLIMITED)
            case CallFault.HANG | CallFault.LOST:
                await asyncio.sleep(self.config.batches.hang_s if fault is CallFault.HANG else 0)
                return await exchange.break_off(b"", reset=True)
            case CallFault.TRUNCATED:
                return await exchange.break_off(content, reset=False)
            case CallFault.MALFORMED:
                response.body = content[: len(content) // 2]
        return response


Reply = web.Response | dict[str, Any] | ErrorAnswer
Replies = Callable[..., Reply | Awaitable[Reply]]


class BatchCall(Struct, frozen=True):
    exchange: Exchange
    store: BatchStore
    found: re.Match[str]

    @property
    def request(self) -> web.BaseRequest:
        return self.exchange.request

    @property
    def root(self) -> str:
        """Root of the server as the client calls it, without a trailing slash."""
        return f"{self.request.scheme}://{self.request.host}"

    async def body(self, limit: int) -> bytes | None:
        """Return the body of the request; None when it has more bytes than the limit."""
        content = bytearray()
        async for chunk in self.request.content.iter_any():
            content += chunk
            if len(content) > limit:
                return None
        return bytes(content)

    async def json(self, limit: int = 2**20) -> dict[str, Any]:
        """Return the JSON object in the body, an empty one where there is none."""
        return json_object(await self.body(limit)) or {}

    async def reply(self, replies: Replies) -> Reply:
        """Answer with the batch or the file that the path names, if it names one."""
        named: list[SimulatedBatch | StoredFile] = []
        known: dict[str, Mapping[str, SimulatedBatch | StoredFile]]
        known = {"batch": self.store.batches, "file": self.store.files}
        for kind in known.keys() & self.found.groupdict().keys():
            if self.found[kind] not in known[kind]:
                return ErrorAnswer(ErrorClass.NOT_FOUND, f"No such {kind}: {self.found[kind]}")
            named.append(known[kind][self.found[kind]])
        reply = replies(*named, self)
        return await reply if isinstance(reply, Awaitable) else reply


def listing(
    call: BatchCall,
    body: Callable[[SimulatedBatch, BatchCall], dict[str, Any]],
    limits: tuple[int, int],
    prefix: str,
    *,
    after: str = "after",
) -> dict[str, Any]:
    """Return a page of the list of batches in the form that OpenAI and Anthropic share.

    `limits` are the usual and the greatest number of entries, `prefix` precedes names in queries.
    """
    query = call.request.query
    last = query.get(after, "").removeprefix(prefix)
    found, more = call.store.page(number_in(query.get("limit"), *limits), last)
    entries = [body(each, call) for each in found]
    ids = [entry["id"] for entry in entries] or [None]
    return {"data": entries, "has_more": more, "first_id": ids[0], "last_id": ids[-1]}


def read_file(file: StoredFile, _call: BatchCall) -> Reply:
    return web.Response(body=file.content)


def json_object(content: bytes | None) -> dict[str, Any] | None:
    try:
        body = json.loads(content or b"")
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def number_in(given: str | None, usual: int, most: int) -> int:
    """Read a number of a query; the usual one where it is missing or no number."""
    # Python refuses to read thousands of digits.
    is_number = given is not None and given.isdecimal() and len(given) < 19
    return max(1, min(int(given), most)) if given and is_number else usual


def timestamp(unix_s: float) -> str:
    """Write a Unix time in seconds in the form of RFC 3339."""
    moment = datetime.fromtimestamp(unix_s, UTC)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
