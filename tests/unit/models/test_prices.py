"""List prices against those of the reference benchmark, estimates by hand, remembered prices."""

import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from aegish_dist.core.model import ModelSpec, Price, Rate, WireFormat, cost_usd
from aegish_dist.core.run import Prompt
from aegish_dist.core.verdict import Usage
from aegish_dist.models.catalog import Catalog
from aegish_dist.models.prices import Remembered, estimate, list_price, remembered_prices
from tests.defined import defined
from tests.recorded import lines_of

AT = datetime(2026, 11, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    ("provider", "name", "per_input", "per_output"), lines_of("reference_prices.jsonl")
)
def test_list_prices_agree_with_the_reference(
    provider: str, name: str, per_input: str, per_output: str
) -> None:
    price = defined(list_price(provider, name, AT))
    rates = price.input.at(1000), price.output.at(1000)
    assert rates == (Decimal(per_input), Decimal(per_output))


def test_cached_tokens_have_their_own_rates() -> None:
    price = defined(list_price("anthropic", "claude-haiku-4-5-20251001", AT))
    rates = (price.cache_read, price.cache_write, price.cache_write_1h)
    assert rates == tuple(Rate(Decimal(usd)) for usd in ("0.1", "1.25", "2"))


def test_tiers_are_carried_over_and_prices_those_of_their_date() -> None:
    gemini = defined(list_price("google", "gemini-3-pro-preview", AT))
    assert (gemini.input.at(200_000), gemini.input.at(200_001)) == (Decimal(2), Decimal(4))
    assert (gemini.output.at(200_000), gemini.output.at(200_001)) == (Decimal(12), Decimal(18))
    days = datetime(2026, 2, 10, tzinfo=UTC), AT
    opus = [defined(list_price("anthropic", "claude-opus-4-6", day)) for day in days]
    assert [price.input.at(200_001) for price in opus] == [Decimal(10), Decimal(5)]


def test_the_host_of_a_model_picks_its_price_list() -> None:
    hosted = list_price("huggingface_{host}", "openai/gpt-oss-120b:groq", AT)
    assert hosted == list_price("huggingface_groq", "openai/gpt-oss-120b", AT) is not None
    assert list_price("huggingface_{host}", "openai/gpt-oss-120b", AT) is None


def test_a_free_model_costs_nothing() -> None:
    price = list_price("openrouter", "deepseek/deepseek-r1:free", AT)
    assert price == Price(per_call=Decimal(0))
    assert cost_usd(Usage(input_tokens=10, output_tokens=10), price) == 0


@pytest.mark.parametrize(
    "name",
    ["openai no-such-model", "my-openai-proxy gpt-5.1", "openai text-embedding-3-small",
     "perplexity sonar"],
)  # fmt: skip
def test_an_unknown_price_is_none(name: str) -> None:
    provider, _, model = name.partition(" ")
    assert list_price(provider, model, AT) is None


def test_the_flat_price_of_the_reference_is_a_price_per_call() -> None:
    (spec,) = Catalog.load().resolve(
        "hf-inference-providers/trendmicro-ailab/Llama-Primus-Reasoning:featherless-ai", {}
    )
    assert round(defined(cost_usd(Usage(), spec.price)) * 741, 12) == Decimal("1.08")


def test_prices_need_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    assert list_price("openai", "gpt-5-mini", AT) is not None


PROMPT = Prompt("p", system="s" * 90, template="Command: {command}!")  # 90 + 10 characters


def spec(name: str, price: Price | None) -> ModelSpec:
    return ModelSpec(f"lab/{name}", WireFormat.OPENAI, name, price=price)


TOKENS = spec("tokens", Price(input=Rate(Decimal(2)), output=Rate(Decimal(10))))
FLAT = spec("flat", Price(per_call=Decimal("0.001")))
UNKNOWN = spec("unknown", None)


def test_tokens_are_characters_by_four_rounded_up_plus_framing() -> None:
    result = estimate([TOKENS], lambda _: PROMPT, [1, 4, 5], epochs=2)
    assert result.calls == 6
    assert result.input_tokens == 2 * (36 + 36 + 37)
    assert result.output_tokens == 6 * 60
    assert result.cost_usd == Decimal("0.000436") + Decimal("0.0036")
    assert result.cached_cost_usd == result.cost_usd


def test_a_cached_prompt_is_written_once_and_read_by_the_others() -> None:
    given, generated, read, write = (Rate(Decimal(usd)) for usd in (2, 10, 1, 4))
    price = Price(given, generated, cache_read=read, cache_write=write)
    result = estimate([spec("cached", price)], lambda _: PROMPT, [1, 4, 5])
    fresh = (36 + 36 + 37 - 3 * 22) * 2
    assert result.cached_cost_usd == Decimal(fresh + 22 * 4 + 2 * 22 * 1 + 3 * 60 * 10) / 10**6
    assert result.cost_usd == Decimal((36 + 36 + 37) * 2 + 3 * 60 * 10) / 10**6


