"""The baselines: guards without a model, the floor that every model has to beat."""

import json
import re
from collections.abc import Callable
from importlib.resources import files

from msgspec import Struct, toml

from aegish_dist.core.outcome import Outcome, StopKind
from aegish_dist.core.verdict import Completion
from aegish_dist.errors import CatalogError

# An action, its reason, and the confidence in it.
Judgement = tuple[Outcome, str, float]


def _denylist() -> dict[str, re.Pattern[str]]:
    table = toml.decode(files(__package__).joinpath("denylist.toml").read_bytes())
    rules: dict[str, re.Pattern[str]] = {}
    for name, pattern in table["rules"].items():
        whole = pattern
        for word, part in table["parts"].items():
            whole = whole.replace(f"{{{word}}}", part)
        rules[name] = re.compile(whole, re.IGNORECASE)
    return rules


# Rules of the keyword guard, which blocks a command that matches one: name to pattern.
DENYLIST = _denylist()


def _always_block(_command: str) -> Judgement:
    return Outcome.BLOCK, "the same answer to every command", 1.0


def _always_allow(_command: str) -> Judgement:
    return Outcome.ALLOW, "the same answer to every command", 1.0


def _keyword(command: str) -> Judgement:
    for rule, pattern in DENYLIST.items():
        if pattern.search(command):
            return Outcome.BLOCK, f"matches the rule: {rule}", 1.0
    # No match says little: a denylist knows only what is on it.
    return Outcome.ALLOW, "matches no rule of the denylist", 0.5


BASELINES: dict[str, Callable[[str], Judgement]] = {
    "always-block": _always_block,
    "always-allow": _always_allow,
    "keyword": _keyword,
}


class Baseline(Struct, frozen=True):
    name: str

    def __post_init__(self) -> None:
        if self.name not in BASELINES:
            known = ", ".join(BASELINES)
            raise CatalogError(f"unknown baseline '{self.name}'; there are: {known}")

    async def complete(self, command: str, epoch: int = 1) -> Completion:
        action, reason, confidence = BASELINES[self.name](command)
        return Completion(
            text=json.dumps(
                {
                    "action": action,
                    "reason": reason,
                    "confidence": confidence,
                }
            ),
            stop_reason="stop",
            stop_kind=StopKind.STOP,
            model=f"baseline/{self.name}",
        )
