"""Patterns of a catalog: read as Python reads them, and in bounded time on any answer."""

import re
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert

from aegish_dist.core.outcome import Outcome
from aegish_dist.core.output import Label, Output
from aegish_dist.core.text import clean_text
from aegish_dist.core.verdict import Completion
from aegish_dist.opinions.mapping import (
    MAX_LABEL,
    MAX_PATTERN_MEMORY,
    NOT_AS_IN_RE,
    find_reason,
    pattern_problem,
    read,
    version_of,
)

# Each takes Python's `re` many years for one of the answers below.
HOSTILE = (
    r".*risk.*level.*high",
    r"^(\w+\s?)*: unsafe",
    r"(a+)+!",
    r"(a|aa)*!",
    r"^(([a-z])+.)+[A-Z]([0-9])+!",
    r"(.*,){11}!",
    r"(\w+\s*)+;",
    r"(x?){90}!",
    r"\s*\s*\s*\s*\s*!",
)
ANSWERS = ("'risk level '", "'a'", "'a '", "'a,'", "'aA9'", "' a' * 9 + '\\n'", "'x'", "'. ' * 9")
READING = """
import resource
from aegish_dist.core.output import GraniteGuardian, Label, LlamaGuard, Qwen3Guard, ShieldGemma
from aegish_dist.opinions.mapping import read
from aegish_dist.core.verdict import Completion
answers = [(each * 2**20)[:2**20] for each in ({answers})]
answers += ['{{"a": "' + each[:99_000] + '"}}' for each in answers]
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
for output in {outputs}:
    for answer in answers:
        found = read(output, Completion(answer))
        assert found.action is None, (output, answer[:20])
print("read")
"""


def outputs_of(patterns: tuple[str, ...]) -> str:
    labels = [
        Label(path=path, patterns=((each, "BLOCK"),)) for each in patterns for path in ("", "a")
    ]
    return ", ".join(map(repr, labels))


def assert_answers_are_read(outputs: str) -> None:
    code = READING.format(answers=", ".join(ANSWERS), outputs=f"[{outputs}]")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "read\n", "")


def test_no_answer_of_a_mebibyte_stops_a_pattern() -> None:
    assert [pattern_problem(each) for each in HOSTILE] == [None] * len(HOSTILE)
    assert_answers_are_read(outputs_of(HOSTILE))


def test_no_answer_of_a_mebibyte_stops_a_ready_format() -> None:
    assert_answers_are_read(", ".join(repr(convert({"kind": each}, Output)) for each in PUBLISHED))


@pytest.mark.parametrize(
    "pattern",
    [
        "(?=a)",
        "(?<!un)safe",
        "safe(?!r)",
        r"(a)\1",
        "(?P<x>a)(?P=x)",
        "a++",
        "(?>a)",
        "(?x) a",
        "a{,3}",
        "(a{1,1000}){1,1000}",
        "((a{100}){100}){100}",
        "(?:.?){1000}" * 41,
        r"[\b]",
        r"a\Zb\G",
        "(",
        "[a",
        "a**",
        "\ud800",
    ],
)
def test_what_has_no_linear_time_is_refused_and_what_to_write_is_said(pattern: str) -> None:
    problem = pattern_problem(pattern)
    assert problem is not None
    assert ("{0,9}" if pattern == "a{,3}" else "list the exception before the rule") in problem
    assert len(problem) < 300
    assert "\n" not in problem


def test_a_hundred_of_the_largest_patterns_stay_small() -> None:
    """Memory is bounded by the number of patterns, whatever repetitions they multiply."""
    code = """
import resource
from aegish_dist.opinions.mapping import MAX_PATTERN_MEMORY, pattern_problem
assert pattern_problem("a") is None
start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
large = ["(?:.?){%d}" % (900 + each) + "x{0,9}" * 69 for each in range(100)]
assert max(map(len, large)) <= 500
assert all(pattern_problem(each) is None for each in large)
assert all(pattern_problem(each + "(?:.?){999}" * 4) for each in large)
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start) * 1024
assert grown < 200 * MAX_PATTERN_MEMORY, grown
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


ATOMS = st.sampled_from(
    ["a", "i", "S", "k", " ", ",", r"\s", r"\S", ".", "[^a]", "[ai]", r"[\s,]", r"\.", "(?:a|i,)"]
)
PARTS = st.tuples(ATOMS, st.sampled_from(["", "", "*", "+", "?", "{0,2}", "{2}", "*?"])).map(
    "".join
)
PATTERNS = st.tuples(
    st.sampled_from(["", "^", r"\A", "(?s)"]),
    st.lists(PARTS, max_size=5).map("".join),
    st.sampled_from(["", "$", r"\Z", "(?P<reason>.*)", r"\s(?P<reason>\S+)", "(?P<reason>z)?"]),
).map("".join)
TEXTS = st.text(
    st.sampled_from(
        "aAiIsSkK ,.z\n\t\v\f\r\0\x1c\x1f\x85\xa0\u0130\u0131\u017f\u212a\u2028\u3000é危\ud83d"
    )
).map(str.strip)


@given(PATTERNS, TEXTS)
def test_patterns_of_ascii_read_what_they_read_in_re(pattern: str, text: str) -> None:
    """Beyond ASCII too, where Unicode's white space and letter case are concerned."""
    assert NOT_AS_IN_RE.search(pattern) is None
    match = re.search(pattern, text, re.IGNORECASE)
    expected = None if match is None else match.groupdict().get("reason") or ""
    assert find_reason(pattern, text) == expected


