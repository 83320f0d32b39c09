"""The names of kombu and Celery that this project overrides, reads or sets, each one in a list.

A release of kombu or Celery may change a name that its reference does not document. The test fails
when the source code uses a name that the list lacks, and when an installed release lacks one.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from importlib import import_module

import pytest
from kombu.transport import virtual

from tests.house import nodes, parsed, product

PACKAGES = ("aegish_dist.broker.", "workers.")
UPSTREAM = ("kombu.", "celery.", "billiard.")
OWN_BASES = {"StartStopStep"}  # documented in full: Celery's guide says how to write a step

DOCUMENTED = {
    # https://docs.celeryq.dev/projects/kombu/en/stable/reference/kombu.transport.virtual.html
    "kombu.transport.virtual.base:Channel": (
        "Message QoS _delete _get _purge _put _size basic_cancel basic_consume close closed"
        " connection get_table qos typeof"
    ),
    "kombu.transport.virtual.base:Message": (
        "content_encoding content_type delivery_info errors headers properties"
    ),
    "kombu.transport.virtual.base:Transport": (
        "Channel channels client close_connection drain_events driver_type"
        " establish_connection on_message_ready register_with_event_loop"
    ),
    # https://docs.celeryq.dev/en/stable/reference/celery.concurrency.base.html
    "celery.concurrency.base:BasePool": (
        "num_processes on_apply on_close on_start on_stop on_terminate register_with_event_loop"
        " task_join_will_block"
    ),
}
UNDOCUMENTED = {
    "kombu.transport.virtual.base:Channel": "_queue_bind supports_fanout",
    "kombu.transport.virtual.base:Transport": (
        "channel_errors connection_errors default_port driver_name implements"
    ),
    "kombu.transport.redis:Channel": "_put_fanout",
    "kombu.pidbox:Node": "handlers",
    "celery.apps.worker:Worker": "hostname on_before_init prepare_args setup_queues",
    "celery.worker.consumer.consumer:Consumer": (
        "app connection connection_errors create_task_handler initial_prefetch_count"
        " on_connection_error_after_connected on_decode_error steps stop strategies"
    ),
    "celery.worker.control:Panel": "data",
    "celery.worker.pidbox:Pidbox": "node",
    "celery.concurrency.base:BasePool": "app limit",
}
NEWER = {"qos_global"}  # set for Celery from 5.7 on; earlier ones do not read it
OTHER = {"_sock", "_replace"}
"""The socket of a connection of redis-py, which has no public name; a named tuple's method."""
LISTED = NEWER | {
    name for names in (DOCUMENTED, UNDOCUMENTED) for each in names.values() for name in each.split()
}


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """`workers.app` builds its application when it is imported."""
    monkeypatch.setenv("AEGISH_DIST_BROKER_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("AEGISH_DIST_DATABASE_URL", "postgresql://127.0.0.1:1/none")


def sources() -> Iterator[tuple[str, ast.Module]]:
    for name, path in product().items():
        if name.startswith(PACKAGES) and not path.stem.startswith("__"):
            yield name, parsed(path)


def subclasses() -> Iterator[tuple[ast.ClassDef, type]]:
    for name, tree in sources():
        module = import_module(name)
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                made = getattr(module, node.name)
                if upstream(made) and not OWN_BASES & {base.__name__ for base in made.__mro__}:
                    yield node, made


def upstream(made: type) -> list[type]:
    return [base for base in made.__mro__ if base.__module__.startswith(UPSTREAM)]


def attributes(base: type) -> set[str]:
    """Return the names that a class defines, or that its methods assign to `self`."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
    return set(vars(base)) | {
        node.attr for node in of_self(tree) if isinstance(node.ctx, ast.Store)
    }


def of_self(tree: ast.AST) -> Iterator[ast.Attribute]:
    for node in nodes(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in {"self", "super()"}:
            yield node


def private(tree: ast.Module) -> set[str]:
    """Return the underscore attributes of other objects that a module uses."""
    found = {node.attr for node in nodes(tree) if isinstance(node, ast.Attribute)}
    own = {node.name for node in nodes(tree) if isinstance(node, ast.FunctionDef)}
    own |= {node.attr for node in of_self(tree)}
    return {name for name in found - own if name[0] == "_" and not name.startswith("__")}


@pytest.mark.parametrize("owner", [*DOCUMENTED, *UNDOCUMENTED])
def test_installed_releases_have_each_name(owner: str) -> None:
    module, _, name = owner.partition(":")
    loaded = getattr(import_module(module), name)
    used = {
        name
        for base in loaded.__mro__
        for function in vars(base).values()
        if inspect.isfunction(function)
        for name in function.__code__.co_names
    }
    names = f"{DOCUMENTED.get(owner, '')} {UNDOCUMENTED.get(owner, '')}".split()
    assert {name for name in names if not hasattr(loaded, name)} <= used


def test_each_use_is_listed() -> None:
    missing: set[tuple[str, str]] = set()
    used: set[str] = set()
    for node, made in subclasses():
        theirs = set[str]().union(*map(attributes, upstream(made)))
        touched = {name for name in vars(made) if name in theirs}
        touched |= {each.attr for each in of_self(node)} & theirs
        touched = {name for name in touched if not name.startswith("__")}
        used |= touched
        missing |= {(made.__name__, name) for name in touched - LISTED}
    missing |= {(name, each) for name, tree in sources() for each in private(tree) - OTHER}
    assert missing == set()


def test_a_use_that_is_not_listed_would_be_found() -> None:
    tree = ast.parse("class C:\n  def f(self): self._deliver(); super()._put(); other._own = 1")
    assert {node.attr for node in of_self(tree)} == {"_deliver", "_put"}
    assert private(tree) == {"_own"}
    assert {"_active_queues", "qos"} <= attributes(virtual.Channel)


def test_each_listed_name_is_used() -> None:
    names = {
        each.attr if isinstance(each, ast.Attribute) else each.name
        for _, tree in sources()
        for each in nodes(tree)
        if isinstance(each, (ast.Attribute, ast.FunctionDef))
    }
    names |= {name for _, made in subclasses() for name in vars(made)}
    assert names >= LISTED
