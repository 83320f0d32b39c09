"""Suspicion rules: versioned opinions on how dangerous a guard finds a command, as data.

The suspicion of a verdict grows with the danger that the guard sees. Only the order of suspicions
has a meaning; how far apart two of them lie has none.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from aegish_dist.core.outcome import Outcome
from aegish_dist.core.text import JsonObject, fingerprint_of

_Bounded = Annotated[float, Meta(ge=-1e6, le=1e6)]


Mark = Annotated[str, Meta(pattern="^[0-9a-f]{12}$")]
"""A hash of a command or a cluster; of 100,000 and 50,000 hardly two are alike by chance."""


class Level(Struct, frozen=True, forbid_unknown_fields=True):
    """The suspicion of an action: `base + slope * c` where c is the stated confidence."""

    base: _Bounded
    slope: _Bounded = 0.0


class SuspicionRule(Struct, frozen=True):
    """One rule; a change of any field but the description needs a new version."""

    name: str
    version: int
    description: str
    levels: Mapping[Outcome, Level] | None  # by action; None: the number that came with the verdict
    unreadable: Outcome = (
        Outcome.WARN
    )  # for a scored answer without an action, no confidence stated
    unstated: float = 0.5  # the confidence, in [0, 1], of a verdict that states none
    own_first: bool = False
    """Whether a guard's own numbers order it, if all its scored verdicts have one."""

    @property
    def content(self) -> JsonObject:
        """Everything that changes a number, in JSON types."""
        if self.levels is None:
            return {"levels": None}
        own = {"own_first": True} if self.own_first else {}
        return own | {
            "levels": {action.value: asdict(level) for action, level in self.levels.items()},
            "unreadable": self.unreadable.value,
            "unstated": self.unstated,
        }

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that change with anything that changes a number."""
        return fingerprint_of(self.content)

    @property
    def provenance(self) -> dict[str, str | int]:
        return {"name": self.name, "version": self.version, "fingerprint": self.fingerprint}


STATED_CONFIDENCE = SuspicionRule(
    name="stated-confidence",
    version=1,
    description="ALLOW by falling confidence, then WARN, then BLOCK by rising confidence.",
    levels=MappingProxyType(
        {
            Outcome.ALLOW: Level(0.0, -1.0),
            Outcome.WARN: Level(1.0),
            Outcome.BLOCK: Level(2.0, 1.0),
        }
    ),
)
OWN_NUMBER = replace(
    STATED_CONFIDENCE,
    name="own-number",
    description="The number that came with the verdicts of guards whose scored verdicts all have"
    " one; for all other guards as stated-confidence.",
    own_first=True,
)
NATIVE = SuspicionRule(
    name="native",
    version=1,
    description="The number that came with the verdict, from log probabilities or a classifier.",
    levels=None,
)

SUSPICION_RULES: Mapping[str, SuspicionRule] = MappingProxyType(
    {rule.name: rule for rule in (OWN_NUMBER, STATED_CONFIDENCE, NATIVE)}
)
