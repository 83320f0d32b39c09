"""The bill of the tests' provider of batches, by which tests see double payments."""

from decimal import Decimal

from aegish_dist.core.verdict import Usage
from aegish_dist.simulator.bill import Tariff
from tests.batch_server.bill import BatchBill

TARIFF = Tariff(input=2, output=8, cached_input=0.5)
USAGE = Usage(input_tokens=1_000, output_tokens=100, cache_read_tokens=400)
# 600 fresh tokens at 2, 400 cached ones at 0.5, 100 generated ones at 8, each per million.
LIVE_USD = Decimal("0.0022")


def test_an_answer_in_a_batch_costs_half() -> None:
    bill = BatchBill(TARIFF, {})
    bill.charge("m", USAGE, readable=True)
    for name in ("a-1", "a-2"):
        bill.charge_request("m", name, USAGE)
    entry = bill.as_dict()["models"]["m"]
    assert Decimal(entry["live"]["usd"]) == LIVE_USD
    assert Decimal(entry["batch"]["usd"]) == LIVE_USD
    assert Decimal(entry["usd"]) == Decimal(bill.as_dict()["usd"]) == 2 * LIVE_USD
    assert entry["batch"]["requests"] == 2


def test_a_second_payment_shows() -> None:
    bill = BatchBill(Tariff(), {})
    for name in ("a-1", "b-1", "a-1"):
        bill.count_batch(name)
        bill.charge_request("m", name, USAGE)
    found = bill.as_dict()
    assert (found["batches"], found["charged_twice"]) == (3, 1)
    assert found["tokens_used_twice"] == ["a"]
