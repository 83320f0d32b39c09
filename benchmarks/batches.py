"""Batches of three simulated vendors under every fault at once: verdicts, money, second payments.

Run with `python benchmarks/batches.py [ITEMS]`; 3,000 items for each vendor take about two
minutes. Needs redis-server. The exit code is 1 when a line below does not hold.

Six runs ask every vendor in batches, worked on by two workers. The provider commits each fault
that `tests/batch_server/plan.py` lists, and keeps a bill of its own.

`verdicts`: one for each item, none twice.

`ours`: the cost of all verdicts in the store. `billed`: by the simulator, less `unread`, the
answers that it charged and whose lines it cut, so that no client can know of them. They differ by
1 % at most; `apart` counts `unread` as well.

`paid twice`: requests that were charged twice under one name, and words of batches under which more
than one was created: none.
"""

import json
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
from cluster import Cluster, Simulators
from measuring import laid_out
from msgspec import Struct

from aegish_dist.core.model import HTTP_FORMATS
from aegish_dist.pipeline.simulate import one_of_each_format
from tests.cluster import BATCH_SERVER

RUNS = 6
WORKERS = 2
EPOCHS = 2
ITEMS = 3000
POLL_S = "0.2"
DEADLINE_S = 900.0
ALLOWED = Decimal("0.01")
INPUT_USD, OUTPUT_USD = "1.25", "10"
ANSWERS = "SELECT count(*) FROM verdicts JOIN run_models AS model ON model.id = run_model_id"
TOTALS = """
    SELECT model.model, count(*) AS verdicts, sum(cost_usd) AS usd,
           count(*) - count(DISTINCT (run_model_id, sample_key, epoch)) AS doubled,
           count(*) FILTER (WHERE error_class IS NOT NULL) AS refused,
           count(*) FILTER (WHERE service_ms IS NOT NULL) AS live,
           (SELECT count(*) FROM batches JOIN run_models AS each ON each.id = run_model_id
            WHERE each.model = model.model) AS batches
    FROM verdicts JOIN run_models AS model ON model.id = run_model_id
    GROUP BY model.model ORDER BY model.model
"""
RESULTS = """
    SELECT kind, sum(CASE WHEN value = 'true' THEN 1 ELSE value::int END)
    FROM batches, jsonb_each_text(counts) AS result (kind, value) GROUP BY kind ORDER BY kind
"""
SCENARIO = f"""
seed = 5
latency = "constant:0.05"
price = {{ input = {INPUT_USD}, output = {OUTPUT_USD} }}

[batches]
duration = "uniform:1,4"
list_lag_s = 2.0
retry_after_s = 0.5
hang_s = 3.0

[batches.requests]
refused = 0.01
server_error = 0.02
empty = 0.01
content_filter = 0.01
token_limit = 0.005
missing = 0.02
duplicate = 0.02
malformed = 0.004
foreign = 0.02

[batches.ends]
failed = 0.1
expired = 0.1
cancelled = 0.1
slow = 0.1
"""
CALL_FAULTS = {
    "upload": ("rate_limit", "server_error", "overloaded", "reset", "lost", "late_error"),
    "create": ("rate_limit", "server_error", "reset", "lost", "late_error", "truncated", "hang"),
    "poll": ("rate_limit", "server_error", "overloaded", "reset", "malformed"),
    "list": ("rate_limit", "server_error", "reset"),
    "results": ("rate_limit", "server_error", "reset", "truncated", "malformed"),
    "cancel": ("rate_limit", "server_error"),
    "delete": ("server_error", "reset"),
}
"""Faults of each kind of request about batches, each of them at `CALL_FAULT`."""
CALL_FAULT = 0.05


class Vendors(Cluster):
    """A cluster whose models are asked in one vendor's batches each."""

    def __init__(self, simulators: Simulators) -> None:
        """Prepare it."""
        super().__init__(simulators, in_flight=100, workers=0)
        self.models = list(one_of_each_format())

    def _catalog(self) -> str:
        [url] = self._simulators.urls
        price = f"price = {{ input = {INPUT_USD}, output = {OUTPUT_USD} }}"
        return "\n".join(
            f'[providers.{model.partition("/")[0]}]\nwire = "{wire}"\nbatch_share = 0.5\n'
            f'base_url = "{url}{HTTP_FORMATS[wire].simulated_root}"\nkey_variable = ""\n'
            f'[[models]]\nid = "{model}"\nsimulated = true\nmax_in_flight = 100\n{price}\n'
            for model, wire in one_of_each_format().items()
        )


class Compared(Struct, frozen=True):
    """A vendor's items beside its bill."""

    model: str
    planned: int
    row: Any
    billed: Decimal
    """The part of the bill that could be read, in USD."""
    unread: Decimal
    """The rest of it, in USD."""

    @property
    def apart(self) -> Decimal:
        """The difference as a share of the bill."""
        return self._apart(self.billed)

    @property
    def apart_in_all(self) -> Decimal:
        """The same with what could not be read."""
        return self._apart(self.billed + self.unread)

    def _apart(self, bill: Decimal) -> Decimal:
        return abs(Decimal(self.row.usd or 0) - bill) / bill if bill else Decimal(1)

    @property
    def holds(self) -> bool:
        """Whether every item has one verdict, and the costs agree."""
        whole = self.row.verdicts == self.planned and not self.row.doubled
        return whole and self.apart <= ALLOWED


