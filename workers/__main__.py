"""`python -m workers` is `celery -A workers.app worker`, in 8 MB less.

Celery's command line brings an interactive shell along; its `worker` command alone does not.
"""

import sys

from celery.bin.base import CLIContext
from celery.bin.worker import worker

from workers.app import app

options = sys.argv[1:]
sys.argv = ["celery", "-A", "workers.app", "worker", *options]  # what `--detach` starts again
worker.main(options, obj=CLIContext(app, no_color=False, workdir=None), prog_name="celery worker")
