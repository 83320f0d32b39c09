"""A run as data frames of pandas, for notebooks: one of verdicts, one of metrics.

Columns have the nullable types of pandas, so what is undefined is `pandas.NA`, of a time `NaT`:
never NaN, and never 0. pandas is an extra, loaded by the first frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from msgspec.inspect import BoolType, DecimalType, FloatType, IntType
from sqlalchemy import Engine

from aegish_dist.core.metric import NUMBERS
from aegish_dist.core.verdict import FIELDS
from aegish_dist.errors import ConfigError
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.verdict_query import LISTED, VerdictFilter
from aegish_dist.pipeline.report import report_data
from aegish_dist.pipeline.runs import find_run
from aegish_dist.pipeline.verdicts import list_verdicts
from aegish_dist.report.formats import COLUMNS, csv_rows

if TYPE_CHECKING:
    import pandas

_DTYPES = {IntType: "Int64", FloatType: "Float64", DecimalType: "Float64", BoolType: "boolean"}
_OF_VERDICTS = {each.name: _DTYPES.get(type(each.kind), "string") for each in FIELDS} | {
    "correct": "boolean",
    "created_at": "datetime64[us, UTC]",
}
_OF_METRICS = dict.fromkeys(NUMBERS, "Float64") | dict.fromkeys(
    ("snapshot_id", "scoring_version", "n", "clusters"), "Int64"
)


def verdicts_frame(
    engine: Engine,
    run_id: str,
    opinion: Opinion | None = None,
    chosen: VerdictFilter | None = None,
    limit: int = 0,
) -> pandas.DataFrame:
    """Return the verdicts of a run, a row each, by dataset, sample, model and epoch.

    The columns are those of `verdicts list --format csv`, `cost_usd` as a float. All rows are held
    in memory, without completions: about 3 kB each at first, then 0.5 kB.

    Args:
        run_id: Whatever `find_run` takes.
        opinion: Forms `label` and `correct`; None: that of the reference benchmark.
        chosen: Conditions on the verdicts; None: all of them.
        limit: Verdicts at most; 0: all.

    Raises:
        ConfigError: pandas is not installed.
        StoreError: The run has no such model, dataset or category.
    """
    pandas = load_pandas()  # before the store is asked for anything
    run_id = find_run(engine, run_id)
    listed = list_verdicts(engine, run_id, chosen or VerdictFilter(), opinion or Opinion(), limit)
    values = attrgetter(*LISTED)
    rows = (values(verdict) for part in listed for verdict in part.verdicts)
    return _frame(pandas, LISTED, rows, _OF_VERDICTS)


def metrics_frame(engine: Engine, run_id: str, opinion: Opinion | None = None) -> pandas.DataFrame:
    """Return the metrics of a run, a row for each model and metric, the best model first.

    The columns are those of `report --format csv`; a rate of a `category` is a row of its own.

    Raises:
        ConfigError: pandas is not installed.
        ReportError: The run has no verdict yet.
    """
    pandas = load_pandas()
    found = csv_rows(report_data(engine, find_run(engine, run_id), opinion or Opinion()))
    rows = (map(row.get, COLUMNS) for row in found)
    return _frame(pandas, COLUMNS, rows, _OF_METRICS)


def load_pandas() -> Any:
    """Import pandas, which is an extra."""
    try:
        import pandas  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError("data frames need pandas: pip install 'aegish-dist[frames]'") from error
    return pandas


def _frame(
    pandas: Any, names: Sequence[str], rows: Iterable[Iterable[Any]], dtypes: Mapping[str, str]
) -> pandas.DataFrame:
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return pandas.DataFrame(
        {
            name: pandas.array(values, dtype=dtypes.get(name, "string"))
            for name, values in zip(names, columns, strict=True)
        }
    )
