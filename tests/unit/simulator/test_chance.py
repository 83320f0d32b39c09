"""Deterministic draws and latency distributions."""

import math
from typing import Any

import pytest
from scipy import stats
from scipy.stats import kstest

from aegish_dist.errors import ConfigError
from aegish_dist.simulator.chance import Draws, draw, parse_latency


def test_equal_coordinates_give_equal_draws() -> None:
    assert draw(1, "model", "ls") == draw(1, "model", "ls")


def test_each_coordinate_changes_every_draw() -> None:
    base = draw(1, "model", "ls")
    for other in (draw(2, "model", "ls"), draw(1, "x", "ls"), draw(1, "model", "ls ")):
        assert all(a != b for a, b in zip(base, other, strict=True))


def test_draws_are_uniform() -> None:
    """Each of the eight numbers passes a Kolmogorov-Smirnov test against the uniform law."""
    rows = [draw(7, str(i)) for i in range(2_000)]
    for name in Draws._fields:
        assert kstest([getattr(row, name) for row in rows], "uniform").pvalue > 1e-4


def test_any_unicode_is_a_coordinate() -> None:
    """Lone surrogates and U+0000 do not stop a draw."""
    assert 0 < draw(0, "\ud800", "\0").skill < 1


@pytest.mark.parametrize("quantile", [1e-9, 0.1, 0.5, 0.9, 1 - 1e-9])
@pytest.mark.parametrize(
    ("text", "law"),
    [
        ("uniform:0.5,1.5", stats.uniform(0.5, 1.0)),
        ("lognormal:0.8,0.4", stats.lognorm(0.4, scale=0.8)),
        ("exponential:2", stats.expon(scale=2.0)),
    ],
)
def test_quantiles_are_those_of_the_law(text: str, law: Any, quantile: float) -> None:
    """Quantiles agree with scipy's inverse distribution function."""
    assert parse_latency(text).at(quantile) == pytest.approx(law.ppf(quantile), rel=1e-6)


def test_constant() -> None:
    """A constant latency is the same at every quantile."""
    latency = parse_latency("constant:1.5")
    assert latency.at(0.01) == latency.at(0.99) == 1.5


def test_lognormal_is_named_by_its_median() -> None:
    """One sigma above the median is the median times e to the sigma."""
    one_sigma = 0.8413447460685429
    assert parse_latency("lognormal:2,0.5").at(one_sigma) == pytest.approx(2 * math.exp(0.5))


@pytest.mark.parametrize(
    "text",
    ["", "fast", "constant", "constant:", "constant:x", "constant:-1", "constant:nan",
     "constant:inf", "constant:1,2", "uniform:1", "uniform:2,1", "gamma:1,2", "lognormal:1"],
)  # fmt: skip
def test_wrong_texts_are_named(text: str) -> None:
    with pytest.raises(ConfigError, match=f"latency '{text}'"):
        parse_latency(text)
