"""Traces of a run over real processes, read by a collector."""

from collections.abc import Iterator

import pytest

from aegish_dist.telemetry.run_tracer import trace_ids
from tests.cluster import DEADLINE_S, Cluster
from tests.services import wait_until
from tests.span_collector import SpanCollector, collecting

pytestmark = pytest.mark.long

MODELS = ("simulated/careful", "simulated-anthropic/lenient")
ITEMS = 5
KEY = "sk-proj-0123456789abcdef"


@pytest.fixture
def collector() -> Iterator[SpanCollector]:
    with collecting() as started:
        yield started


def test_a_run_is_one_trace_over_all_processes(cluster: Cluster, collector: SpanCollector) -> None:
    """From the command by the broker to verdicts, aggregation and snapshot, and no text in it."""
    cluster.env |= collector.environ | {"OPENAI_API_KEY": KEY}
    cluster.simulator.start()
    worker = cluster.start_worker()
    run_id = cluster.submit(*MODELS, limit=ITEMS)
    wait_until(lambda: bool(collector.named("snapshot")), "a snapshot's span", DEADLINE_S)
    wait_until(lambda: len(collector.named("store")) == 2 * ITEMS, "all spans", DEADLINE_S)

    (submit,), (publish,) = collector.named("submit"), collector.named("publish")
    assert (int(submit.trace_id, 16), int(submit.span_id, 16)) == trace_ids(run_id)
    assert {span.trace_id for span in collector.spans} == {submit.trace_id}
    assert publish.parent_id == submit.span_id

    items = collector.named("evaluate")
    assert len(items) == 2 * ITEMS
    assert {item.parent_id for item in items} == {publish.span_id}
    assert {item.process for item in items} == {worker.pid}
    assert submit.process != worker.pid
    assert {item.facts["aegish_dist.model"] for item in items} == set(MODELS)
    assert all(item.facts["aegish_dist.outcome"] in OUTCOMES for item in items)
    for part in ("look up", "chat careful", "chat lenient", "store"):
        assert {span.parent_id for span in collector.named(part)} <= {
            item.span_id for item in items
        }
    call = collector.named("chat lenient")[0]
    known = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "lenient"}
    known |= {"server.address": "127.0.0.1"}
    assert (call.kind, call.facts | known) == ("CLIENT", call.facts)
    assert isinstance(call.facts["gen_ai.usage.input_tokens"], int)

    (aggregate,) = collector.named("aggregate")
    assert (aggregate.parent_id, aggregate.process) == (submit.span_id, worker.pid)
    assert {span.parent_id for span in collector.named("snapshot")} == {aggregate.span_id}

    texts = [verdict.sample.command for verdict in cluster.verdicts(run_id)]
    assert texts
    for text in (*texts, KEY, "Validate"):
        assert text.encode() not in collector.raw


OUTCOMES = {"ALLOW", "WARN", "BLOCK", "FORMAT_ERROR"}
