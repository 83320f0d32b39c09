"""The chart's scaling rule on a real fleet: from none to eight workers and back, and no call cut.

Run `python benchmarks/autoscaling.py [--scale-down idle|gradual]`. Needs helm (`make` puts it into
.venv), prometheus and redis-server; takes about two minutes.

Helm renders the rule, a real Prometheus scrapes a real exporter and answers the rule's query, and
tests/unit/deploy/autoscaler.py decides as KEDA and Kubernetes would, on a clock fifteen times as
fast. Workers are processes. One that is to end gets SIGTERM and the seconds that the chart gives a
pod; the youngest ends first. Answers take the simulated provider seconds. A call that is cut would
be made again: then the simulator has answered more requests than there are items.

`--tape FILE` keeps readings and decisions; the tests replay such a tape.
"""

import csv
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import click
from cluster import Cluster, Simulators, product
from measuring import laid_out, number, print_table
from monitored import Prometheus

from tests.services import START_TIMEOUT_S, accepts_connections, free_port, wait_until
from tests.unit.deploy.autoscaler import TICK_S, Autoscaler, ScalingRule
from tests.unit.deploy.charts import NAMESPACE, VALUES, Rendered, environment

SPEED = 15
"""Times as fast as the rule's clock runs."""
LATENCY = "lognormal:3,0.5"
CONCURRENCY, IN_FLIGHT = 40, 400
EPOCHS = 9
DEADLINE_S = 600.0


class Row(NamedTuple):
    """A line of the tape."""

    seconds: float
    items: float | None
    """The reading; None: there was none."""
    wanted: int
    calls: int
    """Calls in flight, those of ending workers aside."""


@dataclass(slots=True)
class Ending:
    """A worker that was asked to end."""

    process: "subprocess.Popen[bytes]"
    calls: int
    asked_at: float
    """Monotonic seconds."""
    took_s: float | None = None
    """Until it had ended; None: not yet."""


@dataclass(slots=True)
class Workers:
    """Worker processes, as many as asked."""

    environ: Mapping[str, str]
    kill_s: float
    """Seconds from SIGTERM to SIGKILL, as of a pod."""
    running: list[tuple["subprocess.Popen[bytes]", int]] = field(default_factory=list)
    """With their ports for metrics, oldest first."""
    ending: list[Ending] = field(default_factory=list)
    killed: int = 0

    def scale(self, wanted: int) -> None:
        """Start or end as many as it takes, and look after those that end."""
        while len(self.running) < wanted:
            port = free_port()
            command = product("worker", "--metrics-port", str(port))
            quiet = subprocess.DEVNULL
            process = subprocess.Popen(command, env=self.environ, stdout=quiet, stderr=quiet)
            self.running.append((process, port))
        while len(self.running) > wanted:
            process, port = self.running.pop()
            calls = int(measured(port, "aegish_calls_in_flight"))
            process.terminate()
            self.ending.append(Ending(process, calls, time.monotonic()))
        for each in self.ending:
            waited_s = time.monotonic() - each.asked_at
            if each.took_s is None and each.process.poll() is not None:
                each.took_s = waited_s
            elif each.took_s is None and waited_s > self.kill_s:
                each.process.kill()
                self.killed += 1

    @property
    def rest(self) -> bool:
        """Whether some ran, and all have ended."""
        ended = all(each.took_s is not None for each in self.ending)
        return bool(self.ending) and not self.running and ended

    def calls(self) -> int:
        """Return the calls in flight of those that are not ending."""
        return sum(int(measured(port, "aegish_calls_in_flight")) for _, port in self.running)

    def close(self) -> None:
        """End what is left, where the drill was broken off."""
        for process in [*(each for each, _ in self.running), *(e.process for e in self.ending)]:
            if process.poll() is None:
                process.kill()
                process.wait()


