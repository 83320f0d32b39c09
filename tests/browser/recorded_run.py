"""The run whose report the browser opens: verdict lines with every kind of answer and of hostility."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EPOCHS = 3
MODELS = (
    "acme/best",
    "acme/best-twin",
    "acme/blocks-all",
    "acme/allows-all",
    "acme/undecided",
    "acme/unreachable",
    '"><img id="injected" src=x onerror=alert(1)>/\u202etxt\u200b',
)
"""The first two answer alike, the last but one never answers, the last has a hostile name."""
BLOCKS_ALL, ALLOWS_ALL, UNDECIDED, UNREACHABLE, HOSTILE_MODEL = MODELS[2:]

CATEGORIES = ("file-read", "shell", '<b id="injected">upload</b>')
MALICIOUS = tuple(f"tool-{n} --danger {n}" for n in range(12))
HARMLESS = tuple(f"list-{n} -l {n}" for n in range(8))
HOSTILE_COMMANDS = (
    "echo <script id=injected>alert(1)</script>",
    "echo </script><script>alert(2)</script>",
    "echo </style></textarea></title><svg id=injected onload=alert(3)>",
    "echo '<!--' '-->' ']]>' '&lt;b&gt;&amp;' \"quoted\" `ticked` \\u003c",
    "xdg-open javascript:alert(4)",
    "echo \u202egnp.exe\u202c \u2066isolated\u2069 \u200bzero\u200dwidth\ufeff",
    "printf '\x1b[31mred\x1b]0;title\x07\x9b2J'",
    "echo " + "w" * 3000,
    '=HYPERLINK("http://127.0.0.1/") \u2028line\u2029paragraph\r\n\ttab',
    "echo e\u0301 \U0001f469\u200d\U0001f4bb \u4f60\u597d \u0645\u0631\u062d\u0628\u0627",
)
DATASETS = ("tools", "<i id=injected>hostile</i>")
"""The model that never answers was asked about the first alone."""
MISSED_BY_ALL = HOSTILE_COMMANDS[0]
MISSED_BY_NONE = HARMLESS[0]
LONG_COMMAND = HOSTILE_COMMANDS[7]
MEGABYTE = "x" * 1_000_000
CALL_ERROR = "<script id=injected>alert(5)</script> busy, \x1b[1mask\x1b[0m \u202eretal"
HOSTILE_COMPLETION = (
    '{"action": "block", "confidence": 0.75, "reason":'
    ' "</script><img id=injected src=x onerror=alert(6)> \\u202ereversed \\u001b[31mred"}\n'
    '<a href="javascript:alert(7)">[click](javascript:alert(8))</a>\r\n&amp;\u2028\ufeff'
)


FILTERS = {
    "--text 'ALERT(1'": {"q": "ALERT(1"},
    "--target malicious": {"target": "malicious"},
    f"--dataset '{DATASETS[1]}'": {"dataset": DATASETS[1]},
    f"--category '{CATEGORIES[2]}'": {"category": CATEGORIES[2]},
    "--outcome WARN": {"outcome": "WARN"},
    f"--outcome BLOCK --models {UNDECIDED}": {"outcome": "BLOCK", "model": UNDECIDED},
    "--disputed": {"disputed": "1"},
    "--inconsistent": {"flipping": "1"},
    "--inconsistent --target malicious --text tool": {
        "flipping": "1",
        "target": "malicious",
        "q": "tool",
    },
}
"""By options of `verdicts list` the fields of the grid that choose the same commands."""


def write_run(path: Path) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in _lines()), encoding="ascii")
    return path


def _lines() -> Iterator[dict[str, Any]]:
    for number, about in enumerate(_commands()):
        for model in MODELS:
            if model == UNREACHABLE and about["dataset"] != "tools":
                continue
            for epoch in range(1, EPOCHS + 1):
                facts = {"model": model, "epoch": epoch, "call_errors": []}
                yield about | facts | _fate(model, about, number, epoch)


def _commands() -> Iterator[dict[str, Any]]:
    for number, command in enumerate(MALICIOUS):
        yield _about("tools", command, "malicious", CATEGORIES[number % 2], f"tool-{number // 2}")
    for command in HARMLESS:
        yield _about("tools", command, "harmless", None, None)
    for number, command in enumerate(HOSTILE_COMMANDS):
        malicious = number % 2 == 0
        target = "malicious" if malicious else "harmless"
        yield _about(DATASETS[1], command, target, CATEGORIES[2] if malicious else None, None)


def _about(*values: str | None) -> dict[str, Any]:
    names = ("dataset", "command", "target", "category", "cluster")
    return dict(zip(names, values, strict=True))


def _fate(model: str, about: dict[str, Any], number: int, epoch: int) -> dict[str, Any]:
    """Return what became of an item: its answer, tokens and times, or why there is none."""
    clock = {
        "created_at": f"2026-03-01T12:{number:02}:{epoch:02}+00:00",
        "queue_ms": 5.0 + number,
        "limiter_ms": 2.0,
        "worker": "<u id=injected>worker</u>",
    }
    if model == UNREACHABLE:
        return clock | {
            "completion": None,
            "error_class": "overloaded",
            "attempts": 3,
            "backoff_ms": 1500.0,
            "latency_ms": 40.0,
            "total_ms": 1547.0 + number,
            "call_errors": [_failed(attempt, number) for attempt in (1, 2, 3)],
        }
    latency_ms = 100.0 + 10 * MODELS.index(model) + number + epoch / 4
    return clock | {
        "completion": _completion(model, about, number, epoch),
        "stop_reason": "end_turn",
        "latency_ms": latency_ms,
        "total_ms": latency_ms + 7 + number,
        "input_tokens": 300 + number,
        "output_tokens": 20 + epoch,
        "reasoning_tokens": 8,
        "cache_read_tokens": 100,
        "cost_usd": f"0.000{1 + MODELS.index(model)}{epoch}",
        "returned_model": f"{model}-2026",
        "upstream": "<em id=injected>upstream</em>",
        "request_id": f"req-{number}-{epoch}",
        "attempts": 2 if number == 5 else 1,
        "backoff_ms": 250.0 if number == 5 else 0.0,
        "call_errors": [_failed(1, number)] if number == 5 else [],
    }


def _failed(attempt: int, number: int) -> dict[str, Any]:
    return {
        "attempt": attempt,
        "error_class": "overloaded",
        "status": 529,
        "retry_after_s": 0.5,
        "message": CALL_ERROR,
        "at": f"2026-03-01T12:{number:02}:{attempt:02}.5+00:00",
    }


def _completion(model: str, about: dict[str, Any], number: int, epoch: int) -> str | None:
    command = about["command"]
    if model == BLOCKS_ALL and command == LONG_COMMAND and epoch == 1:
        return MEGABYTE
    if model == HOSTILE_MODEL and command != MISSED_BY_NONE:
        return [HOSTILE_COMPLETION, "I would rather not say.", ""][(number + epoch) % 3]
    says = {"action": _action(model, about, number, epoch), "reason": f"{command} looks so"}
    return json.dumps(says | {"confidence": (number % 10) / 10})


def _action(model: str, about: dict[str, Any], number: int, epoch: int) -> str:
    malicious = about["target"] == "malicious"
    if about["command"] in (MISSED_BY_ALL, MISSED_BY_NONE):
        return "allow"
    if model == BLOCKS_ALL:
        return "block"
    if model == ALLOWS_ALL:
        return "allow"
    if model == UNDECIDED and number % 4 == 0:
        return ("block", "warn", "allow")[epoch - 1]
    return "block" if malicious else "allow"
