"""Facts that workers and servers report of themselves: versions, clocks, limits."""

from datetime import datetime

from aegish_dist import __version__
from aegish_dist.db.schema import head


def about_worker(now: datetime) -> dict[str, str]:
    """Return what a worker reports of itself, to be stored as JSON.

    Args:
        now: Its clock.
    """
    return {"version": __version__, "schema": head(), "clock": now.isoformat()}
