"""A Prometheus beside a fleet of benchmarks, with the rules of deploy/prometheus/."""

import json
import re
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from cluster import ROOT

from tests.services import (
    HOST,
    START_TIMEOUT_S,
    ServerProcess,
    free_port,
    require_binary,
    wait_until,
)

RULES = sorted((ROOT / "deploy" / "prometheus" / "rules").glob("*.yml"))
LEAST_RANGE_S = 5
"""A rate needs some scrapes in its range."""

_DURATION = re.compile(r"(\[|for: )(\d+)([smhd])\b")
_BOUND = re.compile(r"(\d+) \* (60|3600)\b")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def shortened(rules: str) -> str:
    """Return rules whose minutes last a second: in ranges, in `for`, and in bounds.

    A bound in hours counts seconds. Everything else, labels and other bounds, is as it was.
    """

    def duration(found: re.Match[str]) -> str:
        seconds = int(found[2]) * _SECONDS[found[3]] / 60
        least = LEAST_RANGE_S if found[1] == "[" else 1
        return f"{found[1]}{max(least, round(seconds))}s"

    return _BOUND.sub(r"\1", _DURATION.sub(duration, rules))


class Prometheus:
    """A Prometheus that scrapes ports of this machine; runs for the length of a `with`."""

    def __init__(
        self,
        home: Path,
        jobs: Mapping[str, Sequence[int]],
        rules: Mapping[str, str],
        interval: str = "1s",
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Write its configuration.

        Args:
            home: An empty folder for configuration and data.
        """
        self._home = home
        for name, content in rules.items():
            (home / name).write_text(content)
        found = {"labels": dict(labels or {})}
        config = {
            "global": {"scrape_interval": interval, "evaluation_interval": interval}
            | {"scrape_timeout": interval},
            "rule_files": [str(home / name) for name in rules],
            "scrape_configs": [
                {
                    "job_name": job,
                    "static_configs": [{"targets": [f"{HOST}:{p}" for p in ports]} | found],
                }
                for job, ports in jobs.items()
            ],
        }
        (home / "prometheus.yml").write_text(json.dumps(config))
        self._server = ServerProcess(free_port(), home / "prometheus.log")

    def __enter__(self) -> Self:
        address = f"--web.listen-address={HOST}:{self._server.port}"
        options = [f"--config.file={self._home}/prometheus.yml", "--log.level=warn"]
        data = f"--storage.tsdb.path={self._home}/data"
        self._server.launch([require_binary("prometheus"), *options, data, address])
        wait_until(self._ready, "Prometheus", START_TIMEOUT_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def _ready(self) -> bool:
        # It listens before it answers queries.
        try:
            self.query("vector(1)")
        except urllib.error.HTTPError:
            return False
        return True

    def query(self, expression: str, **when: float) -> list[dict[str, Any]]:
        """Return the answer to a query, at one moment or, with start, end and step, over time."""
        page = "query_range" if "start" in when else "query"
        asked = urllib.parse.urlencode({"query": expression, **when})
        url = f"http://{HOST}:{self._server.port}/api/v1/{page}?{asked}"
        with urllib.request.urlopen(url, timeout=30) as response:
            found: list[dict[str, Any]] = json.load(response)["data"]["result"]
        return found

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire."""
        series = self.query('ALERTS{alertstate="firing"}')
        return {each["metric"]["alertname"] for each in series}


def start_exporter(
    environ: Mapping[str, str], port: int, log: Path, interval_s: float = 1.0
) -> "subprocess.Popen[bytes]":
    """Start the exporter of a fleet without waiting for it."""
    command = (sys.executable, "-m", "aegish_dist", "exporter", "--metrics-port", str(port))
    with log.open("ab") as output:
        return subprocess.Popen(
            [*command, "--interval", str(interval_s)], env=dict(environ), stdin=subprocess.DEVNULL,
            stdout=output, stderr=output,
        )  # fmt: skip
