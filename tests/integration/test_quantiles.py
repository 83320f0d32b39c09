"""Quantiles without sorting everything, against `percentile_cont`, which sorts everything."""

import math
import random
from collections.abc import Callable, Sequence

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from aegish_dist.core.sample import Dataset
from aegish_dist.core.tally import Latency
from aegish_dist.db import totals
from aegish_dist.db.quantiles import (
    EVERYWHERE,
    FRACTIONS,
    RANKS,
    Bracket,
    brackets_of,
    edges_of,
    quantiles_of,
)
from aegish_dist.db.statements import fragment
from tests.integration.stored_runs import StoredRun, a_run, store, tallies

NUMBERS = 20_101
"""With 20,100 gaps the bracketed fractions lie two ranks from those beside them."""

SHAPES: dict[str, Callable[[random.Random], float]] = {
    "spread": lambda chance: chance.lognormvariate(7, 0.5),
    "mostly zero": lambda chance: chance.choice([0.0, 0.0, 0.0, chance.random()]),
    "nearly always zero": lambda chance: chance.random() if chance.random() < 0.02 else 0.0,
    "constant": lambda _: 12.5,
    "few values": lambda chance: float(chance.randrange(7)),
    "next to each other": lambda chance: chance.choice([1.0, math.nextafter(1, 2), 2.0]),
}


def ask(
    session: Session, numbers: Sequence[float], brackets: Sequence[Bracket]
) -> tuple[float, ...] | None:
    row = session.execute(
        text(f"SELECT {fragment('distribution', 'x')} FROM unnest(CAST(:all AS float8[])) AS x"),
        {"all": list(numbers), "x_edges": edges_of(brackets), "ranks": list(RANKS)},
    ).one()
    return quantiles_of(row.x_times, row.x_quantiles, brackets)


def sort_all(session: Session, numbers: Sequence[float]) -> tuple[float, ...]:
    wanted = text(
        "SELECT percentile_cont(CAST(:at AS float8[])) WITHIN GROUP (ORDER BY x)"
        " FROM unnest(CAST(:all AS float8[])) AS x"
    )
    return tuple(session.scalar(wanted, {"all": list(numbers), "at": [*FRACTIONS, 1.0]}))


def brackets_around(numbers: Sequence[float], reach: float) -> tuple[Bracket, ...]:
    ordered = sorted(numbers)

    def at(fraction: float) -> float:
        return ordered[round(fraction * (len(ordered) - 1))]

    return tuple(Bracket(at(p - reach), at(min(1, p + reach))) for p in FRACTIONS)


@pytest.mark.parametrize("reach", [0.0005, 0.009, 0.3])
@pytest.mark.parametrize("shape", SHAPES)
def test_brackets_that_hit_change_no_bit(session: Session, shape: str, reach: float) -> None:
    """Narrow ones, wide ones, and those that overlap."""
    chance = random.Random(7)
    numbers = [SHAPES[shape](chance) for _ in range(NUMBERS)]

    found = ask(session, numbers, brackets_around(numbers, reach))

    assert found == sort_all(session, numbers) == ask(session, numbers, EVERYWHERE)


@pytest.mark.parametrize("seed", range(40))
def test_no_bracket_makes_a_quantile_wrong(session: Session, seed: int) -> None:
    """Wherever edges lie, the answer is right or there is none."""
    chance = random.Random(seed)
    numbers = [chance.choice(list(SHAPES.values()))(chance) for _ in range(NUMBERS)]
    cuts = sorted(chance.betavariate(0.5, 0.1) for _ in range(2 * len(FRACTIONS)))
    ordered = sorted(numbers)
    edges = [ordered[int(cut * (NUMBERS - 1))] for cut in cuts]

    found = ask(session, numbers, tuple(map(Bracket, edges[::2], edges[1::2])))

    assert found in (None, sort_all(session, numbers))


