"""Verdicts a second of guards that are programs, all processes on one core.

Run with `taskset -c 1 python benchmarks/programs.py [--seconds 5]`: without `taskset` the worker,
its supervisors and the guards share the cores that there are. Each row is the median of three
stretches, in which four calls are under way; starts are counted. CPU time is that of all processes,
and tells more than time where others use the core.

lines    a long-lived guard in Python, one process. The bar is 2,000 a second.
object   the same as an object of `wire = "python"`.
once     a guard in C (`cat`), started for each command. The bar is 150 a second.
run      `subprocess.run` of the same guard without limits, folder or supervisor, for comparison.
shell    a guard in sh that reads its document with `cat`: two programs are started for a command.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from statistics import median

import click
from measuring import number, print_table

from aegish_dist.core.model import Program
from aegish_dist.providers.programs import Programs, python_program

AT_ONCE = 4
STRETCHES = 3
ANSWERS = """
import json, sys
for line in sys.stdin:
    question = json.loads(line)
    action = "BLOCK" if "rm" in question["command"] else "ALLOW"
    print(json.dumps({"id": question["id"], "action": action}), flush=True)
"""
LINES = Program(command=(sys.executable, "-c", ANSWERS), mode="lines")
GUARDS = {
    "lines": LINES,
    "object": python_program("shlex:quote", LINES),
    "once": Program(command=("cat",), input="hook"),
    "shell": Program(command=("sh", "-c", 'case "$(cat)" in *rm*) exit 2; esac'), input="text"),
}


Ask = Callable[[str], Awaitable[object]]


async def _run(command: str) -> object:
    return subprocess.run(["cat"], input=command, capture_output=True, text=True, check=True)


async def _asked(ask: Ask, seconds: float) -> int:
    """Return the answers that `AT_ONCE` callers get."""
    ends = time.perf_counter() + seconds
    answers = 0

    async def caller() -> None:
        nonlocal answers
        while time.perf_counter() < ends:
            await ask("rm -rf /tmp/build && echo done")
            answers += 1

    await asyncio.gather(*(caller() for _ in range(AT_ONCE)))
    return answers


async def _stretch(name: str, seconds: float) -> tuple[float, float]:
    """Return answers a second of time, and of the CPU time of all processes together."""
    began, used = time.perf_counter(), sum(os.times()[:4])
    programs = Programs()
    ask = _run
    if name != "run":
        ask = programs.client(GUARDS[name], 60, lambda _: True).complete
    answers = await _asked(ask, seconds)
    elapsed = time.perf_counter() - began
    await programs.close()  # then the times of its processes are known
    return answers / elapsed, answers / (sum(os.times()[:4]) - used)


@click.command(help=__doc__)
@click.option("--seconds", default=5.0, show_default=True, help="Length of a stretch.")
def main(seconds: float) -> None:
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in (*GUARDS, "run")}
    for name in [*found] * STRETCHES:
        found[name].append(asyncio.run(_stretch(name, seconds)))
    rows = []
    for name, stretches in found.items():
        per_s, per_cpu_s = (number(median(column)) for column in zip(*stretches, strict=True))
        rows.append({"guard": name, "a second": per_s, "a CPU second": per_cpu_s})
    print_table("Guards that are programs", rows)


if __name__ == "__main__":
    main()
