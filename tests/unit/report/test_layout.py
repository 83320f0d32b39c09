"""Reading a snapshot document."""

from aegish_dist.core.metric import Estimate
from aegish_dist.findings.snapshot import RankedModel, ranked_entries
from tests.unit.report.reports import a_model, a_report, a_silent_model

DASH = "\N{EN DASH}"


def test_models_come_in_the_order_of_the_ranking_and_share_the_rank_of_their_leader() -> None:
    entries = (a_model("a"), a_model("b"), a_model("c"), a_silent_model("d"), a_silent_model("e"))
    ranking = [
        (1, 1, "a", 0.957),
        (2, 1, "b", 0.957),
        (3, 2, "c", 0.9),
        (None, None, "d", None),
        (None, None, "e", None),
    ]
    found = ranked_entries(a_report(*entries, ranking=ranking).snapshot.document)
    places = [(entry.place, entry.model) for entry in found]
    assert places == [("1=", "a"), ("1=", "b"), ("3", "c"), (DASH, "d"), (DASH, "e")]


def test_what_a_document_lacks_is_undefined() -> None:
    entry = RankedModel.of("1", {"model": "m", "metrics": {"coverage": {"value": 1.0, "later": 2}}})
    assert entry.metric("coverage") == Estimate(value=1.0)
    assert entry.metric("aegish_score") == Estimate()
    assert entry.category("shell") == Estimate()
    assert entry.counts.get("planned") is None
    assert entry.actions.get("malicious") is None
    assert entry.latency("service", "p50") is None
    assert entry.cost.get("total_usd") is None
    assert entry.tokens.get("input") is None
    assert not entry.simulated