def test_a_prompt_too_short_for_the_cache_is_not_cached() -> None:
    price = Price(Rate(Decimal(2)), Rate(Decimal(10)), cache_read=Rate(Decimal(1)))
    at, above = (replace(price, cache_from_tokens=least) for least in (22, 23))
    cached, plain = (
        estimate([spec("m", price)], lambda _: PROMPT, [1, 4, 5]) for price in (at, above)
    )
    assert defined(cached.cached_cost_usd) < defined(cached.cost_usd)
    assert plain.cached_cost_usd == plain.cost_usd == cached.cost_usd


TIERED = spec("tiered", Price(input=Rate(Decimal(1), ((100, Decimal(3)),))))


@pytest.mark.parametrize(
    ("model", "lengths", "cost"),
    [
        (FLAT, [1, 10, 1000], "0.003"),
        (TIERED, [300, 0], "0.000365"),  # 110 and 35 tokens
        (TOKENS, [], "0"),
    ],
)
def test_what_calls_cost(model: ModelSpec, lengths: list[int], cost: str) -> None:
    result = estimate([model], lambda _: PROMPT, lengths)
    assert (result.calls, result.cost_usd) == (len(lengths), Decimal(cost))
    assert result.cached_cost_usd == result.cost_usd


def test_an_unknown_price_leaves_the_total_unknown() -> None:
    result = estimate([FLAT, UNKNOWN], lambda _: PROMPT, [1])
    assert (result.calls, result.input_tokens) == (2, 2 * 36)
    assert result.cost_usd is None
    assert result.known_cost_usd == Decimal("0.001")
    assert result.unpriced == ("lab/unknown",)
    assert [model.cost_usd for model in result.models] == [Decimal("0.001"), None]


NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
HAIKU = ("anthropic", "claude-haiku-4-5-20251001")
FORGED = Price(per_call=Decimal(7))


def look_up(path: Path | None, at: datetime, provider: str, name: str) -> Price | None:
    with remembered_prices(path, at) as price_of:
        return price_of(provider, name)


def forge(path: Path, **changes: str) -> None:
    """Give every remembered price another value, so that it shows when one is used."""
    kept = msgspec.json.decode(path.read_bytes(), type=Remembered)
    forged = msgspec.structs.replace(kept, prices=dict.fromkeys(kept.prices, FORGED), **changes)
    path.write_bytes(msgspec.json.encode(forged))


@pytest.mark.parametrize("known", [HAIKU, ("google", "gemini-3-pro-preview"), ("openai", "nobody")])
def test_what_is_remembered_equals_the_list(tmp_path: Path, known: tuple[str, str]) -> None:
    path = tmp_path / "new" / "prices.json"
    expected = list_price(*known, NOON)
    assert [look_up(path, NOON, *known) for _ in range(2)] == [expected, expected]
    forge(path)
    assert look_up(path, NOON, *known) == FORGED


@pytest.mark.parametrize(
    ("changes", "later"),
    [
        ({"installed": "another"}, timedelta()),
        ({"day": "2026-11-19"}, timedelta()),
        ({}, timedelta(hours=12)),
    ],
)
def test_the_file_counts_for_one_list_and_one_day(
    tmp_path: Path, changes: dict[str, str], later: timedelta
) -> None:
    path = tmp_path / "prices.json"
    look_up(path, NOON, *HAIKU)
    forge(path, **changes)
    assert look_up(path, NOON + later, *HAIKU) == list_price(*HAIKU, NOON + later)


def test_a_price_that_depends_on_the_hour_is_not_kept(tmp_path: Path) -> None:
    path, name = tmp_path / "prices.json", ("deepseek", "deepseek-chat")
    hours = [datetime(2025, 6, 1, hour, tzinfo=UTC) for hour in (4, 20)]
    day, night = (look_up(path, at, *name) for at in hours)
    assert day != night
    assert [list_price(*name, at) for at in hours] == [day, night]
    assert not path.exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff", b'{"installed": 1}', b"[]", b'{"prices": ' + b'{"a": ' * 100_000],
    ids=range(6),
)
def test_a_broken_file_is_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "prices.json"
    path.write_bytes(content)
    assert look_up(path, NOON, *HAIKU) == list_price(*HAIKU, NOON)
    assert msgspec.json.decode(path.read_bytes(), type=Remembered).prices


def test_a_place_that_cannot_be_written_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "prices.json", None):
        assert look_up(path, NOON, *HAIKU) == list_price(*HAIKU, NOON)


def test_a_remembered_price_needs_no_price_list(tmp_path: Path) -> None:
    code = f"""if True:
        import sys
        from pathlib import Path
        from aegish_dist.models.catalog import Catalog
        Catalog.load(None, Path({str(tmp_path / "prices.json")!r})).resolve("all", {{}})
        print("genai_prices" in sys.modules, "pydantic" in sys.modules)"""
    answers = [subprocess.check_output([sys.executable, "-c", code], text=True) for _ in range(2)]
    assert answers == ["True True\n", "False False\n"]
