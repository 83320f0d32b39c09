"""Install pinned packages into this Python's environment: `python .ci/install.py TITLE FILE...`.

With `-e .` in place of files, install the project itself.

By uv, with the hashes of the files and with the index, links and certificates that pip is
configured with; by pip itself where uv cannot be had or does not manage.
"""

import ast
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
# A setting of pip, and the option of uv that takes each of its values.
OPTIONS = {
    "index-url": "--default-index",
    "extra-index-url": "--index",
    "find-links": "--find-links",
    "trusted-host": "--allow-insecure-host",
}
# A setting of pip, and the variable that uv reads.
VARIABLES = {
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}


def settings_of_pip(listed: str) -> dict[str, str]:
    """Read what `pip config list` prints: of a setting, the last of these sections has the say."""
    settings = {}
    for section in ("global.", "install.", ":env:."):
        for line in listed.splitlines():
            name, _, value = line.partition("=")
            if name.startswith(section):
                settings[name.removeprefix(section)] = str(ast.literal_eval(value))
    return settings


def options_of_uv(settings: Mapping[str, str]) -> Iterator[str]:
    """Yield options by which uv finds the files that pip would find."""
    yield from ("--index-strategy", "unsafe-best-match")  # the newest of all, as with pip
    for name, option in OPTIONS.items():
        for value in settings.get(name, "").split():
            yield from (option, value)
    if settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        yield "--no-index"
    if "cert" not in settings:
        yield "--system-certs"
    if sys.dont_write_bytecode:
        yield "--compile-bytecode"  # else Python does when it first imports a module


def environment_of_uv(settings: Mapping[str, str]) -> dict[str, str]:
    found = {VARIABLES[name]: value for name, value in settings.items() if name in VARIABLES}
    # Last, as the shell may have another environment activated.
    return {**found, **os.environ, "VIRTUAL_ENV": sys.prefix}


def by_uv(wanted: list[str]) -> bool:
    """Install by uv; return whether it managed."""
    uv = Path(sys.executable).parent / "uv"
    if not uv.exists():
        pinned = str(ROOT / "requirements" / "uv.txt")
        taken = subprocess.run(
            [*PIP, "-q", "install", "--require-hashes", "-r", pinned], check=False
        )
        if taken.returncode:
            return False
    listed = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=True)
    settings = settings_of_pip(listed.stdout)
    command = [str(uv), "pip", "install", *options_of_uv(settings), *wanted]
    if not sys.stderr.isatty():
        command.append("--quiet")  # no bars in a file
    return not subprocess.run(command, env=environment_of_uv(settings), check=False).returncode


def main() -> None:
    title, *files = sys.argv[1:]
    if files[0] == "-e":
        wanted = ["--no-deps", "--no-build-isolation", *files]
    else:
        wanted = ["--require-hashes"]
        for file in files:
            wanted += ["-r", file]

    print(f"  {title}", flush=True)
    started = time.monotonic()
    if not by_uv(wanted):
        print("  uv does not manage, so pip does, which takes some minutes", flush=True)
        subprocess.run([*PIP, "install", *wanted], check=True)
    print(f"    took {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
