"""The requests of workers to the limiter's script, and its answers, as JSON documents."""

from collections.abc import Mapping, Sequence

import msgspec

from aegish_dist.core.model import Limits
from aegish_dist.ratelimit.usage_report import UsageReport


class StoredCost(msgspec.Struct, frozen=True):
    """Cost of a run according to the database, in 1e-9 USD: the start of its ledger."""

    total: int
    models: Mapping[str, int]


class RunRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The calls of a capped run that one worker holds for one model; costs in 1e-9 USD."""

    run: str
    waiting: int
    held: int
    estimate: int
    spent: int
    """Cost of the calls that ended since the last request."""
    cap: int | None = None
    """Cap on the cost of the run; None: no cap."""
    model_cap: int | None = None
    """Cap on the cost of each of its models; None: no cap."""
    stored: StoredCost | None = None
    """Cost up to now, when the script has asked for it."""


class LeaseRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The calls to a model that a worker holds and wants."""

    model: str
    held: int
    waiting: int
    tokens: int
    """Expected tokens of one call, at least 1."""
    limits: Limits
    shared: Limits
    """Limits of all models of its provider together."""
    report: UsageReport
    runs: Sequence[RunRequest] = ()
    probing: bool = False
    """Whether one of the calls in flight is a probe of an open circuit."""


class RunLease(msgspec.Struct, frozen=True):
    """Permission for the calls of a capped run."""

    run: str
    permits: int
    over: bool = False
    unknown: bool = False
    """Whether the script knows no cost of the run: the next request has to hold what is stored."""


class Lease(msgspec.Struct, frozen=True):
    """Permission for a worker to call a model, for some seconds."""

    epoch: int
    """Epoch of the rate; goes up with every decrease."""
    permits: int
    """Calls that may begin, if `metered`."""
    wait_s: float
    """Seconds until the next request, unless something changes before."""
    metered: bool = False
    """Whether calls are counted; otherwise `slots` alone decides until the lease ends."""
    limited: bool = False
    """Whether asking again before `wait_s` brings no further permit."""
    slots: int | None = None
    """Most calls in flight of this worker; None: no limit."""
    probe: bool = False
    """Whether the one permit is for a probe of an open circuit."""
    circuit_open: bool = False
    """Whether the circuit of the model is open: it is not called, except by probes."""
    failed_probes: int = 0
    reason: str | None = None
    """The provider's words about the failure that opened the circuit."""
    rate: float | None = None
    """This worker's part of the rate, in calls per second; None: no limit."""
    runs: tuple[RunLease, ...] = ()
    """The capped runs, in the order of the request."""
