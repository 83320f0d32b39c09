"""A process of its own that starts the embedded PostgreSQL and stops it after its last user.

Every process that uses the server holds a shared lock, which the kernel takes back however the
process ends, SIGKILL included. This one tries for the exclusive lock: with that, no user is left.
When it is killed itself, the server goes on, and the next user starts another guard. It is run as a
file and imports nothing of the package, so it takes 10 MB and 20 ms.
"""

import fcntl
import json
import os
import signal
import subprocess  # nosec B404 # of the wheel's programs
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

STOP_TIMEOUT_S = 60.0
LOCK_TIMEOUT_S = 5.0
POLL_S = 0.05


def serve(plan: dict[str, Any]) -> None:
    """Start the server unless it runs, wait until no process uses it, and stop it.

    Args:
        plan: Paths of the lock files `guard` and `users`, of the `data` and of the server's `log`;
            the `command` that starts the server, null when it runs; its `uid` and `gid`.
    """
    data = Path(plan["data"])

    def end(*_: object) -> None:
        stop(data)
        sys.exit()

    signal.signal(signal.SIGTERM, end)
    with open(plan["guard"], "a") as guard, open(plan["users"], "a") as users:
        deadline = time.monotonic() + LOCK_TIMEOUT_S
        while not lock(guard):  # held for a moment by those who look whether there is a guard
            if time.monotonic() > deadline:
                return
            time.sleep(POLL_S)
        server = start(plan) if plan["command"] else None
        while _runs(server, data) and not lock(users):
            time.sleep(POLL_S)
        stop(data)
        if server is not None:
            server.wait()
        if plan["socket"] != plan["data"]:
            with suppress(OSError):
                os.rmdir(plan["socket"])
        guard.close()  # before the other lock, which the next user waits for


def lock(file: IO[str]) -> bool:
    """Lock a file for this process alone; return False when another one has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _runs(server: "subprocess.Popen[bytes] | None", data: Path) -> bool:
    return postmaster(data) is not None if server is None else server.poll() is None


def start(plan: dict[str, Any]) -> "subprocess.Popen[bytes]":
    root = os.geteuid() == 0
    account = {"user": plan["uid"], "group": plan["gid"], "extra_groups": []} if root else {}
    with open(plan["log"], "ab") as log:
        return subprocess.Popen(  # noqa: S603  # nosec B603 # a program of the wheel
            plan["command"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            umask=0o077,
            start_new_session=True,
            **account,
        )


def stop(data: Path) -> None:
    """Stop the server of some data: clients are disconnected, and nothing has to be recovered."""
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while (pid := postmaster(data)) is not None and time.monotonic() < deadline:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGINT)
        time.sleep(0.05)


def postmaster(data: Path) -> int | None:
    """Return the process id of the server, None when it does not run."""
    try:
        pid = int((data / "postmaster.pid").read_text().splitlines()[0])
        os.kill(pid, 0)
    except (OSError, ValueError, IndexError):
        return None
    return pid


if __name__ == "__main__":
    serve(json.loads(sys.argv[1]))
