"""The private and undocumented names of kombu and Celery that this project depends on, with why.

The Redis transport overrides private parts of kombu's, and a patch release may change them. With a
kombu that was not tested, or one of whose names below is missing or has another signature, the
application uses kombu's own transports instead: slower, but they need none of these names.

Listed are every name that a subclass overrides or reads of its base, and every underscore attribute
of other objects. `tests/unit/broker/test_kombu_internals.py` compares the list with the source code
and with the installed packages.
"""

import inspect
from collections.abc import Iterator, Sequence
from importlib import import_module
from types import FunctionType
from typing import Any, NamedTuple

import kombu

TESTED_KOMBU = ("5.7.0",)
"""Versions of kombu that all tests passed with. Formats in Redis have no signature to compare, so
that no other version is used with the batched transport."""


class Internal(NamedTuple):
    """One name of another package."""

    owner: str
    """Class or module that has it, as `module:Class` or `module`."""
    name: str
    """Attribute of the owner, or of its instances."""
    signature: str | None
    """Signature as `inspect.signature` writes it; None for an attribute that is not called."""
    why: str


def _of(owner: str, *names: tuple[str, str | None, str]) -> tuple[Internal, ...]:
    return tuple(Internal(owner, *name) for name in names)


_REDIS_CHANNEL = _of(
    "kombu.transport.redis:Channel",
    ("Message", None, "overridden: checks the format of forged messages"),
    ("QoS", None, "overridden: leases and grouped acknowledgements"),
    ("_active_queues", None, "queues that are consumed, to fetch from"),
    ("_basic_cancel", "(self, consumer_tag)", "overridden: requeues a fetch under way"),
    ("_brpop_read", "(self, **options)", "overridden: reads a batch instead of one message"),
    ("_brpop_sent_at", None, "set: kombu drops a connection whose reply is overdue"),
    ("_brpop_start", "(self, timeout=None)", "overridden: sends the script instead of BRPOP"),
    ("_create_client", "(self, asynchronous=False)", "makes the listener for broadcasts"),
    ("_flush_brpop_reauth", "(self)", "what kombu does after each reply"),
    ("_in_poll", None, "set: the connection that a fetch is under way on"),
    ("_lookup", "(self, exchange, routing_key, default=None)", "queues to requeue a message to"),
    ("_qos", None, "settles at the end only if something was consumed"),
    ("_queue_cycle", None, "order of the queues' turns"),
    ("_size", "(self, queue)", "overridden: without a transaction, which a full Redis refuses"),
    ("_tag_to_queue", None, "queue of a consumer that is cancelled"),
    ("basic_consume", "(self, queue, *args, **kwargs)", "overridden: fetches at once"),
    ("client", None, "connection that fetches use"),
    ("close", "(self)", "overridden: settles before the connection is closed"),
    ("closed", None, "nothing is settled twice"),
    ("conn_or_acquire", "(self, client=None)", "connection for commands beside a fetch"),
    ("connection", None, "transport of a channel, which delivers messages"),
    ("connection_errors", None, "a channel that closes ignores a lost connection"),
    ("do_restore", None, "set: whether a closing channel requeues its messages"),
    ("from_transport_options", None, "overridden: adds `allowance` and `lease_s`"),
    ("global_keyprefix", None, "prefix of the keys that scripts use"),
    ("priority_steps", None, "overridden: one list per queue"),
    ("qos", None, "the leases of a channel"),
    ("subclient", None, "overridden: reading a broadcast never blocks"),
    ("unacked_index_key", None, "sorted set with the time of each unacknowledged message"),
    ("unacked_key", None, "hash of unacknowledged messages"),
    ("unacked_restore_interval", None, "seconds between searches for expired leases"),
    ("visibility_timeout", None, "seconds after which kombu requeues; leases are shorter"),
)
_REDIS_QOS = _of(
    "kombu.transport.redis:QoS",
    ("_delivered", None, "unacknowledged messages by delivery tag"),
    ("_dirty", None, "delivery tags that are settled, but not removed yet"),
    ("_quick_ack", None, "frees a place under the prefetch limit"),
    ("ack", "(self, delivery_tag)", "overridden: acknowledges in groups"),
    ("append", "(self, message, delivery_tag)", "overridden: the fetch has registered it"),
    ("can_consume_max_estimate", "(self)", "how many messages to fetch"),
    ("channel", None, "channel whose leases these are"),
    ("reject", "(self, delivery_tag, requeue=False)", "overridden: requeues in groups"),
    ("restore_unacked", "(self, client=None)", "overridden: one script per 200 messages"),
    ("restore_visible", "(self, start=0, num=10, interval=10)", "overridden: needs no lock"),
    ("unacked_index_key", None, "sorted set with the time of each unacknowledged message"),
    ("unacked_key", None, "hash of unacknowledged messages"),
    ("visibility_timeout", None, "seconds after which kombu requeues"),
)
_REDIS_POLLER = _of(
    "kombu.transport.redis:MultiChannelPoller",
    ("_channels", None, "channels to settle and renew"),
    ("get", "(self, callback, timeout=None)", "overridden: waits until the next fetch at most"),
    ("on_poll_start", "(self)", "overridden: settles and renews before each fetch"),
    ("on_readable", "(self, fileno)", "overridden: keeps leases when a connection is lost"),
)
_REDIS_TRANSPORT = _of(
    "kombu.transport.redis:Transport",
    ("Channel", None, "overridden: channels that fetch batches"),
    ("_deliver", "(self, message, queue)", "delivers a fetched message"),
    ("cycle", None, "set: the poller that settles and renews"),
    (
        "register_with_event_loop",
        "(self, connection, loop)",
        "overridden: the loop wakes for the next fetch",
    ),
)
_MESSAGES = (
    *_of(
        "kombu.transport.virtual.base:Message",
        ("_raw", None, "set: payload of a delivered message, to requeue it"),
        ("content_encoding", None, "checked"),
        ("content_type", None, "checked"),
        ("errors", None, "set: Celery drops a message that has one"),
        ("headers", None, "checked"),
        ("properties", None, "checked"),
    ),
    *_of(
        "kombu.transport.virtual.base:Channel",
        (
            "_inplace_augment_message",
            "(self, message, exchange, routing_key)",
            "format of a published message in a Redis list",
        ),
    ),
    *_of(
        "kombu.pidbox:Node",
        ("handlers", None, "set: remote commands that are obeyed"),
    ),
    *_of(
        "kombu.connection:Connection",
        ("get_transport_cls", "(self)", "overridden: the transport under kombu's URL"),
    ),
)
_MEMORY = (
    *_of(
        "kombu.transport.memory:Channel",
        ("_get_and_deliver", "(self, queue, callback)", "overridden: asks before it fetches"),
    ),
    *_of("kombu.transport.memory:Transport", ("Channel", None, "overridden: such channels")),
)
_CELERY = (
    *_of("celery.app.amqp:AMQP", ("Connection", None, "overridden: the batched transport")),
    *_of(
        "celery.apps.worker:Worker",
        ("hostname", None, "set: a name of its own for each worker"),
        ("on_before_init", "(self, quiet=False, **kwargs)", "overridden: names the worker"),
        ("prepare_args", "(self, **kwargs)", "overridden: no messages to other workers"),
        ("setup_queues", "(self, include, exclude=None)", "overridden: models as `-Q`"),
    ),
    *_of(
        "celery.worker.consumer.consumer:Consumer",
        ("app", None, "configuration and queues"),
        ("initial_prefetch_count", None, "set: items held beyond the calls in flight"),
        ("qos_global", None, "set: quorum queues count per consumer"),
        ("connection", None, "bounds the farewell to a broker that does not answer"),
        ("connection_errors", None, "a lost connection is no reason to end"),
        (
            "create_task_handler",
            "(self, promise=<class 'vine.promises.promise'>)",
            "overridden: only messages of our task",
        ),
        ("on_connection_error_after_connected", "(self, exc)", "overridden: keeps leases"),
        ("on_decode_error", "(self, message, exc)", "overridden: drops it with one line"),
        ("steps", None, "the step that obeys remote commands"),
        ("stop", "(self)", "overridden: bounds the farewell"),
        ("strategies", None, "the strategy of our task"),
    ),
    *_of("celery.worker.control:Panel", ("data", None, "the remote commands by name")),
    *_of("celery.worker.pidbox:Pidbox", ("node", None, "the mailbox of remote commands")),
    *_of(
        "celery.concurrency.base:BasePool",
        ("app", None, "configuration"),
        ("limit", None, "calls in flight"),
        ("num_processes", None, "overridden: calls in flight"),
        ("on_apply", "(self, *args, **kwargs)", "overridden: drops other tasks"),
        ("on_close", "(self)", "overridden: no further call begins"),
        ("on_start", "(self)", "overridden: starts the event loop"),
        ("on_stop", "(self)", "overridden: waits for calls in flight"),
        ("on_terminate", "(self)", "overridden: ends the event loop"),
        ("register_with_event_loop", "(self, loop)", "overridden: the consumer's hub"),
        ("task_join_will_block", None, "overridden: tasks may wait"),
    ),
)
_REDIS = (*_REDIS_CHANNEL, *_REDIS_QOS, *_REDIS_POLLER, *_REDIS_TRANSPORT, *_MESSAGES)
INTERNALS = {"redis": _REDIS, "memory": _MEMORY, "celery": _CELERY}
"""Every name that is overridden, read or set, by transport, and those of Celery."""


