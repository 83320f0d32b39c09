"""`celery -A workers.app worker` with checks first, and in 8 MB less.

Celery's command line brings an interactive shell along; its `worker` command alone does not.
"""

import gc
import sys

from celery.bin.base import CLIContext
from celery.bin.worker import worker

import aegish_dist.logs.lines  # noqa: F401
import workers.pool
import workers.tasks  # noqa: F401  all three would be loaded later, after the freeze
from aegish_dist.broker.connection import check_broker
from aegish_dist.core.printable import printable
from aegish_dist.db.engine import open_engine
from aegish_dist.db.schema import require_current
from aegish_dist.errors import AegishError
from workers.app import app


def main() -> None:
    """Check that the worker has what it needs, and hand over to Celery."""
    try:
        check_broker(app)
        _check_database(app.conf.aegish_database_url)
    except AegishError as error:
        raise SystemExit(f"error: {printable(str(error))}") from None
    gc.freeze()
    gc.enable()
    options = sys.argv[1:]
    sys.argv = ["celery", "-A", "workers.app", "worker", *options]  # what `--detach` starts again
    context = CLIContext(app, no_color=False, workdir=None)
    worker.main(options, obj=context, prog_name="celery worker")


def _check_database(url: str) -> None:
    engine = open_engine(url, pool_size=1)
    try:
        require_current(engine)
    finally:
        engine.dispose()
