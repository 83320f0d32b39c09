"""Settings from the environment: where the database, the broker and the files are.

Only the command line, the worker app and the migration environment build `Settings`. With nothing
set, everything runs embedded on this machine.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import parse_qsl, urlsplit

import msgspec
import platformdirs
from msgspec import Meta

from aegish_dist.core.secrets import SecretStr
from aegish_dist.core.text import did_you_mean
from aegish_dist.errors import ConfigError, InputError
from aegish_dist.inputs.checking import checked

PREFIX = "AEGISH_DIST_"
EMBEDDED_BROKER_URL = "memory://localhost/"
REDIS_SCHEMES = ("redis", "rediss")
BROKER_SCHEMES = (*REDIS_SCHEMES, "amqp", "amqps")
# Options after the question mark of a broker's URL with TLS, and the values that each takes.
TLS_OPTIONS = {
    "ssl_ca_certs": ".+",
    "ssl_certfile": ".+",
    "ssl_keyfile": ".+",
    "ssl_cert_reqs": "required|optional|none",
    "ssl_check_hostname": "true|false",
}


def _wrong_in_broker(url: str, schemes: Sequence[str] = BROKER_SCHEMES) -> str | None:
    """Return why a URL cannot be used, without any of it, for it may hold a password."""
    unusable = "not the URL of a broker"
    if url.startswith("sentinel"):
        unusable = (
            "Redis Sentinel is not supported, give the address of the primary or of a proxy that"
            " follows it"
        )
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises when it is no number
    except ValueError:
        return unusable
    if parts.scheme not in schemes or not parts.hostname:
        return unusable
    if "@" in parts.path + parts.query + parts.fragment or parts.fragment:
        return "an '@', '/', '?' or '#' in its password has to be written %40, %2F, %3F or %23"
    if parts.scheme in REDIS_SCHEMES and not re.fullmatch(r"/?[0-9]*", parts.path):
        return "the database of a Redis is a number"
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    allowed = TLS_OPTIONS if parts.scheme.endswith("s") else {}
    if any(
        not re.fullmatch(allowed.get(name, ""), value or "?") for name, value in options.items()
    ):
        return (
            f"after the '?' of a URL with TLS may stand {', '.join(TLS_OPTIONS)}, and nothing else"
        )
    return None


def _data_directory() -> Path:
    usual = Path(platformdirs.user_data_dir("aegish-dist"))
    # PostgreSQL does not run as root, and the user it runs as then cannot enter root's own folders.
    return usual if os.geteuid() or (usual / "postgres").exists() else Path("/var/lib/aegish-dist")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    database_url: SecretStr | None = None  # PostgreSQL; the embedded server when unset
    broker_url: SecretStr | None = None  # Redis or RabbitMQ; unset: the worker runs in `submit`
    # Redis with the fleet's limits; unset: the broker, if Redis.
    limiter_url: SecretStr | None = None
    home: Path = msgspec.field(default_factory=_data_directory)
    # Workers keep answers there that the database refuses; unset: in `home`.
    spool: Path | None = None
    catalog: Path | None = None  # the user's own model catalog, laid over the packaged one
    # Calls in flight at most in a worker process.
    concurrency: Annotated[int, Meta(ge=1, le=10_000)] = 500
    shutdown_grace_s: Annotated[float, Meta(ge=0)] = 60.0  # a stopping worker gives calls in flight
    message_lease_s: Annotated[float, Meta(ge=5, le=3600)] = 40.0  # without a sign of life
    # To the first look; later ones are multiples.
    batch_poll_s: Annotated[float, Meta(gt=0, le=600)] = 10.0
    queue_type: Literal["classic", "quorum"] = "classic"  # of RabbitMQ; one for a fleet
    metrics_port: Annotated[int, Meta(ge=0, le=65_535)] | None = None  # 0: a free one
    metrics_host: str = "127.0.0.1"  # 0.0.0.0: on all addresses
    log_format: Literal["console", "json"] = "console"
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] | None = None  # unset: INFO in workers

    def __post_init__(self) -> None:
        """Check the URLs, and that workers elsewhere can reach the database."""
        broker, limiter = _text(self.broker_url), _text(self.limiter_url)
        if broker is not None and (wrong := _wrong_in_broker(broker)):
            usual = "redis://HOST:6379/0 or amqp://USER:PASSWORD@HOST:5672//"
            raise InputError(f"{wrong}: use {usual}", field="broker_url")
        if limiter is not None and (wrong := _wrong_in_broker(limiter, REDIS_SCHEMES)):
            wrong = wrong.replace("a broker", "a Redis")
            raise InputError(f"{wrong}: use redis://HOST:6379/1", field="limiter_url")
        if broker is not None and self.database_url is None:
            raise ValueError(
                f"{PREFIX}BROKER_URL is set but {PREFIX}DATABASE_URL is not: workers elsewhere "
                "could not reach the embedded database; set both, or neither"
            )

    @property
    def shared_limiter_url(self) -> str | None:
        """The Redis that holds the rate limits; None keeps them inside each process."""
        text = _text(self.limiter_url or self.broker_url)
        return text if text is not None and text.startswith(REDIS_SCHEMES) else None

    @property
    def cache(self) -> Path:
        """Folder where list prices are remembered for a day; deleting it does no harm."""
        return Path(platformdirs.user_cache_dir("aegish-dist"))

    @property
    def spool_folder(self) -> Path:
        return self.spool or self.home / "spool"

    @property
    def private_folders(self) -> tuple[Path, Path]:
        """Folders with the store and with verdicts on their way to it: no guard reads there."""
        return self.home, self.spool_folder

    @property
    def embedded_broker(self) -> bool:
        """Whether the worker runs inside the submitting process."""
        return self.broker_url is None

    @property
    def embedded_database(self) -> bool:
        return self.database_url is None


def load_settings(overrides: Mapping[str, object] | None = None) -> Settings:
    """Read the environment; a ConfigError names a variable that cannot be used."""
    _refuse_unknown()
    values = {
        name.removeprefix(PREFIX).lower(): value
        for name, value in os.environ.items()
        # Compose files and shells pass on variables that were left blank.
        if name.startswith(PREFIX) and value.strip()
    }
    try:
        return checked({**values, **(overrides or {})}, Settings, from_text=True)
    except InputError as error:
        name = f"{PREFIX}{error.field.upper()}: " if error.field else ""
        raise ConfigError(f"{name}{error.what}") from None


def _refuse_unknown() -> None:
    """Refuse a variable that nothing reads: misspelt, the real one would silently be unset."""
    known = [PREFIX + name.upper() for name in Settings.__struct_fields__]
    of_compose = ("_PASSWORD", "_IMAGE", "_PORT")
    for name in sorted(os.environ):
        is_ours = name.startswith(PREFIX) and os.environ[name].strip()
        if not is_ours or name in known or name.endswith(of_compose):
            continue
        hint = did_you_mean(name, known, "`aegish-dist doctor` shows what is set:")
        raise ConfigError(f"{name} is no variable of aegish-dist: {hint} Else unset it")


def _text(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
