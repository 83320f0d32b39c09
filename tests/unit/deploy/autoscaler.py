"""How KEDA and Kubernetes' HorizontalPodAutoscaler apply the scaling rule of the Helm chart; pure.

After KEDA 2.20 (`pkg/scaling/executor`, `pkg/scalers/prometheus_scaler.go`) and the algorithm of
`autoscaling/v2` as Kubernetes documents it: KEDA decides between none and one, the autoscaler from
one upwards, both from the same reading.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

TICK_S = 15.0
"""Seconds between two decisions of the autoscaler; KEDA's polling interval in the chart."""
TOLERANCE = 0.1
"""Deviation from the target below which the autoscaler does nothing."""


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """At most so many pods, or so many percent of them, within a period."""

    kind: str
    value: int
    period_s: float

    def change(self, before: int) -> int:
        """Return the most pods that may be added to or taken from so many."""
        return self.value if self.kind == "Pods" else ceil(before * self.value / 100)


@dataclass(frozen=True, slots=True)
class ScalingRule:
    """The specification of a scaled object."""

    target: float
    """Items per worker."""
    minimum: int
    """Workers at least."""
    maximum: int
    """Workers at most."""
    cooldown_s: float
    """Seconds without an item after which the last workers end."""
    up: tuple[ScalingPolicy, ...]
    """Of which the one that allows most holds."""
    down: tuple[ScalingPolicy, ...]
    """Likewise; without any, the autoscaler never takes a worker away."""
    down_window_s: float
    """Seconds whose highest wish holds when there are to be fewer."""

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> "ScalingRule":
        """Read the specification that the chart renders."""
        behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        up, down = behavior["scaleUp"], behavior["scaleDown"]
        (trigger,) = spec["triggers"]
        return cls(
            target=float(trigger["metadata"]["threshold"]),
            minimum=spec["minReplicaCount"],
            maximum=spec["maxReplicaCount"],
            cooldown_s=spec["cooldownPeriod"],
            up=_policies(up["policies"]),
            down=() if down.get("selectPolicy") == "Disabled" else _policies(down["policies"]),
            down_window_s=down.get("stabilizationWindowSeconds", 0),
        )


def _policies(given: Sequence[Mapping[str, Any]]) -> tuple[ScalingPolicy, ...]:
    return tuple(
        ScalingPolicy(each["type"], each["value"], each["periodSeconds"]) for each in given
    )


@dataclass(slots=True)
class Autoscaler:
    """Turns readings into a number of workers."""

    rule: ScalingRule
    replicas: int = 0
    _active_at: float | None = None
    # Of the autoscaler: it does not know of KEDA's.
    _changes: list[tuple[float, int]] = field(default_factory=list)
    _wishes: list[tuple[float, int]] = field(default_factory=list)

    def decide(self, now_s: float, items: float | None) -> int:
        """Return how many workers there are to be.

        Args:
            items: The reading; None: there is none, and nothing moves.
        """
        if items is not None:
            waking = not self.replicas
            self.replicas = self._keda(now_s, items)
            if self.replicas and not waking:
                wanted = self._autoscaler(now_s, items)
                self._changes.append((now_s, wanted - self.replicas))
                self.replicas = wanted
        return self.replicas

    def _keda(self, now_s: float, items: float) -> int:
        if items > 0:
            self._active_at = now_s
            return self.replicas or max(1, self.rule.minimum)
        cooled = self._active_at is None or self._active_at + self.rule.cooldown_s < now_s
        return 0 if cooled and not self.rule.minimum else self.replicas

    def _autoscaler(self, now_s: float, items: float) -> int:
        now = self.replicas
        near = abs(1 - items / (self.rule.target * now)) <= TOLERANCE
        wish = now if near else ceil(items / self.rule.target)
        wish = min(max(wish, self.rule.minimum, 1), self.rule.maximum)
        self._wishes.append((now_s, wish))
        if wish > now:
            return min(wish, max(self._start(now_s, each, 1) for each in self.rule.up))
        if wish == now or not self.rule.down:
            return now
        recent = [each for at, each in self._wishes if at > now_s - self.rule.down_window_s]
        wish = min(now, max(recent, default=wish))
        return max(wish, min(self._start(now_s, each, -1) for each in self.rule.down))

    def _start(self, now_s: float, policy: ScalingPolicy, sign: int) -> int:
        """Return the bound that a policy sets, from the number at the start of its period."""
        changed = sum(
            change for at, change in self._changes
            if at > now_s - policy.period_s and change * sign > 0
        )  # fmt: skip
        before = self.replicas - changed
        return before + sign * policy.change(before)
