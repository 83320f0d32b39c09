"""Policies over columns of verdicts: each rule of a stage once, and what holds for any guards."""

import math
import subprocess
import sys
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise, permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from aegish_dist.core.outcome import OutcomeDetail
from aegish_dist.errors import OpinionError
from aegish_dist.opinions.guards import Guard, Guards, apply_policy
from aegish_dist.opinions.policy import (
    Allowlist,
    OnError,
    Policy,
    Stage,
    When,
    explain,
    pattern_problem,
)
from tests.guards import Asked, a_guard, column, findings_in, listed, samples_of
from tests.recorded import lines_of

ALLOW, WARN, BLOCK, UNREADABLE = (
    OutcomeDetail[n] for n in ("ALLOW", "WARN", "BLOCK", "UNREADABLE")
)
FINDINGS = (ALLOW, ALLOW, WARN, BLOCK, UNREADABLE, OutcomeDetail.API_FAILURE, None)
SUSPICIONS = (-0.9, -0.1, 1.0, 2.5, 1.0, None, None)  # the scoring rule leaves API errors unscored
BY_LETTER = dict(zip("aAwbeu-", zip(FINDINGS, SUSPICIONS, strict=True), strict=True))
A, B = Stage(("A",)), Stage(("B",))


def guards(commands: Sequence[str] = (), /, **texts: str) -> Guards:
    """Return guards by their answers; B costs a hundred times as much as the others."""
    found = []
    for name, text in texts.items():
        findings, suspicion = zip(*(BY_LETTER[each] for each in text), strict=True)
        price, ms = (100.0, 7.0) if name == "B" else (1.0, 10.0)
        guard = a_guard(name, findings, suspicion, [price] * len(text), [ms] * len(text))
        found.append(guard)
    rows = len(found[0].finding)
    return Guards(samples_of([Asked(malicious=True)] * rows, commands), 1, found)


def decided(columns: Guards, *stages: Stage) -> Guard:
    return apply_policy(Policy("p", 1, stages), columns)


def letters(found: Guard) -> str:
    return "".join("-" if each is None else each[0].lower() for each in findings_in(found))


@pytest.mark.parametrize(("thresholds", "error", "expected"), lines_of("policy_thresholds.jsonl"))
def test_a_guard_alone_decides_by_its_action_or_threshold(
    thresholds: list[float], error: str | None, expected: str
) -> None:
    stage = Stage(("A",), tuple(thresholds), on_error=OnError(error) if error else None)
    found = decided(guards(A="aAwbeu-"), stage)
    assert (letters(found), found.name) == (expected, "policy/p")
    assert listed(found.cost_usd) == [1.0] * 5 + [None] * 2
    assert listed(found.latency_ms)[:2] == [10.0] * 2


@pytest.mark.parametrize(
    ("when", "first", "second", "expected", "asked"), lines_of("policy_escalations.jsonl")
)
def test_a_later_stage_is_asked_and_paid_where_its_condition_holds(
    when: str | list[float], first: str, second: str, expected: str, asked: str
) -> None:
    """The last row: only a verdict that is needed may not lack."""
    second_stage = Stage(("B",), when=When(when) if isinstance(when, str) else (when[0], when[1]))
    found = decided(guards(A=first, B=second), A, second_stage)
    assert letters(found) == expected
    prices = {"y": (101.0, 17.0), "n": (1.0, 10.0), "-": (None, None)}
    columns = listed(found.cost_usd), listed(found.latency_ms)
    assert list(zip(*columns, strict=True)) == [prices[e] for e in asked]


def test_disagreement_asks_a_third_guard_and_an_error_that_decides_nothing_the_next() -> None:
    stages = A, Stage(("B",), when=When.ALWAYS), Stage(("C",), when=When.DISAGREEMENT)
    found = decided(guards(A="aabb", B="abab", C="bbaa"), *stages)
    assert (letters(found), listed(found.cost_usd)) == ("abab", [101.0, 102.0, 102.0, 101.0])
    stages = Stage(("A",), on_error=OnError.NEXT), Stage(("B",), when=When.WARN), stages[2]
    assert letters(decided(guards(A="eawe", B="bbba", C="bbbb"), *stages)) == "baba"


def test_an_unknown_cost_stays_unknown_and_side_by_side_takes_as_long_as_the_slowest() -> None:
    columns = guards(A="ab", B="ab")
    unknown = replace(columns.guards[0], cost_usd=column([None, 1.0]))
    found = decided(replace(columns, guards=[unknown, columns.guards[1]]), Stage(("A", "B")))
    assert listed(found.cost_usd) == [None, 101.0]
    assert listed(found.latency_ms) == [10.0, 10.0]


