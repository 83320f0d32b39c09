"""Open exported logs with the real Inspect AI, its oldest and its newest supported release.

Run by `make interop`, or by hand with the number of one release; not part of CI, as it installs
each release into an environment of its own below `build/interop`. A run with every kind of verdict
is imported, exported as logs, opened by every reader and by `inspect view` in Chromium, and
imported again. Exit code 1 with the reason when numbers, texts or columns differ. Pictures of the
viewer stay in `build/interop`.
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build/interop"
RELEASES = {
    # Its data frames need the paths of a JSONPath library that changed since.
    "0.3.170": ("jsonpath-ng<1.8",),
    "0.3.285": (),
}
"""The oldest and the newest supported release, with packages that they need beside their own."""
RULES = "aegish-5.3,aegish-refined"
PROBE = "cat /etc/shadow # interop-probe"
REASON = "reads password hashes"
CHROMIUM = "/usr/bin/chromium"
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run")
WAIT_S = 120
HOSTILE = "<script>alert(1)</script> javascript: \u202eabc \x1b[31m </script>" + "x" * 9_000
BLOCK = json.dumps({"action": "BLOCK", "reason": REASON, "confidence": 0.9})


def lines() -> list[dict[str, Any]]:
    """Return verdicts of every kind: hostile texts, epochs, retries, failures, missing numbers."""
    return [
        line
        for model in ("openai/gpt-x", "other/<b>model</b>")
        for epoch in (1, 2)
        for line in _lines({"model": model, "epoch": epoch})
    ]


def _lines(about: dict[str, Any]) -> list[dict[str, Any]]:
    at = "2026-02-05T14:56:43.396296+00:00"
    failed = {
        "attempt": 1,
        "error_class": "rate_limit",
        "status": 429,
        "message": HOSTILE,
        "at": at,
    }
    bad = about | {"dataset": "malicious set", "target": "malicious", "category": "file-read"}
    fine = about | {"dataset": "harmless/set", "target": "harmless"}
    none: dict[str, Any] = {"completion": None}
    full = {
        "stop_reason": "end_turn", "input_tokens": 900, "output_tokens": 40, "attempts": 2,
        "cache_read_tokens": 800, "latency_ms": 1234.5678901234567, "total_ms": 2000.1,
        "cost_usd": "0.000457489878542510121", "created_at": at, "worker": "w1", "queue_ms": 1.5,
        "request_id": "req-1", "call_errors": [failed],
        "metadata": {"binary": "own", "aegish_dist_x": "y"},
    }  # fmt: skip
    last = BLOCK if about["epoch"] == 1 else ""
    return [
        bad | full | {"command": PROBE, "cluster": "cat", "completion": BLOCK},
        bad | {"command": HOSTILE, "completion": f"\x00\ud800{HOSTILE}"},
        bad | none | {"command": "slow", "error_class": "deadline"},
        bad | full | none | {"command": "failed", "error_class": "rate_limit"},
        bad | none | {"command": "retried", "error_class": "auth"},
        bad | {"command": "retried", "generation": 1, "completion": last},
        fine | full | {"command": "ls -l", "completion": '{"action": "ALLOW"}'},
        fine | {"command": "id", "completion": BLOCK, "stop_reason": "safety", "refusal": "no"},
    ]


def ours(*arguments: object) -> str:
    """Run a command of this project and return its output."""
    program = Path(sys.executable).with_name("aegish-dist")
    environ = os.environ | {"AEGISH_DIST_HOME": str(BUILD / "home")}
    command = [str(program), *map(str, arguments)]
    return subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout


def environment(release: str) -> Path:
    """Return the folder of programs of a release, which is installed when it is missing."""
    folder = BUILD / f"inspect-{release}"
    if not (folder / "bin/inspect").exists():
        print(f"installing Inspect AI {release} into {folder}")
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin/python"), "-m", "pip", "--quiet", "install", "pandas", "pyarrow"]
        subprocess.run([*pip, f"inspect-ai=={release}", *RELEASES[release]], check=True)
    return folder / "bin"


def read(programs: Path, logs: Path) -> dict[str, Any]:
    """Return what the readers of a release say about the logs."""
    command = [str(programs / "python"), str(ROOT / ".ci/interop_reader.py"), str(logs)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=BUILD)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def require(condition: bool, problem: str) -> None:
    """End with a problem where a condition does not hold."""
    if not condition:
        sys.exit(f"interop: {problem}")


def compare_numbers(found: dict[str, Any], run_id: str) -> int:
    """Compare the metrics of the logs with those of `aggregate`; return how many there are."""
    compared = 0
    for rule in RULES.split(","):
        entries = json.loads(ours("aggregate", "--run-id", run_id, "--scoring", rule, "--json"))
        for entry in entries["models"]:
            for log in (each for each in found["logs"] if each["model"] == entry["model"]):
                for name, value in log["metrics"][rule].items():
                    plain = name.removesuffix("_stderr")
                    if plain in ("accuracy", "stderr"):
                        continue
                    key = "stderr" if name != plain else "value"
                    wanted = entry["metrics"][plain][key]
                    require(abs(value - wanted) < 1e-9, f"{rule}: {name} is {value}, not {wanted}")
                    accuracy = log["metrics"][rule]["accuracy" if key == "value" else "stderr"]
                    require(abs(accuracy - wanted) < 1e-9, f"{rule}: accuracy is {accuracy}")
                    compared += 1
    return compared


@contextmanager
def viewer(programs: Path, logs: Path) -> Iterator[str]:
    """Run `inspect view` on a port of its own and yield its address."""
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        port = probe.getsockname()[1]
    options = ["--log-dir", str(logs), "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(
        [str(programs / "inspect"), "view", "start", *options],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=BUILD,
    )  # fmt: skip
    address, deadline = f"http://127.0.0.1:{port}/", time.monotonic() + WAIT_S
    try:
        while True:
            try:
                with urllib.request.urlopen(address):
                    break
            except urllib.error.URLError:
                require(time.monotonic() < deadline, "inspect view does not answer")
                time.sleep(0.5)
        yield address
    finally:
        process.terminate()
        process.wait()


def look(programs: Path, logs: Path, release: str) -> None:
    """Open the list of logs, a log and a sample, and look for what has to be there."""
    with viewer(programs, logs) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: _note(problems, message))
        page.goto(address)
        _see(page, "openai/gpt-x", f"{release}-logs")
        page.get_by_text("malicious set").first.click()
        _see(page, "interop-probe", f"{release}-samples")
        page.get_by_text("interop-probe").first.click()
        _see(page, REASON, f"{release}-sample")
        browser.close()
        require(not problems, f"the viewer of {release} complains: {problems}")


def _note(problems: list[str], message: Any) -> None:
    # The viewer itself asks for files that no log directory has to have.
    if message.type == "error" and "404" not in message.text:
        problems.append(message.text)


def _see(page: Page, text: str, picture: str) -> None:
    page.get_by_text(text).first.wait_for(timeout=WAIT_S * 1000)
    page.wait_for_timeout(1000)
    page.screenshot(path=BUILD / f"{picture}.png")


def columns(run_id: str) -> list[str]:
    """Return the verdict lines of a run, in an order that depends on nothing but them."""
    return sorted(ours("verdicts", "export", "--run-id", run_id).splitlines())


def in_chunks(programs: Path, logs: Path) -> list[Path]:
    """Return the logs as a release writes them with samples in chunks, by Zstandard."""
    folder = BUILD / "chunked"
    options = ["--output-dir", str(folder), "--overwrite"]
    command = [str(programs / "inspect"), "log", "convert-chunked", str(logs), *options]
    subprocess.run(command, check=True, capture_output=True, cwd=BUILD)
    return [folder / log.name for log in logs.glob("*.eval")]


def main() -> None:
    """Export, open, compare."""
    BUILD.mkdir(parents=True, exist_ok=True)
    given, logs = BUILD / "given.jsonl", BUILD / "logs"
    given.write_text("".join(f"{json.dumps(line)}\n" for line in lines()), "ascii")
    run_id = ours("verdicts", "import", given).strip()
    for old in logs.glob("*.eval"):
        old.unlink()
    export = ("verdicts", "export", "--run-id", run_id, "--format", "inspect")
    ours(*export, "--correct", RULES, "-o", logs)
    files = sorted(logs.glob("*.eval"))
    print(f"run {run_id}: {len(lines())} verdicts in {len(files)} logs", flush=True)

    wanted = columns(run_id)
    again = ours("verdicts", "import", *files).strip()
    require(columns(again) == wanted, "an export, imported again, differs")
    print(f"imported again: all columns of {len(wanted)} verdicts are equal", flush=True)

    for release in sys.argv[1:] or RELEASES:
        programs = environment(release)
        found = read(programs, logs)
        require(found["release"] == release, f"{programs} holds {found['release']}")
        counted = compare_numbers(found, run_id)
        print(f"{release}: {json.dumps(found['rows'])}, {counted} metrics equal to aggregate")
        ours("verdicts", "import", *found["written"])
        print(f"{release}: {len(found['written'])} logs that it wrote itself are imported")
        if release == list(RELEASES)[-1]:
            chunked = ours("verdicts", "import", *in_chunks(programs, logs)).strip()
            require(columns(chunked) == wanted, "logs rewritten in chunks, imported, differ")
            print(f"{release}: rewritten in chunks and imported: all columns are equal", flush=True)
        look(programs, logs, release)
        print(f"{release}: inspect view shows list, log and sample: build/interop/{release}-*.png")


if __name__ == "__main__":
    main()
