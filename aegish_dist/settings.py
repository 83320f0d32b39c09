"""Settings from the environment: where the database, the broker and the files are.

Only the command line, the worker app and the migration environment build `Settings`; everything
below takes plain values. With nothing set, everything runs embedded on this machine.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
import platformdirs
from msgspec import Meta

from aegish_dist.core.checking import WrongValueError, problem
from aegish_dist.core.secret import SecretStr
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


def _data_directory() -> Path:
    usual = Path(platformdirs.user_data_dir("aegish-dist"))
    # PostgreSQL does not run as root, and the user it runs as then cannot enter root's own folders.
    return usual if os.geteuid() or (usual / "postgres").exists() else Path("/var/lib/aegish-dist")


def _cache_directory() -> Path:
    return Path(platformdirs.user_cache_dir("aegish-dist"))


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The environment, checked once."""

    database_url: SecretStr | None = None
    """PostgreSQL URL; the embedded server when unset."""
    broker_url: SecretStr | None = None
    """Redis or RabbitMQ URL; the worker runs inside `submit` when unset."""
    limiter_url: SecretStr | None = None
    """Redis that holds the fleet's rate limits; the broker when unset and that is a Redis."""
    home: Path = msgspec.field(default_factory=_data_directory)
    """Where the embedded database lives."""
    cache: Path = msgspec.field(default_factory=_cache_directory)
    """Where list prices are remembered for a day; deleting it does no harm."""
    spool: Path | None = None
    """Where workers leave answers that the database does not take; in `home` when unset."""
    catalog: Path | None = None
    """The user's own model catalog, laid over the packaged one."""
    concurrency: Annotated[int, Meta(ge=1, le=10_000)] = 500
    """Calls a worker process has in flight at most; of many it holds somewhat more items."""
    shutdown_grace_s: Annotated[float, Meta(ge=0)] = 60.0
    """How long a stopping worker lets calls in flight finish before it gives them back."""
    message_lease_s: Annotated[float, Meta(ge=5, le=3600)] = 40.0
    """How long after its last sign of life a worker's messages go back to their queues in Redis."""
    queue_type: Literal["classic", "quorum"] = "classic"
    """Of the queues in RabbitMQ; the same for all commands and workers of a fleet."""
    stock_transport: bool = False
    """Leaves Redis to kombu's own transport, which is slower; to tell its faults from ours."""
    log_format: Literal["console", "json"] = "console"
    """`console` for people, `json` for collectors."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] | None = None
    """Least severe level that is written: INFO in workers, WARNING elsewhere when unset."""

    def __post_init__(self) -> None:
        """Check what the types alone do not tell."""
        broker, limiter = _text(self.broker_url), _text(self.limiter_url)
        if broker is not None and not _names_a_broker(broker):
            raise WrongValueError(
                "broker_url",
                "not the URL of a broker: use redis://HOST:6379/0 or"
                " amqp://USER:PASSWORD@HOST:5672//",
            )
        if limiter is not None and not _names_a_redis(limiter):
            raise WrongValueError("limiter_url", "not the URL of a Redis: use redis://HOST:6379/1")
        if broker is not None and self.database_url is None:
            raise ValueError(
                f"{PREFIX}BROKER_URL is set but {PREFIX}DATABASE_URL is not: workers elsewhere "
                "could not reach the embedded database; set both, or neither"
            )

    @property
    def shared_limiter_url(self) -> str | None:
        """The Redis that holds the rate limits; None keeps them inside each process."""
        text = _text(self.limiter_url or self.broker_url)
        return text if text is not None and _names_a_redis(text) else None

    @property
    def spool_folder(self) -> Path:
        """Where answers are left that could not be stored."""
        return self.spool or self.home / "spool"

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
    values = {
        name.removeprefix(PREFIX).lower(): value
        for name, value in os.environ.items()
        # Compose files and shells pass on variables that nobody filled in.
        if name.startswith(PREFIX) and value.strip()
    }
    try:
        return msgspec.convert(
            {**values, **(overrides or {})}, Settings, strict=False, dec_hook=_from_text
        )
    except msgspec.ValidationError as error:
        name, what = problem(error, Settings)
        raise ConfigError(f"{PREFIX}{name.upper()}: {what}" if name else what) from None


def _from_text(kind: type[Any], value: object) -> Any:
    """Build what msgspec does not know: a path, a secret."""
    return kind(value)


def _text(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
