"""The section on differences between models: each against the first of the ranking."""

from collections.abc import Iterator, Mapping, Sequence

from aegish_dist.core.comparison import Difference
from aegish_dist.core.significance import LEVEL
from aegish_dist.report.comparison_data import ComparedPair, ComparisonData
from aegish_dist.report.entries import RankedModel
from aegish_dist.report.layout import Section, TableCell, marked, number_cell
from aegish_dist.report.numbers import (
    format_count,
    format_difference,
    format_difference_interval,
    format_p,
)
from aegish_dist.report.quality import HEADLINES

_MORE = (
    "`compare` shows every pair with the difference it could have detected; the JSON report has"
    " them too."
)


def differences(
    comparison: ComparisonData | None, entries: Sequence[RankedModel]
) -> Section | None:
    """Return each model minus the first of the ranking; None without a pair that says anything.

    Args:
        comparison: All pairs; None where they are not known.
        entries: The models, best first.
    """
    if comparison is None or not entries:
        return None
    leader, *others = entries
    pairs = {frozenset((each.a.model, each.b.model)): each for each in comparison.pairs}
    rows = tuple(_rows(leader, others, pairs))
    if not rows:
        return None
    found = [each for each in map(comparison.difference, comparison.pairs) if each is not None]
    known = [each.p_adjusted for each in found if each.p_adjusted is not None]
    differ = sum(p < LEVEL for p in known)
    return Section(
        title="Differences from the first",
        columns=(
            TableCell("model"),
            *(
                TableCell(title, detail)
                for name in HEADLINES.values()
                for title, detail in ((name, "[95% CI]"), ("p adj.", "p"))
            ),
            TableCell("n"),
        ),
        rows=rows,
        note=(
            f"Percentage points by which each model differs from {leader.model}, on the commands "
            "scored for both; an interval that holds 0 leaves open which is better. p adj. is for "
            "all pairs of models."
        ),
        remarks=(
            f"{format_count(differ)} of {format_count(len(known))} pairs of models differ by "
            f"{HEADLINES[comparison.metric]} at an adjusted p below {LEVEL}. {_MORE}",
        ),
    )


def _rows(
    leader: RankedModel,
    others: Sequence[RankedModel],
    pairs: Mapping[frozenset[str], ComparedPair],
) -> Iterator[tuple[TableCell, ...]]:
    for entry in others:
        pair = pairs.get(frozenset((leader.model, entry.model)))
        if pair is None or pair.comparison.metrics["aegish_score"].difference is None:
            continue
        found = [pair.comparison.metrics[name] for name in HEADLINES]
        if pair.a.model != leader.model:
            found = [each.turned for each in found]
        cells = (cell for each in found for cell in _cells(each))
        samples = number_cell(pair.comparison.samples, format_count)
        yield TableCell(marked(entry)), *cells, samples


def _cells(found: Difference) -> Iterator[TableCell]:
    interval = format_difference_interval(found.ci_low, found.ci_high)
    detail = "" if found.ci_low is None else interval
    yield number_cell(found.difference, format_difference, detail)
    yield number_cell(found.p_adjusted, format_p, format_p(found.p_value))
