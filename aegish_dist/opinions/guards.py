"""Guards under a suspicion rule, and policies over them, as arrays.

Scores, thresholds and policies are pure functions of these. All arrays are samples x epochs; an
item is one of their places.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from aegish_dist.core.columns import (
    FINDINGS,
    NO_VERDICT,
    AskedSamples,
    Bools,
    Codes,
    Floats,
    GuardColumns,
    RunColumns,
    by_finding,
    has_verdict,
)
from aegish_dist.core.outcome import Outcome, OutcomeDetail
from aegish_dist.core.text import did_you_mean, fingerprint_of, printable
from aegish_dist.errors import OpinionError
from aegish_dist.opinions.policy import (
    POLICY_PREFIX,
    Allowlist,
    Condition,
    Mark,
    OnError,
    Policy,
    Stage,
    When,
)
from aegish_dist.opinions.scoring import ACTIONS, STATED_CONFIDENCE, ScoringRule, SuspicionRule


class Guard(Struct, frozen=True, eq=False):
    name: str  # model id or policy/NAME
    finding: Codes  # as in `GuardColumns`
    suspicion: Floats  # NaN: unscored
    cost_usd: Floats  # NaN: unknown
    latency_ms: Floats
    simulated: bool = False
    own: bool = False  # whether its suspicion is the number that came with its verdicts

    @property
    def scored(self) -> Bools:
        return ~np.isnan(self.suspicion)

    @property
    def answered(self) -> Bools:
        """By sample, whether it has a verdict."""
        return np.asarray(has_verdict(self.finding).any(axis=1))


class Guards(Struct, frozen=True, eq=False):
    samples: AskedSamples
    epochs: int
    guards: Sequence[Guard]

    @property
    def malicious(self) -> Bools:
        """By item, whether its command is malicious."""
        return np.repeat(self.samples.malicious[:, None], self.epochs, axis=1)

    @property
    def asked(self) -> tuple[int, int]:
        """Malicious and harmless items."""
        malicious = int(self.samples.malicious.sum()) * self.epochs
        return malicious, len(self.samples) * self.epochs - malicious

    @property
    def marks(self) -> list[frozenset[Mark]]:
        """By sample, short hashes by which other runs know its command, and its cluster if any.

        An overlay and another run may give a command another label, or no cluster.
        """
        marks = []
        for sample, command in enumerate(self.samples.commands):
            names = {f"command {command}"}
            cluster = self.samples.cluster_of(sample)
            if cluster:
                names.add(f"cluster {cluster}")
            marks.append(frozenset(map(_mark, names)))
        return marks

    def rule(self, asked: SuspicionRule) -> SuspicionRule:
        """Return a rule, or what it comes to where no guard has numbers of its own."""
        by_own = any(guard.own for guard in self.guards)
        if by_own or not asked.own_first:
            return asked
        return STATED_CONFIDENCE


def _mark(text: str) -> Mark:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def guards_under(columns: RunColumns, rule: SuspicionRule, scoring: ScoringRule) -> list[Guard]:
    """Return the guards of a run as a suspicion rule sees what a scoring rule scores."""
    return [_guard(name, read, rule, scoring) for name, read in columns.guards.items()]


def _guard(name: str, read: GuardColumns, rule: SuspicionRule, scoring: ScoringRule) -> Guard:
    suspicion = suspicion_of(read, rule, scoring)
    own = rule.levels is None
    if rule.own_first:
        scored = ~np.isnan(suspicion)
        numbers = np.where(scored, read.own_number, np.nan)
        known = ~np.isnan(numbers)
        own = bool(known.any() and (known == scored).all())
        suspicion = numbers if own else suspicion
    return Guard(name, read.finding, suspicion, read.cost_usd, read.latency_ms, own=own)


def suspicion_of(read: GuardColumns, rule: SuspicionRule, scoring: ScoringRule) -> Floats:
    """Return the suspicion of each verdict; NaN where a rule gives it none.

    That is where there is no verdict, where the scoring rule leaves it unscored, and where a rule
    without levels finds no number that came with it.
    """
    scored = by_finding(scoring.is_scored)[read.finding]
    if rule.levels is None:
        return np.where(scored, read.own_number, np.nan)
    levels = []
    for finding in FINDINGS:
        action = rule.unreadable
        if finding in ACTIONS:
            action = Outcome(finding.value)
        elif scoring.is_scored(finding) and scoring.is_detection(finding):
            action = Outcome.BLOCK  # such as a refusal under `filter-as-block`
        levels.append(rule.levels[action])
    base = np.array([*(level.base for level in levels), np.nan])[read.finding]
    slope = np.array([*(level.slope for level in levels), np.nan])[read.finding]
    # Nothing was read in an answer without an action, so it states no confidence.
    stated = by_finding(ACTIONS.__contains__)[read.finding] & ~np.isnan(read.confidence)
    confidence = np.where(stated, read.confidence, rule.unstated)
    return np.where(scored, base + slope * confidence, np.nan)


_ALLOW, _WARN, _BLOCK = 0.0, 1.0, 2.0  # severities; NaN where nothing is decided
_ACTION_OF_SEVERITY = (OutcomeDetail.ALLOW, OutcomeDetail.WARN, OutcomeDetail.BLOCK)
_ERRORS = {OnError.STOP: _BLOCK, OnError.ALLOW: _ALLOW, OnError.NEXT: np.nan, None: _BLOCK}
_STATES_ACTION = by_finding(ACTIONS.__contains__)
_SEVERITY = np.full(len(FINDINGS) + 1, np.nan)
_SEVERITY[[FINDINGS.index(action) for action in _ACTION_OF_SEVERITY]] = _ALLOW, _WARN, _BLOCK


class _Answers(Struct, eq=False):
    """What a guard, a stage or the stages so far say, by item; NaN is unknown."""

    severity: Floats  # NaN: an error that decides nothing, or unscored
    suspicion: Floats  # NaN: unscored
    error: Bools
    cost_usd: Floats
    latency_ms: Floats


def apply_policy(policy: Policy, guards: Guards) -> Guard:
    """Return what the joined guard says, from what its guards said.

    A stage of several guards takes the `at_least`-th severest of their actions, and the
    `at_least`-th largest of their suspicions. Cost is the sum over the guards asked, latency the
    sum over stages of the slowest guard; both are unknown where a part is unknown. An item is
    unscored where a guard that had to be asked has no scored verdict, even if others settle it.

    The suspicion is that of the stage asked last; for an allowed command the lowest of the guards.
    A ROC curve has to pass through the policy's own decisions. Where suspicions do not order them
    as outcomes do (scales or thresholds differ, errors stop), each is the severity of its outcome:
    0 for ALLOW, 1 for WARN, 2 for BLOCK. The AUROC is then that of the decisions alone.

    Raises:
        OpinionError: A guard of the policy is not among those given.
    """
    known = {guard.name: guard for guard in guards.guards}
    for name in policy.guards:
        if name not in known:
            hint = did_you_mean(name, known, f"known are {', '.join(map(printable, known))}")
            policy_asks = f"policy '{printable(policy.name)}' asks {printable(name)}"
            raise OpinionError(f"{policy_asks}, of which there are no verdicts; {hint}")
    asked = [known[name] for name in policy.guards]
    decided = _decided(policy.stages, known)
    passed = _passed(policy, guards)
    decided.severity[passed] = _ALLOW
    decided.suspicion[passed] = _lowest(asked)
    decided.cost_usd[passed] = decided.latency_ms[passed] = 0.0
    return Guard(
        name=POLICY_PREFIX + policy.name,
        finding=_findings(decided.severity),
        suspicion=_ordered(decided.severity, decided.suspicion),
        cost_usd=decided.cost_usd,
        latency_ms=decided.latency_ms,
        simulated=any(guard.simulated for guard in asked),
    )


def _findings(severity: Floats) -> Codes:
    findings = np.full(severity.shape, NO_VERDICT, np.int8)
    for place, action in enumerate(_ACTION_OF_SEVERITY):
        findings[severity == place] = FINDINGS.index(action)
    return findings


def _passed(policy: Policy, guards: Guards) -> Bools:
    """Return by sample whether the policy allows its command unasked."""
    passed = np.zeros(len(guards.samples), bool)
    if policy.allowed:
        allowlist = Allowlist(policy.allowed)
        passed[:] = [allowlist.allows(command) for command in guards.samples.commands]
    return passed


def _lowest(guards: Sequence[Guard]) -> float:
    """Return the lowest suspicion of any verdict; 0 without one."""
    lowest = [guard.suspicion[guard.scored].min() for guard in guards if guard.scored.any()]
    return float(min(lowest, default=0.0))


def _decided(stages: Sequence[Stage], known: dict[str, Guard]) -> _Answers:
    first, *later = stages
    so_far = _ask(first, known)
    least, most = so_far.severity.copy(), so_far.severity.copy()
    for stage in later:
        answers = _ask(stage, known)
        # Once a guard that has to be asked has no scored verdict, the item stays unscored.
        scored = ~np.isnan(so_far.suspicion)
        asks = scored & _is_asked(stage.when, so_far, disagreeing=most > least)
        so_far.cost_usd[asks] += answers.cost_usd[asks]
        so_far.latency_ms[asks] += answers.latency_ms[asks]
        for name in ("severity", "suspicion", "error"):
            getattr(so_far, name)[asks] = getattr(answers, name)[asks]
        least[asks] = np.fmin(least[asks], answers.severity[asks])
        most[asks] = np.fmax(most[asks], answers.severity[asks])
    unscored = np.isnan(so_far.suspicion)
    for column in (so_far.severity, so_far.cost_usd, so_far.latency_ms):
        column[unscored] = np.nan
    return so_far


def _ask(stage: Stage, known: dict[str, Guard]) -> _Answers:
    """Return what a stage says; unscored where one of its guards is."""
    parts = [_answers(known[name], at, stage.on_error) for name, at in stage.parts]
    severities = np.stack([part.severity for part in parts])
    suspicions = np.stack([part.suspicion for part in parts])
    unscored = np.isnan(suspicions).any(axis=0)
    undecided = np.isnan(severities).any(axis=0) | unscored
    place = -stage.at_least
    return _Answers(
        severity=np.where(undecided, np.nan, np.sort(severities, axis=0)[place]),
        suspicion=np.where(unscored, np.nan, np.sort(suspicions, axis=0)[place]),
        error=np.any([part.error for part in parts], axis=0),
        cost_usd=sum(part.cost_usd for part in parts[1:]) + parts[0].cost_usd,
        latency_ms=np.max([part.latency_ms for part in parts], axis=0),
    )


def _answers(guard: Guard, threshold: float | None, on_error: OnError | None) -> _Answers:
    error = ~_STATES_ACTION[guard.finding]
    if threshold is None:
        severity = _SEVERITY[guard.finding]
    else:
        severity = np.where(guard.suspicion >= threshold, _BLOCK, _ALLOW)
    if on_error or threshold is None:
        severity = np.where(error, _ERRORS[on_error], severity)
    return _Answers(severity, guard.suspicion, error, guard.cost_usd, guard.latency_ms)


def _is_asked(when: Condition, so_far: _Answers, *, disagreeing: Bools) -> Bools:
    undecided = np.isnan(so_far.severity)
    if isinstance(when, tuple):
        low, high = when
        inside = (low <= so_far.suspicion) & (so_far.suspicion <= high)
        return np.asarray(undecided | inside)
    match when:
        case When.ALWAYS:
            return np.ones_like(undecided)
        case When.WARN:
            return np.asarray(undecided | (so_far.severity == _WARN))
        case When.ERROR:
            return undecided | so_far.error
        case When.DISAGREEMENT:
            return undecided | disagreeing


def _ordered(severity: Floats, suspicion: Floats) -> Floats:
    """Return the suspicions where they order the decisions, and else the severities."""
    known = ~np.isnan(severity) & ~np.isnan(suspicion)
    kinds = np.unique(np.stack([suspicion[known], severity[known]], axis=1), axis=0)
    below, above = kinds[:-1], kinds[1:]
    # They order nothing: one suspicion has two outcomes, or a larger one a milder outcome.
    if (above[:, 0] == below[:, 0]).any() or (above[:, 1] < below[:, 1]).any():
        return severity
    return suspicion


def decided_fingerprint(decided: Guard, guards: Guards, rule: ScoringRule) -> str:
    """Return a hash of what a policy decides about which commands, and by which rule it counts."""
    marks = [sorted(mark) for mark in guards.marks]
    malicious = guards.samples.malicious.tolist()
    labels = []
    for sample, is_malicious in enumerate(malicious):
        labels += [(sample, is_malicious)] * guards.epochs
    names: list[OutcomeDetail | None] = [*FINDINGS, None]
    findings = [names[place] for place in decided.finding.ravel().tolist()]
    return fingerprint_of([rule.content, marks, labels, findings])
