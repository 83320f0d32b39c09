"""Answers of guards in forms of their own, by the words of their vendors' model cards."""

import json
import math
from typing import Any

import pytest
from msgspec import convert
from msgspec.json import encode

from aegish_dist.core.outcome import Outcome
from aegish_dist.core.output import ActionJson, Hook, Label, Logprobs, Output, Score, with_kind
from aegish_dist.core.verdict import Completion
from aegish_dist.errors import InputError
from aegish_dist.models.entries import checked_mapping
from aegish_dist.opinions.mapping import FIRST_VERSION, read, version_of
from aegish_dist.opinions.parsing import PARSER_VERSION, judge
from tests.recorded import lines_of

ALLOW, WARN, BLOCK = Outcome.ALLOW, Outcome.WARN, Outcome.BLOCK
DENIED = '{"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "no"}}'


@pytest.mark.parametrize(
    ("kind", "text", "action", "reason"),
    [
        *lines_of("guard_answers.jsonl"),
        ("hook", '{"a": 1}' + "x" * 200_000 + "\nexit code 2", BLOCK, '{"a": 1}' + "x" * 99_992),
    ],
)
def test_ready_forms(kind: Any, text: str, action: Outcome | None, reason: str | None) -> None:
    found = read(checked_mapping({"kind": kind}), Completion(text))
    assert (found.action, found.reason) == (action, reason)


@pytest.mark.parametrize(
    ("path", "text", "number", "action"),
    [
        *lines_of("guard_numbers.jsonl"),
        ("p", "[" * 50_000, None, None),
    ],
)
def test_a_number_with_thresholds(
    path: str, text: str, number: float | None, action: Outcome | None
) -> None:
    output = Score(path=path, warn_from=0.5, block_from=0.8)
    found = read(output, Completion(text))
    assert (found.suspicion, found.action) == (number, action)


def test_labels_count_in_their_order_and_a_number_stands_beside_them() -> None:
    patterns: Any = (("^(?:mal|bad)", "BLOCK"), ("odd", "WARN"), ("", "ALLOW"))
    output = Label(path="label", patterns=patterns, suspicion="p", reason="why")
    found = read(output, Completion('{"label": "Malicious, odd", "p": 3, "why": "a\\u0000"}'))
    assert (found.action, found.suspicion, found.reason) == (BLOCK, 3.0, "a\ufffd")
    assert read(output, Completion('{"label": "odd", "p": 3}')).action is WARN
    assert read(output, Completion('{"label": ["x"]}')).action is ALLOW


def test_an_answer_lets_nothing_pass_that_the_command_says() -> None:
    """A guard that repeats the command before its answer, or answers without what was asked for."""
    output = Score(path="p", block_from=0.5)
    command = 'curl -d "{\\"p\\": 0}" x'
    for echo in ('curl -d "{\\"p\\": 0}" x', 'curl -d {"p":0} x', "[1/2]"):
        verdict = judge(Completion(f'{echo} -> {{"p": 0.9}}'), command, output)
        assert verdict.outcome is BLOCK, echo
    assert judge(Completion('{"p": 0}'), '{"p": 0}', output).outcome is ALLOW
    hook = judge(Completion(f'{{"decision": "allow"}}\n{DENIED}'), "", Hook())
    assert hook.outcome is Outcome.FORMAT_ERROR
    patterns: Any = (("bad", "BLOCK"), (".", "ALLOW"))
    label = Label(path="label", patterns=patterns)
    for missing in ('{"error": "busy"}', "busy", '{"label": null}'):
        assert read(label, Completion(missing)).action is None


def test_whole_numbers_are_labels_and_lead_to_places() -> None:
    patterns: Any = ((r"\A1\Z", "BLOCK"), (r"\A0\Z", "ALLOW"))
    output = Label(path="id=7.class", patterns=patterns)
    answer = '[{"id": 6, "class": 0}, {"id": 7, "class": 1}]'
    assert read(output, Completion(answer)).action is BLOCK


def test_tokens_are_read_where_one_of_them_may_stand_first() -> None:
    """P(Yes) = 0.6 and P(yes) = 0.1 against P(No) = 0.2 and nothing else named: 0.7 / 0.9."""
    logs = {" Yes": math.log(0.6), "yes": math.log(0.1), "No": math.log(0.2), "x": math.log(0.1)}
    output = Logprobs(unsafe=("Yes",), safe=("No",), block_from=0.5)
    found = read(output, Completion("Yes", logprobs=({"\n": 0.0}, logs)))
    assert found.suspicion == pytest.approx(0.7 / 0.9)
    assert found.action is BLOCK
    # Some begin with what is no answer, for which the words are candidates all the same.
    unlikely = {"<": -0.01, "Yes": -9.0, "No": -12.0}
    said = read(output, Completion("< no", logprobs=(unlikely, {" no": -0.1, "yes": -4.0})))
    assert said.suspicion == pytest.approx(1 / (1 + math.exp(3.9)))
    none = read(output, Completion("<?", logprobs=(unlikely, {"?": -0.1, "Yes": -5, "No": -5})))
    assert none.suspicion == pytest.approx(0.5)
    # The store keeps the number alone: other thresholds read it again.
    again = read(
        Logprobs(unsafe=("Yes",), safe=("No",), block_from=0.9),
        Completion("Yes", suspicion=found.suspicion),
    )
    assert (again.action, again.suspicion) == (ALLOW, found.suspicion)


def test_a_verdict_keeps_number_and_version_of_its_mapping() -> None:
    output = Score(path="p", block_from=0.5)
    other = Score(path="p", block_from=0.6)
    verdict = judge(Completion('{"p": 0.5}'), "ls", output)
    assert verdict.outcome is BLOCK
    assert verdict.completion is not None
    assert verdict.completion.suspicion == 0.5
    version = version_of(output, PARSER_VERSION)
    assert verdict.parser_version == version != version_of(other, PARSER_VERSION)
    assert FIRST_VERSION <= version < 2**15
    assert version == version_of(output, PARSER_VERSION + 1)  # it reads no action by our parser
    assert len({version_of(ActionJson(suspicion="p"), each) for each in (1, 2, 3)}) == 3
    assert judge(Completion("?"), "ls", output).outcome is Outcome.FORMAT_ERROR
    assert judge(Completion(" "), "ls", output).outcome is Outcome.TIMEOUT_ERROR
    ours = judge(Completion('{"action": "WARN", "p": 4}'), "ls", ActionJson(suspicion="p"))
    assert (ours.outcome, ours.completion and ours.completion.suspicion) == (WARN, 4.0)
    assert judge(Completion('{"action": "WARN"}')).parser_version == PARSER_VERSION


@pytest.mark.parametrize(
    ("stored", "version"),
    lines_of("stored_mappings.jsonl"),
)  # fmt: skip
def test_a_mapping_of_a_stored_run_stays_what_it_was(stored: str, version: int) -> None:
    """As runs of before have them: with one type for all kinds, and `action-json` left unsaid."""
    keys = json.loads(stored)
    mapping = convert(with_kind(keys), Output)
    assert json.loads(encode(mapping)) == with_kind(keys)
    assert mapping == checked_mapping(keys)
    assert version_of(mapping, 3) == version


@pytest.mark.parametrize(
    ("given", "problem"),
    lines_of("refused_mappings.jsonl"),
)
def test_a_mapping_that_says_nothing_is_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        checked_mapping(given)
