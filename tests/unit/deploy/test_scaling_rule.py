"""The scaling rule of the chart: a missing reading is no zero, and no busy worker is cut off."""

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


def test_it_reads_a_measure_of_the_exporter(spec: Mapping[str, Any]) -> None:
    """The query names one of the catalogue, and gives one number."""
    (trigger,) = spec["triggers"]
    query = trigger["metadata"]["query"]

    assert query == 'max(aegish_scaling_items{namespace="bench"})'
    assert "aegish_scaling_items" in {measure.name for measure in EXPORTER}
    assert trigger["metadata"]["threshold"] == "500"


def test_a_missing_reading_is_an_error(spec: Mapping[str, Any]) -> None:
    """KEDA would take it for zero and end the workers; nor does a fallback move anything."""
    assert spec["triggers"][0]["metadata"]["ignoreNullValues"] == "false"
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
    """An authentication is named for the trigger where one is given, and not otherwise."""
    named = rule("autoscaling.authentication=prometheus")

    assert [each["authenticationRef"] for each in named["triggers"]] == [{"name": "prometheus"}]
    assert not [each for each in rule()["triggers"] if "authenticationRef" in each]
