"""The live view on a real pseudo-terminal, of a run whose provider turns calls down."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
from contextlib import suppress
from typing import Self

import pytest

from tests.cluster import DEADLINE_S, Simulator, aegish_dist, environment
from tests.services import wait_until

ENTERED, LEFT = "\x1b[?1049h", "\x1b[?1049l"
CURSOR_HIDDEN, CURSOR_SHOWN = "\x1b[?25l", "\x1b[?25h"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
WIDTH, HEIGHT = 80, 24


class Terminal:
    """A command on a pseudo-terminal of 80 x 24, and everything that it wrote there."""

    def __init__(self, env: dict[str, str], line: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
        self.process = subprocess.Popen(
            aegish_dist(line),
            env=env,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self._written = bytearray()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError):  # the last process has closed its end
            while chunk := os.read(self._master, 65_536):
                self._written += chunk

    @property
    def written(self) -> str:
        return bytes(self._written).decode(errors="replace")

    def end(self) -> tuple[int, str, str]:
        """Wait for its end; return its exit code, its screens, and what it left behind as text."""
        code = self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        screens, left, behind = self.written.partition(LEFT)
        assert left, self.written[-2000:]
        return code, screens.partition(ENTERED)[2], behind

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(DEADLINE_S)
        os.close(self._master)


@pytest.fixture
def env(postgres_url: str, simulator: Simulator) -> dict[str, str]:
    """The settings of an embedded worker, on a terminal that a person looks at."""
    settings = environment(database_url=postgres_url, catalog=simulator.catalog, concurrency=20)
    return {**settings, "TERM": "xterm-256color", "CI": "", "NO_COLOR": "1", "LC_ALL": "C.UTF-8"}


def frames(screens: str) -> list[list[str]]:
    drawn = screens.split("\x1b[H")[1:]
    return [[ESCAPES.sub("", line) for line in re.split(r"\r?\n\r?", each)] for each in drawn]


def test_a_run_is_seen_and_the_terminal_is_given_back(
    env: dict[str, str], simulator: Simulator
) -> None:
    """Ctrl-C leaves the last state and exit code 130; `resume` is seen to the end."""
    simulator.start("--fault", "rate_limit=0.15", "--seed", "7", latency="constant:0.3")
    asked = "--models simulated/careful --dataset harmless --limit 60 --skip-preflight"
    with Terminal(env, f"submit {asked}") as submit:
        told = ("rate_limit 429", " % of recent calls got 429")
        wait_until(lambda: all(map(submit.written.count, told)), "429s on the screen", DEADLINE_S)
        os.killpg(submit.process.pid, signal.SIGINT)
        code, screens, behind = submit.end()
    assert code == 130
    seen = frames(screens)
    assert seen
    assert max(len(line) for frame in seen for line in frame) <= WIDTH
    assert max(map(len, seen)) <= HEIGHT
    last = "\n".join(seen[-1])
    for fact in ("running", " of 60 ", "in flight", "1 worker", "429s", "simulated/careful"):
        assert fact in last
    assert submit.written.rfind(CURSOR_SHOWN) > submit.written.rfind(CURSOR_HIDDEN)
    assert "Last errors" in behind
    assert re.search(
        r"interrupted at \d+ of 60 verdicts: `aegish-dist resume .+` goes on\r\n$", behind
    )

    simulator.stop()
    simulator.start(latency="constant:0.05")
    with Terminal(env, "resume --run-id latest") as resume:
        code, _, behind = resume.end()
    assert code == 0
    assert "60 of 60  100 %" in behind
    assert "ALLOW" in behind
