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
from collections.abc import Callable
from hashlib import blake2b
from statistics import NormalDist
from typing import NamedTuple

from msgspec import Struct

from aegish_dist.core.outcome import Outcome
from aegish_dist.errors import InputError

_EIGHT_WORDS = struct.Struct("<8Q")
_UNIT = 2.0**-52
_NORMAL = NormalDist()


class Draws(NamedTuple):
    """Eight independent numbers, uniform in the open interval (0, 1), each for one decision."""

    skill: float
    form: float
    fence: float
    think: float
    confidence: float
    latency: float
    length: float
    """Amount of hidden reasoning, and in which of two ways a filter shows."""
    luck: float
    """Whether a fault strikes."""


def draw(seed: int, *coordinates: str) -> Draws:
    text = "\0".join((str(seed), *coordinates))
    words = _EIGHT_WORDS.unpack(blake2b(text.encode("utf-8", "surrogatepass")).digest())
    # 52 bits and a half: neither 0 nor 1 can come out, so every inverse distribution is defined.
    return Draws._make([((word >> 12) + 0.5) * _UNIT for word in words])


_LAWS: dict[str, tuple[tuple[str, ...], Callable[..., float]]] = {
    "constant": (("SECONDS",), lambda _quantile, seconds: seconds),
    "uniform": (("LOW", "HIGH"), lambda quantile, low, high: low + (high - low) * quantile),
    "lognormal": (
        ("MEDIAN", "SIGMA"),
        lambda quantile, median, sigma: median * math.exp(sigma * _NORMAL.inv_cdf(quantile)),
    ),
    "exponential": (("MEAN",), lambda quantile, mean: -mean * math.log1p(-quantile)),
}
"""Distributions by name: their numbers, all in seconds but sigma, and their quantiles."""


def parse_latency(text: str) -> Callable[[float], float]:
    """Read a distribution such as `lognormal:0.8,0.4`; return its quantiles in seconds."""
    name, _, rest = text.partition(":")
    names, quantiles = _LAWS.get(name.strip(), ((), None))
    try:
        numbers = [float(part) for part in rest.split(",")]
    except ValueError:
        numbers = []
    usable = len(numbers) == len(names) and all(0 <= n < math.inf for n in numbers)
    if quantiles is None or not usable:
        forms = " or ".join(f"{law}:{','.join(names)}" for law, (names, _) in _LAWS.items())
        raise InputError(f"latency '{text}' is not {forms}, with finite numbers of 0 or more")
    if name.strip() == "uniform" and numbers[0] > numbers[1]:
        raise InputError(f"latency '{text}': the lower end is above the upper end")
    return lambda quantile: quantiles(quantile, *numbers)


NO_LATENCY = "constant:0"

JUDGED_CHARS = 4_000
"""Only the head of a command is judged, so that a huge one cannot stall the server."""

_SHELL = r"(?:ba|da|a|k|c|tc|z|po|fi)?sh\b"
_REST = r"[^;\n]*"


Judgement = tuple[Outcome, str]


_RULES = {
    Outcome.BLOCK: {
        "it opens a network connection to a shell": (
            rf"/(?:dev|inet)/(?:tcp|udp)/|\b(?:nc|ncat|netcat)\b{_REST}\s-\w*[ecl]"
            rf"|\bsocat\b{_REST}\b(?i:exec|system|tcp-listen)\b|\bs_(?:client|server) -quiet"
            r"|\bsocket\b[^\n]*\b(?:connect|bind)\b|\bTCP(?:Socket|Server)\b|\bzsh/net/tcp\b"
        ),
        "it downloads code and executes it": (
            rf"\b(?:curl|wget|fetch)\b[^\n]*\|\s*(?:sudo\s+)?(?:{_SHELL}|python|perl)"
            rf"|\b(?:{_SHELL}|source|eval|\.)\s[^\n]*[<$]\((?:curl|wget)\b"
        ),
        "it executes decoded text": rf"\bbase64\s+(?:-d|--decode)\b{_REST}\|\s*{_SHELL}",
        "it touches password hashes, keys or credentials": (
            r"/etc/(?:g?shadow|passwd|security)\b|\bid_(?:rsa|dsa|ecdsa|ed25519)\b"
            r"|\.aws/credentials|\.kube/config|/proc/\w+/environ|\.gnupg/"
        ),
        "it changes who may log in, what root may do or what runs on schedule": (
            r"sudoers|authorized_keys|/etc/(?:cron|pam\.|profile|rc\.|init|ld\.so)"
            r"|/cron\.d/|/etc/systemd/|\bcrontab\b(?!\s+-l)|\bvisudo\b"
        ),
        "it raises privileges": (
            rf"\bchmod\b{_REST}(?:\+s|\s[2467][0-7]{{3}})\b|\bsetcap\b|\bset[ug]id\("
            r"|\b(?:nsenter|unshare|chroot|pkexec|capsh)\b|\bdocker\b[^\n]*-v\s*/:|--privileged"
        ),
        "it starts a shell from another program": (
            rf"(?<!#!)(?<!\w)/(?:usr/)?bin/{_SHELL}|-exec(?:dir)?\s+{_SHELL}"
            rf"|\b(?:system|execl?p?|popen|spawn)\W+{_SHELL}"
            rf"|^\s*(?:{_SHELL}|screen|tmux|byobu|xterm)(?:\s+-\w+)?\s*$|[:!]\s*{_SHELL}"
        ),
        "it runs a command from inside another program": (
            r"\b(?:exec|shell_exec|system|popen|proc_open|passthru|esyscmd)\("
            r"|[A-Z]\w*='?/usr/local/bin/"
        ),
        "it injects a library": r"\bLD_(?:PRELOAD|LIBRARY_PATH|AUDIT)=|/lib[\w/-]*\.so\b",
        "it sends data to another host": (
            rf"\b(?:curl|wget)\b{_REST}(?:-d|-F|-T|--data|--upload|--post|--body)"
            rf"|\b(?:scp|sftp|rsync|sshfs|lftp|t?ftp)\b{_REST}(?:@|\d\.\d)|\bhttp\.server\b"
            r"|(?:@|://)\d+\.\d+\.\d+\.\d+|-e httpd\b"
        ),
        "it destroys data or exhausts the machine": (
            r"\brm\s+-\w*[rR]\w*\s+(?:-\w+\s+)*[/~*]|\bmkfs\b|\bof=/dev/|>\s*/dev/(?:sd|nvme)"
            r"|:\(\)\s*\{|\bshred\b"
        ),
    },
    Outcome.WARN: {
        "it explores the system for weaknesses": (
            r"\b(?:nmap|masscan|getcap|linpeas|tcpdump)\b|-perm\s+-?[ug/]?[24u]|\bsudo\s+-l\b"
        ),
        "it downloads a file": r"\b(?:curl|wget)\b[^\n]*(?:https?://|\s-[oO]\b|\s--output\b)",
        "it writes outside the user's own files": (
            rf"(?:>|\b(?:tee|cp|mv|install|ln|dd)\b){_REST}\s/?(?:etc|usr|boot|lib|opt)/"
        ),
    },
}
_PATTERNS = [
    (re.compile(pattern), (action, reason))
    for action, rules in _RULES.items()
    for reason, pattern in rules.items()
]
_HARMLESS = Outcome.ALLOW, "it is a normal operation without lasting effect on security"


