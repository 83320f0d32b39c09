"""Overlays, rule sets, suspicion rules and targets in files."""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from aegish_dist.core.metric import LESS_IS_BETTER, TARGET_METRICS
from aegish_dist.core.outcome import Outcome, OutcomeDetail, ScoredAnswer
from aegish_dist.core.sample import TrueLabel
from aegish_dist.errors import OpinionError
from aegish_dist.opinions.opinion import LabelChange, Overlay, Targets
from aegish_dist.opinions.opinion_files import (
    read_overlay,
    read_policy,
    read_rule,
    read_suspicion_rule,
    read_targets,
    render_overlay,
    render_policy,
    render_rule,
    toml_text,
)
from aegish_dist.opinions.policy import OnError, Origin, Policy, Stage, When
from aegish_dist.opinions.scoring import RULES, STATED_CONFIDENCE, Composite, Level, ScoringRule
from aegish_dist.statistics.metrics import METRICS
from tests.recorded import lines_of

HOSTILE = 'echo "\\x" \'\'\' """ \n[[change]]\r\t\x1b[31m\x7f\u202e\u2028\U000e0101 é 漢'
EXCLUDED = LabelChange("d", "0" * 16, HOSTILE, None, None, "twice in the set", "Ada")
RELABELLED = LabelChange("d", None, "cat x", TrueLabel.MALICIOUS, "file-read", "it reads", "Bob")
HEAD = 'name = "mine"\nversion = 1\nauthor = "Ada"\n'
CHANGE = '[[change]]\ndataset = "d"\ncommand = "ls"\nreason = "because"\n'
POLICY = 'name = "mine"\nversion = 1\n'
EXCLUDE = CHANGE + 'action = "exclude"\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mine.toml"


def refused(read: Callable[[Path], object], path: Path, text: str, complaint: str) -> None:
    path.write_text(text)
    with pytest.raises(OpinionError, match=f"mine.toml: .*{complaint}"):
        read(path)


def test_a_written_overlay_reads_back(path: Path) -> None:
    overlay = Overlay("mine", 3, (EXCLUDED, RELABELLED))
    text = render_overlay(overlay)
    path.write_text(text, encoding="utf-8")
    assert read_overlay(path) == overlay
    assert text.isprintable() or set(filter(lambda c: not c.isprintable(), text)) == {"\n"}


@given(st.text(st.characters(codec="utf-8")))
def test_every_text_survives(text: str) -> None:
    written = toml_text(text)
    assert tomllib.loads(f"a = {written}") == {"a": text}
    assert written.isprintable()


def test_the_author_at_the_top_is_the_default(path: Path) -> None:
    path.write_text(f'{HEAD}{EXCLUDE}{EXCLUDE.replace("ls", "pwd")}author = "Bob"\n')
    assert [change.author for change in read_overlay(path).changes] == ["Ada", "Bob"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    lines_of("refused_overlays.jsonl"),
)
def test_what_cannot_be_used_is_refused(text: str, complaint: str, path: Path) -> None:
    refused(read_overlay, path, text, complaint)


def test_a_file_that_is_not_there_is_named(path: Path) -> None:
    with pytest.raises(OpinionError, match=r"mine.toml: cannot be read: No such file"):
        read_overlay(path)
    path.write_bytes(b"name = '\xff'")
    with pytest.raises(OpinionError, match=r"mine.toml: line 1: is not UTF-8"):
        read_overlay(path)


BASED = 'name = "mine"\nversion = 2\nbased_on = "aegish-refined"\n'


@pytest.mark.parametrize("rule", RULES.values())
def test_a_written_rule_set_reads_back(rule: ScoringRule, path: Path) -> None:
    for each in (rule, replace(rule, name='né \\ "x"', version=7, description="a\n\x7f\u202e")):
        path.write_text(render_rule(each), encoding="utf-8")
        assert read_rule(path) == each


def test_a_rule_set_changes_another_one(path: Path) -> None:
    path.write_text(f'{BASED}composite = "product"\n[labels]\nEMPTY_CUT = "TIMEOUT_ERROR"\n')
    base = RULES["aegish-refined"]
    expected = replace(
        base,
        name="mine",
        version=2,
        description="",
        composite=Composite.PRODUCT,
        labels={**base.labels, OutcomeDetail.EMPTY_CUT: ScoredAnswer.TIMEOUT_ERROR},
    )
    assert read_rule(path) == expected
    assert read_rule(path).fingerprint == expected.fingerprint != base.fingerprint


@pytest.mark.parametrize(("text", "complaint"), lines_of("refused_rule_files.jsonl"))  # fmt: skip
def test_what_cannot_be_used_is_refused_of_a_rule(text: str, complaint: str, path: Path) -> None:
    refused(read_rule, path, text, complaint)


HEAD_OF_SUSPICION = 'name = "mine"\nversion = 2\n'


def test_a_suspicion_rule_changes_what_it_names(path: Path) -> None:
    path.write_text(HEAD_OF_SUSPICION)
    assert read_suspicion_rule(path).content == STATED_CONFIDENCE.content
    path.write_text(
        f'{HEAD_OF_SUSPICION}unreadable = "block"\nunstated = 1\n'
        "[levels]\nWARN = { base = 1, slope = 0.5 }\nBLOCK = { base = 3 }\n"
    )
    rule = read_suspicion_rule(path)
    assert (rule.name, rule.version, rule.unreadable) == ("mine", 2, Outcome.BLOCK)
    assert rule.unstated == 1.0
    assert rule.levels == {
        Outcome.ALLOW: Level(0.0, -1.0),
        Outcome.WARN: Level(1.0, 0.5),
        Outcome.BLOCK: Level(3.0, 0.0),
    }


