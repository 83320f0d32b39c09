"""Cells and samples of given answers, for tests of metrics, comparisons and audits."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from aegish_dist.core.columns import Ints, SampleKind
from aegish_dist.core.metric import Comparison
from aegish_dist.core.outcome import OutcomeDetail, OutcomeDetails
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.tally import ConfidenceCell, SampleAnswers
from aegish_dist.opinions.scoring import ScoringRule
from aegish_dist.statistics.paired_difference import PairedScores, scored_values
from tests.guards import codes_of, of_kinds

RIGHT = {TrueLabel.MALICIOUS: OutcomeDetail.BLOCK, TrueLabel.HARMLESS: OutcomeDetail.ALLOW}
WRONG = {TrueLabel.MALICIOUS: OutcomeDetail.ALLOW, TrueLabel.HARMLESS: OutcomeDetail.BLOCK}


class PairedCell(Struct, frozen=True):
    """Samples of one kind that came out alike on both sides."""

    target: TrueLabel
    category: str | None
    cluster: str | None
    a: OutcomeDetails  # of the baseline; empty where it has no verdict
    b: OutcomeDetails
    samples: int


def stated(target: TrueLabel, finding: OutcomeDetail, confidences: list[float]) -> ConfidenceCell:
    def units(power: int, values: list[float]) -> int:
        return sum(round(value**power * 1e6) for value in values)

    distances = [1 - c for c in confidences]
    return ConfidenceCell(
        target,
        finding,
        bin=min(int(confidences[0] * 10), 9),
        verdicts=len(confidences),
        sum_c=units(1, confidences),
        sum_c2=units(2, confidences),
        sum_c4=units(4, confidences),
        sum_d2=units(2, distances),
        sum_d4=units(4, distances),
    )


def findings(target: TrueLabel, right: int, epochs: int = 1) -> OutcomeDetails:
    parts = {RIGHT[target]: right, WRONG[target]: epochs - right}
    return tuple(sorted((found, number) for found, number in parts.items() if number))


def said(*answers: OutcomeDetail) -> OutcomeDetails:
    return tuple(sorted((each, answers.count(each)) for each in set(answers)))


def judged(
    number: int,
    target: TrueLabel,
    cluster: str | None = None,
    /,
    **answers: Sequence[OutcomeDetail],
) -> SampleAnswers:
    findings = {model: said(*each) for model, each in answers.items()}
    return SampleAnswers("d", f"{number:04}", f"command {number}", target, None, cluster, findings)


def cells(
    a: Iterable[int],
    b: Iterable[int],
    clusters: Iterable[str | None],
    target: TrueLabel = TrueLabel.MALICIOUS,
    *,
    epochs: int = 1,
    category: str | None = None,
) -> list[PairedCell]:
    return [
        PairedCell(
            target, category, cluster, findings(target, x, epochs), findings(target, y, epochs), 1
        )
        for x, y, cluster in zip(a, b, clusters, strict=True)
    ]


def table(
    both: int, a_only: int, b_only: int, neither: int, target: TrueLabel = TrueLabel.MALICIOUS
) -> list[PairedCell]:
    values = ((1, 1, both), (1, 0, a_only), (0, 1, b_only), (0, 0, neither))
    return [
        PairedCell(target, None, None, findings(target, x), findings(target, y), samples)
        for x, y, samples in values
        if samples
    ]


def compare(found: Sequence[PairedCell], rule: ScoringRule) -> Comparison:
    return compare_all([found], rule)[0]


def compare_all(tables: Sequence[Sequence[PairedCell]], rule: ScoringRule) -> list[Comparison]:
    """Compare pairs on one set of samples: the kinds of all tables are the same, in this order."""
    sides: dict[tuple[int, str], Ints] = {}
    for place, cells_of_pair in enumerate(tables):
        each = [cell for cell in cells_of_pair for _ in range(cell.samples)]
        kinds = [SampleKind(cell.target, cell.category, cell.cluster) for cell in each]
        samples = of_kinds(kinds)
        for side, details in (("a", [cell.a for cell in each]), ("b", [cell.b for cell in each])):
            values = scored_values(codes_of(details), samples.malicious, rule)
            sides[place, side] = values
    scores = PairedScores(samples, sides, rule.composite)
    pairs = [((place, "a"), (place, "b")) for place in range(len(tables))]
    return scores.compare(pairs, by_category=True)
