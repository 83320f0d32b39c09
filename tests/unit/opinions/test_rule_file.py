"""Rule sets in files."""

from dataclasses import replace
from pathlib import Path

import pytest

from aegish_dist.core.scoring import RULES, Composite, Label, ScoringRule
from aegish_dist.core.tally import Finding
from aegish_dist.errors import OpinionError
from aegish_dist.opinions.files import read_rule, render_rule

BASED = 'name = "mine"\nversion = 2\nbased_on = "aegish-refined"\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mine.toml"


@pytest.mark.parametrize("rule", RULES.values())
def test_a_written_rule_set_reads_back(rule: ScoringRule, path: Path) -> None:
    """Under its own name as well as under another one."""
    for each in (rule, replace(rule, name='né \\ "x"', version=7, description="a\n\x7f\u202e")):
        path.write_text(render_rule(each), encoding="utf-8")
        assert read_rule(path) == each


def test_a_rule_set_changes_another_one(path: Path) -> None:
    """Keys that are left out, and labels, are those of the base; its description is not."""
    path.write_text(f'{BASED}composite = "product"\n[labels]\nEMPTY_CUT = "TIMEOUT_ERROR"\n')
    base = RULES["aegish-refined"]
    expected = replace(
        base,
        name="mine",
        version=2,
        description="",
        composite=Composite.PRODUCT,
        labels={**base.labels, Finding.EMPTY_CUT: Label.TIMEOUT_ERROR},
    )
    assert read_rule(path) == expected
    assert read_rule(path).fingerprint == expected.fingerprint != base.fingerprint


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("name = \nversion = 1", "is not valid TOML: .*line 1"),
        ('version = 1\nbased_on = "aegish-5.3"', "key 'name': is missing"),
        (BASED + "name2 = 1", "key 'name2': unknown key; known are name, version, description"),
        (BASED.replace("2", "0"), "key 'version': must be from 1 to"),
        (BASED.replace("refined", "fine"), "key 'based_on': must be one of aegish-5.3, aegish"),
        (BASED + 'composite = "sum"', "key 'composite': must be one of 'balanced', 'product'"),
        (BASED + 'unscored = ["LATE"]', r"key 'unscored\[0\]': must be one of 'ALLOW', .*'DEADL"),
        (BASED + 'harmless_correct = "ALLOW"', "key 'harmless_correct': must be a list, not text"),
        (BASED + '[labels]\nWARN = "HM"', "key 'labels.WARN': must be one of 'ALLOW', 'WARN'"),
        (BASED + '[labels]\nHM = "WARN"', "key 'labels': must be one of 'ALLOW', 'WARN', 'BLOCK'"),
        (BASED + "labels = 1", "key 'labels': must be a table, not a whole number"),
        (
            BASED.replace("refined", "5.3") + 'malicious_correct = ["CONTENT_FILTER"]',
            "key 'malicious_correct': holds CONTENT_FILTER, which no finding is labelled",
        ),
        (BASED.replace("mine", "aegish-legacy"), "key 'name': is the name of a rule set of this"),
        (BASED.replace("mine", "\\u202e"), "key 'name': must be of visible characters"),
        (BASED + 'description = "\\u0000"', "holds a NUL character"),
        (
            'name = "a"\nversion = 1\nunscored = []\nmalicious_correct = []\nharmless_correct = []'
            '\ncomposite = "balanced"\n[labels]\nALLOW = "ALLOW"',
            "key 'labels': lacks WARN, BLOCK, UNREADABLE",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(text: str, complaint: str, path: Path) -> None:
    """The message names the file and the key, and the words that are allowed."""
    path.write_text(text)
    with pytest.raises(OpinionError, match=f"mine.toml: {complaint}"):
        read_rule(path)
