"""`python -m workers`: a worker process, as `aegish-dist worker` starts it.

It is `celery -A workers.app worker` with checks first and 8 MB less memory: Celery's whole command
line loads an interactive shell, its `worker` command alone does not. Imports take half of a start,
and this module makes them cheaper than Python does by itself.
"""

import gc
import sys

# Modules that Celery, kombu and structlog load if installed, for messages in YAML, coloured code
# and reports that no worker makes: 50 ms and 6 MB. None in `sys.modules` stands for not installed.
UNUSED = ("psutil", "pygments", "rich", "yaml")

gc.disable()  # imported modules are no garbage, and searching them takes a fifth of the time
sys.modules.update(dict.fromkeys(UNUSED))  # type: ignore[arg-type]

# These three would be loaded later, after the freeze.
import structlog  # noqa: E402, F401
from celery.bin.base import CLIContext  # noqa: E402
from celery.bin.worker import worker  # noqa: E402

import workers.pool  # noqa: E402
import workers.tasks  # noqa: E402, F401
from aegish_dist.broker.app import process_of  # noqa: E402
from aegish_dist.broker.client import check_broker  # noqa: E402
from aegish_dist.core.text import printable  # noqa: E402
from aegish_dist.db.engine import open_engine  # noqa: E402
from aegish_dist.db.schema import require_current  # noqa: E402
from aegish_dist.errors import AegishError  # noqa: E402
from workers.app import app  # noqa: E402

for name in UNUSED:
    del sys.modules[name]


def main() -> None:
    """Check that the worker has what it needs, and hand over to Celery."""
    try:
        check_broker(app)
        engine = open_engine(process_of(app).database_url, pool_size=1)
        require_current(engine)
        engine.dispose()
    except AegishError as error:
        raise SystemExit(f"error: {printable(str(error))}") from None
    gc.freeze()
    gc.enable()
    options = sys.argv[1:]
    sys.argv = ["celery", "-A", "workers.app", "worker", *options]  # what `--detach` starts again
    context = CLIContext(app, no_color=False, workdir=None)
    worker.main(options, obj=context, prog_name="celery worker")


if __name__ == "__main__":
    main()
