"""The scaling rule of the chart: a missing reading is no zero, and no busy worker is cut off."""

from typing import Any

import pytest

from aegish_dist.telemetry.metrics import EXPORTER
from tests.recorded import document_of
from tests.unit.deploy.charts import CHART, Rendered

SCALED = [CHART.parent / "values" / "autoscaled.yaml"]


def rule(*settings: str) -> dict[str, Any]:
    return dict(Rendered.of(SCALED, settings).kind("ScaledObject")["worker"]["spec"])


@pytest.mark.parametrize(
    ("mode", "down"),
    [
        ("idle", {"selectPolicy": "Disabled"}),  # they end together, after the cooldown
        (
            "gradual",  # one by one, slower than they finish
            {
                "stabilizationWindowSeconds": 300,
                "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
            },
        ),
    ],
)
def test_workers_are_scaled_from_none_and_no_busy_one_is_cut_off(
    mode: str, down: dict[str, Any]
) -> None:
    """A missing reading moves nothing: KEDA would take it for zero, and there is no fallback."""
    workers = Rendered.of(SCALED).kind("Deployment")["worker"]
    expected = document_of("scaled_object.json")
    expected["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"] = down
    assert rule(f"autoscaling.scaleDown={mode}") == expected
    assert workers["metadata"]["name"] == expected["scaleTargetRef"]["name"]
    assert "replicas" not in workers["spec"]
    assert "aegish_scaling_items" in {measure.name for measure in EXPORTER}
    assert rule() == rule("autoscaling.scaleDown=idle")


def test_passwords_of_prometheus_are_references() -> None:
    (trigger,) = rule("autoscaling.authentication=prometheus")["triggers"]
    assert trigger["authenticationRef"] == {"name": "prometheus"}
