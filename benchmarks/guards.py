"""Guards of every kind about all bundled commands: the table and the plot that README shows.

Run with `python benchmarks/guards.py FOLDER`, an empty folder that keeps the catalog, the store and
`roc.svg`. It needs bash and jq, and packages of others in environments of their own:

    python3.12 -m venv FOLDER/bash-classify && FOLDER/bash-classify/bin/pip install bash-classify
    python3.12 -m venv FOLDER/sh-guard && FOLDER/sh-guard/bin/pip install sh-guard
    npm install --prefix FOLDER cc-safety-net

Guards whose package is not there are left out. Packages are asked at their default settings. The
classifier and the function are toys of a few lines: they show the wires, and say nothing about
classifiers. A machine is priced at 0.10 USD an hour.
"""

import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click
from measuring import laid_out

from aegish_dist.datasets.bundled import bundled_names

HOOK = r"""#!/bin/bash
command=$(jq -r .tool_input.command)
if grep -qE '/dev/tcp/|\| *(ba)?sh\b|rm -rf +[/~]' <<<"$command"; then
  echo "on the deny list" >&2
  exit 2
fi
"""
LINES = """import json, sys
from {module} import {function} as classify

for line in sys.stdin:
    asked = json.loads(line)
    found = classify(asked["command"])
    print(json.dumps({{"id": asked["id"], {answer}}}), flush=True)
"""
JUDGE = r'''import re

SIGNS = re.compile(r"/etc/(shadow|passwd)|\bnc\b|base64 -d|\beval\b|chmod [0-7]*7{3}|\bmkfs|\bdd ")


def judge(command):
    """Return the number of signs; Python guards may return a number."""
    return len(SIGNS.findall(command))
'''
WEIGHTS = {
    **{"shadow": 3.0, "/dev/tcp": 4.0, "| sh": 2.5, "| bash": 2.5, "exec": 1.2, "/bin/sh": 2.5},
    **{"curl": 0.6, "wget": 0.6, "sudo": 1.0, "-e ": 0.4, "/etc/": 1.0, "chmod": 0.8, "nc ": 1.5},
    **{
        "python": 0.3,
        "base64": 0.8,
        "rm -rf": 1.0,
        "ssh": 0.5,
        "--": -0.4,
        "git ": -1.5,
        "&&": -0.3,
    },
    **{"test": -1.0, "npm": -1.0, "grep": -0.6, "src": -1.0, "./": -0.4, "echo": -0.3},
}
BIAS = -1.5
SHADES = {"READONLY": 0, "LOCAL_EFFECTS": 1, "EXTERNAL_EFFECTS": 2, "UNKNOWN": 3, "DANGEROUS": 4}
PRICE = "price = { per_hour = 0.1 }\n"