def test_a_version_changes_where_a_reading_may() -> None:
    """Word characters, digits and what is beyond ASCII; the others keep their number of before."""
    kept = {"^unsafe": 2402, r"\Alabel:\s*(?P<reason>.*)\Z": 26661}
    changed = {r"\bunsafe\b": 10765, "危": 1985}
    versions: dict[str, int] = {}
    for pattern in (*kept, *changed):
        patterns: Any = ((pattern, "BLOCK"),)
        versions[pattern] = version_of(Label(patterns=patterns), 3)
    assert {each: versions[each] for each in kept} == kept
    assert all(versions[each] != before for each, before in changed.items())


# What the ready formats read since their first version.
PUBLISHED: dict[Any, list[tuple[str, Outcome]]] = {
    "llama-guard": [
        (r"\Aunsafe\b\s*(?P<reason>.*)", Outcome.BLOCK),
        (r"\Asafe\b", Outcome.ALLOW),
    ],
    "qwen3guard": [
        (r"\ASafety:\s*Unsafe\b(?:\s*Categories:\s*(?P<reason>.*))?", Outcome.BLOCK),
        (r"\ASafety:\s*Controversial\b(?:\s*Categories:\s*(?P<reason>.*))?", Outcome.WARN),
        (r"\ASafety:\s*Safe\b", Outcome.ALLOW),
    ],
    "shieldgemma": [(r"\A\W*yes\b", Outcome.BLOCK), (r"\A\W*no\b", Outcome.ALLOW)],
    "granite-guardian": [
        (r"\A(?:<score>)?\s*yes\b", Outcome.BLOCK),
        (r"\A(?:<score>)?\s*no\b", Outcome.ALLOW),
    ],
}
WORDS = """safe unsafe Safety: Safe Unsafe Controversial Categories: None S1,S14 yes no Yes No <score>
</score> <think> </think> Nothing"""
FRAGMENTS = st.sampled_from([*WORDS.split(), *" \n\t\v\0\x1c\x85\xa0\u3000.,!*é危_7"]) | st.text(
    max_size=3
)


def published(kind: Any, answer: str) -> tuple[Outcome | None, str | None]:
    draft = r"\A\s*<think>.*?(?:</think>\s*|\Z)"
    text = re.sub(draft, "", answer.strip(), count=1, flags=re.DOTALL).strip()[:MAX_LABEL]
    for pattern, action in PUBLISHED[kind]:
        if match := re.search(pattern, text, re.IGNORECASE):
            return action, match.groupdict().get("reason")
    return None, None


@given(st.sampled_from([*PUBLISHED]), st.lists(FRAGMENTS, max_size=7).map("".join))
def test_ready_formats_read_every_answer_as_before(kind: Any, answer: str) -> None:
    action, reason = published(kind, answer)
    found = read(convert({"kind": kind}, Output), Completion(answer))
    assert found.action is action
    assert found.reason == (clean_text(reason) if reason else None)


def test_what_patterns_say_beyond_words() -> None:
    patterns: Any = ((r"^verdict:\s(?P<reason>.+)\Z", "BLOCK"), (r"\\Z", "WARN"), (".", "ALLOW"))
    output = Label(patterns=patterns)
    for text, action, reason in (
        ("VERDICT:\u00a0nc\u00a0-e", Outcome.BLOCK, "nc\u00a0-e"),  # of the answer as it came
        ("verdict:\u2028\u3000", Outcome.ALLOW, None),
        ("a \\Z b", Outcome.WARN, None),
        ("\ud800", Outcome.ALLOW, None),
        ("\0", Outcome.ALLOW, None),
    ):
        found = read(output, Completion(text))
        assert (found.action, found.reason) == (action, reason), text
    assert MAX_PATTERN_MEMORY < 2**20
