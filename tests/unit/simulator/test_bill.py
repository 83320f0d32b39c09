"""The bill of the simulated provider."""

from decimal import Decimal

from aegish_dist.core.verdict import Usage
from aegish_dist.simulator.bill import Bill, Tariff

TARIFF = Tariff(input=2, output=8, cached_input=0.5)
USAGE = Usage(input_tokens=1_000, output_tokens=100, cache_read_tokens=400)
# 600 fresh tokens at 2, 400 cached ones at 0.5, 100 generated ones at 8, each per million.
LIVE_USD = Decimal("0.0022")


def test_an_answer_that_no_client_can_read_is_charged_and_named() -> None:
    bill = Bill(TARIFF, {})
    bill.charge("m", USAGE, readable=True)
    bill.charge("m", USAGE, readable=False)
    entry = bill.as_dict()["models"]["m"]
    assert Decimal(entry["live_unreadable"]["usd"]) == LIVE_USD
    assert Decimal(entry["live"]["usd"]) == 2 * LIVE_USD
    assert Decimal(entry["usd"]) == Decimal(bill.as_dict()["usd"]) == 2 * LIVE_USD
    assert (entry["live"]["requests"], entry["live"]["output_tokens"]) == (2, 200)


def test_each_model_has_its_price() -> None:
    bill = Bill(TARIFF, {"dear": Tariff(input=20)})
    for model in ("dear", "usual"):
        bill.charge(model, USAGE, readable=True)
    models = bill.as_dict()["models"]
    assert Decimal(models["dear"]["usd"]) == Decimal("0.02")
    assert Decimal(models["usual"]["usd"]) == LIVE_USD
    free = Bill(Tariff(), {})
    free.charge("m", USAGE, readable=True)
    assert Decimal(free.as_dict()["usd"]) == 0
