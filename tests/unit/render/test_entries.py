"""Reading a snapshot document."""

from aegish_dist.core.sample import Target
from aegish_dist.core.scoring import Label
from aegish_dist.core.statistics import Estimate
from aegish_dist.render.entries import ModelEntry, ranked_entries

DASH = "\N{EN DASH}"


def test_models_come_in_the_order_of_the_ranking(report, model):
    """The best model comes first, whatever its id."""
    data = report(model("z/best"), model("a/second"))
    entries = ranked_entries(data.document)
    assert [(entry.place, entry.model) for entry in entries] == [("1", "z/best"), ("2", "a/second")]


def test_ties_share_the_rank_of_their_leader(report, model, silent_model):
    """A tie group of two shows its first rank twice; a model without a score shows a dash."""
    entries = (model("a"), model("b"), model("c"), silent_model("d"), silent_model("e"))
    ranking = [
        (1, 1, "a", 0.957),
        (2, 1, "b", 0.957),
        (3, 2, "c", 0.9),
        (None, None, "d", None),
        (None, None, "e", None),
    ]
    places = [entry.place for entry in ranked_entries(report(*entries, ranking=ranking).document)]
    assert places == ["1=", "1=", "3", DASH, DASH]


def test_what_a_document_lacks_is_undefined():
    """An entry of another version reads as undefined, not as an error."""
    entry = ModelEntry("1", {"model": "m", "metrics": {"coverage": {"value": 1.0, "later": 2}}})
    assert entry.metric("coverage") == Estimate(value=1.0)
    assert entry.metric("aegish_score") == Estimate()
    assert entry.category("shell") == Estimate()
    assert entry.count("planned") is None
    assert entry.action(Target.MALICIOUS, Label.BLOCK) is None
    assert entry.latency("service", "p50") is None
    assert entry.cost("total_usd") is None
    assert entry.tokens("input") is None
    assert not entry.simulated
