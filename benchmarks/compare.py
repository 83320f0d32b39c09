"""How long `compare` takes over many models, commands and epochs.

Run `python benchmarks/compare.py [--models 20] [--commands 5000] [--epochs 3] [--repeats 3]`. It
takes a minute, most of it for the verdicts, in a PostgreSQL of its own.

Every pair of models is compared: 20 models are 190 pairs. `wall s` is the whole command, from its
start to its last byte; `CPU s` that of its process, without PostgreSQL's; `reading` and `comparing`
are its two parts, within one process that is warm.
"""

import os
import statistics
import subprocess
import tempfile
import time
from contextlib import closing
from itertools import combinations
from pathlib import Path

import click
import psycopg
from cluster import ROOT, product
from measuring import laid_out, number, print_table

from aegish_dist.db.columns import read_columns
from aegish_dist.db.embedded import embedded_server
from aegish_dist.db.engine import open_engine, transaction
from aegish_dist.db.overlays import OverlayInRun
from aegish_dist.db.runs import load_run
from aegish_dist.opinions.scoring import DEFAULT_RULE
from aegish_dist.statistics.paired_difference import PairedScores, scored_values

RUN = "0compared"

_FILL = """
    INSERT INTO runs (id, name, origin, package_version, epochs, created_at)
    VALUES (%(run)s, 'synthetic', 'import', '0', %(epochs)s, now());
    INSERT INTO datasets (name, fingerprint, source, licence, samples, malicious, selectable)
    VALUES (%(run)s, %(run)s, '', '', %(commands)s, %(commands)s - %(commands)s / 3, false);
    INSERT INTO run_datasets SELECT %(run)s, id FROM datasets;
    INSERT INTO samples (dataset_id, sample_id, command, target, category, cluster, details)
    SELECT dataset.id, lpad(to_hex(hashtextextended(n::text, 0)), 16, '0'), 'command ' || n,
           CASE WHEN n %% 3 = 0 THEN 'harmless' ELSE 'malicious' END,
           CASE WHEN n %% 3 > 0 THEN 'category-' || n / 3 %% 8 END, 'binary-' || n %% 400, '{}'
    FROM datasets AS dataset, generate_series(1, %(commands)s) AS n;
    INSERT INTO run_models (run_id, model, spec, queue, open)
    SELECT %(run)s, id, jsonb_build_object('id', id, 'wire', 'imported', 'name', id), '', false
    FROM (SELECT 'lab/model-' || lpad(n::text, 2, '0') AS id
          FROM generate_series(1, %(models)s) AS n) AS model;
    SELECT setseed(0.5);
    INSERT INTO verdicts (
        run_model_id, sample_key, epoch, generation, outcome, error_class, stop_kind,
        parser_version, attempts, worker, created_at)
    SELECT model, key, epoch, 0, outcome, CASE WHEN outcome = 'API_ERROR' THEN 'server' END,
           CASE WHEN outcome <> 'API_ERROR' THEN 'stop' END, 1, 1, 'worker', now()
    FROM (
        SELECT model, key, epoch,
               CASE WHEN chance < 0.004 THEN 'API_ERROR' WHEN chance < 0.02 THEN 'FORMAT_ERROR'
                    WHEN chance < 0.1 THEN 'WARN'
                    WHEN (chance < 0.2) = (target = 'malicious') THEN 'ALLOW' ELSE 'BLOCK'
               END AS outcome
        FROM (
            SELECT model.id AS model, sample.key, sample.target, epoch, random() AS chance
            FROM samples AS sample CROSS JOIN run_models AS model
            CROSS JOIN generate_series(1, %(epochs)s) AS epoch
        ) AS item
        OFFSET 0
    ) AS verdict;
"""


def command_s(url: str, *arguments: str) -> tuple[float, float]:
    """Run a command to its end and return the seconds it took, and those of its CPU."""
    started = time.monotonic()
    process = subprocess.Popen(
        product(*arguments), cwd=ROOT, stdout=subprocess.DEVNULL,
        env={**os.environ, "AEGISH_DIST_DATABASE_URL": url},
    )  # fmt: skip
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"aegish-dist {arguments}: status {status}")
    return time.monotonic() - started, usage.ru_utime + usage.ru_stime


def parts_s(url: str) -> tuple[float, float]:
    """Return the seconds for reading the answers, and for comparing all pairs."""
    started = time.monotonic()
    with transaction(open_engine(url), isolation_level="REPEATABLE READ") as session:
        run = load_run(session, RUN)
        models = [spec.id for spec in run.models]
        columns = read_columns(session, run, models, OverlayInRun())
    read = time.monotonic()
    samples = columns.samples
    values = {}
    for model, guard in columns.guards.items():
        values[model] = scored_values(guard.finding, samples.malicious, DEFAULT_RULE)
    scores = PairedScores(samples, values, DEFAULT_RULE.composite)
    scores.compare(list(combinations(models, 2)), by_category=True)
    return read - started, time.monotonic() - read


@click.command(help=laid_out(__doc__))
@click.option("--models", default=20, show_default=True)
@click.option("--commands", default=5000, show_default=True)
@click.option("--epochs", default=3, show_default=True)
@click.option("--repeats", default=3, show_default=True)
def main(models: int, commands: int, epochs: int, repeats: int) -> None:
    """Fill a store of our own and measure."""
    with (
        tempfile.TemporaryDirectory(prefix="cb") as folder,
        closing(embedded_server(Path(folder))) as server,
    ):
        command_s(server.url, "db", "upgrade")
        values = {"run": RUN, "models": models, "commands": commands, "epochs": epochs}
        with psycopg.connect(server.url, cursor_factory=psycopg.ClientCursor) as connection:
            connection.execute("ALTER TABLE verdicts DISABLE TRIGGER USER")
            connection.execute(_FILL, values)
            connection.execute("ALTER TABLE verdicts ENABLE TRIGGER USER")
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
        ask = ("compare", "--run-id", RUN, "--json")
        whole = [command_s(server.url, *ask) for _ in range(repeats)]
        reading, comparing = parts_s(server.url)
    pairs = models * (models - 1) // 2
    row = {
        "wall s": number(statistics.median(wall for wall, _ in whole)),
        "CPU s": number(statistics.median(cpu for _, cpu in whole)),
        "reading s": number(reading),
        "comparing s": number(comparing),
    }
    title = (
        f"compare {models} models x {commands:,} commands x {epochs} epochs, {pairs} pairs, "
        f"median of {repeats}"
    )
    print_table(title, [row])


if __name__ == "__main__":
    main()
