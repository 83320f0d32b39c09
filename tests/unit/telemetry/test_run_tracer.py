"""Spans of runs, read back from OpenTelemetry's own exporter to memory."""

import socket
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.trace import SpanKind, StatusCode

from aegish_dist.core.verdict import Item
from aegish_dist.errors import ItemShedError
from aegish_dist.telemetry.run_tracer import RunTracer, TraceIds, trace_ids
from tests.defined import defined

RUN = "1rx26aa1j"
ITEM = Item(RUN, "openai/gpt-5.1", 7, 2, 1)


class Traced:
    """A tracer and what it has ended."""

    def __init__(self) -> None:
        self._memory = InMemorySpanExporter()
        self.tracer = RunTracer(SimpleSpanProcessor(self._memory))

    def spans(self) -> list[ReadableSpan]:
        return list(self._memory.get_finished_spans())

    def close(self) -> None:
        self.tracer.close()


@pytest.fixture
def traced() -> Iterator[Traced]:
    made = Traced()
    yield made
    made.close()


def context(span: ReadableSpan) -> trace.SpanContext:
    return defined(span.get_span_context())


def parent(span: ReadableSpan) -> TraceIds:
    found = defined(span.parent)
    return TraceIds(found.trace_id, found.span_id)


def test_the_ids_of_a_trace_follow_from_the_run() -> None:
    """First 128 and next 64 bits of SHA-256, by `printf 1rx26aa1j | sha256sum`."""
    ids = trace_ids(RUN)
    assert f"{ids.trace_id:032x}" == "2f92336946d0d66001a05e905ee7b290"
    assert f"{ids.span_id:016x}" == "f8e3dad1987b697e"


def test_a_collector_that_takes_no_spans_does_not_hold_a_process_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aegish_dist.telemetry.run_tracer.FLUSH_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        tracer = RunTracer.open()
        with tracer.span("a", RUN, {}):
            pass
        began = monotonic()
        tracer.close()
        assert monotonic() - began < 2


def test_the_first_span_has_the_ids_of_the_run_and_the_others_their_own(traced: Traced) -> None:
    with traced.tracer.first(RUN, {"a": 1}), traced.tracer.span("inner", RUN, {}):
        pass
    inner, first = traced.spans()
    ids = trace_ids(RUN)
    assert (context(first).trace_id, context(first).span_id) == ids
    assert (first.name, first.kind, first.parent) == ("submit", SpanKind.PRODUCER, None)
    assert first.attributes == {"aegish_dist.run.id": RUN, "a": 1}
    assert context(inner).trace_id == ids.trace_id
    assert context(inner).span_id != ids.span_id
    assert parent(inner).span_id == ids.span_id


def test_work_of_another_process_is_below_the_first_span(traced: Traced) -> None:
    with traced.tracer.span("aggregate", RUN, {}):
        pass
    (found,) = traced.spans()
    assert parent(found) == trace_ids(RUN)
    assert defined(found.parent).is_remote


def test_work_on_another_run_is_in_the_trace_of_that_run(traced: Traced) -> None:
    with traced.tracer.span("outer", RUN, {}), traced.tracer.span("inner", "other", {}):
        pass
    inner, _ = traced.spans()
    assert context(inner).trace_id == trace_ids("other").trace_id


def test_the_span_of_a_caller_is_linked(traced: Traced) -> None:
    caller = trace.SpanContext(1, 2, is_remote=False)
    with trace.use_span(trace.NonRecordingSpan(caller)), traced.tracer.first(RUN, {}):
        pass
    (first,) = traced.spans()
    assert first.parent is None
    assert [link.context for link in first.links] == [caller]


def test_an_item_is_below_the_span_that_published_it(traced: Traced) -> None:
    with traced.tracer.span("publish", RUN, {}):
        headers = traced.tracer.headers()
    with traced.tracer.item(ITEM, headers["traceparent"]), traced.tracer.part("look up", {}):
        pass
    publish, part, item = traced.spans()
    assert parent(item).span_id == context(publish).span_id
    assert (item.name, item.kind) == ("evaluate", SpanKind.CONSUMER)
    assert item.attributes == {
        "aegish_dist.run.id": RUN,
        "aegish_dist.model": "openai/gpt-5.1",
        "aegish_dist.sample.key": 7,
        "aegish_dist.epoch": 2,
        "aegish_dist.generation": 1,
    }
    assert parent(part).span_id == context(item).span_id


@pytest.mark.parametrize(
    "header",
    [
        None,
        7,
        "",
        "x" * 10_000,
        f"00-{'1' * 32}-{'2' * 16}-01",
        f"00-{trace_ids(RUN).trace_id:032x}-{'0' * 16}-01",
        f"ff-{trace_ids(RUN).trace_id:032x}-{'2' * 16}-01",
    ],
)
def test_a_header_moves_no_item_out_of_the_trace_of_its_run(traced: Traced, header: object) -> None:
    with traced.tracer.item(ITEM, header):
        pass
    (item,) = traced.spans()
    assert parent(item) == trace_ids(RUN)


def test_an_item_that_goes_back_to_its_queue_is_no_error(traced: Traced) -> None:
    with pytest.raises(ItemShedError), traced.tracer.item(ITEM, None):
        raise ItemShedError
    (item,) = traced.spans()
    assert defined(item.attributes)["aegish_dist.requeued"] == "ItemShedError"
    assert item.status.status_code is StatusCode.UNSET


def test_a_bug_is_an_error_without_its_words(traced: Traced) -> None:
    with pytest.raises(ValueError, match="rm -rf"), traced.tracer.item(ITEM, None):
        raise ValueError("rm -rf /")
    (item,) = traced.spans()
    assert defined(item.attributes)["error.type"] == "ValueError"
    assert item.status.status_code is StatusCode.ERROR
    assert "rm -rf" not in str(item.to_json())


def test_a_run_that_is_not_sampled_has_no_span_in_any_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    traced = Traced()
    for number in range(40):
        run = f"run-{number}"
        with traced.tracer.first(run, {}):
            headers = traced.tracer.headers()
        with traced.tracer.item(Item(run, "m", 1), headers.get("traceparent")):
            pass
        with traced.tracer.span("aggregate", run, {}):
            pass
    names: dict[Any, list[str]] = {}
    for span in traced.spans():
        names.setdefault(context(span).trace_id, []).append(span.name)
    assert 5 < len(names) < 35
    assert all(each == ["submit", "evaluate", "aggregate"] for each in names.values())
    traced.close()


def test_attributes_of_calls_have_the_names_of_the_conventions() -> None:
    known = {v for k, v in vars(gen_ai_attributes).items() if k.startswith("GEN_AI_")}
    source = Path("aegish_dist/pipeline/caller.py").read_text()
    used = {word for word in source.split('"') if word.startswith("gen_ai.")}
    assert used
    assert used <= known
