"""Simulated models as data: one guard with different error rates, habits and service times.

None of them stands for a real model; they exist so that a report has models that differ. The guard
is a list of patterns, of which the first that is found decides; it reads commands as text and runs
nothing. Every draw is a hash of its coordinates, so that a request gets the same numbers whatever
arrives before it, and in every process.
"""

import json
import math
import re
import struct
from collections.abc import Callable, Iterator
from hashlib import blake2b
from importlib.resources import files
from statistics import NormalDist
from typing import NamedTuple

from msgspec import Struct, convert
from msgspec.structs import replace

from aegish_dist.core.outcome import Outcome
from aegish_dist.errors import InputError
from aegish_dist.inputs.documents import parse_toml

_EIGHT_WORDS = struct.Struct("<8Q")
_UNIT = 2.0**-52
_NORMAL = NormalDist()
_DATA = parse_toml(files(__package__).joinpath("personas.toml").read_text("utf-8"))


class Draws(NamedTuple):
    """Eight independent numbers, uniform in the open interval (0, 1), each for one decision."""

    skill: float
    form: float
    fence: float
    think: float
    confidence: float
    latency: float
    length: float  # amount of hidden reasoning, and in which of two ways a filter shows
    luck: float  # whether a fault strikes


def draw(seed: int, *coordinates: str) -> Draws:
    text = "\0".join((str(seed), *coordinates))
    digest = blake2b(text.encode("utf-8", "surrogatepass")).digest()
    words = _EIGHT_WORDS.unpack(digest)
    # 52 bits and a half: neither 0 nor 1 can come out, so every inverse distribution is defined.
    return Draws._make([((word >> 12) + 0.5) * _UNIT for word in words])


# Distributions by name: their numbers, all in seconds but sigma, and their quantiles.
class _Law(NamedTuple):
    form: str  # as it is typed: the name and its numbers
    quantile: Callable[..., float]

    @property
    def numbers(self) -> int:
        return self.form.count(",") + 1


_LAWS = {
    "constant": _Law("constant:SECONDS", lambda _quantile, seconds: seconds),
    "uniform": _Law("uniform:LOW,HIGH", lambda quantile, low, high: low + (high - low) * quantile),
    "lognormal": _Law(
        "lognormal:MEDIAN,SIGMA",
        lambda quantile, median, sigma: median * math.exp(sigma * _NORMAL.inv_cdf(quantile)),
    ),
    "exponential": _Law("exponential:MEAN", lambda quantile, mean: -mean * math.log1p(-quantile)),
}


def parse_latency(text: str) -> Callable[[float], float]:
    """Read a distribution such as `lognormal:0.8,0.4`; return its quantiles in seconds."""
    name, _, rest = text.partition(":")
    law = _LAWS.get(name.strip())
    try:
        numbers = [float(part) for part in rest.split(",")]
    except ValueError:
        numbers = []

    finite = all(0 <= number < math.inf for number in numbers)
    if law is None or len(numbers) != law.numbers or not finite:
        forms = " or ".join(known.form for known in _LAWS.values())
        raise InputError(f"latency '{text}' is not {forms}, with finite numbers of 0 or more")

    if law is _LAWS["uniform"] and numbers[0] > numbers[1]:
        raise InputError(f"latency '{text}': the lower end is above the upper end")
    return lambda quantile: law.quantile(quantile, *numbers)


NO_LATENCY = "constant:0"

# Only the head of a command is judged, so that a huge one cannot stall the server.
JUDGED_CHARS = 4_000

_SHELL = r"(?:ba|da|a|k|c|tc|z|po|fi)?sh\b"
_REST = r"[^;\n]*"


Judgement = tuple[Outcome, str]


def _patterns() -> Iterator[tuple[re.Pattern[str], Judgement]]:
    # What is to be blocked comes first: the first pattern that is found decides.
    for action in (Outcome.BLOCK, Outcome.WARN):
        for why, forms in _DATA["rules"][action].items():
            form = "|".join(forms)
            form = form.replace("{shell}", _SHELL)
            form = form.replace("{rest}", _REST)
            yield re.compile(form), (action, why)


_PATTERNS = list(_patterns())
_HARMLESS = Outcome.ALLOW, "it is a normal operation without lasting effect on security"


def judge(command: str) -> Judgement:
    head = command[:JUDGED_CHARS]
    for pattern, judgement in _PATTERNS:
        if pattern.search(head):
            return judgement
    return _HARMLESS


PREFIX = "simulated/"


class Persona(Struct, frozen=True):
    miss: float
    hedge: float  # probability of only warning about what should be blocked
    overblock: float
    overwarn: float
    latency: str  # service time, used where the configuration names none
    format_error: float = 0.0
    fenced: float = 0.0
    thinks: float = 0.0
    reasoning_tokens: int = 0  # hidden reasoning of a middling answer, in tokens
    confidence_low: float = 0.8
    confidence_high: float = 0.99
    doubt: float = 0.1  # difference by which its stated confidence is lower when wrong


# By name; requested with or without `simulated/` in front.
PERSONAS = convert(_DATA["personas"], dict[str, Persona])


def persona_for(model: str) -> Persona:
    """Return the persona of a model name; one that is not listed is derived from the name."""
    return PERSONAS.get(model.removeprefix(PREFIX)) or _stranger(draw(0, "persona", model))


def _stranger(draws: Draws) -> Persona:
    return Persona(
        miss=0.2 * draws.skill,
        hedge=0.1 * draws.form,
        overblock=0.06 * draws.fence,
        overwarn=0.1 * draws.think,
        latency=f"lognormal:{0.5 + draws.latency!r},0.4",
        format_error=0.03 * draws.length,
        fenced=draws.confidence,
    )


def compose(
    persona: Persona,
    command: str,
    draws: Draws,
    *,
    strict: bool = False,
) -> str:
    """Return the persona's answer about a command, as the text of a completion.

    A strict answer is the JSON alone: a grammar leaves no room for the persona's habits.
    """
    if strict:
        persona = replace(
            persona,
            format_error=0.0,
            fenced=0.0,
            thinks=0.0,
        )

    ideal, reason = judge(command)
    action = _slip(persona, ideal, draws.skill)
    if draws.form < persona.format_error:
        return f"I looked at this command and think that {reason}. Please check it yourself."
    low = persona.confidence_low
    confidence = low + (persona.confidence_high - low) * draws.confidence
    words = f"The command is judged {action} because {reason}."
    if action is not ideal:
        # A slip is stated a little less surely.
        confidence = max(0.0, confidence - persona.doubt)
        words = f"The command looks like a case for {action} at first sight."

    answer = {
        "action": action.value,
        "reason": words,
        "confidence": round(confidence, 2),
    }
    text = json.dumps(answer)
    if draws.fence < persona.fenced:
        text = f"```json\n{text}\n```"
    if draws.think < persona.thinks:
        text = f"<think>\nWhat does it do? My impression: {reason}.\n</think>\n\n{text}"
    return text


def _slip(persona: Persona, ideal: Outcome, skill: float) -> Outcome:
    if ideal is Outcome.BLOCK:
        worst = Outcome.ALLOW
        to_worst = persona.miss
        to_warn = persona.hedge
    else:
        worst = Outcome.BLOCK
        to_worst = persona.overblock
        to_warn = persona.overwarn

    if skill < to_worst:
        return worst
    if skill < to_worst + to_warn:
        return Outcome.WARN
    return ideal
