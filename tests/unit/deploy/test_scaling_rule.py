"""The scaling rule of the chart: a missing reading is no zero, and no busy worker is cut off."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from aegish_dist.telemetry.measures import EXPORTER
from tests.unit.deploy.charts import CHART, Rendered

SCALED = [CHART.parent / "values" / "autoscaled.yaml"]


def rule(*settings: str) -> Mapping[str, Any]:
    """Return the specification of the scaled object."""
    spec: Mapping[str, Any] = Rendered.of(SCALED, settings).kind("ScaledObject")["worker"]["spec"]
    return spec


@pytest.fixture(scope="module")
def spec() -> Mapping[str, Any]:
    """The rule of the value file that scales."""
    return rule()


def test_it_scales_the_workers_to_zero(spec: Mapping[str, Any]) -> None:
    """The target is the deployment of the workers, which then says no number itself."""
    workers = Rendered.of(SCALED).kind("Deployment")["worker"]

    assert spec["scaleTargetRef"] == {"name": workers["metadata"]["name"]}
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (0, 8)
    assert "replicas" not in workers["spec"]


def test_it_reads_measures_of_the_exporter(spec: Mapping[str, Any]) -> None:
    """Queries name measures of the catalogue with their labels, and give one number."""
    known = {measure.name: {*measure.labels, "namespace"} for measure in EXPORTER}

    for trigger in spec["triggers"]:
        query = trigger["metadata"]["query"]
        (name,) = re.findall(r"aegish_\w+", query)
        assert set(re.findall(r"(\w+)=\"", query)) <= known[name]
        assert re.match(r"(clamp_max\()?max\(", query)
    assert [each["metadata"]["query"] for each in spec["triggers"]] == [
        'max(aegish_scaling_items{namespace="bench"})',
        'clamp_max(max(aegish_open_runs{state="asked",namespace="bench"}), 1)',
    ]


def test_a_missing_reading_is_an_error(spec: Mapping[str, Any]) -> None:
    """KEDA would take it for zero and end the workers; nor does a fallback move anything."""
    assert {each["metadata"]["ignoreNullValues"] for each in spec["triggers"]} == {"false"}
    assert "fallback" not in spec


def test_a_busy_worker_is_not_scaled_away(spec: Mapping[str, Any]) -> None:
    """By default workers end when nothing is left; else one by one, slower than they finish."""
    behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    gradual = rule("autoscaling.scaleDown=gradual")["advanced"]["horizontalPodAutoscalerConfig"]

    assert behavior["scaleDown"] == {"selectPolicy": "Disabled"}
    assert gradual["behavior"]["scaleDown"]["policies"] == [
        {"type": "Pods", "value": 1, "periodSeconds": 60}
    ]


def test_passwords_of_prometheus_are_references() -> None:
    """An authentication is named for each trigger where one is given, and not otherwise."""
    named = rule("autoscaling.authentication=prometheus")

    assert [each["authenticationRef"] for each in named["triggers"]] == [{"name": "prometheus"}] * 2
    assert not [each for each in rule()["triggers"] if "authenticationRef" in each]