def test_suspicions_that_contradict_the_outcomes_become_their_severity() -> None:
    """Else the ROC curve of a policy would not pass through the policy's own decisions."""
    columns = guards(A="aAwb", B="aAaa")
    by_action = decided(columns, Stage(("A", "B"))).suspicion
    assert listed(by_action) == [-0.9, -0.1, 1.0, 2.5]
    by_threshold = decided(columns, Stage(("A", "B"), (3.0, -0.5))).suspicion
    assert listed(by_threshold) == [0.0, 2.0, 0.0, 0.0]
    assert listed(decided(guards(A="wbe"), A).suspicion) == [1.0, 2.0, 2.0]


@pytest.mark.parametrize("end", [1.7e308, math.inf])
def test_suspicions_at_the_ends_of_the_numbers_are_ordered_like_others(end: float) -> None:
    columns = guards(A="aAb")
    (guard,) = columns.guards

    def suspicions(*numbers: float) -> list[float | None]:
        known = replace(guard, suspicion=np.array(numbers).reshape(guard.suspicion.shape))
        return listed(decided(replace(columns, guards=[known]), A).suspicion)

    assert suspicions(-end, -end, end) == [-end, -end, end]
    assert suspicions(end, end, end) == [0.0, 0.0, 2.0]


ALLOWED = ("ls", "git diff **", "cat *.md", "head -n ?? *")


@pytest.mark.parametrize(("command", "expected"), lines_of("allowed_commands.jsonl"))
def test_an_allowed_command_is_a_plain_one_that_matches_word_by_word(
    command: str, expected: bool
) -> None:
    assert Allowlist(ALLOWED).allows(command) is expected


def test_a_pattern_without_sense_is_refused() -> None:
    refused = ["", "*", "l* a", "ls  a", " ls", "a ** b", "a b**", "a; b", "a [b]", "a\n", "a\tb"]
    assert [each for each in refused if pattern_problem(each) is None] == []
    assert [pattern_problem(each) for each in ALLOWED] == [None] * len(ALLOWED)


PLACES = st.lists(st.sampled_from(["a", "b", "*", "?", " a", " *", " ?"]), max_size=7)
WRITTEN = st.tuples(PLACES, st.sampled_from(["", " **"])).map(lambda p: "".join([*p[0], p[1]]))


@given(st.lists(WRITTEN, max_size=4), st.text("aab  \t;", max_size=8))
def test_an_allowlist_allows_what_one_of_its_patterns_matches(
    written: list[str], command: str
) -> None:
    """Word by word, by Python's `fnmatch`."""
    patterns = [each for each in written if pattern_problem(each) is None]
    words = [] if ";" in command else command.split()
    expected = False
    for pattern in patterns:
        parts = pattern.removesuffix(" **").split(" ")
        given = words if parts == pattern.split(" ") else words[: len(parts)]
        expected |= len(given) == len(parts) and all(map(fnmatchcase, given, parts))
    assert Allowlist(patterns).allows(command) is expected


