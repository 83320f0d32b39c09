"""The environment, checked once."""

from pathlib import Path

import pytest

from aegish_dist.errors import ConfigError
from aegish_dist.settings import load_settings
from tests.defined import defined
from tests.recorded import lines_of

DATABASE = "postgresql://user:hunter2@db.example/aegish"
BROKER = "redis://:hunter3@broker.example:6379/0"
GIVEN = {
    "DATABASE_URL": DATABASE,
    "BROKER_URL": BROKER,
    "HOME": "/data",
    "CATALOG": "/data/mine.toml",
    "CONCURRENCY": "20",
    "SHUTDOWN_GRACE_S": "0",
    "LOG_FORMAT": "json",
    "LOG_LEVEL": "DEBUG",
}


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in GIVEN:
        monkeypatch.delenv(f"AEGISH_DIST_{variable}", raising=False)


def refusal(**given: object) -> str:
    """Return why settings are refused, in one line that shows no password."""
    with pytest.raises(ConfigError) as caught:
        load_settings(given)
    message = str(caught.value)
    assert not any(secret in message for secret in ("\n", "hunter", "SECRET", "CRET", "pa@"))
    return message


def test_with_nothing_set_everything_is_embedded() -> None:
    settings = load_settings()
    assert (settings.embedded_database, settings.embedded_broker) == (True, True)
    assert (settings.database_url, settings.broker_url, settings.catalog) == (None, None, None)
    assert (settings.concurrency, settings.shutdown_grace_s) == (500, 60)
    assert (settings.log_format, settings.log_level) == ("console", None)
    assert (settings.home.name, settings.cache.name) == ("aegish-dist", "aegish-dist")


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets are hidden, settings do not change, and what is given goes before them."""
    for name, value in {**GIVEN, "POSTGRES_PASSWORD": "of the Compose file"}.items():
        monkeypatch.setenv(f"AEGISH_DIST_{name}", value)
    settings = load_settings()
    assert (settings.embedded_database, settings.embedded_broker) == (False, False)
    assert defined(settings.database_url).get_secret_value() == DATABASE
    assert defined(settings.broker_url).get_secret_value() == BROKER
    assert (settings.home, settings.catalog) == (Path("/data"), Path("/data/mine.toml"))
    assert (settings.concurrency, settings.shutdown_grace_s) == (20, 0)
    assert (settings.log_format, settings.log_level) == ("json", "DEBUG")
    assert "hunter" not in f"{settings!r} {settings}"
    with pytest.raises(AttributeError):
        settings.concurrency = 1  # type: ignore[misc]  # that is the test
    given = load_settings({"concurrency": 30})
    assert (given.concurrency, given.log_format) == (30, "json")


@pytest.mark.parametrize("blank", ["", "  ", "\t\n"])
@pytest.mark.parametrize("variable", GIVEN)
def test_blank_is_unset(monkeypatch: pytest.MonkeyPatch, variable: str, blank: str) -> None:
    defaults = load_settings()
    monkeypatch.setenv(f"AEGISH_DIST_{variable}", blank)
    assert load_settings() == defaults


def test_a_broker_without_a_database_is_refused() -> None:
    start = "AEGISH_DIST_BROKER_URL is set but AEGISH_DIST_DATABASE_URL is not"
    assert refusal(broker_url=BROKER).startswith(start)


@pytest.mark.parametrize(("variable", "value", "problem"), lines_of("refused_settings.jsonl"))
def test_a_value_that_cannot_be_used_is_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, problem: str
) -> None:
    monkeypatch.setenv(f"AEGISH_DIST_{variable}", value)
    assert refusal() == f"AEGISH_DIST_{variable}: {problem}"


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [("DATABSE_URL", "DATABASE_URL"), ("BROKER", "BROKER_URL"), ("database_url", "DATABASE_URL")],
)
def test_a_misspelt_variable(monkeypatch: pytest.MonkeyPatch, misspelt: str, meant: str) -> None:
    monkeypatch.setenv(f"AEGISH_DIST_{misspelt}", "postgresql://SECRET@db.example/aegish")
    message = refusal()
    assert f"AEGISH_DIST_{misspelt} " in message
    assert f"did you mean 'AEGISH_DIST_{meant}'?" in message


@pytest.mark.parametrize("url", lines_of("refused_broker_urls.jsonl"))
@pytest.mark.parametrize("setting", ["broker_url", "limiter_url"])
def test_a_broker_url_that_cannot_be_meant(url: str, setting: str) -> None:
    message = refusal(**{setting: url, "database_url": DATABASE})
    assert message.startswith(f"AEGISH_DIST_{setting.upper()}: ")
    assert "redis://HOST" in message
    assert "broker.example" not in message
    assert ("Redis Sentinel is not supported" in message) == url.startswith("sentinel")


@pytest.mark.parametrize(
    "url",
    [
        "redis://broker.example",
        "redis://:p%40ss@broker.example:6379/1",
        "redis://:p@ss@broker.example:6379/",
        "rediss://broker.example/0?ssl_ca_certs=/etc/ca.pem&ssl_check_hostname=false",
        "amqp://user:pa@broker.example//vhost",
        "amqps://user:pa@broker.example/?ssl_ca_certs=/etc/ca.pem",
    ],
)
def test_a_broker_url_that_is_fine(url: str) -> None:
    assert load_settings({"broker_url": url, "database_url": DATABASE}).broker_url is not None


RABBIT, LIMITS = "amqp://u:p@broker.example:5672//", "rediss://limits.example/1"


@pytest.mark.parametrize(
    ("broker", "limiter", "shared"),
    [
        (None, None, None),
        (BROKER, None, BROKER),
        (RABBIT, None, None),
        (RABBIT, LIMITS, LIMITS),
        (BROKER, LIMITS, LIMITS),
    ],
)
def test_limits_are_shared_by_the_redis_that_is_named_or_the_broker(
    broker: str | None, limiter: str | None, shared: str | None
) -> None:
    urls = {"broker_url": broker, "database_url": DATABASE, "limiter_url": limiter}
    assert load_settings(urls).shared_limiter_url == shared


@pytest.mark.parametrize("url", [RABBIT, "limits.example", "http://limits.example"])
def test_a_limiter_is_a_redis(url: str) -> None:
    message = refusal(limiter_url=url)
    assert "LIMITER_URL: not the URL of a Redis" in message
    assert url not in message
