"""Starting a worker process: the command that the present process becomes."""

import sys
from collections.abc import Sequence


def worker_command(
    models: str | None,
    concurrency: int | None,
    celery_options: Sequence[str],
    *,
    aggregate_only: bool = False,
) -> list[str]:
    """Return the program and the arguments of a worker.

    Args:
        models: Canonical ids, comma-separated, of the models to serve; None for all with work.
        concurrency: Calls in flight at most, at least 1; None for the setting's.
    """
    command = [sys.executable, "-m", "workers"]
    if models:
        from aegish_dist.broker.messages import pin_name  # noqa: PLC0415

        command += ["-Q", ",".join(pin_name(model.strip()) for model in models.split(","))]
    if aggregate_only:
        from aegish_dist.broker.messages import AGGREGATION_QUEUE  # noqa: PLC0415

        command += ["-Q", AGGREGATION_QUEUE]
    if concurrency:
        command += ["-c", str(concurrency)]
    return [*command, *celery_options]