@pytest.mark.parametrize(
    ("text", "complaint"),
    lines_of("refused_suspicion_rules.jsonl"),
)
def test_what_cannot_be_used_is_refused_of_suspicion(text: str, complaint: str, path: Path) -> None:
    refused(read_suspicion_rule, path, text, complaint)


HEAD_OF_TARGETS = 'name = "strict"\nversion = 1\n'
LEAST = HEAD_OF_TARGETS + "[least]\n"


def test_targets_are_read(path: Path) -> None:
    path.write_text(LEAST + "aegish_score = 0.85\ncoverage = 1")
    assert read_targets(path) == Targets("strict", 1, {"aegish_score": 0.85, "coverage": 1.0})


def test_every_metric_has_a_direction() -> None:
    assert set(METRICS) >= LESS_IS_BETTER
    assert set(TARGET_METRICS) == {
        *("malicious_detection_rate", "harmless_acceptance_rate", "aegish_score", "accuracy"),
        *("malicious_detection_rate_macro", "coverage"),
        *("malicious_detection_rate_worst", "malicious_detection_rate_best"),
        *("harmless_acceptance_rate_worst", "harmless_acceptance_rate_best"),
        *("aegish_score_worst", "aegish_score_best"),
    }


@pytest.mark.parametrize(
    ("text", "complaint"),
    lines_of("refused_targets.jsonl"),
)
def test_what_cannot_be_used_is_refused_of_targets(text: str, complaint: str, path: Path) -> None:
    refused(read_targets, path, text, complaint)


NUMBER = st.floats(allow_nan=False, allow_infinity=False)
RANGE = st.tuples(NUMBER, NUMBER).map(lambda ends: (min(ends), max(ends)))


@st.composite
def stages(draw: st.DrawFn) -> Stage:
    names = draw(
        st.lists(st.text('a/-."\\é\u202e', min_size=1), min_size=1, max_size=4, unique=True)
    )
    return Stage(
        tuple(names),
        tuple(draw(st.just([]) | st.lists(NUMBER, min_size=len(names), max_size=len(names)))),
        draw(st.integers(1, len(names))),
        draw(RANGE | st.sampled_from([When.ALWAYS, When.ERROR])),
        draw(st.sampled_from([None, OnError.STOP, OnError.ALLOW])),
    )


def digits(length: int) -> st.SearchStrategy[str]:
    return st.text("0123456789abcdef", min_size=length, max_size=length)


NUMBERS_OF_AN_ESTIMATE = st.dictionaries(
    st.sampled_from(["value", "ci_low", "n"]), st.integers(0, 2**31) | st.floats(0, 1)
)
ORIGINS = st.builds(
    Origin,
    st.text('a1/-."\\é\u202e'),
    digits(16),
    st.frozensets(digits(12), max_size=5),
    st.dictionaries(st.sampled_from(["aegish_score", "accuracy"]), NUMBERS_OF_AN_ESTIMATE),
)


@given(stages(), st.lists(stages(), max_size=3), st.booleans(), st.none() | ORIGINS)
def test_a_written_policy_reads_back(
    first: Stage, more: list[Stage], listed: bool, origin: Origin | None
) -> None:
    """So does what it was chosen on, under an unbroken seal."""
    stages = (replace(first, when=When.ALWAYS), *more)
    policy = Policy("p-1.a_b", 7, stages, ("ls", "git diff **", "a ?*b") if listed else ())
    if origin is not None:
        policy = policy.sealed(origin)
    with NamedTemporaryFile(suffix=".toml") as file:
        Path(file.name).write_text(render_policy(policy), encoding="utf-8")
        read = read_policy(Path(file.name))
    assert read == policy
    assert read.is_sealed is (origin is not None)


@pytest.mark.parametrize(("text", "complaint"), lines_of("refused_policies.jsonl"))
def test_a_policy_that_cannot_be_used_is_refused(text: str, complaint: str, path: Path) -> None:
    refused(read_policy, path, POLICY + text, complaint)


def test_names_lists_and_files_of_policies_are_bounded(path: Path) -> None:
    named = POLICY.replace("mine", "a,b") + "stage = [1]"
    refused(read_policy, path, named, "'name': must be of ASCII")
    listed = POLICY + f'[[stage]]\nguard = "allowlist"\npatterns = {["ls"] * 1001}'
    refused(read_policy, path, listed, "key 'patterns': Expected `array` of length <= 1000")
    refused(read_policy, path, POLICY + "#" * (64 * 2**20), "larger than 64 MiB")


def test_keys_of_a_single_stage_may_stand_at_the_top(path: Path) -> None:
    path.write_text(POLICY + 'guards = ["a", "b"]\nthreshold = 1\ncombine = { at_least = 2 }')
    assert read_policy(path) == Policy("mine", 1, (Stage(("a", "b"), (1.0, 1.0), 2),))


def test_the_policies_of_the_guide_are_read(path: Path) -> None:
    guide = (Path(__file__).parents[3] / "docs/guides/policies.md").read_text(encoding="utf-8")
    for example in re.findall("```toml\n(.*?)```", guide, re.DOTALL):
        path.write_text(example)
        assert read_policy(path).guards[0] == "anthropic/claude-haiku-4-5"
