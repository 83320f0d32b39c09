"""TLS towards brokers: verified unless the URL says otherwise.

Without being told, kombu verifies no certificate of a Redis and no host name of a RabbitMQ, and it
hands the options of a URL to RabbitMQ's client under names that only the one of Redis knows.
"""

import ssl
from typing import Any
from urllib.parse import parse_qsl, urlsplit

_REQUIREMENTS = {
    "required": ssl.CERT_REQUIRED,
    "optional": ssl.CERT_OPTIONAL,
    "none": ssl.CERT_NONE,
}


def tls_of(url: str) -> tuple[str, dict[str, Any] | None]:
    """Return a broker's URL without its options, and these as its client takes them.

    Args:
        url: Of a broker; with TLS, `ssl_...` options may stand after its question mark.

    Returns:
        None instead of options for a URL without TLS.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"rediss", "amqps"}:
        return url, None
    options: dict[str, Any] = dict(parse_qsl(parts.query))
    requirement = _REQUIREMENTS[options.pop("ssl_cert_reqs", "required")]
    checked = options.pop("ssl_check_hostname", "true") == "true" and requirement != ssl.CERT_NONE
    options["ssl_cert_reqs"] = requirement
    if parts.scheme == "rediss":
        options["ssl_check_hostname"] = checked
    else:
        options = {name.removeprefix("ssl_"): value for name, value in options.items()}
        if checked:
            options["server_hostname"] = None  # kombu puts the host of the URL there
    return parts._replace(query="").geturl(), options
