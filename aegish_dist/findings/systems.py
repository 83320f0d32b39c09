"""What a search for systems of guards found: the winner, and the systems worth a look."""

import math
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from aegish_dist.core.run import Run
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.policy import Candidate, Choice, Origin, PolicySearch, Requirements
from aegish_dist.opinions.scoring import NATIVE, SuspicionRule

MOST_STOPPED = 0.2  # share of harmless commands beyond which a system is not worth a look
SIMPLEST_FIRST = ("as_it_stands", "with_threshold", "system")


class SystemsData(Struct, frozen=True):
    """Result of a search over the guards of a run."""

    run: Run
    opinion: Opinion
    rule: SuspicionRule
    requirements: Requirements
    models: Sequence[str]
    models_left_out: Mapping[str, int]  # how much each has scored: too little, or a baseline
    found: PolicySearch
    own: Collection[str] = ()  # guards whose suspicion is the number that came with their answers
    origin: Origin | None = None  # of the winner, not yet sealed; None: there is no winner

    @property
    def choices(self) -> dict[str, Choice | None]:
        """The best of each kind, the simplest kind first; None: none keeps to the bounds."""
        return {kind: getattr(self.found, kind) for kind in SIMPLEST_FIRST}

    @property
    def winning(self) -> Choice | None:
        """The winner of the search; None: none is surely better than chance."""
        return self.choices.get(self.found.winner or "")

    @property
    def front(self) -> Sequence[Candidate]:
        """The systems within the bounds that have the fewest stops for their misses.

        Systems are left out that stop more than a fifth of the harmless commands, or stop these as
        often as malicious ones.
        """
        front, least = list[Candidate](), math.inf
        for system in filter(self.requirements.keeps, self.found.line):
            few = system.stop_rate <= MOST_STOPPED
            if few and system.stop_rate < min(least, 1 - system.miss_rate):
                front.append(system)
                least = system.stop_rate
        return front

    def rule_of(self, guard: str) -> SuspicionRule:
        return NATIVE if guard in self.own else self.rule
