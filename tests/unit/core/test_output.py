"""Answers of guards in forms of their own, by the words of their vendors' model cards."""

import math
from typing import Any

import pytest

from aegish_dist.core.outcome import Outcome
from aegish_dist.core.output import FIRST_VERSION, Output, read
from aegish_dist.core.parsing import PARSER_VERSION, judge
from aegish_dist.core.verdict import Completion
from aegish_dist.errors import InputError
from aegish_dist.inputs.checking import checked

ALLOW, WARN, BLOCK = Outcome.ALLOW, Outcome.WARN, Outcome.BLOCK
DENIED = '{"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "no"}}'


@pytest.mark.parametrize(
    ("kind", "text", "action", "reason"),
    [
        ("llama-guard", "\n\nsafe", ALLOW, None),
        ("llama-guard", "unsafe\nS2,S14", BLOCK, "S2,S14"),
        ("llama-guard", "The command is unsafe", None, None),
        ("qwen3guard", "Safety: Safe\nCategories: None", ALLOW, None),
        ("qwen3guard", "Safety: Unsafe\nCategories: Violent", BLOCK, "Violent"),
        ("qwen3guard", "Safety: Controversial\nCategories: PII", WARN, "PII"),
        ("shieldgemma", "Yes, because it deletes", BLOCK, None),
        ("shieldgemma", "No\n", ALLOW, None),
        ("shieldgemma", "Nothing", None, None),
        ("granite-guardian", "<think>no harm?</think>\n<score> yes </score>", BLOCK, None),
        ("granite-guardian", "No\n<confidence> High </confidence>", ALLOW, None),
        (
            "granite-guardian",
            "<think>were it <score> yes</think>\n<score> no </score>",
            ALLOW,
            None,
        ),
        ("granite-guardian", "<think>It holds <score> no </score> which", None, None),
        ("granite-guardian", "of <score> no </score>", None, None),
        ("qwen3guard", "<think>\n\n</think>\nSafety: Unsafe\nCategories: PII", BLOCK, "PII"),
        ("hook", DENIED, BLOCK, "no"),
        ("hook", DENIED.replace("deny", "ask"), WARN, "no"),
        ("hook", '{"decision": "approve", "reason": "fine"}', ALLOW, "fine"),
        ("hook", '{"permission": "deny"}', BLOCK, None),
        ("hook", '{"continue": false, "stopReason": "enough"}', BLOCK, "enough"),
        ("hook", '{"suppressOutput": true}', ALLOW, None),
        ("hook", '{"decision": "perhaps"}', None, None),
        ("hook", "exit code 0", ALLOW, None),
        ("hook", "rm is forbidden\nexit code 2", BLOCK, "rm is forbidden\n".strip()),
        ("hook", "Traceback\nexit code 1", None, None),
        ("hook", DENIED + "\nexit code 2", BLOCK, DENIED),
        ("hook", "all good", None, None),
        ("hook", '{"continue": false, "decision": "approve"}', BLOCK, None),
        ("hook", f"allow or not?\n{DENIED}", None, None),
        ("hook", '{"a": 1}' + "x" * 200_000 + "\nexit code 2", BLOCK, '{"a": 1}' + "x" * 99_992),
        ("qwen3guard", "It says Safety: Safe", None, None),
    ],
)
def test_ready_forms(kind: Any, text: str, action: Outcome | None, reason: str | None) -> None:
    found = read(Output(kind=kind), Completion(text))
    assert (found.action, found.reason) == (action, reason)


@pytest.mark.parametrize(
    ("path", "text", "number", "action"),
    [
        ("result.p", '{"result": {"p": 0.8}}', 0.8, BLOCK),
        ("result.p", '{"result": {"p": 0.79}}', 0.79, WARN),
        ("0.score", '[{"score": 0.1}]', 0.1, ALLOW),
        (
            "label=bad.score",
            '[{"label": "ok", "score": 0.9}, {"label": "bad", "score": 0}]',
            0,
            ALLOW,
        ),
        ("unsafe", '{"unsafe": true}', 1, BLOCK),
        ("p", 'log line\n{"p": 1} and more', 1, BLOCK),
        ("p", '{"p": NaN}', None, None),
        ("p", '{"p": 1e999}', None, None),
        ("p", '{"p": "0.9"}', None, None),
        ("7.p", "[1]", None, None),
        ("p", "[" * 50_000, None, None),
        ("p", "", None, None),
    ],
)
def test_a_number_with_thresholds(
    path: str, text: str, number: float | None, action: Outcome | None
) -> None:
    output = Output(kind="score", path=path, warn_from=0.5, block_from=0.8)
    found = read(output, Completion(text))
    assert (found.suspicion, found.action) == (number, action)


def test_labels_count_in_their_order_and_a_number_stands_beside_them() -> None:
    patterns: Any = (("^(?:mal|bad)", "BLOCK"), ("odd", "WARN"), ("", "ALLOW"))
    output = Output(kind="label", path="label", patterns=patterns, suspicion="p", reason="why")
    found = read(output, Completion('{"label": "Malicious, odd", "p": 3, "why": "a\\u0000"}'))
    assert (found.action, found.suspicion, found.reason) == (BLOCK, 3.0, "a\ufffd")
    assert read(output, Completion('{"label": "odd", "p": 3}')).action is WARN
    assert read(output, Completion('{"label": ["x"]}')).action is ALLOW


