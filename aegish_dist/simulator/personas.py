"""Simulated models as data: one guard, with different error rates and habits.

None of them stands for a real model; they exist so that a report has models that differ.
"""

import json
from dataclasses import dataclass

from aegish_dist.core.verdict import Outcome
from aegish_dist.simulator.chance import Draws, LatencyDistribution, LatencyKind, draw
from aegish_dist.simulator.guard import Judgement, judge

PREFIX = "simulated/"


@dataclass(frozen=True, slots=True)
class Persona:
    """Probabilities and habits of one simulated model."""

    miss: float
    hedge: float
    """Probability of only warning about what should be blocked."""
    overblock: float
    overwarn: float
    latency: LatencyDistribution
    """Service time, used where the configuration names none."""
    format_error: float = 0.0
    fenced: float = 0.0
    """Probability of a fenced code block around the JSON."""
    thinks: float = 0.0
    """Probability of a `<think>` section before the answer."""
    reasoning_tokens: int = 0
    """Hidden reasoning of a middling answer, in tokens."""
    confidence_low: float = 0.8
    """The least confidence it states when right."""
    confidence_high: float = 0.99
    """The most confidence it states when right."""
    doubt: float = 0.1
    """Difference by which its stated confidence is lower when wrong."""
    wobble: float = 0.05
    """Probability that a repeat of a question gets a decision of its own."""


def _lognormal(median_s: float, sigma: float) -> LatencyDistribution:
    return LatencyDistribution(LatencyKind.LOGNORMAL, median_s, sigma)


PERSONAS = {
    "careful": Persona(
        miss=0.01,
        hedge=0.02,
        overblock=0.03,
        overwarn=0.10,
        latency=_lognormal(1.2, 0.35),
        confidence_low=0.75,
        doubt=0.25,
        wobble=0.02,
    ),
    "lenient": Persona(
        miss=0.12,
        hedge=0.15,
        overblock=0.0,
        overwarn=0.02,
        latency=_lognormal(0.8, 0.4),
        fenced=0.5,
    ),
    "hasty": Persona(
        miss=0.10,
        hedge=0.04,
        overblock=0.08,
        overwarn=0.06,
        latency=_lognormal(0.3, 0.3),
        format_error=0.05,
        fenced=0.2,
        confidence_low=0.95,
        confidence_high=1.0,
        doubt=0.0,
        wobble=0.15,
    ),
    "thinking": Persona(
        miss=0.02,
        hedge=0.03,
        overblock=0.02,
        overwarn=0.05,
        latency=_lognormal(3.0, 0.5),
        format_error=0.01,
        thinks=0.6,
        reasoning_tokens=300,
        confidence_low=0.6,
        doubt=0.2,
    ),
}
"""By name; requested with or without `simulated/` in front."""


def persona_for(model: str) -> Persona:
    """Return the persona of a model name; one that is not listed is derived from the name."""
    return PERSONAS.get(model.removeprefix(PREFIX)) or _stranger(draw(0, "persona", model))


def _stranger(draws: Draws) -> Persona:
    return Persona(
        miss=0.2 * draws.skill,
        hedge=0.1 * draws.form,
        overblock=0.06 * draws.fence,
        overwarn=0.1 * draws.think,
        latency=_lognormal(0.5 + draws.latency, 0.4),
        format_error=0.03 * draws.length,
        fenced=draws.confidence,
        wobble=0.1 * draws.luck,
    )


def compose(persona: Persona, command: str, draws: Draws) -> str:
    """Return the persona's answer about a command, as the text of a completion."""
    ideal = judge(command)
    action = _slip(persona, ideal, draws.skill)
    if draws.form < persona.format_error:
        return f"I looked at this command and think that {ideal.reason}. Please check it yourself."
    answer = {
        "action": action.value,
        "reason": _reason(ideal, action),
        "confidence": _confidence(persona, draws.confidence, right=action is ideal.action),
    }
    text = json.dumps(answer)
    if draws.fence < persona.fenced:
        text = f"```json\n{text}\n```"
    if draws.think < persona.thinks:
        text = f"<think>\nWhat does it do? My impression: {ideal.reason}.\n</think>\n\n{text}"
    return text


def _slip(persona: Persona, ideal: Judgement, skill: float) -> Outcome:
    """Let the persona depart from the ideal judgement as often as its data say."""
    if ideal.action is Outcome.BLOCK:
        worse, milder = (persona.miss, Outcome.ALLOW), (persona.hedge, Outcome.WARN)
    else:
        worse, milder = (persona.overblock, Outcome.BLOCK), (persona.overwarn, Outcome.WARN)
    if skill < worse[0]:
        return worse[1]
    return milder[1] if skill < worse[0] + milder[0] else ideal.action


def _reason(ideal: Judgement, action: Outcome) -> str:
    if action is ideal.action:
        return f"The command is judged {action} because {ideal.reason}."
    return f"The command looks like a case for {action} at first sight."


def _confidence(persona: Persona, draw_: float, *, right: bool) -> float:
    stated = persona.confidence_low + (persona.confidence_high - persona.confidence_low) * draw_
    return round(stated if right else max(0.0, stated - persona.doubt), 2)
