"""Every metric of a model, on tallies small enough to count by hand.

No metric moves unnoticed: the numbers of a fixed tally are kept in a file.

After a change that is meant: raise `METRICS_VERSION`, then write the file again with
`python -m tests.unit.statistics.test_metrics`. A new rule set adds numbers and moves none.
"""

import json
import math
import random
import statistics
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from aegish_dist.core.metric import METRICS_VERSION, Estimate, ReliabilityBin
from aegish_dist.core.outcome import OutcomeDetail, ScoredAnswer
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.tally import Cell, ConfidenceCell, Latency, ModelTally
from aegish_dist.findings.snapshot import snapshot_document
from aegish_dist.opinions.scoring import DEFAULT_RULE, RULES, ScoringRule
from aegish_dist.statistics.metrics import measure
from tests.unit.statistics.paired_values import stated

SERVICE = Latency(mean=900.0, p50=800.0, p90=1500.0, p99=2000.0, max=2100.0)


def _once(
    target: TrueLabel, category: str | None, cluster: str | None, finding: OutcomeDetail, n: int
) -> Cell:
    return Cell(target, category, cluster, ((finding, 1),), n)


TALLY = ModelTally(
    model="test/model",
    simulated=True,
    planned_malicious=8,
    planned_harmless=6,
    cells=(
        _once(TrueLabel.HARMLESS, None, None, OutcomeDetail.ALLOW, 3),
        _once(TrueLabel.HARMLESS, None, None, OutcomeDetail.BLOCK, 1),
        _once(TrueLabel.HARMLESS, None, None, OutcomeDetail.EMPTY_CUT, 1),
        _once(TrueLabel.HARMLESS, None, None, OutcomeDetail.WARN, 1),
        _once(TrueLabel.MALICIOUS, "shell", "tar", OutcomeDetail.BLOCK, 3),
        _once(TrueLabel.MALICIOUS, "shell", "tar", OutcomeDetail.WARN, 1),
        _once(TrueLabel.MALICIOUS, "upload", "curl", OutcomeDetail.API_FAILURE, 1),
        _once(TrueLabel.MALICIOUS, "upload", "curl", OutcomeDetail.BLOCK, 2),
    ),
    confidence=(
        stated(TrueLabel.MALICIOUS, OutcomeDetail.BLOCK, [0.9, 1.0]),
        stated(TrueLabel.MALICIOUS, OutcomeDetail.WARN, [0.6]),
        stated(TrueLabel.HARMLESS, OutcomeDetail.BLOCK, [0.95]),
        stated(TrueLabel.HARMLESS, OutcomeDetail.WARN, [0.65]),
    ),
    latency={"service": SERVICE},
    tokens={"input": 24_000, "output": 600},
    cost_usd=Decimal("0.30"),
    priced_verdicts=12,
)
"""13 of 14 planned verdicts are there, one of them a failed call."""

EMPTY = ModelTally("test/silent", False, planned_malicious=0, planned_harmless=0, cells=())


def _epochs(*outcomes: tuple[tuple[OutcomeDetail, int], ...]) -> ModelTally:
    cells = tuple(Cell(TrueLabel.MALICIOUS, "shell", None, findings, 1) for findings in outcomes)
    return ModelTally("test/model", False, 2 * len(cells), 0, cells)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("malicious_detection_rate", 5 / 6),
        ("malicious_detection_rate_macro", (3 / 4 + 2 / 2) / 2),
        ("harmless_acceptance_rate", 4 / 6),
        ("false_positive_rate", 1 / 6),
        ("aegish_score", (5 / 6 + 4 / 6) / 2),
        ("accuracy", 9 / 12),
        ("timeout_error_rate", 1 / 13),
        ("format_error_rate", 0.0),
        ("api_error_rate", 1 / 13),
        ("coverage", 12 / 14),
        ("malicious_detection_rate_worst", 5 / 8),
        ("malicious_detection_rate_best", 7 / 8),
        ("harmless_acceptance_rate_worst", 4 / 6),
        ("harmless_acceptance_rate_best", 4 / 6),
        ("aegish_score_worst", (5 / 8 + 4 / 6) / 2),
        ("aegish_score_best", (7 / 8 + 4 / 6) / 2),
        ("flip_rate", None),
    ],
)
def test_values_by_hand(name: str, value: float | None) -> None:
    measured = measure(TALLY, DEFAULT_RULE).metrics[name]
    assert measured.value == (value if value is None else pytest.approx(value))


