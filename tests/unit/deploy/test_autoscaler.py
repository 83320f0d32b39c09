"""The chart's scaling rule on readings of a recorded run, and step by step."""

import csv
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.unit.deploy.autoscaler import TICK_S, Autoscaler, ScalingRule
from tests.unit.deploy.charts import CHART, Rendered

TAPE = Path(__file__).parent / "recorded_run.csv"
"""Of a real fleet under the rule, which let workers end gradually."""


def rule(scale_down: str) -> ScalingRule:
    """Return the rule that the chart renders."""
    values = [CHART.parent / "values" / "autoscaled.yaml"]
    rendered = Rendered.of(values, [f"autoscaling.scaleDown={scale_down}"])
    return ScalingRule.of(rendered.kind("ScaledObject")["worker"]["spec"])


@pytest.fixture(scope="module")
def idle() -> ScalingRule:
    """Workers end when there is nothing left."""
    return rule("idle")


@pytest.fixture(scope="module")
def gradual() -> ScalingRule:
    """Workers end one by one."""
    return rule("gradual")


def decided(scaled: ScalingRule, items: Sequence[float | None]) -> list[int]:
    """Return the number of workers after each reading, a tick apart."""
    scaler = Autoscaler(scaled)
    return [scaler.decide(place * TICK_S, each) for place, each in enumerate(items)]


@pytest.fixture(scope="module")
def tape() -> list[dict[str, str]]:
    """Readings of the recorded run and the workers that were there."""
    with TAPE.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_a_recorded_run_is_scaled_from_none_to_eight_and_back(
    gradual: ScalingRule, tape: list[dict[str, str]]
) -> None:
    """The chart's rule decides today as it did when real workers followed it."""
    scaler = Autoscaler(gradual)
    wanted = [
        scaler.decide(float(row["seconds"]), float(row["items"]) if row["items"] else None)
        for row in tape
    ]

    assert wanted == [int(row["wanted"]) for row in tape]
    assert (wanted[0], max(wanted), wanted[-1]) == (0, 8, 0)


def test_idle_workers_end_together(idle: ScalingRule, tape: list[dict[str, str]]) -> None:
    """On the same readings no worker is taken away while there is an item."""
    scaler = Autoscaler(idle)
    before = 0
    for row in tape:
        items = float(row["items"]) if row["items"] else None
        wanted = scaler.decide(float(row["seconds"]), items)
        assert wanted >= before or items == 0
        before = wanted
    assert before == 0


def test_it_grows_by_four_or_doubles(idle: ScalingRule) -> None:
    """One at first, then at most four more within 15 s, and never more than eight."""
    assert decided(idle, [5000, 5000, 5000, 5000]) == [1, 5, 8, 8]


def test_a_deviation_of_a_tenth_moves_nothing(idle: ScalingRule) -> None:
    """Up to 550 items one worker is right; 551 ask for a second."""
    assert decided(idle, [1, 501, 549, 551]) == [1, 1, 1, 2]


def test_one_worker_ends_a_minute(gradual: ScalingRule) -> None:
    """Five minutes after fewer would have done, which is 20 readings, the first one ends."""
    wanted = decided(gradual, [2000, 2000, *[400.0] * 32])

    assert wanted[:3] == [1, 4, 4]
    assert wanted.index(3) == 21
    assert wanted.index(2) - wanted.index(3) == 4
    assert wanted.index(1, 1) - wanted.index(2) == 4


def test_the_last_ones_wait_for_the_cooldown(idle: ScalingRule) -> None:
    """300 s after the last item, which is 20 readings, they are still there; then none is."""
    wanted = decided(idle, [2000, 2000, *[0.0] * 21])

    assert wanted[-2:] == [4, 0]


def test_a_missing_reading_moves_nothing(idle: ScalingRule) -> None:
    """However long Prometheus or the exporter is away."""
    assert set(decided(idle, [2000, 2000, *[None] * 100])[1:]) == {4}
    assert set(decided(idle, [None] * 10)) == {0}
