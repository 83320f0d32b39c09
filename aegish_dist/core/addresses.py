"""Addresses as credentials see them: the origin of a URL, this machine, and metadata services.

The grammar of a URL is narrow on purpose. Two parsers that read one text differently would let a
key that is allowed for one host travel to another.
"""

import ipaddress
import re
import socket

_URL = re.compile(
    r"(?P<scheme>https?)://"
    r"(?P<host>[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?|\[[0-9a-f:.]+\])"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?:/[\w.~!$&'()*+,;=:%-]*)*",
    re.IGNORECASE | re.ASCII,
)
_DEFAULT_PORTS = {"http": 80, "https": 443}
_METADATA_NAMES = frozenset(
    {"metadata", "metadata.google.internal", "metadata.goog", "metadata.azure.internal"}
    | {"instance-data", "instance-data.ec2.internal"}
)
"""Names under which clouds serve a machine's own credentials."""
_METADATA_NETWORKS = tuple(
    map(
        ipaddress.ip_network,
        (
            *("169.254.0.0/16", "fe80::/10", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
            *("fd00:ec2::254", "fd20:ce::254", "fd00:42::42"),
        ),
    )
)
"""Link-local networks, and the addresses that clouds use outside of them."""

_EMBEDDING = tuple(map(ipaddress.IPv6Network, ("::/96", "64:ff9b::/96")))
"""IPv6 networks whose last 32 bits are an IPv4 address: IPv4-compatible, and NAT64 (RFC 6052)."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def origin(url: str) -> str | None:
    """Return `scheme://host:port` of an http or https URL, in lower case.

    Args:
        url: Without user, query and fragment; a host name in ASCII.

    Returns:
        None for everything else.
    """
    found = _URL.fullmatch(url)
    if found is None:
        return None
    scheme = found["scheme"].lower()
    port = int(found["port"] or _DEFAULT_PORTS[scheme])
    return f"{scheme}://{found['host'].lower()}:{port}" if 0 < port < 65536 else None


def host_of(url: str) -> str:
    """Return the host of a URL in lower case, without brackets; empty when it has no origin."""
    known = origin(url)
    return "" if known is None else known.partition("://")[2].rpartition(":")[0].strip("[]")


def is_loopback(host: str) -> bool:
    """Whether a host is this machine: 127.0.0.0/8 in any notation, ::1, or `localhost`."""
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def is_metadata(host: str) -> bool:
    """Whether a host is link-local or a cloud's metadata service, which no model lives at."""
    address = _address(host)
    if address is None:
        return host.lower() in _METADATA_NAMES
    return any(address in network for network in _METADATA_NETWORKS)


def _address(host: str) -> Address | None:
    """Read an IP address as the operating system would, None for a name."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return _legacy_address(host)
    return address if isinstance(address, ipaddress.IPv4Address) else _unwrapped(address)


def _unwrapped(address: ipaddress.IPv6Address) -> Address:
    """Return the IPv4 address that an IPv6 address stands for, or the address itself."""
    if address.is_loopback or address.is_unspecified:
        return address
    if any(address in network for network in _EMBEDDING):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address


def _legacy_address(host: str) -> Address | None:
    """Read notations such as `127.1` and `0xa9fea9fe`, which getaddrinfo takes as well."""
    if not re.fullmatch(r"[0-9a-fx.]+", host, re.IGNORECASE):
        return None
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return None
