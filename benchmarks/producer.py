"""Cost of publishing: tasks per second, CPU per task, and memory here and in Redis for a million.

Run with `python benchmarks/producer.py [TASKS] [--compress-depth 1]`. Needs redis-server.
"""

import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click
from measuring import laid_out

from aegish_dist.broker.producer import publish
from aegish_dist.core.verdict import Item
from tests.services import RedisServer, queue_application

TASKS = 1_000_000
MODELS = ("openai/gpt-5.1", "anthropic/claude-sonnet-4-5", "google/gemini-2.5-pro")


def items(count: int) -> Iterator[Item]:
    """Stream items of several models in turn."""
    for number in range(count):
        yield Item("20261101-abcdef", MODELS[number % len(MODELS)], number, 1, 0)


def memory_mb() -> float:
    """Return the most memory this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


@click.command(help=laid_out(__doc__))
@click.argument("count", type=click.IntRange(1), default=TASKS, metavar="[TASKS]")
@click.option(
    "--compress-depth", default=0, show_default=True, help="list-compress-depth of the Redis."
)
def main(*, count: int, compress_depth: int) -> None:
    """Publish into a Redis of our own and print the figures."""
    with tempfile.TemporaryDirectory() as home, RedisServer(Path(home)) as redis:
        redis.client().config_set("list-compress-depth", compress_depth)
        app = queue_application(redis.url)
        publish(app, items(1000))
        before_mb, cpu_s, started = memory_mb(), time.process_time(), time.monotonic()
        publish(app, items(count))
        elapsed_s, cpu_s = time.monotonic() - started, time.process_time() - cpu_s
        waiting_bytes = int(redis.client().info("memory")["used_memory_dataset"])
    print(f"{count} tasks to {len(MODELS)} queues:")
    print(f"  tasks/s      {count / elapsed_s:10.0f}")
    print(f"  CPU ms/task  {1000 * cpu_s / count:10.3f}")
    print(f"  Redis bytes  {waiting_bytes / count:10.0f} a task")
    print(f"  memory MB    {before_mb:10.0f} before, {memory_mb():.0f} after")


if __name__ == "__main__":
    main()
