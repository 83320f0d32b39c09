"""The list of kombu's and Celery's internals against the source code and the installed packages."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import kombu
import pytest
from kombu.transport import redis
from structlog.testing import capture_logs

import aegish_dist
import workers
from aegish_dist.broker import embedded
from aegish_dist.broker.kombu_internals import (
    INTERNALS,
    TESTED_KOMBU,
    Internal,
    celery_problem,
    difference,
    kombu_problem,
)
from tests.services import queue_application

PACKAGES = (Path(aegish_dist.__file__).parent / "broker", Path(workers.__file__).parent)
UPSTREAM = ("kombu.", "celery.", "billiard.")
OWN_BASES = {"StartStopStep"}
"""Documented in full: Celery's guide says how to write a step."""
STANDARD = {"_replace", "_name", "_value_"}
"""Underscore attributes of the standard library that are documented."""
LIST = tuple(chain.from_iterable(INTERNALS.values()))
LISTED = {each.name for each in LIST}


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """`workers.app` builds its application when it is imported."""
    monkeypatch.setenv("AEGISH_DIST_BROKER_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("AEGISH_DIST_DATABASE_URL", "postgresql://127.0.0.1:1/none")


def sources() -> Iterator[tuple[str, ast.Module]]:
    """Yield the name and the syntax tree of each module that may use the internals."""
    for package in PACKAGES:
        for path in sorted(package.glob("*.py")):
            if not path.stem.startswith("__"):
                name = ".".join([*_parents(package), path.stem])
                yield name, ast.parse(path.read_text(encoding="utf-8"))


def _parents(package: Path) -> tuple[str, ...]:
    return ("workers",) if package.name == "workers" else ("aegish_dist", package.name)


def subclasses() -> Iterator[tuple[ast.ClassDef, type]]:
    """Yield our subclasses of kombu's and Celery's classes."""
    for name, tree in sources():
        module = import_module(name)
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                made = getattr(module, node.name)
                if upstream(made) and not OWN_BASES & {base.__name__ for base in made.__mro__}:
                    yield node, made


def upstream(made: type) -> list[type]:
    """Return the bases of a class that kombu or Celery define."""
    return [base for base in made.__mro__ if base.__module__.startswith(UPSTREAM)]


def attributes(base: type) -> set[str]:
    """Return the names that a class defines, or that its methods assign to `self`."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
    return set(vars(base)) | {
        node.attr for node in of_self(tree) if isinstance(node.ctx, ast.Store)
    }


def of_self(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Yield the attributes of `self` and of `super()`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in {"self", "super()"}:
            yield node


def private(tree: ast.Module) -> set[str]:
    """Return the underscore attributes that a module uses and does not define itself."""
    found = {node for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    used = {node.attr for node in found if node.attr[0] == "_" and not node.attr.startswith("__")}
    own = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    own |= {node.attr for node in of_self(tree) if isinstance(node.ctx, ast.Store)}
    own |= {
        node.target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return used - own - STANDARD


@pytest.mark.parametrize("internal", LIST, ids=lambda each: f"{each.owner}.{each.name}")
def test_installed_packages_agree_with_the_list(internal: Internal) -> None:
    """Each listed name is installed, with the signature that the list records."""
    assert difference(internal) is None
    assert internal.why


def test_the_installed_versions_are_supported() -> None:
    """The lock file holds a kombu that the tests run with."""
    assert kombu.__version__ in TESTED_KOMBU
    assert (kombu_problem("redis"), kombu_problem("memory"), celery_problem()) == (None,) * 3


def test_each_override_and_use_of_a_base_is_listed() -> None:
    """A subclass overrides, reads and sets no name of its base that the list lacks."""
    missing: set[tuple[str, str]] = set()
    for node, made in subclasses():
        theirs = set[str]().union(*map(attributes, upstream(made)))
        touched = {name for name in vars(made) if name in theirs}
        touched |= {each.attr for each in of_self(node)} & theirs
        touched = {name for name in touched if not name.startswith("__")}
        missing |= {(made.__name__, name) for name in touched - LISTED}
    assert missing == set()


def test_each_private_attribute_is_listed() -> None:
    """Code outside such classes uses no underscore attribute that the list lacks."""
    assert {(name, each) for name, tree in sources() for each in private(tree) - LISTED} == set()


def test_a_use_that_is_not_listed_would_be_found() -> None:
    """The two tests above see overrides, calls and assignments, on `self` and on other objects."""
    tree = ast.parse("class C:\n  def f(self): self._deliver(); super()._put(); other._own = 1")
    assert {node.attr for node in of_self(tree)} == {"_deliver", "_put"}
    assert private(tree) == {"_deliver", "_put", "_own"}
    assert {"_in_poll", "_queue_cycle", "_size"} <= attributes(redis.Channel)


def test_each_listed_name_is_used() -> None:
    """The list holds no name that the source code has given up."""
    names = {
        each.attr if isinstance(each, ast.Attribute) else each.name
        for _, tree in sources()
        for each in ast.walk(tree)
        if isinstance(each, (ast.Attribute, ast.FunctionDef))
    }
    names |= {name for _, made in subclasses() for name in vars(made)}
    assert names >= LISTED


@pytest.mark.parametrize(
    ("internal", "problem"),
    [
        (Internal("kombu.transport.redis:Channel", "_brpop_stop", None, ""), "is missing"),
        (Internal("kombu.transport.redis:Channel", "_brpop_stop", "(self)", ""), "is missing"),
        (Internal("kombu.transport.redis:Channel", "_size", "(self)", ""), "is now (self, queue)"),
        (Internal("kombu.transport.none:Channel", "_size", None, ""), "is missing"),
        (Internal("kombu.transport.redis:None", "_size", None, ""), "is missing"),
    ],
)
def test_differences(internal: Internal, problem: str) -> None:
    """A missing module, class or name and another signature are reported."""
    assert (difference(internal) or "").endswith(problem)


def newer(self: Any, timeout: float | None = None, keys: object = ()) -> None:
    """Stand for a method of kombu with one parameter more."""


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", None])
def test_an_untested_version(monkeypatch: pytest.MonkeyPatch, url: str | None) -> None:
    """One line is logged, and the application uses kombu's own transport."""
    monkeypatch.setattr(kombu, "__version__", "5.9.1")
    with capture_logs() as logs:
        app = queue_application(url)

    assert [(line["event"], line["problem"]) for line in logs] == [
        ("kombu_not_tested", "kombu 5.9.1 was not tested")
    ]
    assert type(app.connection_for_read()).__module__ == "kombu.connection"
    transport = app.connection_for_read().get_transport_cls()
    assert transport.__module__.startswith("kombu.transport.")


def test_another_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method with one parameter more has the same effect; the in-memory transport lacks it."""
    monkeypatch.setattr(redis.Channel, "_brpop_start", newer)
    with capture_logs() as logs:
        queue_application("redis://127.0.0.1:1/0")
        queue_application(None)
        queue_application("amqp://127.0.0.1:1//")

    (line,) = logs
    assert line["problem"].startswith("kombu.transport.redis:Channel._brpop_start is now (self")


def test_an_operator_who_chose_the_stock_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is logged: nothing falls back."""
    monkeypatch.setattr(kombu, "__version__", "5.9.1")
    with capture_logs() as logs:
        queue_application("redis://127.0.0.1:1/0", stock_transport=True)
    assert logs == []


def test_the_stock_transport_is_of_redis_alone() -> None:
    """Without servers, a model that takes few calls leaves the worker's room to others as ever."""
    app = queue_application(None, stock_transport=True)
    assert app.connection_for_read().get_transport_cls() is embedded.Transport
