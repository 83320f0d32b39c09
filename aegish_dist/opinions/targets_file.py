"""Targets in files: the least values of metrics."""

from pathlib import Path
from types import MappingProxyType

from aegish_dist.core.metrics import METRICS
from aegish_dist.core.opinion import Targets
from aegish_dist.errors import InputError
from aegish_dist.inputs.checking import checked
from aegish_dist.opinions.document import Named, naming, read_document
from aegish_dist.opinions.toml import toml_text

LESS_IS_BETTER = frozenset({"false_positive_rate", "brier", "ece", "flip_rate"}) | {
    metric.name for metric in METRICS if metric.name.endswith(("_error_rate", "_filter_rate"))
} | {"token_limit_rate"}  # fmt: skip
"""Metrics of which no least value makes sense."""
TARGET_METRICS = tuple(each.name for each in METRICS if each.name not in LESS_IS_BETTER)


class _TargetsFile(Named, forbid_unknown_fields=True, kw_only=True):
    least: dict[str, float]


def read_targets(path: Path) -> Targets:
    """Read targets.

    Raises:
        OpinionError: They cannot be used; names file and key.
    """
    with naming(path):
        file = checked(read_document(path), _TargetsFile)
        for metric, value in file.least.items():
            _check(metric, value)
        return Targets(file.name, file.version, MappingProxyType(file.least))


def render_targets(targets: Targets) -> str:
    """Return targets as a file that reads back as the same ones."""
    lines = [f"name = {toml_text(targets.name)}", f"version = {targets.version}", "", "[least]"]
    return (
        "\n".join([*lines, *(f"{name} = {least}" for name, least in targets.least.items())]) + "\n"
    )


def _check(metric: str, value: float) -> None:
    field = f"least.{metric}"
    if metric in LESS_IS_BETTER:
        raise InputError("is a metric of which less is better; it has no least value", field=field)
    if metric not in TARGET_METRICS:
        raise InputError(f"unknown metric; known are {', '.join(TARGET_METRICS)}", field=field)
    if not 0 <= value <= 1:
        raise InputError("must be from 0 to 1", field=field)