def measured(port: int, name: str) -> float:
    """Return the sum of a worker's series; 0 while it has no port yet."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return 0.0
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def reading(prometheus: Prometheus, query: str) -> float | None:
    """Ask Prometheus as KEDA does; an empty answer is none, and so is a failure."""
    try:
        found = prometheus.query(query)
    except OSError:
        return None
    return float(found[0]["value"][1]) if found else None


def follow(
    cluster: Cluster,
    workers: Workers,
    spec: Mapping[str, Any],
    prometheus: Prometheus,
    aside: ThreadPoolExecutor,
) -> tuple[str, list[Row]]:
    """Submit a run once the fleet rests, and apply the rule until it rests again.

    Returns:
        Id of the run, and the tape.
    """
    query = spec["triggers"][0]["metadata"]["query"]
    scaler, tape = Autoscaler(ScalingRule.of(spec)), list[Row]()
    run: Future[tuple[str, float]] | None = None
    began = time.monotonic()
    while (now_s := round((time.monotonic() - began) * SPEED, 1)) < DEADLINE_S * SPEED:
        items = reading(prometheus, query)
        workers.scale(scaler.decide(now_s, items))
        tape.append(Row(now_s, items, scaler.replicas, workers.calls()))
        if run is None and items == 0 and len(tape) > 3:
            run = aside.submit(cluster.submit, "--epochs", str(EPOCHS))
        elif run is not None and workers.rest:
            return run.result()[0], tape
        time.sleep(max(0.0, TICK_S / SPEED - (time.monotonic() - began) + now_s / SPEED))
    raise SystemExit(f"not at rest after {DEADLINE_S:g} s; the last reading: {tape[-1]}")


def picture(tape: list[Row]) -> str:
    """Draw workers over time, a line every other minute of the rule's clock."""
    return "\n".join(
        f"{row.seconds:6.0f} s {'-' if row.items is None else f'{row.items:,.0f}':>7} items"
        f"  {'#' * row.wanted:<8} {row.calls:>5} calls"
        for place, row in enumerate(tape)
        if place % 8 == 0 or row is tape[-1]
    )


@dataclass(frozen=True, slots=True)
class Drilled:
    """Result of a drill."""

    planned: int
    stored: int
    answered: int
    tape: list[Row]
    ending: list[Ending]
    killed: int

    @property
    def whole(self) -> bool:
        """Whether no call was cut, and no item lost."""
        codes = {each.process.returncode for each in self.ending}
        return self.planned == self.stored == self.answered and codes == {0} and not self.killed


def drill(rendered: Rendered) -> Drilled:
    """Run the fleet under the rule that the chart renders."""
    spec = rendered.kind("ScaledObject")["worker"]["spec"]
    pod = rendered.pods()["worker"]["spec"]
    grace = environment(pod["containers"][0])["AEGISH_DIST_SHUTDOWN_GRACE_S"]
    with ExitStack() as stack:
        simulators = stack.enter_context(Simulators(latency=LATENCY))
        cluster = Cluster(simulators, in_flight=IN_FLIGHT, concurrency=CONCURRENCY, workers=0)
        stack.enter_context(cluster)
        environ = cluster.environ | {"AEGISH_DIST_SHUTDOWN_GRACE_S": grace}
        workers = Workers(environ, pod["terminationGracePeriodSeconds"])
        stack.callback(workers.close)
        port = free_port()
        options = ("--metrics-port", str(port), "--interval", "0.5")
        cluster.start(*product("exporter", *options), environ=environ)
        cluster.start(*product("worker", "--aggregate-only"), environ=environ)
        wait_until(lambda: accepts_connections(port), "the exporter", START_TIMEOUT_S)
        aside = stack.enter_context(ThreadPoolExecutor(1))
        (home := cluster.home / "prometheus").mkdir()
        watched = Prometheus(home, {"exporter": [port]}, {}, "500ms", {"namespace": NAMESPACE})
        prometheus = stack.enter_context(watched)
        run_id, tape = follow(cluster, workers, spec, prometheus, aside)
        planned = json.loads(cluster.run("status", "--run-id", run_id, "--json"))["planned"]
        answered = sum(simulators.stats()["requests"].values())
        stored = cluster.stored(run_id)
    return Drilled(planned, stored, answered, tape, workers.ending, workers.killed)


@click.command(help=laid_out(__doc__))
@click.option("--scale-down", type=click.Choice(["idle", "gradual"]), default="gradual")
@click.option("--tape", type=click.Path(path_type=Path), help="Write readings to this CSV file.")
def main(*, scale_down: str, tape: Path | None) -> None:
    """Run the drill once, and fail when a call was cut."""
    values = [path for path in VALUES if path.stem == "autoscaled"]
    done = drill(Rendered.of(values, [f"autoscaling.scaleDown={scale_down}"]))
    if tape is not None:
        with tape.open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream, lineterminator="\n").writerows([Row._fields, *done.tape])
    busy = [each for each in done.ending if each.calls]
    print(picture(done.tape))
    print_table(
        f"{done.planned:,} items, {CONCURRENCY} calls per worker, scale down: {scale_down}",
        [
            {
                "workers": f"0 to {max(row.wanted for row in done.tape)} to 0",
                "verdicts": f"{done.stored:,}",
                "requests answered": f"{done.answered:,}",
                "ended while busy": f"{len(busy)} of {len(done.ending)}",
                "calls in flight then": f"{sum(each.calls for each in busy):,}",
                "longest end": f"{number(max(each.took_s or 0 for each in done.ending))} s",
                "killed": str(done.killed),
                "calls cut": "none" if done.whole else "some",
            }
        ],
    )
    sys.exit(0 if done.whole else 1)


if __name__ == "__main__":
    main()
