"""Measures of a real worker, compared with what the simulator and the store say."""

import re
from collections import Counter
from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

from tests.cluster import DEADLINE_S, Cluster
from tests.defined import defined
from tests.services import wait_until

MODEL = "simulated/careful"


def get(url: str, path: str) -> tuple[int, str]:
    with closing(HTTPConnection(urlsplit(url).netloc, timeout=10)) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()


def test_a_worker_counts_what_it_does(cluster: Cluster) -> None:
    """Verdicts as the store has them, calls as the provider saw them, and its readiness."""
    cluster.set(metrics_port=0)
    cluster.simulator.start("--fault", "overloaded=0.2", "--seed", "3")
    worker = cluster.start_worker()
    wait_until(lambda: "metrics_served" in cluster.log(), "the port", DEADLINE_S)
    said = cluster.log().partition("metrics_served")[2]
    url = defined(re.search(r"http://127\.0\.0\.1:\d+", said))[0]
    wait_until(lambda: get(url, "/readyz")[0] == 200, "a ready worker", DEADLINE_S)

    run_id = cluster.submit(MODEL, limit=40)
    cluster.wait_until_complete(run_id)

    read = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(get(url, "/metrics")[1])
        for sample in family.samples
    }
    outcomes = Counter(each.verdict.outcome.value for each in cluster.verdicts(run_id))
    assert {key[2]: n for key, n in read.items() if key[0] == "aegish_verdicts_total"} == outcomes
    calls = {key[2]: n for key, n in read.items() if key[0] == "aegish_calls_total"}
    assert calls["answered"] == 40
    assert calls["overloaded"] > 0
    assert sum(calls.values()) == cluster.simulator.calls()
    assert read["aegish_retries_total", MODEL] == sum(calls.values()) - 40
    assert read["aegish_wait_seconds_count", MODEL, "service"] == 40
    assert get(url, "/healthz") == (200, "ok\n")

    cluster.stop(worker)
    assert "Traceback" not in cluster.log()
