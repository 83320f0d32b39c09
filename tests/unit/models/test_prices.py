"""List prices against those that the reference benchmark worked with, in USD per million tokens."""

import socket
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from aegish_dist.core.cost import Price, Rate, cost_usd
from aegish_dist.core.verdict import Usage
from aegish_dist.models import Catalog
from aegish_dist.models.prices import list_price

AT = datetime(2026, 11, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    ("provider", "name", "per_input", "per_output"),
    [
        ("openai", "gpt-5.1", "1.25", "10"),
        ("openai", "gpt-5-mini", "0.25", "2"),
        ("openai", "gpt-5-nano", "0.05", "0.40"),
        ("anthropic", "claude-opus-4-6", "5", "25"),
        ("anthropic", "claude-sonnet-4-5-20250929", "3", "15"),
        ("anthropic", "claude-haiku-4-5-20251001", "1", "5"),
        ("google", "gemini-3-pro-preview", "2", "12"),
        ("google", "gemini-3-flash-preview", "0.50", "3"),
    ],
)
def test_list_prices_agree_with_the_reference(
    provider: str, name: str, per_input: str, per_output: str
) -> None:
    """The first-party models cost what the reference benchmark paid."""
    price = list_price(provider, name, AT)
    assert price is not None
    assert (price.input.at(1000), price.output.at(1000)) == (
        Decimal(per_input),
        Decimal(per_output),
    )


def test_cached_tokens_have_their_own_rates() -> None:
    """Anthropic asks a tenth of the input price for a cache read 1.25 times it for a write,
    and twice it for one that is kept for an hour.
    """
    price = list_price("anthropic", "claude-haiku-4-5-20251001", AT)
    assert price is not None
    assert price.cache_read == Rate(Decimal("0.1"))
    assert price.cache_write == Rate(Decimal("1.25"))
    assert price.cache_write_1h == Rate(Decimal(2))


def test_tiers_are_carried_over() -> None:
    """Gemini 3 Pro doubles its input price and asks 18 for output above 200,000 prompt tokens."""
    price = list_price("google", "gemini-3-pro-preview", AT)
    assert price is not None
    assert (price.input.at(200_000), price.input.at(200_001)) == (Decimal(2), Decimal(4))
    assert (price.output.at(200_000), price.output.at(200_001)) == (Decimal(12), Decimal(18))


def test_a_price_is_that_of_its_date() -> None:
    """Claude Opus 4.6 began with a higher price for long prompts and lost it later."""
    first = list_price("anthropic", "claude-opus-4-6", datetime(2026, 2, 10, tzinfo=UTC))
    later = list_price("anthropic", "claude-opus-4-6", AT)
    assert first is not None
    assert later is not None
    assert (first.input.at(200_001), later.input.at(200_001)) == (Decimal(10), Decimal(5))


def test_a_routers_price_is_its_own() -> None:
    """A model behind OpenRouter is found under the name it has there."""
    price = list_price("openrouter", "microsoft/phi-4", AT)
    assert price is not None
    assert price.output.base == Decimal("0.14")


def test_the_host_of_a_model_picks_its_price_list() -> None:
    """`{host}` is the part after the last colon; without one there is no price."""
    hosted = list_price("huggingface_{host}", "openai/gpt-oss-120b:groq", AT)
    assert hosted == list_price("huggingface_groq", "openai/gpt-oss-120b", AT) is not None
    assert list_price("huggingface_{host}", "openai/gpt-oss-120b", AT) is None


def test_a_free_model_costs_nothing() -> None:
    """A listed model whose name ends in `:free` and that has no price is free, not unknown."""
    price = list_price("openrouter", "deepseek/deepseek-r1:free", AT)
    assert price == Price(per_call=Decimal(0))
    assert cost_usd(Usage(input_tokens=10, output_tokens=10), price) == 0


@pytest.mark.parametrize(
    ("provider", "name"),
    [
        ("openai", "no-such-model"),
        ("no-such-provider", "gpt-5.1"),
        ("my-openai-proxy", "gpt-5.1"),
        ("openai", "text-embedding-3-small"),
        ("perplexity", "sonar"),
    ],
)
def test_an_unknown_price_is_none(provider: str, name: str) -> None:
    """No guess is made for an unlisted model, a look-alike provider, or a fee per request."""
    assert list_price(provider, name, AT) is None


def test_the_flat_price_of_the_reference_is_a_price_per_call() -> None:
    """741 calls at the flat price cost 1.08 USD."""
    (spec,) = Catalog.load().resolve(
        "hf-inference-providers/trendmicro-ailab/Llama-Primus-Reasoning:featherless-ai", {}
    )
    cost = cost_usd(Usage(), spec.price)
    assert cost is not None
    assert round(cost * 741, 12) == Decimal("1.08")


def test_prices_need_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look-up opens no socket."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    assert list_price("openai", "gpt-5-mini", AT) is not None


def test_the_price_list_is_imported_on_use_only() -> None:
    """Importing the catalog does not import genai-prices, which takes 0.1 s."""
    code = "import sys, aegish_dist.models; sys.exit('genai_prices' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
