"""`python -m workers`: a worker process, as `aegish-dist worker` starts it.

Half of a start is imports, so they are made cheaper here than Python makes them by itself.
"""

import gc
import sys

UNUSED = ("psutil", "pygments", "rich", "yaml")
"""Modules that Celery, kombu and structlog load if installed, for messages in YAML, coloured code
and reports that no worker makes: 50 ms and 6 MB. None in `sys.modules` stands for not installed."""

gc.disable()  # what is imported stays; looking for garbage in it takes a fifth of the time
sys.modules.update(dict.fromkeys(UNUSED))  # type: ignore[arg-type]

from workers.starting import main  # noqa: E402

for name in UNUSED:
    del sys.modules[name]
main()
