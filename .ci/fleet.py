"""Start a fleet on this machine by Docker Compose, with generated passwords. Run by `make fleet`.

It works in the folder of docker-compose.yml, and needs nothing but Python and Docker. What `.env`
or the shell says already stays as it is: only what is missing is added.
"""

import os
import re
import secrets
import subprocess
import sys
from pathlib import Path

ENV = Path(".env")
PASSWORDS = (
    "AEGISH_DIST_POSTGRES_PASSWORD",
    "AEGISH_DIST_APP_PASSWORD",
    "AEGISH_DIST_WORKER_PASSWORD",
    "AEGISH_DIST_REDIS_PASSWORD",
)
USER = "AEGISH_DIST_USER"
HEADING = """\
# Made by `make fleet`. Keys of providers can stand here too, such as OPENAI_API_KEY=...
"""
COMPOSE = ("docker", "compose")
UP = (*COMPOSE, "--profile", "simulator", "up", "--detach", "--build", "--scale", "worker=4")
NEXT = """
The fleet runs: four workers, and a provider that needs no key. Next:

  docker compose run --rm cli submit --models simulated/careful
  docker compose run --rm cli status --watch
  docker compose run --rm cli report --format html -o report.html

`docker compose --profile simulator down` ends it and keeps what it stored; `make fleet` starts it
again."""


def has_value(text: str, name: str) -> bool:
    """Whether an env file gives a name a value; of several lines the last one counts."""
    line = re.compile(rf"^[ \t]*(?:export[ \t]+)?{name}[ \t]*[=:](.*)$", re.MULTILINE)
    values = line.findall(text)
    if not values:
        return False
    value = values[-1].strip()
    return value not in ("", '""', "''") and not value.startswith("#")


def missing_lines(text: str) -> list[str]:
    """Return the lines that an env file lacks."""
    owner = Path().stat()
    values = {name: secrets.token_hex(24) for name in PASSWORDS}
    # Files that commands write into this folder belong to its owner.
    values[USER] = f"{owner.st_uid}:{owner.st_gid}"
    return [
        f"{name}={value}"
        for name, value in values.items()
        if not os.environ.get(name) and not has_value(text, name)
    ]


def complete(env: Path) -> list[str]:
    """Add what is missing to an env file, readable for its owner alone; return the names."""
    descriptor = os.open(env, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    with open(descriptor, "r+b") as file:
        text = file.read().decode("utf-8", "surrogateescape")
        lines = missing_lines(text)
        if not lines:
            return []
        os.fchmod(file.fileno(), 0o600)
        separator = "" if not text or text.endswith("\n") else "\n"
        block = "".join(f"{line}\n" for line in lines)
        file.write(f"{separator}{HEADING}{block}".encode())
    return [line.partition("=")[0] for line in lines]


def require_compose() -> None:
    """End with one line where there is no Docker, or none with Compose."""
    elsewhere = "docs/guides/fleet.md starts a fleet without Docker"
    try:
        asked = subprocess.run([*COMPOSE, "version"], capture_output=True, check=False)
    except OSError:
        sys.exit(f"make fleet: docker is not installed; {elsewhere}")
    if asked.returncode != 0:
        sys.exit(f"make fleet: this docker has no `compose`: install its plugin; {elsewhere}")


def main() -> None:
    """Complete `.env`, start the services, say what comes next."""
    require_compose()
    try:
        added = complete(ENV)
    except OSError as error:
        sys.exit(f"make fleet: cannot write {ENV.absolute()}: {error.strerror}")
    if added:
        print(f"{ENV}: added {', '.join(added)}", flush=True)
    started = subprocess.run(UP, check=False)
    if started.returncode != 0:
        sys.exit(f"make fleet: `{' '.join(UP)}` failed, see above; {ENV} stays for the next try")
    print(NEXT)


if __name__ == "__main__":
    main()
