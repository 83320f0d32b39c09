"""The measures that processes give Prometheus; `measures.toml` is the catalogue."""

from enum import StrEnum
from importlib.resources import files

from msgspec import Struct, toml


class MeasureKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class FleetMeasure(Struct, frozen=True, forbid_unknown_fields=True):
    kind: MeasureKind
    name: str  # as it is exposed; a histogram's without `_bucket`, `_sum` and `_count`
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


_CATALOGUE = toml.decode(
    files(__package__).joinpath("measures.toml").read_bytes(),
    type=dict[str, tuple[FleetMeasure, ...]],
)
WORKER, EXPORTER = _CATALOGUE["worker"], _CATALOGUE["exporter"]
