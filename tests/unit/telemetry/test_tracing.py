"""When there are traces, and that there is nothing where there are none."""

import subprocess
import sys

import pytest

from aegish_dist.core.verdict import Item
from aegish_dist.telemetry import tracing
from tests.recorded import lines_of

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


@pytest.mark.parametrize(
    ("environ", "wanted"),
    lines_of("otel_variables.jsonl"),
)
def test_the_variables_of_opentelemetry_ask_for_traces(
    environ: dict[str, str], wanted: bool
) -> None:
    assert tracing.wanted(environ) is wanted


def test_without_traces_nothing_is_made() -> None:
    tracing.start_tracing({})
    assert tracing.run_tracer() is None
    spans = [tracing.first_span("r", {}), tracing.span("x", "r"), tracing.part_span("x")]
    spans.append(tracing.item_span(Item("r", "m", 1), None))
    assert all(each is spans[0] for each in spans)
    assert tracing.message_headers() == {}
    tracing.note({"x": 1})
    tracing.finish_tracing()


@pytest.mark.parametrize("module", ["aegish_dist.pipeline.submit", "workers.tasks"])
def test_without_traces_opentelemetry_is_not_imported(module: str) -> None:
    script = f"import sys, {module}; sys.exit('opentelemetry' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_without_the_extra_there_is_a_warning_and_no_trace() -> None:
    script = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from aegish_dist.telemetry import tracing\n"
        f"tracing.start_tracing({ENDPOINT!r}); assert tracing.run_tracer() is None"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert "tracing_is_off" in done.stderr + done.stdout
