"""The parser holds on any text."""

import json

from hypothesis import given
from hypothesis import strategies as st

from aegish_dist.core.parsing import ACTIONS, outcome_of, parse
from aegish_dist.core.verdict import Outcome, ParsedCompletion

ANY_CHARACTER = st.characters(categories=None, exclude_categories=())
FRAGMENTS = st.sampled_from(
    ["{", "}", '"', "\\", "```", "```json\n", "<think>", "</think>", "<|end|>", '"action"', ":", " "]
    + ["block", '"allow"', '{"action": "warn"', "confidence", "1e999", "NaN", "[", "]", ",", "\n"]
)
HOSTILE = st.lists(st.one_of(FRAGMENTS, st.text(ANY_CHARACTER, max_size=5))).map("".join)
PROSE = st.text(ANY_CHARACTER).filter(lambda text: not set(text) & set('{"<`'))


@given(st.one_of(st.none(), st.text(ANY_CHARACTER), HOSTILE))
def test_any_text_has_a_reading(text: str | None) -> None:
    """Parsing never raises, and its result is always within the declared ranges."""
    parsed = parse(text)
    assert parsed.action is None or parsed.action in ACTIONS.values()
    assert parsed.confidence is None or 0 <= parsed.confidence <= 1
    outcome = outcome_of(text, parsed)
    assert (outcome is Outcome.TIMEOUT_ERROR) == (not (text or "").strip())
    assert parse(text) == parsed


@given(
    action=st.sampled_from(list(ACTIONS)).flatmap(
        lambda name: st.sampled_from([name, name.lower(), name.title(), f" {name}\n"])
    ),
    reason=st.one_of(HOSTILE, st.text(ANY_CHARACTER)),
    confidence=st.floats(0, 1),
    ascii_only=st.booleans(),
    indent=st.sampled_from([None, 0, 2]),
    frame=st.sampled_from(
        ["%s", "```json\n%s\n```", "```\n%s\n```", "<|start|>%s<|end|>", "{%s}"]
        + ["<think>hm</think>%s", '<think>{"action": "allow"}</think>```json\n%s```', "<think>%s"]
    ),
    before=PROSE,
    after=PROSE,
)
def test_a_json_verdict_survives_any_framing(
    action: str,
    reason: str,
    confidence: float,
    ascii_only: bool,
    indent: int | None,
    frame: str,
    before: str,
    after: str,
) -> None:
    """A verdict written as JSON is read back whole from fences, thinking and prose."""
    fields = {"action": action, "reason": reason, "confidence": confidence}
    verdict = json.dumps(fields, ensure_ascii=ascii_only, indent=indent)
    expected = ParsedCompletion(ACTIONS[action.strip().upper()], reason, confidence)
    if ascii_only:  # JSON escapes join two halves of a surrogate pair
        expected = ParsedCompletion(expected.action, json.loads(json.dumps(reason)), confidence)
    assert parse(before + frame.replace("%s", verdict) + after) == expected
