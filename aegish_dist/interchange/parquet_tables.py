"""Verdicts as Parquet, for other tools.

Numbers of any size and JSON are texts as PostgreSQL writes them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

from msgspec.inspect import BoolType, FloatType, IntType

from aegish_dist.core.verdict import FIELDS
from aegish_dist.inputs.documents import load_pyarrow


def records_schema(judged: Sequence[str] = (), about: Mapping[str, str] | None = None) -> Any:
    """Return the columns of exported verdicts; `judged` are added."""
    arrow = load_pyarrow()
    types = {
        IntType: arrow.int64(),
        FloatType: arrow.float64(),
        BoolType: arrow.bool_(),
    }
    columns = []
    for field in FIELDS:
        column_type = types.get(type(field.kind), arrow.string())
        if field.is_moment:
            column_type = arrow.timestamp("us", tz="UTC")
        columns.append((field.name, column_type))

    columns.append(("run_id", arrow.string()))
    columns.append(("sample_id", arrow.string()))
    for name in judged:
        columns.append((name, arrow.bool_()))
    return arrow.schema(columns, metadata=about)


def write_records(
    parts: Iterable[bytes],
    schema: Any,
    stream: IO[bytes],
) -> None:
    """Write verdicts exported as CSV, each part a group of rows, as Parquet.

    Null is empty in the CSV, and the empty text is quoted.
    """
    arrow = load_pyarrow()
    csv = arrow.csv
    texts = csv.ParseOptions(newlines_in_values=True)
    values = csv.ConvertOptions(
        column_types={field.name: field.type for field in schema},
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        true_values=["t"],
        false_values=["f"],
    )
    with arrow.parquet.ParquetWriter(stream, schema, compression="zstd") as writer:
        for part in parts:
            # In one block: a text with line breaks must not be cut between two.
            whole = csv.ReadOptions(block_size=max(len(part), 1))
            rows = csv.read_csv(
                arrow.BufferReader(part),
                read_options=whole,
                parse_options=texts,
                convert_options=values,
            )
            if len(rows):
                writer.write(rows)
