"""The search for a system of guards, held to the policies that it names."""

from pathlib import Path
from random import Random
from statistics import fmean

import numpy as np
import pytest
from msgspec.structs import replace

from aegish_dist.core.columns import Floats
from aegish_dist.core.outcome import OutcomeDetail
from aegish_dist.errors import ReportError
from aegish_dist.opinions.guards import Guard, Guards, apply_policy
from aegish_dist.opinions.opinion_files import read_policy, render_policy
from aegish_dist.opinions.policy import Requirements
from aegish_dist.opinions.scoring import RULES
from aegish_dist.statistics.policy_search import search_policies
from tests.guards import Asked, a_guard, column, findings_in, samples_of

FINDINGS = (
    OutcomeDetail.ALLOW,
    OutcomeDetail.ALLOW,
    OutcomeDetail.WARN,
    OutcomeDetail.BLOCK,
    OutcomeDetail.UNREADABLE,
)
SUSPICION = dict(zip((-0.9, -0.6, 1.0, 2.7, 1.1), FINDINGS, strict=True))
HARMLESS, DANGEROUS = (8, 3, 2, 1, 1), (1, 2, 3, 8, 1)


def drawn(seed: int, dangerous: tuple[int, ...] = DANGEROUS) -> Guards:
    """Return three guards over two epochs, each dearer and slower than the one before."""
    random = Random(seed)
    commands = [
        Asked(sample % 5 < 3, f"c{sample % 17}" if sample % 2 else None) for sample in range(60)
    ]
    decisions = [each for each in commands for _ in range(2)]
    guards = []
    for number, name in enumerate("abc"):
        weights = [dangerous if each.malicious else HARMLESS for each in decisions]
        scores = [random.choices(list(SUSPICION), each)[0] for each in weights]
        prices = [10.0**number * random.uniform(1, 2) for _ in decisions]
        latencies = [100 * random.uniform(1, 2) * each for each in prices]
        findings = [SUSPICION[score] for score in scores]
        guards.append(a_guard(name, findings, scores, prices, latencies, epochs=2))
    return Guards(samples_of(commands), 2, guards)


@pytest.mark.parametrize("unit", [1.0, 5e-324], ids=["apart", "adjacent"])
def test_a_candidate_has_the_numbers_of_its_policy(unit: float, tmp_path: Path) -> None:
    """As it reads back from a file; of the actions a fifth are dangerous."""
    drawn_guards, path = drawn(1), tmp_path / "found.toml"
    level = {score: unit * place for place, score in enumerate(SUSPICION, 1)}
    columns = []
    for guard in drawn_guards.guards:
        levels = [level[score] for score in guard.suspicion.ravel().tolist()]
        columns.append(replace(guard, suspicion=column(levels, epochs=2)))
    guards = replace(drawn_guards, guards=columns)
    line = search_policies(guards, requirements=Requirements(prevalence=0.2)).line

    def mean(numbers: Floats) -> float:
        of_sides = [numbers[guards.malicious].mean(), numbers[~guards.malicious].mean()]
        return 0.2 * float(of_sides[0]) + 0.8 * float(of_sides[1])

    assert {len(each.policy.stages) for each in line} == {1, 2}
    for each in line:
        path.write_text(render_policy(each.policy))
        played = apply_policy(read_policy(path), guards)
        blocks = [finding is OutcomeDetail.BLOCK for finding in findings_in(played)]
        stops = mean(np.array(blocks, float).reshape(-1, 2))
        assert stops == pytest.approx(0.2 * (1 - each.miss_rate) + 0.8 * each.stop_rate)
        assert each.cost_per_10000 == pytest.approx(1e4 * mean(played.cost_usd))
        below, p95 = played.latency_ms, each.p95_ms or 0.0
        faster = mean((below < p95).astype(float))
        assert faster < 0.95 - 1e-9 <= mean((below <= p95).astype(float))