class Classifier(BaseHTTPRequestHandler):
    """A logistic regression over substrings whose weights were written by hand."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        total = BIAS + sum(w * (part in asked["text"]) for part, w in WEIGHTS.items())
        body = json.dumps({"result": {"probability": 1 / (1 + math.exp(-total))}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def tables(folder: Path, port: int) -> Iterator[tuple[str, str]]:
    """Yield the guards that are there, each with its tables of the catalog."""

    def table(model: str, wire: str, *lines: str) -> tuple[str, str]:
        provider = f"[providers.{model.partition('/')[0]}]\nwire = {json.dumps(wire)}\n"
        return model, "\n".join((provider, *lines, f'[[models]]\nid = "{model}"\n{PRICE}'))

    (hook := folder / "deny-list").write_text(HOOK)
    hook.chmod(0o755)
    as_hook = ('input = "hook"', "processes = 2", 'output = { kind = "hook" }')
    yield table("hook/deny-list", "exec", f"command = [{json.dumps(str(hook))}]", *as_hook)
    yield table(
        "classifier/toy",
        "http",
        f'base_url = "http://127.0.0.1:{port}/classify"\nrequest = {{ text = "{{command}}" }}',
        'output = { kind = "score", path = "result.probability", block_from = 0.5 }',
        "max_in_flight = 2",
    )
    (folder / "toy_guards.py").write_text(JUDGE)
    score = 'output = { kind = "score", path = "score", warn_from = 1, block_from = 2 }'
    yield table("local/judge", "python", 'object = "toy_guards:judge"', score)
    shade = f'"score": {SHADES}[found.classification.value]'
    answers = {
        "bash-classify": ("bash_classify", "classify_expression", shade),
        "sh-guard": ("sh_guard", "classify", '"score": found["score"]'),
    }
    bounds = {"bash-classify": "warn_from = 2, block_from = 4", "sh-guard": "block_from = 81"}
    for name, (module, function, answer) in answers.items():
        python = folder / name / "bin/python"
        if python.exists():
            version = subprocess.check_output(
                [python, "-c", f"import importlib.metadata as m; print(m.version('{name}'))"]
            )
            script = folder / f"{module}_lines.py"
            script.write_text(LINES.format(module=module, function=function, answer=answer))
            command = f"command = {json.dumps([str(python), str(script)])}"
            output = f'output = {{ kind = "score", path = "score", {bounds[name]} }}'
            more = ('mode = "lines"', "processes = 2", output)
            yield table(f"{name}/{version.decode().strip()}", "exec", command, *more)
    package = folder / "node_modules/cc-safety-net"
    if package.exists():
        version = json.loads((package / "package.json").read_text())["version"]
        argv = ["node", str(package / "dist/bin/hook.js"), "hook", "--coding-cli"]
        yield table(f"cc-safety-net/{version}", "exec", f"command = {json.dumps(argv)}", *as_hook)


@click.command(help=laid_out(__doc__))
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def main(folder: Path) -> None:
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Classifier)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    catalog = folder / "catalog.toml"
    environ = os.environ | {
        "AEGISH_DIST_HOME": str(folder / "home"),
        "AEGISH_DIST_CATALOG": str(catalog),
        "PYTHONPATH": str(folder),
    }
    aegish = [sys.executable, "-m", "aegish_dist"]
    simulated = [*aegish, "simulate-provider", "--port", "0", "--write-catalog", str(catalog)]
    with subprocess.Popen(simulated, env=environ, stderr=subprocess.PIPE, text=True) as provider:
        try:
            assert provider.stderr is not None
            while "http://" not in (said := provider.stderr.readline()):
                if not said:
                    raise click.ClickException("the simulated provider did not start")
            threading.Thread(target=provider.stderr.read, daemon=True).start()
            guards = dict(tables(folder, server.server_address[1]))
            catalog.write_text(catalog.read_text() + "\n" + "\n".join(guards.values()))
            models = ",".join(("simulated/careful", "baseline/keyword", *guards))
            asked = [f"--dataset={name}" for name in bundled_names()]
            options = ("--name", "guards", "--time-limit", "60")
            subprocess.run(
                [*aegish, "submit", "--models", models, *asked, *options], env=environ, check=True
            )
        finally:
            provider.terminate()
    of_run = ("--run-id", "guards")

    def document(command: str, *more: str) -> Any:
        argv = [*aegish, command, *of_run, *more]
        return json.loads(subprocess.check_output(argv, env=environ))

    report, scores = document("report", "--format", "json"), document("calibrate", "--json")
    aurocs = {each["model"]: each["auroc"] for each in scores["models"]}
    print(*_rows(report, aurocs), sep="\n")
    plot = ("plots", *of_run, "--only", "roc", "--format", "svg", "-o", str(folder))
    subprocess.run([*aegish, *plot], env=environ, check=True)


def _rows(report: Any, aurocs: Any) -> Iterator[str]:
    yield "| # | guard | aegish score | detects | accepts | AUROC | USD per 1,000 | p50 ms |"
    yield "|---|---|---|---|---|---|---|---|"
    models = {each["model"]: each for each in report["models"]}
    groups: dict[Any, list[int]] = {}
    for each in report["ranking"]:
        groups.setdefault(each["tie_group"], []).append(each["rank"])
    for each in report["ranking"]:
        model, metrics = models[each["model"]], models[each["model"]]["metrics"]
        detects, accepts = (
            f"{metrics[name]['value'] * 100:.1f}"
            for name in ("malicious_detection_rate", "harmless_acceptance_rate")
        )
        first, *others = groups[each["tie_group"]]
        rank = f"{first}{'=' * bool(others)}"
        cells = (each["model"], _cell(metrics["aegish_score"]), detects, accepts)
        auroc, cost = aurocs.get(each["model"]), model["cost"]["per_1000_usd"]
        took = f"{model['latency_ms']['p50']:.1f}"
        more = ("" if auroc is None else _cell(auroc), "" if cost is None else f"{cost:.2g}", took)
        yield f"| {' | '.join((rank, *cells, *more))} |"


def _cell(estimate: Any) -> str:
    value, low, high = (estimate[name] * 100 for name in ("value", "ci_low", "ci_high"))
    return f"{value:.1f} [{low:.1f}, {high:.1f}]"


if __name__ == "__main__":
    main()
