"""Guards without a model: the floor that every model has to beat. No network, no key, no cost."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from aegish_dist.core.verdict import Completion, Outcome, StopKind
from aegish_dist.errors import CatalogError

# Every repetition is bounded or possessive: a hostile command must not cost quadratic time.
GAP = r"[^|;&\n]{0,200}"
SHELL = r"(sudo\s{1,5})?(/usr)?(/bin/)?(ba|z|da|k|c)?sh\b"

DENYLIST = {
    rule: re.compile(pattern, re.IGNORECASE)
    for rule, pattern in {
        "network device of the shell": r"/dev/(tcp|udp)/",
        "netcat running a program": rf"\b(nc|ncat|netcat)\b{GAP}\s(-\w{{0,8}}[ec]|--(sh-)?exec)\b",
        "socat running a program": rf"\bsocat\b{GAP}\b(exec|system):",
        "shell run by a program": rf"\b(system|spawn|execl?|popen)\b\W{{1,5}}{SHELL}",
        "shell escape of an editor or pager": rf"(^|['\"\s:])!\s{{0,5}}{SHELL}",
        "download and execute": rf"\b(curl|wget|fetch)\b{GAP}\|\s{{0,5}}{SHELL}",
        "decode and execute": rf"\bbase64\b{GAP}\|\s{{0,5}}{SHELL}",
        "password hashes": r"/etc/(g?shadow|security/passwd)\b",
        "private keys": r"\.ssh/|\bid_(rsa|dsa|ecdsa|ed25519)\b",
        "cloud credentials": r"\.aws/credentials|\.kube/config|\.config/gcloud",
        "authorisation files": r"/etc/(sudoers|pam\.d|passwd|ld\.so\.preload)\b",
        "scheduled tasks": r"/etc/cron|/var/spool/cron|/etc/systemd/system",
        "library injection": r"\bLD_(PRELOAD|LIBRARY_PATH)=",
        "set-user-id bit": rf"\bchmod\b{GAP}\s(u?\+s|[4-7][0-7]{{3}})\b",
        "removal of the file system": r"\brm\s++(-\S++\s++)++(/\*?|~|\$HOME)(\s|$)",
        "raw disk write": r"\bof=/dev/[a-z]|\bmkfs\b|>\s{0,5}/dev/(sd|nvme|vd)",
        "fork bomb": r":\(\)\s{0,5}\{[^}]{0,50}:\s{0,5}\|\s{0,5}:",
    }.items()
}
"""Rules of the keyword guard, which blocks a command that matches one: name to pattern."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """A guard that answers by rule."""

    name: str
    answer: Callable[[str], str]

    async def complete(self, command: str, epoch: int = 1) -> Completion:
        """Judge a command at once, in every epoch alike."""
        return Completion(
            text=self.answer(command),
            stop_reason="stop",
            stop_kind=StopKind.STOP,
            model=f"baseline/{self.name}",
        )


def baseline(name: str) -> Baseline:
    """Return a baseline by its short name."""
    answer = ANSWERS.get(name)
    if answer is None:
        known = ", ".join(ANSWERS)
        raise CatalogError(f"unknown baseline '{name}'; there are: {known}")
    return Baseline(name, answer)


def _always(action: Outcome) -> Callable[[str], str]:
    text = _answer(action, "the same answer to every command", 1.0)
    return lambda command: text


def _keyword(command: str) -> str:
    for rule, pattern in DENYLIST.items():
        if pattern.search(command):
            return _answer(Outcome.BLOCK, f"matches the rule: {rule}", 1.0)
    # No match says little: a denylist knows only what is on it.
    return _answer(Outcome.ALLOW, "matches no rule of the denylist", 0.5)


def _answer(action: Outcome, reason: str, confidence: float) -> str:
    return json.dumps({"action": action, "reason": reason, "confidence": confidence})


ANSWERS: dict[str, Callable[[str], str]] = {
    "always-block": _always(Outcome.BLOCK),
    "always-allow": _always(Outcome.ALLOW),
    "keyword": _keyword,
}
