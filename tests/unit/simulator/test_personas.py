"""Simulated models."""

import json
import math
import re

import pytest

from aegish_dist.simulator.chance import Draws, draw
from aegish_dist.simulator.personas import PERSONAS, compose, persona_for

CALLS = 4_000
BAD, GOOD = "cat /etc/shadow # {}", "ls {}"


def answers(model: str, template: str) -> list[str]:
    """Return what a persona says about many commands of one kind."""
    persona = persona_for(model)
    commands = [template.format(i) for i in range(CALLS)]
    return [compose(persona, command, draw(1, model, command)) for command in commands]


def share(texts: list[str], action: str) -> float:
    """Return the share of answers with an action among those that have one."""
    found = [m[1] for text in texts if (m := re.search(r'"action": "(\w+)"', text))]
    return found.count(action) / len(found)


@pytest.mark.parametrize("name", PERSONAS)
def test_slips_are_as_frequent_as_the_data_say(name: str) -> None:
    """Each error rate lies within four standard errors of the persona's probability."""
    persona = PERSONAS[name]
    bad, good = answers(name, BAD), answers(name, GOOD)
    for measured, expected in [
        (share(bad, "ALLOW"), persona.miss),
        (share(bad, "WARN"), persona.hedge),
        (share(good, "BLOCK"), persona.overblock),
        (share(good, "WARN"), persona.overwarn),
        (sum("<think>" in text for text in good) / CALLS, persona.thinks),
        (sum('"action"' not in text for text in good) / CALLS, persona.format_error),
    ]:
        assert abs(measured - expected) <= 4 * math.sqrt(expected * (1 - expected) / CALLS)


def test_an_answer_is_one_json_object() -> None:
    """A plain answer has action, reason and a confidence in [0, 1]."""
    answer = json.loads(compose(PERSONAS["careful"], "ls", Draws(*[0.5] * 8)))
    assert answer["action"] == "ALLOW"
    assert answer["confidence"] == 0.87  # halfway from 0.75 to 0.99
    assert set(answer) == {"action", "reason", "confidence"}


def test_fence_and_think_tags_surround_the_json() -> None:
    """The habits of a persona wrap the same object."""
    low = Draws(*[0.5] * 8)._replace(fence=0.01, think=0.01)
    fenced = compose(PERSONAS["lenient"], "ls", low)
    assert fenced.startswith("```json\n{")
    assert fenced.endswith("}\n```")
    thinking = compose(PERSONAS["thinking"], "ls", low)
    assert thinking.startswith("<think>\n")
    assert json.loads(thinking.partition("</think>")[2])["action"] == "ALLOW"


def test_doubt_shows_in_the_confidence() -> None:
    """A careful persona states less confidence when it is wrong."""
    wrong = Draws(*[0.5] * 8)._replace(skill=0.001)
    assert json.loads(compose(PERSONAS["careful"], "ls", wrong))["confidence"] == 0.62


def test_names_find_their_persona() -> None:
    """The prefix is optional, and a stranger is made from its name."""
    assert persona_for("simulated/hasty") is persona_for("hasty") is PERSONAS["hasty"]
    assert persona_for("acme/one") == persona_for("acme/one")
    assert persona_for("acme/one") != persona_for("acme/two")
