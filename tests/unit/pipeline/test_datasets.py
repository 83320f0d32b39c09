"""The part of a dataset that a run asks."""

import pytest

from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.errors import DatasetError
from aegish_dist.pipeline.datasets import describe, narrow, require_categories

SHELL = Sample("sh", TrueLabel.MALICIOUS, "shell", "sh")
READ = Sample("cat /etc/shadow", TrueLabel.MALICIOUS, "file-read", "cat")
LS = Sample("ls", TrueLabel.HARMLESS)
PWD = Sample("pwd", TrueLabel.HARMLESS)
MIXED = Dataset("mixed", (SHELL, LS, READ, PWD), "a file", "MIT")
HARMLESS = Dataset("harmless", (LS, PWD))


def test_categories_choose_among_malicious_samples() -> None:
    """Harmless samples have no category and stay; so does the order."""
    part = narrow(MIXED, ["file-read"], None)
    assert part.samples == (LS, READ, PWD)
    assert (part.name, part.source, part.licence) == ("mixed", "a file", "MIT")
    assert part.fingerprint != MIXED.fingerprint
    assert narrow(HARMLESS, ["file-read"], None) == HARMLESS


def test_a_limit_takes_the_same_samples_whatever_the_order() -> None:
    """The lowest ids are chosen, in the order of the file."""
    lowest = sorted(MIXED.samples, key=lambda sample: sample.sample_id)[:2]
    backwards = Dataset("backwards", MIXED.samples[::-1])
    assert set(narrow(MIXED, [], 2).samples) == set(lowest)
    assert narrow(backwards, [], 2).samples == narrow(MIXED, [], 2).samples[::-1]
    assert narrow(MIXED, [], 2).fingerprint == narrow(backwards, [], 2).fingerprint
    assert narrow(MIXED, [], 99) == narrow(MIXED, [], None) == MIXED


def test_a_limit_counts_what_the_categories_left() -> None:
    """Categories come first, so that a limit is met where it can be."""
    only = Dataset("only", (SHELL, READ))
    assert narrow(only, ["shell"], 1).samples == (SHELL,)


def test_an_empty_part_is_refused() -> None:
    """The message tells which categories there are."""
    with pytest.raises(DatasetError, match=r"^only: nothing is left of it.* file-read, shell$"):
        narrow(Dataset("only", (SHELL, READ)), ["upload"], None)
    with pytest.raises(DatasetError, match="categories are none"):
        narrow(Dataset("void", ()), [], None)


def test_a_misspelt_category_is_refused() -> None:
    """A category has to occur in one of the datasets, not in each."""
    require_categories([MIXED, HARMLESS], ["shell", "file-read"])
    require_categories([HARMLESS], [])
    with pytest.raises(DatasetError, match=r"^shel: no such category; did you mean 'shell'\?$"):
        require_categories([MIXED, HARMLESS], ["shell", "shel"])
    with pytest.raises(DatasetError, match=r"there are file-read, shell$"):
        require_categories([MIXED, HARMLESS], ["upload"])
    with pytest.raises(DatasetError, match="there are none"):
        require_categories([HARMLESS], ["shell"])


def test_a_run_records_what_it_asks() -> None:
    """Name, fingerprint, and how many of the samples are malicious."""
    recorded = describe(MIXED)
    assert (recorded.name, recorded.fingerprint) == ("mixed", MIXED.fingerprint)
    assert (recorded.samples, recorded.malicious) == (4, 2)
