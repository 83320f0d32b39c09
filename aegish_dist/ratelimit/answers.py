"""Which calls of a model were answered lately: evidence of whose trouble a failure is."""

import math
from dataclasses import replace

from aegish_dist.core.failures import Evidence
from aegish_dist.errors import ShuttingDownError
from aegish_dist.ratelimit.fair_queue import Permit
from aegish_dist.ratelimit.local_lease import LeaseRenewer, LocalLease, now_s

LONGEST_WAIT_S, STEP_S = 60.0, 0.25
"""Seconds that a failure waits for the answer to another call, and between two looks."""
IDLE_S = 2.0
"""Seconds without another call after which no answer is expected: fetching items takes a while."""


class Answers:
    """The newest answers of one model in this worker."""

    def __init__(self, renewer: LeaseRenewer, lease: LocalLease) -> None:
        """Begin without an answer.

        Args:
            renewer: Tells whether calls are under way, and when the limiter closes.
        """
        self.awaiting = 0
        """Failures that wait for the answer to another call."""
        self._renewer = renewer
        self._lease = lease
        self._number = 0
        self._at_s = -math.inf

    def add(self, permit: Permit) -> None:
        """Note that a call was answered now."""
        self._number = max(self._number, permit.number)
        self._at_s = now_s()

    def within(self, seconds: float) -> bool:
        """Return whether a call was answered in the last so many seconds."""
        return now_s() - self._at_s < seconds

    def evidence(self, number: int, within_s: float = math.inf) -> Evidence:
        """Return what is known of the model beside a failure.

        Args:
            number: Number of the first call that failed for the item.
        """
        recent = now_s() - self._at_s <= within_s
        answered = (self._number > number and recent) or None
        return Evidence(self._lease.circuit_open, self._lease.failed_probes, answered)

    async def wait(self, number: int, within_s: float = math.inf) -> Evidence:
        """Wait until a call that began later is answered, or none is expected to be.

        Args:
            number: Number of the first call that failed for the item.
        """
        busy_s = began_s = now_s()
        self.awaiting += 1
        try:
            while True:
                evidence = self.evidence(number, within_s)
                if evidence.circuit_open or evidence.answered:
                    return evidence
                if self._renewer.busy:
                    busy_s = now_s()
                if now_s() >= min(began_s + LONGEST_WAIT_S, busy_s + IDLE_S):
                    return replace(evidence, answered=False)
                await self._renewer.sleep(STEP_S)
                if self._renewer.closed:
                    raise ShuttingDownError
        finally:
            self.awaiting -= 1

    async def hold(self, seconds: float) -> None:
        """Wait so many seconds, or until the circuit opens or the limiter closes."""
        ends_s = now_s() + seconds
        while not self._lease.circuit_open and not self._renewer.closed and now_s() < ends_s:
            await self._renewer.sleep(STEP_S)