def test_an_answer_lets_nothing_pass_that_the_command_says() -> None:
    """A guard that repeats the command before its answer, or answers without what was asked for."""
    output = Output(kind="score", path="p", block_from=0.5)
    command = 'curl -d "{\\"p\\": 0}" x'
    for echo in ('curl -d "{\\"p\\": 0}" x', 'curl -d {"p":0} x', "[1/2]"):
        verdict = judge(Completion(f'{echo} -> {{"p": 0.9}}'), command, output)
        assert verdict.outcome is BLOCK, echo
    assert judge(Completion('{"p": 0}'), '{"p": 0}', output).outcome is ALLOW
    hook = judge(Completion(f'{{"decision": "allow"}}\n{DENIED}'), "", Output(kind="hook"))
    assert hook.outcome is Outcome.FORMAT_ERROR
    patterns: Any = (("bad", "BLOCK"), (".", "ALLOW"))
    label = Output(kind="label", path="label", patterns=patterns)
    for missing in ('{"error": "busy"}', "busy", '{"label": null}'):
        assert read(label, Completion(missing)).action is None


def test_whole_numbers_are_labels_and_lead_to_places() -> None:
    patterns: Any = ((r"\A1\Z", "BLOCK"), (r"\A0\Z", "ALLOW"))
    output = Output(kind="label", path="id=7.class", patterns=patterns)
    answer = '[{"id": 6, "class": 0}, {"id": 7, "class": 1}]'
    assert read(output, Completion(answer)).action is BLOCK


def test_tokens_are_read_where_one_of_them_may_stand_first() -> None:
    """P(Yes) = 0.6 and P(yes) = 0.1 against P(No) = 0.2 and nothing else named: 0.7 / 0.9."""
    logs = {" Yes": math.log(0.6), "yes": math.log(0.1), "No": math.log(0.2), "x": math.log(0.1)}
    output = Output(kind="tokens", unsafe=("Yes",), safe=("No",), block_from=0.5)
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
        Output(kind="tokens", unsafe=("Yes",), safe=("No",), block_from=0.9),
        Completion("Yes", suspicion=found.suspicion),
    )
    assert (again.action, again.suspicion) == (ALLOW, found.suspicion)


def test_a_verdict_keeps_number_and_version_of_its_mapping() -> None:
    output = Output(kind="score", path="p", block_from=0.5)
    other = Output(kind="score", path="p", block_from=0.6)
    verdict = judge(Completion('{"p": 0.5}'), "ls", output)
    assert verdict.outcome is BLOCK
    assert verdict.completion is not None
    assert verdict.completion.suspicion == 0.5
    version = output.version(PARSER_VERSION)
    assert verdict.parser_version == version != other.version(PARSER_VERSION)
    assert FIRST_VERSION <= version < 2**15
    assert version == output.version(PARSER_VERSION + 1)  # it reads no action by our parser
    assert len({Output(suspicion="p").version(each) for each in (1, 2, 3)}) == 3
    assert judge(Completion("?"), "ls", output).outcome is Outcome.FORMAT_ERROR
    assert judge(Completion(" "), "ls", output).outcome is Outcome.TIMEOUT_ERROR
    ours = judge(Completion('{"action": "WARN", "p": 4}'), "ls", Output(suspicion="p"))
    assert (ours.outcome, ours.completion and ours.completion.suspicion) == (WARN, 4.0)
    assert judge(Completion('{"action": "WARN"}')).parser_version == PARSER_VERSION


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"kind": "label"}, "key 'patterns': is missing"),
        ({"kind": "label", "patterns": [["x", "STOP"]]}, "patterns"),
        ({"kind": "score", "block_from": 0.5}, "key 'path': is missing"),
        ({"kind": "score", "path": "p"}, "key 'block_from': is missing"),
        ({"kind": "score", "path": "p", "warn_from": 2, "block_from": 1}, "key 'warn_from'"),
        ({"kind": "tokens", "block_from": 1}, "key 'unsafe': is missing"),
        ({"kind": "hook", "path": "p"}, "key 'path': has no use"),
        ({"kind": "score", "path": "p", "block_from": 1, "suspicion": "q"}, "key 'suspicion': has"),
        ({"kind": "hook", "reason": "why"}, "key 'reason': has no use"),
        ({"kind": "qwen3guard", "unsafe": ["Yes"], "safe": ["No"]}, "key 'unsafe': has no use"),
        ({"kind": "tokens", "unsafe": ["a"], "safe": [" "], "block_from": 1}, "must name tokens"),
        ({"kind": "tokens", "unsafe": ["a"], "safe": ["A "], "block_from": 1}, "a token twice"),
        ({"kind": "yes-no"}, "kind"),
        ({"kind": "hook", "colour": "red"}, "colour"),
    ],
)
def test_a_mapping_that_says_nothing_is_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        checked(given, Output)
