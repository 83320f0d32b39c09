"""Where the fleet's rate limits are held."""

import pytest

from aegish_dist.errors import ConfigError
from aegish_dist.settings import load_settings

DATABASE = "postgresql://db.example/aegish"
REDIS, RABBIT = "redis://broker.example:6379/0", "amqp://u:p@broker.example:5672//"


@pytest.mark.parametrize(
    ("broker", "limiter", "shared"),
    [
        (None, None, None),
        (REDIS, None, REDIS),
        (RABBIT, None, None),
        (RABBIT, "redis://limits.example/1", "redis://limits.example/1"),
        (REDIS, "rediss://limits.example/1", "rediss://limits.example/1"),
    ],
)
def test_where_limits_are_shared(
    broker: str | None, limiter: str | None, shared: str | None
) -> None:
    settings = load_settings(
        {"broker_url": broker, "database_url": DATABASE, "limiter_url": limiter}
    )

    assert settings.shared_limiter_url == shared


@pytest.mark.parametrize("url", [RABBIT, "limits.example", "http://limits.example"])
def test_a_limiter_is_a_redis(url: str) -> None:
    with pytest.raises(ConfigError, match="LIMITER_URL: not the URL of a Redis") as caught:
        load_settings({"limiter_url": url})

    assert url not in str(caught.value)