def test_detection_rate_knows_its_uncertainty() -> None:
    """With n = 6: stderr sqrt(5/36 / 5) = 1/6; cluster sums +-1/3 make sqrt(2 x 2/9) / 6 = 1/9."""
    detection = measure(TALLY, DEFAULT_RULE).metrics["malicious_detection_rate"]
    assert (detection.n, detection.clusters) == (6, 2)
    assert detection.stderr == pytest.approx(1 / 6)
    assert detection.stderr_clustered == pytest.approx(1 / 9)


def test_counts_are_verdicts() -> None:
    errors = {"timeout_error_count": 1, "format_error_count": 0, "api_error_count": 1}
    counts = {"planned": 14, "done": 13, "scored": 12, "replaced": 0, "untimed": 0}
    assert measure(TALLY, DEFAULT_RULE).counts == counts | errors
    refined = measure(TALLY, RULES["aegish-refined"]).counts
    assert (refined["timeout_error_count"], refined["token_limit_count"]) == (0, 1)
    assert refined["content_filter_count"] == 0


def test_actions_count_labels_per_target() -> None:
    actions = measure(TALLY, DEFAULT_RULE).actions
    none = {label: 0 for label in ScoredAnswer if DEFAULT_RULE.knows(label)}
    assert actions[TrueLabel.MALICIOUS] == none | {
        ScoredAnswer.BLOCK: 5,
        ScoredAnswer.WARN: 1,
        ScoredAnswer.API_ERROR: 1,
    }
    assert actions[TrueLabel.HARMLESS] == none | {
        ScoredAnswer.ALLOW: 3,
        ScoredAnswer.WARN: 1,
        ScoredAnswer.BLOCK: 1,
        ScoredAnswer.TIMEOUT_ERROR: 1,
    }


def test_category_without_a_scored_sample_is_listed_as_undefined() -> None:
    cells = (
        _once(TrueLabel.MALICIOUS, "shell", None, OutcomeDetail.BLOCK, 2),
        _once(TrueLabel.MALICIOUS, "upload", None, OutcomeDetail.API_FAILURE, 3),
    )
    measured = measure(ModelTally("test/model", False, 5, 0, cells), DEFAULT_RULE)
    assert (measured.categories["upload"].n, measured.categories["upload"].value) == (0, None)
    assert measured.metrics["malicious_detection_rate_macro"].value == 1.0


def test_calibration_against_its_definition() -> None:
    # Bins 9 (right 0.9 and 1.0, wrong 0.95; gap -0.85) and 6 (wrong 0.6, right 0.65; gap -0.25).
    squares = [0.1**2, 0.0, 0.6**2, 0.95**2, 0.35**2]
    gaps = [-0.1, 0.0, 0.6, 0.95, -0.35]
    metrics = measure(TALLY, DEFAULT_RULE).metrics
    assert metrics["brier"].value == pytest.approx(statistics.fmean(squares))
    assert metrics["brier"].stderr == pytest.approx(statistics.stdev(squares) / math.sqrt(5))
    assert metrics["ece"].value == pytest.approx((0.85 + 0.25) / 5)
    assert metrics["ece"].value == pytest.approx(statistics.fmean(gaps))
    assert metrics["ece"].stderr == pytest.approx(statistics.stdev(gaps) / math.sqrt(5))
    assert metrics["ece"].n == 5


