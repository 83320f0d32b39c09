"""Simulated models and their guard, draws and latencies."""

import json
import math
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from aegish_dist.errors import InputError
from aegish_dist.simulator.personas import (
    PERSONAS,
    Draws,
    compose,
    draw,
    judge,
    parse_latency,
    persona_for,
)
from tests.oracles import stats
from tests.recorded import document_of


def test_equal_coordinates_give_equal_draws_and_others_change_every_one() -> None:
    base = draw(1, "model", "ls")
    assert draw(1, "model", "ls") == base
    for other in (draw(2, "model", "ls"), draw(1, "x", "ls"), draw(1, "model", "ls ")):
        assert all(a != b for a, b in zip(base, other, strict=True))


def test_draws_are_uniform() -> None:
    rows = [draw(7, str(i)) for i in range(2_000)]
    for name in Draws._fields:
        assert stats.kstest([getattr(row, name) for row in rows], "uniform").pvalue > 1e-4


def test_any_unicode_is_a_coordinate() -> None:
    assert 0 < draw(0, "\ud800", "\0").skill < 1


@pytest.mark.parametrize("quantile", [1e-9, 0.1, 0.5, 0.9, 1 - 1e-9])
@pytest.mark.parametrize(
    ("text", "law"),
    [
        ("uniform:0.5,1.5", lambda: stats.uniform(0.5, 1.0)),
        ("lognormal:0.8,0.4", lambda: stats.lognorm(0.4, scale=0.8)),
        ("exponential:2", lambda: stats.expon(scale=2.0)),
    ],
)
def test_quantiles_are_those_of_the_law(text: str, law: Callable[[], Any], quantile: float) -> None:
    assert parse_latency(text)(quantile) == pytest.approx(law().ppf(quantile), rel=1e-6)


@pytest.mark.parametrize(
    "text",
    ["", "fast", "constant", "constant:", "constant:x", "constant:-1", "constant:nan",
     "constant:inf", "constant:1,2", "uniform:1", "uniform:2,1", "gamma:1,2", "lognormal:1"],
)  # fmt: skip
def test_wrong_texts_are_named(text: str) -> None:
    with pytest.raises(InputError, match=f"latency '{text}'"):
        parse_latency(text)


JUDGED = document_of("judged_commands.json")["personas"]


@pytest.mark.parametrize(
    ("command", "action"), [(each, action) for action, them in JUDGED.items() for each in them]
)
def test_commands_are_judged_by_their_text(command: str, action: str) -> None:
    assert judge(command)[0] == action


@pytest.mark.parametrize("unit", ["curl ", "socket ", "sh ", "/bin", "a@", "rm -r -", "chmod "])
def test_hostile_text_is_judged_quickly(unit: str) -> None:
    started = time.process_time()
    judge(unit * (1_000_000 // len(unit)))
    assert time.process_time() - started < 1.0


CALLS = 4_000
BAD, GOOD = "cat /etc/shadow # {}", "ls {}"


def answers(model: str, template: str) -> list[str]:
    persona = persona_for(model)
    commands = [template.format(i) for i in range(CALLS)]
    return [compose(persona, command, draw(1, model, command)) for command in commands]


def share(texts: list[str], action: str) -> float:
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
    answer = json.loads(compose(PERSONAS["careful"], "ls", Draws(*[0.5] * 8)))
    assert answer["action"] == "ALLOW"
    assert answer["confidence"] == 0.87  # halfway from 0.75 to 0.99
    assert set(answer) == {"action", "reason", "confidence"}


def test_fence_and_think_tags_surround_the_json() -> None:
    low = Draws(*[0.5] * 8)._replace(fence=0.01, think=0.01)
    fenced = compose(PERSONAS["lenient"], "ls", low)
    assert fenced.startswith("```json\n{")
    assert fenced.endswith("}\n```")
    thinking = compose(PERSONAS["thinking"], "ls", low)
    assert thinking.startswith("<think>\n")
    assert json.loads(thinking.partition("</think>")[2])["action"] == "ALLOW"


def test_doubt_shows_in_the_confidence() -> None:
    wrong = Draws(*[0.5] * 8)._replace(skill=0.001)
    assert json.loads(compose(PERSONAS["careful"], "ls", wrong))["confidence"] == 0.62


def test_names_find_their_persona() -> None:
    assert persona_for("simulated/hasty") is persona_for("hasty") is PERSONAS["hasty"]
    assert persona_for("acme/one") == persona_for("acme/one")
    assert persona_for("acme/one") != persona_for("acme/two")
