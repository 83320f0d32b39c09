"""A party may use up its own share and takes nothing of another's."""

from aegish_dist.core.isolation import Shares


def test_a_share_is_a_partys_own() -> None:
    shares: Shares[str] = Shares(10)
    assert shares.hold("a", "first", 6)
    assert not shares.hold("a", "second", 5)
    assert shares.hold("a", "first", 9)
    assert shares.hold("a", "second", 1)
    assert (shares.left("a"), shares.left("b"), shares.oldest("a")) == (0, 10, "first")
    assert shares.hold("b", "first", 10)
    shares.release("a", "first")
    shares.release("a", "unknown")
    assert (shares.left("a"), shares.left("b"), shares.oldest("a")) == (9, 0, "second")
    shares.release("a", "second")
    assert shares.oldest("a") is None