@contextmanager
def scenario_file() -> Iterator[Path]:
    """Give the scenario of a provider that does everything wrong now and then."""
    calls = (
        f"[batches.calls.{endpoint}]\n" + "".join(f"{fault} = {CALL_FAULT}\n" for fault in faults)
        for endpoint, faults in CALL_FAULTS.items()
    )
    with tempfile.TemporaryDirectory(prefix="batches") as folder:
        (path := Path(folder, "scenario.toml")).write_text(SCENARIO + "\n" + "\n".join(calls))
        yield path


def write_commands(path: Path, number: int) -> None:
    """Write a dataset of so many commands, half of them malicious."""
    lines = (
        {"command": f"tar cf a{n}.tar .", "target": "malicious", "category": "shell"}
        if n % 2
        else {"command": f"ls -l /srv/{n}", "target": "harmless"}
        for n in range(number)
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def submit_all(cluster: Vendors, items: int) -> int:
    """Submit the runs; return how many items each vendor is asked."""
    commands = items // RUNS // EPOCHS
    for number in range(RUNS):
        path = cluster.home / f"commands{number}.jsonl"
        write_commands(path, commands)
        cluster.run("datasets", "import", "table", str(path))
        cluster.submit("--dataset", path.stem, "--epochs", str(EPOCHS), "--batch")
    return commands * EPOCHS * RUNS


def wait(cluster: Vendors, planned: int) -> float:
    """Wait until every item has its verdict and every batch has ended; return the seconds."""
    began = time.monotonic()
    shown = 0.0
    while time.monotonic() < began + DEADLINE_S:
        [(verdicts,)] = cluster.rows(ANSWERS)
        [(opened,)] = cluster.rows("SELECT count(*) FROM batches WHERE state <> 'ended'")
        if verdicts >= planned and not opened:
            break
        if time.monotonic() > shown + 15:
            shown = time.monotonic()
            print(f"  {shown - began:4.0f} s: {verdicts} of {planned}, {opened} open", flush=True)
        time.sleep(0.5)
    return time.monotonic() - began


def compare(cluster: Vendors, bill: dict[str, Any], planned: int) -> list[Compared]:
    """Return each vendor's items beside its bill."""
    found = []
    for row in cluster.rows(TOTALS):
        of_model = bill["models"][row.model.partition("/")[2]]
        unread = sum(Decimal(of_model[part]["usd"]) for part in of_model if "unread" in part)
        billed = Decimal(of_model["usd"]) - unread
        found.append(Compared(row.model, planned, row, billed, Decimal(unread)))
    return found


def show(found: list[Compared]) -> None:
    """Print the table."""
    print(
        f"{'vendor':28}{'items':>7}{'verdicts':>9}{'twice':>6}{'batches':>8}{'refused':>8}"
        f"{'live':>6}{'ours':>10}{'billed':>10}{'unread':>9}{'differ':>8}{'apart':>8}"
    )
    for c in found:
        print(
            f"{c.model:28}{c.planned:7}{c.row.verdicts:9}{c.row.doubled:6}{c.row.batches:8}"
            f"{c.row.refused:8}{c.row.live:6}{c.row.usd or 0:10.6f}{c.billed:10.6f}"
            f"{c.unread:9.6f}{c.apart:8.2%}{c.apart_in_all:8.2%}"
        )


@click.command(help=laid_out(__doc__))
@click.argument("items", type=click.IntRange(RUNS * EPOCHS), default=ITEMS, metavar="[ITEMS]")
@click.option("--keep", type=click.Path(path_type=Path), help="Write the provider's counters.")
def main(*, items: int, keep: Path | None) -> None:
    """Ask, wait, compare."""
    with (
        scenario_file() as path,
        Simulators(
            latency="constant:0.05", scenario=path, program=tuple(BATCH_SERVER)
        ) as simulators,
        Vendors(simulators) as cluster,
    ):
        cluster.environ["AEGISH_DIST_BATCH_POLL_S"] = POLL_S
        cluster.start_workers(WORKERS)
        cluster.wait_for_workers()
        planned = submit_all(cluster, items)
        took_s = wait(cluster, planned * len(cluster.models))
        with urllib.request.urlopen(f"{simulators.urls[0]}/stats") as response:
            stats = json.load(response)
        found = compare(cluster, stats["bill"], planned)
        kinds = [f"{kind} {number}" for kind, number in cluster.rows(RESULTS)]
    if keep is not None:
        keep.write_text(json.dumps(stats, indent=1))
    show(found)
    bill, faults = stats["bill"], stats["batch_faults"]
    print(f"{took_s:.0f} s; {bill['batches']} batches, {bill['tokens']} words of ours")
    print(f"paid twice: {bill['charged_twice']} requests, {len(bill['tokens_used_twice'])} batches")
    print(f"results: {', '.join(kinds)}")
    print(f"faults: {', '.join(f'{name} {number}' for name, number in sorted(faults.items()))}")
    clean = not bill["charged_twice"] and not bill["tokens_used_twice"]
    complete = len(found) == len(one_of_each_format()) and all(each.holds for each in found)
    sys.exit(0 if clean and complete else 1)


if __name__ == "__main__":
    main()
