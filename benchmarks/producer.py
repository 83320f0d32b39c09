"""What publishing costs: tasks per second, CPU per task, and memory while a million stream by.

Run with `python benchmarks/producer.py [TASKS]`. Needs redis-server.
"""

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from cluster import free_port, reachable
from measuring import POLL_S

from aegish_dist.broker.app import create_app
from aegish_dist.broker.producer import publish
from aegish_dist.core.verdict import Item

TASKS = 1_000_000
MODELS = ("openai/gpt-5.1", "anthropic/claude-sonnet-4-5", "google/gemini-2.5-pro")


def items(count: int) -> Iterator[Item]:
    """Stream items of several models in turn."""
    for number in range(count):
        yield Item("20261101-abcdef", MODELS[number % len(MODELS)], number, 1, 0)


def memory_mb() -> float:
    """Return the most memory this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def main(count: int) -> None:
    """Publish into a Redis of our own and print the figures."""
    port = free_port()
    with tempfile.TemporaryDirectory() as home:
        redis = subprocess.Popen(
            ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "",
             "--appendonly", "no", "--dir", home],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            while not reachable(port):
                time.sleep(POLL_S)
            app = create_app(f"redis://127.0.0.1:{port}/0", database_url="")
            publish(app, items(1000))
            before_mb, cpu_s, started = memory_mb(), time.process_time(), time.monotonic()
            publish(app, items(count))
            elapsed_s, cpu_s = time.monotonic() - started, time.process_time() - cpu_s
        finally:
            redis.terminate()
            redis.wait()
    print(f"{count} tasks to {len(MODELS)} queues:")
    print(f"  tasks/s      {count / elapsed_s:10.0f}")
    print(f"  CPU ms/task  {1000 * cpu_s / count:10.3f}")
    print(f"  memory MB    {before_mb:10.0f} before, {memory_mb():.0f} after")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else TASKS)
