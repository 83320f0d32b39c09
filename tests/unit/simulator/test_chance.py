"""Deterministic draws."""

from scipy.stats import kstest

from aegish_dist.simulator.chance import Draws, draw


def test_equal_coordinates_give_equal_draws() -> None:
    """A draw is a function of seed and coordinates."""
    assert draw(1, "model", "ls") == draw(1, "model", "ls")


def test_each_coordinate_changes_every_draw() -> None:
    """Seed and every coordinate matter to each number."""
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