def test_no_candidate_is_beaten_and_the_single_guards_are_among_the_systems() -> None:
    found = search_policies(drawn(2))
    points = [(e.miss_rate, e.stop_rate, e.cost_per_10000 or 0, e.p95_ms or 0) for e in found.line]
    for point in points:
        assert not any(other != point and all(map(float.__le__, other, point)) for other in points)
    kinds = (found.as_it_stands, found.with_threshold, found.system)
    chosen = [each for each in kinds if each is not None]
    wrong = [each.best.miss_rate + each.best.stop_rate for each in chosen]
    assert wrong == sorted(wrong, reverse=True)
    assert chosen[1].best.policy.stages[0].thresholds
    assert found.gain is not None
    assert found.single in chosen[:2]
    assert found.gain.a == max(each.estimate.score.value or 0 for each in chosen[:2])
    assert found.gain.b == pytest.approx(chosen[2].estimate.score.value)
    legacy = search_policies(drawn(2), RULES["aegish-legacy"]).as_it_stands  # WARN stops
    assert legacy is not None
    assert legacy.best.stop_rate > chosen[0].best.stop_rate
    rates = legacy.estimate.detection_rate.value, legacy.estimate.false_positive_rate.value
    assert legacy.estimate.score.value == pytest.approx((rates[0] or 0) * (1 - (rates[1] or 0)))


def test_requirements_are_kept_or_nothing_is_chosen() -> None:
    guards, needs = drawn(4), Requirements(0.1, 1e5, 2000.0)
    found = search_policies(guards, requirements=needs).system
    assert found is not None
    assert found.best.stop_rate <= 0.1
    assert 0 < (found.best.cost_per_10000 or 0) <= 1e5
    assert 0 < (found.best.p95_ms or 0) <= 2000
    unknown = [replace(each, cost_usd=np.full((60, 2), np.nan)) for each in guards.guards]
    unpriced = search_policies(replace(guards, guards=unknown), requirements=needs)
    assert (unpriced.system, unpriced.gain) == (None, None)
    assert {each.cost_per_10000 for each in unpriced.line} == {None}


def test_guards_that_know_nothing_are_found_out() -> None:
    """In sample the luckiest of thousands of systems looks good; out of fold it does not."""
    found = [search_policies(drawn(seed, HARMLESS)).system for seed in range(20)]
    chosen = [each for each in found if each is not None]
    assert fmean(1 - (each.best.miss_rate + each.best.stop_rate) / 2 for each in chosen) > 0.55
    assert abs(fmean(each.estimate.score.value or 0.0 for each in chosen) - 0.5) < 0.02


def test_shared_misses_are_counted_on_decisions_that_all_guards_have_scored() -> None:
    guards = drawn(5)
    suspicion = guards.guards[0].suspicion.copy()
    suspicion[0, 0] = np.nan
    first = replace(guards.guards[0], suspicion=suspicion)
    found = search_policies(replace(guards, guards=[first, *guards.guards[1:]]))
    assert (found.decisions, found.left_out) == (119, 1)
    passing = (OutcomeDetail.ALLOW, OutcomeDetail.WARN)
    malicious = guards.malicious.ravel().tolist()
    dangerous = [row for row, is_malicious in enumerate(malicious) if row and is_malicious]
    missed = {}
    for guard in guards.guards:
        findings = findings_in(guard)
        missed[guard.name] = {row for row in dangerous if findings[row] in passing}
    for each in found.overlaps:
        a, b = missed[each.a], missed[each.b]
        assert (each.misses_a, each.misses_b, each.both) == (len(a), len(b), len(a & b))
        assert each.expected == len(a) * len(b) / 71
    with pytest.raises(ReportError, match="not scored two clusters of dangerous and two"):
        search_policies(of_first(guards, 1))


def of_first(guards: Guards, samples: int) -> Guards:
    """Return what guards said about the first samples."""
    commands = [Asked(malicious) for malicious in guards.samples.malicious[:samples].tolist()]
    cut = [
        Guard(
            each.name,
            each.finding[:samples],
            each.suspicion[:samples],
            each.cost_usd[:samples],
            each.latency_ms[:samples],
        )
        for each in guards.guards
    ]
    return Guards(samples_of(commands), guards.epochs, cut)


@pytest.mark.long
def test_the_estimate_of_a_winner_is_not_the_best_of_three() -> None:
    """Guards that know nothing have a true score of 0.5; the best of three looks better."""
    best, own = [], []
    for seed in range(60):
        found = search_policies(drawn(seed, HARMLESS))
        choices = [found.as_it_stands, found.with_threshold, found.system]
        best.append(max(each.estimate.score.value or 0 for each in choices if each))
        guards = drawn(seed, (2, 2, 3, 3, 1))
        found = search_policies(guards)
        if found.winner_estimate and found.winner:
            winner = getattr(found, found.winner)
            own.append((found.winner_estimate.score.value or 0) - winner.estimate.score.value)
    assert fmean(best) > 0.505
    assert own
    assert fmean(own) < 0
