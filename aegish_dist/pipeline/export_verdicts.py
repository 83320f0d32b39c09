"""Exporting the verdicts of a run to a file or a stream, with columns of what is correct."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist import __version__
from aegish_dist.core.opinion import Opinion
from aegish_dist.core.run import Run
from aegish_dist.db.engine import transaction
from aegish_dist.db.runs import load_run
from aegish_dist.db.verdict_export import Judgements, export
from aegish_dist.errors import ConfigError, DatasetError
from aegish_dist.files import is_stream, replacing
from aegish_dist.inputs.documents import load_pyarrow
from aegish_dist.interchange.verdict_files import RecordTables, in_ascii
from aegish_dist.pipeline.opinions import overlay_of

PIPE_BYTES = 2**16
"""Bytes that a pipe takes at once; of a longer write, some systems do not report that its reader
has gone."""
PREFIX = "correct_"
MAX_COLUMN_CHARS = 63


def export_file(
    engine: Engine,
    run_id: str,
    path: Path,
    opinions: Sequence[Opinion] = (),
    *,
    table: bool | None = None,
) -> None:
    """Write every verdict of a run to a file, in a fixed order.

    Args:
        opinions: For each a column says whether a verdict is correct; their overlay is the same.
        table: Whether it is written as Parquet; None leaves that to the suffix.

    Raises:
        OpinionError: The overlay does not fit the datasets of the run.
        ConfigError: Two opinions have rule sets of the same name.
        DatasetError: The suffix is neither, and has to decide.
        ConfigError: The file is Parquet and pyarrow is not installed.
    """
    if table is None:
        table = _is_table(path)
    with replacing(path) as stream:
        (_export_table if table else export_lines)(engine, run_id, stream, opinions)


def _is_table(path: Path) -> bool:
    suffix = ".jsonl" if is_stream(path) else path.suffix.lower()
    if suffix not in (".jsonl", ".parquet"):
        problem = "cannot be written as verdicts; choose .jsonl or .parquet, or say --format"
        raise DatasetError(problem, source=str(path))
    return suffix == ".parquet"


def export_lines(
    engine: Engine, run_id: str, stream: IO[bytes], opinions: Sequence[Opinion] = ()
) -> None:
    """Write every verdict of a run as lines of JSON.

    Args:
        opinions: For each a key says whether a verdict is correct, null where it is unscored.
    """
    with transaction(engine) as session:
        run = load_run(session, run_id)
        judged = judgements_of(session, run, opinions)
        for lines in map(in_ascii, export(session, run, judged)):
            for start in range(0, len(lines), PIPE_BYTES):
                stream.write(memoryview(lines)[start : start + PIPE_BYTES])


def _export_table(
    engine: Engine, run_id: str, stream: IO[bytes], opinions: Sequence[Opinion]
) -> None:
    load_pyarrow()  # before the database is asked for anything
    with transaction(engine) as session:
        run = load_run(session, run_id)
        judged = judgements_of(session, run, opinions)
        tables = RecordTables(tuple(judged.rules), _about(run, opinions))
        tables.write(map(tables.from_csv, export(session, run, judged, columns=True)), stream)


def _about(run: Run, opinions: Sequence[Opinion]) -> dict[str, str]:
    """Return the metadata of a file: a table copied elsewhere still says where it comes from."""
    about = {"version": __version__, "run_id": run.run_id, "run_name": run.name}
    if opinions:
        about["correct"] = json.dumps([opinion.provenance for opinion in opinions])
    return {f"aegish-dist.{key}": text for key, text in about.items()}


def judgements_of(session: Session, run: Run, opinions: Sequence[Opinion]) -> Judgements:
    """Return the columns of some opinions, in their order.

    Args:
        run: The run; the overlay of the opinions has to fit it.

    Raises:
        OpinionError: The overlay does not fit the datasets of the run.
        ConfigError: Two opinions have rule sets of the same name.
    """
    if not opinions:
        return Judgements()
    rules = {_column(opinion.rule.name): opinion.rule for opinion in opinions}
    if len(rules) < len(opinions):
        raise ConfigError("--correct names two rule sets whose columns would have the same name")
    return Judgements(rules, overlay_of(session, run, opinions[0]).values)


def _column(rule: str) -> str:
    """Return a plain name: the database cuts longer ones, and scripts shall need no quotes."""
    plain = re.sub(r"[^A-Za-z0-9.-]", "_", rule)[: MAX_COLUMN_CHARS - len(PREFIX)]
    return PREFIX + plain