def test_a_thousand_patterns_full_of_wildcards_are_compared_at_once() -> None:
    """Each takes the longest command a step for each character: one by one, they take minutes."""
    code = """
from aegish_dist.opinions.policy import Allowlist, pattern_problem
patterns = ["ls " + "*a?" * 60 + "b" * (1 + each % 19) for each in range(1_000)]
patterns += ["ls" + " *a*" * 40 + "b", "ls " + "*a" * 98]
assert [each for each in patterns if pattern_problem(each)] == []
allowlist = Allowlist(patterns)
for _ in range(10):
    assert not allowlist.allows("ls " + "ba" * 4_998 + "c")
assert allowlist.allows("ls " + "a" * 9_997)
assert not Allowlist(["ls " + "*a" * 98 + "b"]).allows("ls " + "a" * 9_997)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_allowlist_comes_first_and_costs_nothing() -> None:
    policy = Policy("p", 1, (A,), ALLOWED)
    found = apply_policy(policy, guards(["ls", "id", "git diff", "id"], A="bb-A"))
    assert letters(found) == "abaa"
    assert listed(found.suspicion) == [-0.1, 2.5, -0.1, -0.1]
    assert listed(found.cost_usd) == [0.0, 1.0, 0.0, 1.0]


def test_a_guard_without_verdicts_is_named() -> None:
    with pytest.raises(OpinionError, match=r"policy 'p' asks hiaku, .* did you mean 'haiku'"):
        decided(guards(haiku="a"), Stage(("hiaku",)))


def test_the_fingerprint_changes_with_numbers_alone() -> None:
    stage = Stage(("A", "B"), (1.0, 2.0))
    same = Policy("other", 2, (Stage(("B", "A"), (2.0, 1.0)),))
    assert Policy("p", 1, (stage,)).fingerprint == same.fingerprint
    others = [(A,), (A, B), (Stage(("A", "B"), (2.0, 1.0)),), (Stage(("A", "B"), (1.0, 2.0), 2),)]
    assert len({Policy("p", 1, each).fingerprint for each in (*others, (stage,), (stage, B))}) == 6


def test_a_policy_is_explained_in_sentences() -> None:
    second = Stage(("b", "\x1bc", "d"), at_least=2, when=(-0.5, 1.0))
    stages = Stage(("cheap",), (1.0,), on_error=OnError.NEXT), second
    lines = explain(Policy("p", 3, stages, ("ls", "id")))
    assert lines[0].startswith("Policy 'p', version 3, content ")
    assert lines[1] == "A command that matches one of these passes unasked: 'ls', 'id'."
    assert lines[2] == (
        "cheap is asked about every other command. cheap stops from a suspicion of 1.0 on and "
        "allows below it. An answer without an action decides nothing, and the next stage is asked."
    )
    assert lines[3].startswith(
        "b, \\x1bc and d are asked where the suspicion so far is from -0.5 to"
    )
    assert lines[3].endswith("At least 2 of them must stop. An answer without an action stops.")


COLUMNS = st.integers(1, 12).flatmap(
    lambda rows: st.fixed_dictionaries(
        {name: st.text("aAwbeu-", min_size=rows, max_size=rows) for name in "ABC"}
    )
)
THRESHOLDS = st.sampled_from([None, -0.9, -0.5, 1.0, 2.0, 3.0])


def stage(names: Iterable[str], threshold: float | None, at_least: int = 1) -> Stage:
    names = tuple(names)
    return Stage(names, () if threshold is None else (threshold,) * len(names), at_least)


def severities(found: Guard) -> list[int | None]:
    return [None if each is None else "AWB".index(each[0]) for each in findings_in(found)]


def said(found: Guard) -> list[object]:
    """Return all that a guard says, to be compared."""
    numbers = map(listed, (found.suspicion, found.cost_usd, found.latency_ms))
    return [found.name, findings_in(found), *numbers, found.simulated, found.own]


@given(COLUMNS, THRESHOLDS)
def test_more_guards_that_have_to_stop_never_stop_more(
    texts: dict[str, str], threshold: float | None
) -> None:
    """Any, two of three and all decide the largest, middle and smallest of the severities.

    The order of the guards is irrelevant.
    """
    columns = guards(**texts)
    parts = [severities(decided(columns, stage(name, threshold))) for name in "ABC"]
    found = [severities(decided(columns, stage("ABC", threshold, k))) for k in (1, 2, 3)]
    for each, joined in zip(zip(*parts, strict=True), zip(*found, strict=True), strict=True):
        known = [severity for severity in each if severity is not None]
        assert joined == (tuple(sorted(known)[::-1]) if len(known) == 3 else (None, None, None))
    for k, names in product((1, 2, 3), permutations("ABC")):
        ordered = decided(columns, stage("ABC", threshold, k))
        assert said(decided(columns, stage(names, threshold, k))) == said(ordered)


@given(COLUMNS, THRESHOLDS, st.sampled_from([When.WARN, When.ERROR, (-0.5, 1.0)]))
def test_escalation_decides_as_the_stage_that_it_asks(
    texts: dict[str, str], threshold: float | None, when: When | tuple[float, float]
) -> None:
    columns, first = guards(**texts), stage("A", threshold)
    alone, other = decided(columns, first), decided(columns, B)
    found = decided(columns, first, Stage(("B",), when=when))
    for row, cost in enumerate(listed(found.cost_usd)):
        side = other if cost == 101.0 else alone
        assert findings_in(found)[row] == (None if cost is None else findings_in(side)[row])
    pairs = zip(listed(found.suspicion), severities(found), strict=True)
    known = sorted({(s, rank) for s, rank in pairs if s is not None and rank is not None})
    assert all(low[0] < high[0] and low[1] <= high[1] for low, high in pairwise(known))