@pytest.mark.parametrize("beside", [-1, 0, 1])
@pytest.mark.parametrize("fraction", range(len(FRACTIONS)))
def test_a_bracket_that_ends_between_the_two_ranks_is_a_miss(
    session: Session, fraction: int, beside: int
) -> None:
    """Of 20,102 distinct numbers each quantile lies between two of them."""
    numbers = [float(n * n) for n in range(NUMBERS + 1)]
    brackets = list(brackets_around(numbers, 0.005))
    rank = math.floor(FRACTIONS[fraction] * NUMBERS) + beside
    brackets[fraction] = Bracket(brackets[fraction].low, numbers[rank])
    assert ask(session, numbers, brackets) is None
    brackets[fraction] = Bracket(numbers[rank + 1], numbers[-1])
    assert ask(session, numbers, brackets) is None


def test_few_numbers_are_not_trusted_to_brackets(session: Session) -> None:
    """Too few ranks lie between a fraction and the ones beside it."""
    numbers = [float(n) for n in range(1000)]
    assert ask(session, numbers, (Bracket(0.0, 999.0),) * len(FRACTIONS)) is None
    assert ask(session, numbers, EVERYWHERE) == sort_all(session, numbers)


def test_a_small_sample_suggests_nothing() -> None:
    """Nor does one without a number, which has no edges."""
    assert brackets_of(2047, [1.0] * 6) == EVERYWHERE
    assert brackets_of(0, None) == EVERYWHERE
    assert brackets_of(2048, [1, 2, 3, 4, 5, 6])[1] == Bracket(3, 4)


def a_long_run(session: Session) -> StoredRun:
    """Store 30,000 verdicts: every hundredth failed, service 1 to 30,000 ms, backoff mostly 0."""
    stored = store(session, a_run(datasets=(Dataset("commands", ()),)), (Dataset("commands", ()),))
    model = stored.models["test/a"]
    session.execute(
        text(
            "INSERT INTO samples (dataset_id, sample_id, command, target, details)"
            " SELECT dataset_id, 's' || n, '', 'harmless', '{}'"
            " FROM run_datasets, generate_series(1, 30000) AS n"
        )
    )
    session.execute(
        text(
            "INSERT INTO verdicts (run_model_id, sample_key, epoch, generation, outcome,"
            " error_class, parser_version, attempts, service_ms, backoff_ms)"
            " SELECT :model, key, 1, 0, CASE WHEN n % 100 = 0 THEN 'API_ERROR' ELSE 'ALLOW' END,"
            " CASE WHEN n % 100 = 0 THEN 'server' END, 1, 1, n * 7919 % 30011,"
            " CASE WHEN n % 50 = 0 THEN n ELSE 0 END"
            " FROM (SELECT key, row_number() OVER (ORDER BY key) AS n FROM samples) AS sample"
        ),
        {"model": model},
    )
    return stored


@pytest.mark.parametrize("sampled", ["not", "well", "badly"])
def test_the_sample_decides_nothing(
    session: Session, monkeypatch: pytest.MonkeyPatch, sampled: str
) -> None:
    """Latency is the same without one, with one, and with one that misleads."""
    stored = a_long_run(session)
    seen: list[object] = []

    def brackets(found: int, edges: Sequence[float]) -> tuple[Bracket, ...]:
        suggested = brackets_of(found, edges)
        seen.append(suggested)
        return (Bracket(1.5, 1.75),) * len(FRACTIONS) if sampled == "badly" else suggested

    monkeypatch.setattr(totals, "brackets_of", brackets)
    if sampled != "not":
        monkeypatch.setattr(totals, "SAMPLED_FROM", 0)

    (counted,) = tallies(session, stored.run_id)

    for part in ("service", "backoff"):
        mean, *wanted = session.execute(
            text(
                f"SELECT avg({part}_ms), percentile_cont(ARRAY[0.5, 0.9, 0.99, 1])"
                f" WITHIN GROUP (ORDER BY {part}_ms) FROM verdicts"
                " WHERE run_model_id = :model AND error_class IS NULL"
            ),
            {"model": stored.models["test/a"]},
        ).one()
        found = counted.latency[part]
        assert found == Latency(found.mean, *wanted[0])
        assert found.mean == pytest.approx(mean)
    assert set(counted.latency) == {"service", "backoff"}
    assert len(seen) == (0 if sampled == "not" else 5)
    assert len([found for found in seen if found != EVERYWHERE]) == (0 if sampled == "not" else 2)
