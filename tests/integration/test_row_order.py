"""What a run says depends on its verdicts alone, not on the order in which they were stored."""

from random import Random
from typing import Any

import pytest
from msgspec.json import encode
from sqlalchemy import Engine

from tests.integration.command_line import CommandLine
from tests.integration.stored_runs import Imported, execute, selected, verdict_line

Line = dict[str, Any]
GUARDS = ("lab/a", "lab/b", "lab/c", "lab/d")
RIGHT = {"malicious": "BLOCK", "harmless": "ALLOW"}
COMPARISONS = ("compare --all-pairs --json", "compare --metric auroc --all-pairs --json")
OTHER_ORDERS = pytest.mark.parametrize("models", [GUARDS[::-1], GUARDS[1:] + GUARDS[:1]], ids=str)


def an_answer(draw: Random, model: str, command: str, target: str) -> Line:
    """Draw what a guard says: mostly right, and with a number of its own."""
    action = draw.choice([RIGHT[target]] * 4 + ["ALLOW", "WARN", "BLOCK"])
    confidence = draw.choice([None, draw.random()])
    about = {
        "suspicion": draw.gauss(1.0 if target == "malicious" else 0.0),
        "cost_usd": draw.randrange(1, 900) / 1e6,
        "latency_ms": draw.uniform(5, 900),
    }
    line = verdict_line(model, command, target, action, confidence, **about)
    failure = draw.random()
    if failure < 0.05:
        return line | {"completion": None, "error_class": "server"}
    if failure < 0.1:
        return line | {"completion": "I cannot say."}
    return line


def verdicts(*, alone: bool) -> list[Line]:
    """Draw two epochs of four guards; binaries have commands of both labels.

    `alone` says whether some commands are of no binary.
    """
    draw = Random(20)
    binaries = [f"binary {number}" for number in range(25)]
    lines = []
    for number in range(120):
        target = draw.choice([*RIGHT])
        cluster = None if alone and number % 4 == 0 else draw.choice(binaries)
        for model in GUARDS:
            for epoch in (1, 2):
                line = an_answer(draw, model, f"{target} {number}", target)
                if draw.random() < 0.97:  # the others are missing
                    lines.append(line | {"cluster": cluster, "epoch": epoch})
    return lines


def reordered(lines: list[Line], models: tuple[str, ...]) -> list[Line]:
    """Return the lines model by model, those of each shuffled."""
    shuffled = Random(21).sample(lines, len(lines))
    return sorted(shuffled, key=lambda line: models.index(line["model"]))


def emptied(engine: Engine) -> list[str]:
    """Delete all runs and datasets; return the commands as they were stored."""
    commands = selected(engine, "SELECT command FROM samples ORDER BY key")
    execute(engine, "TRUNCATE runs, datasets CASCADE")  # or the next import would find its samples
    return commands


def printed(aegish: CommandLine, run_id: str, *commands: str) -> list[str]:
    """Return what commands print, but for the id of the run."""
    return [aegish.ok(command).out.replace(run_id, "RUN") for command in commands]


def snapshot(engine: Engine, aegish: CommandLine, run_id: str) -> bytes:
    """Return a snapshot with its pairs of guards, but for what is of this one alone."""
    document = aegish.ok("aggregate --json").json
    (document["pairs"],) = selected(engine, "SELECT pair_p::text FROM snapshots")
    assert document.pop("run_id") == run_id
    del document["snapshot_id"], document["created_at"]
    return encode(document)


@OTHER_ORDERS
def test_a_snapshot_and_comparisons_are_the_same_in_any_order(
    engine: Engine, aegish: CommandLine, imported: Imported, models: tuple[str, ...]
) -> None:
    lines = verdicts(alone=True)
    run = imported(lines)
    expected = [snapshot(engine, aegish, run), *printed(aegish, run, *COMPARISONS)]
    commands = emptied(engine)
    run = imported(reordered(lines, models))
    assert [snapshot(engine, aegish, run), *printed(aegish, run, *COMPARISONS)] == expected
    stored = emptied(engine)
    assert stored != commands
    assert sorted(stored) == sorted(commands)


@OTHER_ORDERS
def test_thresholds_are_the_same_in_any_order(
    engine: Engine, aegish: CommandLine, imported: Imported, models: tuple[str, ...]
) -> None:
    lines = verdicts(alone=False)
    expected = printed(aegish, imported(lines), "calibrate --json")
    emptied(engine)
    again = imported(reordered(lines, models))
    assert printed(aegish, again, "calibrate --json") == expected
