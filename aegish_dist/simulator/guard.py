"""A simulated guard that is a program: `python -m aegish_dist.simulator.guard [PERSONA] [lines]`.

It reads an agent's hook document, or `{"command"}`, on standard input and answers as a hook does;
with `lines`, a document a line, whose `id` it repeats. It judges as the simulated model of the same
name does over HTTP, without latency or faults.
"""

import json
import sys

from aegish_dist.core.outcome import Outcome
from aegish_dist.core.text import JsonObject
from aegish_dist.opinions.parsing import parse
from aegish_dist.simulator.config import SimulatorConfig
from aegish_dist.simulator.personas import compose, draw, persona_for

DECISIONS = {
    Outcome.ALLOW: "allow",
    Outcome.WARN: "ask",
    Outcome.BLOCK: "deny",
}


def answer(asked: JsonObject, persona: str) -> JsonObject:
    """Return the decision about a command; a text without an action has none."""
    command = asked.get("tool_input", asked)["command"]
    draws = draw(SimulatorConfig().seed, "answer", persona, command)
    text = compose(persona_for(persona), command, draws)
    read = parse(text)
    decision = "unsure" if read.action is None else DECISIONS[read.action]
    output = {
        "hookEventName": "PreToolUse",
        "permissionDecision": decision,
        "permissionDecisionReason": read.reason,
    }
    return {"hookSpecificOutput": output}


def main(persona: str = "careful", mode: str = "once") -> None:
    documents = sys.stdin if mode == "lines" else [sys.stdin.read()]
    for document in documents:
        asked = json.loads(document)
        answered = answer(asked, persona)
        if "id" in asked:
            answered = {"id": asked["id"], **answered}
        print(json.dumps(answered), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