_MISSING = object()


def kombu_problem(transport: str) -> str | None:
    """Return why the installed kombu cannot be used with our own transport.

    Returns:
        One line; None for a tested kombu.
    """
    if kombu.__version__ not in TESTED_KOMBU:
        return f"kombu {kombu.__version__} was not tested"
    return _first_difference(INTERNALS[transport])


def celery_problem() -> str | None:
    """Return how the installed Celery differs from the list in one line; None if it does not."""
    return _first_difference(INTERNALS["celery"])


def difference(internal: Internal) -> str | None:
    """Return how the installed package differs from the list in one name; None if it does not."""
    name = f"{internal.owner}.{internal.name}"
    try:
        owner = _load(internal.owner)
    except (ImportError, AttributeError):
        return f"{internal.owner} is missing"
    found = inspect.getattr_static(owner, internal.name, _MISSING)
    if internal.signature is None:
        stored = found is not _MISSING or internal.name in set(_stored_names(owner))
        return None if stored else f"{name} is missing"
    if not callable(found):
        return f"{name} is missing"
    signature = str(inspect.signature(found))
    return None if signature == internal.signature else f"{name} is now {signature}"


def _first_difference(internals: Sequence[Internal]) -> str | None:
    return next(filter(None, map(difference, internals)), None)


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    loaded = import_module(module)
    return getattr(loaded, name) if name else loaded


def _stored_names(owner: type) -> Iterator[str]:
    """Yield the names that methods of a class and of its bases use as attributes."""
    for base in owner.__mro__:
        for function in vars(base).values():
            if isinstance(function, FunctionType):
                yield from function.__code__.co_names
