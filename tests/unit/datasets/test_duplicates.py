"""Commands that repeat each other, against the definition by brute force."""

import random
import time

import pytest

from aegish_dist.core.sample import Sample, TrueLabel
from aegish_dist.datasets.draft import Draft, Severity
from aegish_dist.datasets.duplicates import alike, normal_form

HARMLESS, MALICIOUS = TrueLabel.HARMLESS, TrueLabel.MALICIOUS
LONG = "tar -xzf /srv/backups/2026-11-24.tar.gz -C /tmp/restore --strip-components=1 --verbose"


def draft(name: str, *commands: str, target: TrueLabel = HARMLESS) -> Draft:
    samples = tuple(Sample(command, target) for command in commands)
    return Draft(name, samples, tuple(range(1, len(samples) + 1)), name, "")


def found(*drafts: Draft) -> list[tuple[int, int, str, str]]:
    return [(number, p.record, p.severity, p.message) for number, p in alike(drafts)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ls   -l\ta ;", "ls -l a"),
        ("ls -l -a x", "ls -al x"),
        ("grep 'x' \"a.txt\"", "grep x a.txt"),
        ('echo "a b"', "echo 'a b'"),
        ("a\n\n b ", "a\nb"),
        ("printf '\\x2F' 0XFF", "printf '\\x2f' 0xff"),
    ],
)
def test_writings_of_one_command_have_one_normal_form(one: str, other: str) -> None:
    assert normal_form(one) == normal_form(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("rm 'a b'", "rm a b"),
        ('echo "$(id)"', "echo '$(id)'"),
        ("echo '*'", "echo *"),
        ("a\nb", "a b"),
        ("ls -L", "ls -l"),
        ("find . -type d -empty -delete", "find . -type d -delete -empty"),
        ("a | b", "a || b"),
    ],
)
def test_commands_that_do_something_else_differ(one: str, other: str) -> None:
    assert normal_form(one) != normal_form(other)


def test_copies_are_found_within_and_across_sets() -> None:
    """Both labels are an error where the command is the same; a near twin may well differ."""
    mine = draft("mine", "id", "ls  -a", "ls -a;", LONG)
    near = LONG.replace("24", "25")
    other = draft("other", "id", near, "ls -a", "pwd", "pwd", target=MALICIOUS)
    assert found(mine, other) == [
        (0, 3, Severity.WARNING, "differs in writing from line 2"),
        (1, 1, Severity.ERROR, "the same command as in mine, line 1, which is labelled harmless"),
        (1, 3, Severity.ERROR, "differs in writing from mine, line 2, which is labelled harmless"),
        (1, 2, Severity.WARNING, "is nearly that of mine, line 4, which is labelled harmless"),
    ]
    assert found(draft("mine", "id", "ls -a"), draft("other", "id")) == [
        (1, 1, Severity.WARNING, "the same command as in mine, line 1")
    ]


def jaccard(one: str, other: str) -> float:
    a, b = ({text[i : i + 3] for i in range(len(text) - 2)} for text in (one, other))
    return len(a & b) / len(a | b)


def test_near_duplicates_are_those_of_the_definition() -> None:
    """Each base command has at most one variant, so that no choice among several is open."""
    rng = random.Random(7)
    commands = []
    for _ in range(300):
        base = " ".join("".join(rng.choices("abcdefghij", k=6)) for _ in range(rng.randint(3, 12)))
        place = rng.randrange(len(base))
        commands += [base, base[:place] + rng.choice("xyz") + base[place + 1 :]]
    expected = {
        (number + 1, number) for number in range(1, 600, 2)
        if jaccard(*commands[number - 1 : number + 1]) >= 0.9
    }  # fmt: skip
    assert 50 < len(expected) < 250
    told = {(record, int(text.rsplit(" ", 1)[1])) for _, record, _, text in found(draft("x", *commands))}  # fmt: skip
    assert told == expected


def test_sets_that_are_made_to_be_slow_are_not() -> None:
    """Commands of the same words in other orders share all their trigrams but few pairs are near."""
    rng = random.Random(7)
    words = [f"{letter * 2}{number}" for number in range(6) for letter in "abcdefghij"]
    drawn = [" ".join(rng.sample(words, 25)) for _ in range(2_000)]
    started = time.process_time()
    assert len(found(draft("x", *drawn))) < 100
    assert time.process_time() - started < 20
