"""Settings from the environment: where the database, the broker and the files are.

Only the command line, the worker app and the migration environment build `Settings`; everything
below takes plain values. With nothing set, everything runs embedded on this machine.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

import platformdirs
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from aegish_dist.errors import ConfigError

PREFIX = "AEGISH_DIST_"
EMBEDDED_BROKER_URL = "memory://localhost/"
BROKER_SCHEMES = ("redis", "rediss", "amqp", "amqps")


def _names_a_broker(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises when it is no number
    except ValueError:
        return False
    return parts.scheme in BROKER_SCHEMES and bool(parts.hostname)


def _names_a_redis(url: str) -> bool:
    return _names_a_broker(url) and url.startswith(("redis://", "rediss://"))


class Settings(BaseModel):
    """The environment, checked once; frozen."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    database_url: SecretStr | None = None
    """PostgreSQL URL; the embedded server when unset."""
    broker_url: SecretStr | None = None
    """Redis or RabbitMQ URL; the worker runs inside `submit` when unset."""
    limiter_url: SecretStr | None = None
    """Redis that holds the fleet's rate limits; the broker when unset and that is a Redis."""
    home: Path = Field(default_factory=lambda: Path(platformdirs.user_data_dir("aegish-dist")))
    """Where the embedded database lives."""
    catalog: Path | None = None
    """The user's own model catalog, laid over the packaged one."""
    concurrency: Annotated[int, Field(ge=1, le=10_000)] = 500
    """Calls a worker process has in flight at most; of many it holds somewhat more items."""
    shutdown_grace_s: Annotated[float, Field(ge=0)] = 60.0
    """How long a stopping worker lets calls in flight finish before it gives them back."""
    stock_transport: bool = False
    """Leaves Redis to kombu's own transport, which is slower; to tell its faults from ours."""
    log_format: Annotated[str, Field(pattern="^(console|json)$")] = "console"
    """`console` for people, `json` for collectors."""
    log_level: Annotated[str | None, Field(pattern="^(DEBUG|INFO|WARNING|ERROR)$")] = None
    """Least severe level that is written: INFO in workers, WARNING elsewhere when unset."""

    @field_validator("broker_url")
    @classmethod
    def _broker_can_be_spoken_to(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None and not _names_a_broker(url.get_secret_value()):
            raise ValueError(
                "not the URL of a broker: use redis://HOST:6379/0 or"
                " amqp://USER:PASSWORD@HOST:5672//"
            )
        return url

    @model_validator(mode="before")
    @classmethod
    def _blank_is_unset(cls, values: dict[str, object]) -> dict[str, object]:
        # Compose files and shells pass on variables that nobody filled in.
        return {
            name: value
            for name, value in values.items()
            if not isinstance(value, str) or value.strip()
        }

    @field_validator("limiter_url")
    @classmethod
    def _limiter_is_redis(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None and not _names_a_redis(url.get_secret_value()):
            raise ValueError("not the URL of a Redis: use redis://HOST:6379/1")
        return url

    @model_validator(mode="after")
    def _workers_must_share_the_store(self) -> Self:
        if self.broker_url is not None and self.database_url is None:
            raise ValueError(
                f"{PREFIX}BROKER_URL is set but {PREFIX}DATABASE_URL is not: workers elsewhere "
                "could not reach the embedded database; set both, or neither"
            )
        return self

    @property
    def shared_limiter_url(self) -> str | None:
        """The Redis that holds the rate limits; None keeps them inside each process."""
        url = self.limiter_url or self.broker_url
        text = None if url is None else url.get_secret_value()
        return text if text is not None and _names_a_redis(text) else None

    @property
    def embedded_broker(self) -> bool:
        """Whether the worker runs inside the submitting process."""
        return self.broker_url is None

    @property
    def embedded_database(self) -> bool:
        """Whether the database is the one this package starts itself."""
        return self.database_url is None


def load_settings(overrides: Mapping[str, object] | None = None) -> Settings:
    """Read the environment.

    Raises:
        ConfigError: A variable has a value that cannot be used; names it and what is expected.
    """
    environ = {
        name.removeprefix(PREFIX).lower(): value
        for name, value in os.environ.items()
        if name.startswith(PREFIX)
    }
    try:
        return Settings.model_validate({**environ, **(overrides or {})})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = "".join(str(part) for part in first["loc"]).upper()
        message = first["msg"].removeprefix("Value error, ")
        raise ConfigError(f"{PREFIX}{name}: {message}" if name else message) from None
