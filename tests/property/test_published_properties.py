"""Counts, printed as rates, and recovered from them: the truth is among what is found."""

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from aegish_dist.statistics.published import OF_RATES, PublishedGuard


@given(st.data())
def test_the_true_counts_are_among_those_that_printed_figures_leave(data: st.DataObject) -> None:
    m, h = (data.draw(st.integers(2, 300)) for _ in range(2))
    detected, accepted = data.draw(st.integers(0, m)), data.draw(st.integers(0, h))
    names = data.draw(st.sets(st.sampled_from([*OF_RATES]), min_size=1))
    digits = data.draw(st.integers(1, 6))
    plain = PublishedGuard(name="g", malicious=m, harmless=h, figures={})
    printed = {
        name: Decimal(f"{plain.value(name, detected, accepted):.{digits}f}") for name in names
    }
    found = PublishedGuard(name="g", malicious=m, harmless=h, figures=printed)  # type: ignore[arg-type]
    assert found.counts is None or (detected, accepted) in found.counts
    for name, each in found.metrics.items():
        if None not in (each.value, each.ci_low, each.ci_high):
            assert 0 <= each.ci_low <= each.value <= each.ci_high <= 1, name  # type: ignore[operator]