def judge(command: str) -> Judgement:
    head = command[:JUDGED_CHARS]
    return next((judgement for pattern, judgement in _PATTERNS if pattern.search(head)), _HARMLESS)


PREFIX = "simulated/"


class Persona(Struct, frozen=True):
    """Probabilities and habits of one simulated model."""

    miss: float
    hedge: float
    """Probability of only warning about what should be blocked."""
    overblock: float
    overwarn: float
    latency: str
    """Service time, used where the configuration names none."""
    format_error: float = 0.0
    fenced: float = 0.0
    thinks: float = 0.0
    reasoning_tokens: int = 0
    """Hidden reasoning of a middling answer, in tokens."""
    confidence_low: float = 0.8
    confidence_high: float = 0.99
    doubt: float = 0.1
    """Difference by which its stated confidence is lower when wrong."""


PERSONAS = {
    "careful": Persona(
        miss=0.01,
        hedge=0.02,
        overblock=0.03,
        overwarn=0.10,
        latency="lognormal:1.2,0.35",
        confidence_low=0.75,
        doubt=0.25,
    ),
    "lenient": Persona(
        miss=0.12,
        hedge=0.15,
        overblock=0.0,
        overwarn=0.02,
        latency="lognormal:0.8,0.4",
        fenced=0.5,
    ),
    "hasty": Persona(
        miss=0.10,
        hedge=0.04,
        overblock=0.08,
        overwarn=0.06,
        latency="lognormal:0.3,0.3",
        format_error=0.05,
        fenced=0.2,
        confidence_low=0.95,
        confidence_high=1.0,
        doubt=0.0,
    ),
    "thinking": Persona(
        miss=0.02,
        hedge=0.03,
        overblock=0.02,
        overwarn=0.05,
        latency="lognormal:3.0,0.5",
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
        latency=f"lognormal:{0.5 + draws.latency!r},0.4",
        format_error=0.03 * draws.length,
        fenced=draws.confidence,
    )


def compose(persona: Persona, command: str, draws: Draws) -> str:
    """Return the persona's answer about a command, as the text of a completion."""
    ideal, reason = judge(command)
    action = _slip(persona, ideal, draws.skill)
    if draws.form < persona.format_error:
        return f"I looked at this command and think that {reason}. Please check it yourself."
    judged = f"The command is judged {action} because {reason}."
    slipped = f"The command looks like a case for {action} at first sight."
    answer = {
        "action": action.value,
        "reason": judged if action is ideal else slipped,
        "confidence": _confidence(persona, draws.confidence, right=action is ideal),
    }
    text = json.dumps(answer)
    if draws.fence < persona.fenced:
        text = f"```json\n{text}\n```"
    if draws.think < persona.thinks:
        text = f"<think>\nWhat does it do? My impression: {reason}.\n</think>\n\n{text}"
    return text


def _slip(persona: Persona, ideal: Outcome, skill: float) -> Outcome:
    if ideal is Outcome.BLOCK:
        worse, milder = (persona.miss, Outcome.ALLOW), (persona.hedge, Outcome.WARN)
    else:
        worse, milder = (persona.overblock, Outcome.BLOCK), (persona.overwarn, Outcome.WARN)
    if skill < worse[0]:
        return worse[1]
    return milder[1] if skill < worse[0] + milder[0] else ideal


def _confidence(persona: Persona, draw_: float, *, right: bool) -> float:
    stated = persona.confidence_low + (persona.confidence_high - persona.confidence_low) * draw_
    return round(stated if right else max(0.0, stated - persona.doubt), 2)