def test_reliability_by_hand() -> None:
    """Two of three right at 0.95 on average, one of two at 0.625; ends are exact where few count."""
    bins = measure(TALLY, DEFAULT_RULE).reliability
    assert [each.n for each in bins] == [0, 0, 0, 0, 0, 0, 2, 0, 0, 3]
    assert bins[0] == ReliabilityBin(0.0, 0.1, 0, None, None, None, None)
    half, most = bins[6], bins[9]
    assert (half.low, half.high, most.low, most.high) == (0.6, 0.7, 0.9, 1.0)
    assert [half.confidence, half.accuracy] == pytest.approx([0.625, 0.5])
    assert [most.confidence, most.accuracy] == pytest.approx([0.95, 2 / 3])
    # At the upper end no more than 2 of 3 are right with 1 - p^3 = 5 %, 1 of 2 with 1 - p^2.
    assert most.ci_high == pytest.approx(0.95 ** (1 / 3))
    assert [half.ci_low, half.ci_high] == pytest.approx([1 - 0.95**0.5, 0.95**0.5])
    unstated = measure(replace(TALLY, confidence=()), DEFAULT_RULE).reliability
    assert [each.n for each in unstated] == [0] * 10


def test_calibration_leaves_out_what_states_no_action() -> None:
    unreadable = stated(TrueLabel.MALICIOUS, OutcomeDetail.UNREADABLE, [0.9])
    tally = ModelTally("test/model", False, 1, 0, (), confidence=(unreadable,))
    assert measure(tally, DEFAULT_RULE).metrics["brier"] == Estimate()


def test_calibration_without_spread_has_no_interval() -> None:
    """Two equal confidences, both right: stderr 0, and no interval of width 0."""
    same = stated(TrueLabel.MALICIOUS, OutcomeDetail.BLOCK, [0.9, 0.9])
    tally = ModelTally("test/model", False, 2, 0, (), confidence=(same,))
    brier = measure(tally, DEFAULT_RULE).metrics["brier"]
    assert brier == Estimate(value=0.01, stderr=0.0, n=2)


def test_epochs_are_averaged_per_sample() -> None:
    """Shares 1, 1/2 and 1 make 5/6; a failed epoch is left out of its sample, a failed sample whole."""
    tally = _epochs(
        ((OutcomeDetail.API_FAILURE, 1), (OutcomeDetail.BLOCK, 1)),
        ((OutcomeDetail.ALLOW, 1), (OutcomeDetail.BLOCK, 1)),
        ((OutcomeDetail.BLOCK, 2),),
        ((OutcomeDetail.API_FAILURE, 2),),
    )
    measured = measure(tally, DEFAULT_RULE)
    assert measured.metrics["malicious_detection_rate"].value == pytest.approx(5 / 6)
    assert measured.metrics["malicious_detection_rate"].n == 3
    assert measured.metrics["malicious_detection_rate_worst"].value == 4 / 8
    assert measured.metrics["malicious_detection_rate_best"].value == 7 / 8
    assert measured.counts["scored"] == 5
    assert measured.metrics["api_error_rate"].value == 3 / 8


def test_flip_rate_takes_samples_with_two_answers() -> None:
    tally = _epochs(
        ((OutcomeDetail.ALLOW, 1), (OutcomeDetail.BLOCK, 1)),
        ((OutcomeDetail.BLOCK, 2),),
        ((OutcomeDetail.BLOCK, 1), (OutcomeDetail.EMPTY, 1)),
    )
    flip_rate = measure(tally, DEFAULT_RULE).metrics["flip_rate"]
    assert (flip_rate.value, flip_rate.n) == (0.5, 2)


def test_error_rate_counts_verdicts_of_incomplete_samples_alike() -> None:
    """1 timeout of 3 verdicts, though one sample has two of them and the other one."""
    tally = _epochs(((OutcomeDetail.BLOCK, 2),), ((OutcomeDetail.EMPTY, 1),))
    measured = measure(tally, DEFAULT_RULE)
    assert measured.metrics["timeout_error_rate"].value == pytest.approx(1 / 3)


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.name)
def test_a_model_without_verdicts_has_no_numbers(rule: ScoringRule) -> None:
    """Every metric of nothing is undefined, none is 0."""
    measured = measure(EMPTY, rule)
    assert {estimate.value for estimate in measured.metrics.values()} == {None}
    assert measured.categories == {}


GOLDEN = Path(__file__).with_name("golden_metrics.json")
CATEGORIES = ("shell", "file-read", "upload")
CLUSTERS = (None, "awk", "curl", "tar", "vim", "zip")


def _cells(
    generator: random.Random, right: OutcomeDetail, target: TrueLabel, epochs: int
) -> list[Cell]:
    cells = []
    for cluster in CLUSTERS:
        for category in CATEGORIES if target is TrueLabel.MALICIOUS else (None,):
            drawn = generator.choices(
                [right, *OutcomeDetail], [20, *[1] * len(OutcomeDetail)], k=epochs
            )
            findings = tuple((each, drawn.count(each)) for each in sorted(set(drawn)))
            cells.append(Cell(target, category, cluster, findings, generator.randint(1, 9)))
    return cells


def _confidence(generator: random.Random) -> tuple[ConfidenceCell, ...]:
    def cell(target: TrueLabel, finding: OutcomeDetail, place: int) -> ConfidenceCell:
        return stated(target, finding, [place / 10 + generator.random() / 10 for _ in range(7)])

    return tuple(
        cell(target, finding, place)
        for target in TrueLabel
        for finding in (OutcomeDetail.ALLOW, OutcomeDetail.BLOCK)
        for place in (4, 9)
    )


def _tally(number: int, epochs: int) -> ModelTally:
    generator = random.Random(number)
    malicious = _cells(generator, OutcomeDetail.BLOCK, TrueLabel.MALICIOUS, epochs)
    harmless = _cells(generator, OutcomeDetail.ALLOW, TrueLabel.HARMLESS, epochs)
    return ModelTally(
        model=f"test/{number}",
        simulated=number == 2,
        planned_malicious=sum(cell.samples for cell in malicious) * epochs + 3,
        planned_harmless=sum(cell.samples for cell in harmless) * epochs,
        cells=(*harmless, *malicious),
        confidence=_confidence(generator),
        latency={"service": Latency(900.0, 800.0, 1500.0, 2000.0, 2100.0 + number)},
        tokens={"input": 24_000, "output": 600 + number},
        cost_usd=Decimal("0.30"),
        priced_verdicts=97,
    )


def computed() -> dict[str, Any]:
    tallies = [_tally(2, 1), _tally(3, 3), ModelTally("test/silent", False, 0, 0, ())]
    parts = {
        name: snapshot_document(measure(tally, rule) for tally in tallies)
        for name, rule in RULES.items()
    }
    document: dict[str, Any] = json.loads(json.dumps(parts))
    return document


def flat(value: object, path: str = "") -> dict[str, object]:
    if not isinstance(value, dict | list):
        return {path: value}
    children = value.items() if isinstance(value, dict) else enumerate(value)
    return {
        key: each for name, child in children for key, each in flat(child, f"{path}/{name}").items()
    }


def test_no_number_moves_without_a_new_version() -> None:
    """Numbers agree to 1e-12, as mathematical functions differ in the last bit by machine."""
    golden = json.loads(GOLDEN.read_text("ascii"))
    assert golden["metrics_version"] == METRICS_VERSION, __doc__
    found, kept = flat(computed()), flat(golden["documents"])
    numbers = {place: each for place, each in kept.items() if isinstance(each, float)}
    assert {place: found.get(place, math.nan) for place in numbers} == pytest.approx(
        numbers, rel=1e-12
    )
    assert found | numbers == kept


def _write() -> None:
    if GOLDEN.exists():
        golden = json.loads(GOLDEN.read_text("ascii"))
        now, then = computed(), golden["documents"]
        moved = any(now.get(rule) != document for rule, document in then.items())
        if moved and golden["metrics_version"] == METRICS_VERSION:
            sys.exit("numbers have moved: raise METRICS_VERSION first")
    document = {"metrics_version": METRICS_VERSION, "documents": computed()}
    GOLDEN.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", "ascii")


if __name__ == "__main__":
    _write()
