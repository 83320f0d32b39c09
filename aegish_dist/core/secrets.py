"""Keys: a type that does not print them, masks for foreign text, and the addresses they may go to.

Providers echo keys, as they came or encoded once more. Text is masked before it is cut, because a
cut key matches no more. The grammar of a URL is narrow on purpose: two parsers that read one text
differently would let a key that is allowed for one host travel to another.
"""

import base64
import ipaddress
import re
import socket
from functools import cached_property

from aegish_dist.core.text import changed_texts


class SecretStr:
    """A password, a key, or a URL with one in it; `str` and `repr` mask it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def get_secret_value(self) -> str:
        """Return the text itself, for the one call that needs it."""
        return self._value

    def __str__(self) -> str:
        return "**********" if self._value else ""

    def __repr__(self) -> str:
        return f"SecretStr('{self}')"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretStr) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


MASK = "[key]"
SHORT_KEY_CHARS = 12  # shorter ones are masked as whole words only
LEAST_KEY_CHARS = 4  # shorter ones are placeholders, no secrets
# Words of an answer, which masking would turn into a format error, and usual placeholders.
NO_SECRETS = frozenset(
    {"action", "reason", "confidence", "allow", "warn", "block", "true", "false", "null"}
    | {"none", "empty", "dummy", "test", "local", "ollama", "vllm", "lm-studio", "changeme"}
)

_KEY_SHAPES = re.compile(
    # A prefix that a vendor gives to its keys, or one that announces a key.
    r"(?<![A-Za-z0-9_-])"
    r"(?:sk-|pk-|rk-|sk_live_|sk_test_|gsk_|hf_|xai-|r8_|nvapi-|pplx-|csk-|fw_|tgp_v1_|AIza|AQ\."
    r"|ya29\.|AKIA|ASIA|ghp_|gho_|ghs_|ghu_|github_pat_|glpat-|eyJ[\w-]{5,1000}\.eyJ"
    r"|(?i:bearer|basic)\s+(?=[^\s,;]{0,200}[0-9])"
    r"|(?i:(?:x-)?(?:goog-)?api[-_ ]?key|access[-_]token|authorization|key|secret|password)"
    r"[\"']?\s*[=:]\s*[\"']?(?=[^\s\"',;&]{0,200}[0-9]))"
    r"[\w.~+/=%-]{6,}"
    # The password of an address.
    r"|(?<=://)[^\s/@:]{0,100}:[^\s/@]{1,200}(?=@)"
)


def mask_key_shapes(text: str) -> str:
    """Mask whatever has the shape of a key or of a URL's password, in linear time.

    For error texts; completions are facts and keep what they say.
    """
    return _KEY_SHAPES.sub(MASK, text)


class KeyMask:
    """Hides one key in text, in every form in which a provider may return it."""

    def __init__(self, key: str | None) -> None:
        if key is None or len(key) < LEAST_KEY_CHARS or key.lower() in NO_SECRETS:
            key = ""
        self._key = key
        forms = (key, key.encode().hex(), *_in_base64(key))
        self._signs = [_squeezed(form) for form in forms]

    def text(self, text: str) -> str:
        """Return text without the key in all its forms.

        As it is; escaped as in JSON, a URL or HTML; as UTF-16 or UTF-32 read byte by byte; in
        hexadecimal, and in base64, alone or inside of more. Line breaks may stand anywhere in
        it, and separators between hexadecimal digits, as in quoted-printable.
        """
        # The search takes 15 us for an answer. These comparisons take 3 us and usually suffice.
        if not self._key or len(text) < len(self._key):
            return text
        if not any(sign in text for sign in _SIGNS_OF_ESCAPES):
            squeezed = _squeezed(text)
            if not any(sign in squeezed for sign in self._signs):
                return text
        return self._pattern.sub(MASK, text)

    def value(self, value: object) -> object:
        """Return a JSON value with every string of it masked, names included."""
        return changed_texts(value, self.text) if self._key else value

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        spelled = _BREAK.join(map(_character, self._key))
        octets = (f"{octet:02x}" for octet in self._key.encode())
        spaced_octets = (octet[0] + r"\s{0,2}" + octet[1] for octet in octets)
        hexadecimal = f"(?i:{_GAP.join(spaced_octets)})"
        in_base64 = [_BREAK.join(map(_base64_character, each)) for each in _in_base64(self._key)]
        encoded = "|".join(in_base64)
        if len(self._key) < SHORT_KEY_CHARS:
            # So short a key may also be a part of a word.
            forms = f"{spelled}|{hexadecimal}|{encoded}"
            return re.compile(rf"(?<![A-Za-z0-9_])(?:{forms})(?![A-Za-z0-9_])")
        # The characters at the edges of a base64 form hold bits of the key as well.
        return re.compile(
            rf"{spelled}|{hexadecimal}"
            rf"|[A-Za-z0-9+/_-]{{0,2}}(?:{encoded})[A-Za-z0-9+/_-]{{0,2}}={{0,2}}"
        )


_SIGNS_OF_ESCAPES = ("\\", "%", "&", "\0", "0x", "0X", "=3D", "=3d")
_SQUEEZED_OUT = str.maketrans("", "", " \t\r\n:;,._=-/+")
# A line break within a key: of MIME, of quoted-printable, or escaped as in JSON.
# Where a text is wrapped between two characters: a new line, or its escape.
_BREAK = r"(?:=?\r?\n[ \t]{0,16}|(?:\\{1,4}r)?\\{1,4}n[ \t]{0,16})?"
_GAP = r"[\s:;,._=-]{0,4}(?:0x|\\{1,8}x)?"  # between bytes in hexadecimal


# Names of HTML for what keys are made of besides letters and digits.
_HTML_NAMES = {
    **{"+": "plus", "/": "sol", "=": "equals", "_": "lowbar|UnderBar", ".": "period"},
    **{":": "colon", "&": "amp|AMP", "#": "num", "%": "percnt", "!": "excl", "*": "ast|midast"},
    **{"@": "commat", "$": "dollar", ",": "comma", ";": "semi", "?": "quest"},
}


def _squeezed(text: str) -> str:
    return text.translate(_SQUEEZED_OUT).lower()


def _character(character: str) -> str:
    """Return a pattern of one character in each of its spellings; no part of it is unbounded."""
    code = ord(character)
    spellings = (
        rf"\\{{0,8}}{re.escape(character)}",
        rf"(?i:(?:%(?:25){{0,4}}|=){code:02x}|\\{{1,8}}(?:u0{{2,6}}|x|u\{{0{{0,6}}){code:02x}\}}?)",
        rf"(?i:&(?:amp;?){{0,2}}#(?:0{{0,6}}{code}(?![0-9])|x0{{0,6}}{code:x}(?![0-9a-f]));?)",
        *([rf"&(?:{_HTML_NAMES[character]});?"] if character in _HTML_NAMES else []),
    )
    return f"\0{{0,3}}(?:{'|'.join(spellings)})"


def _base64_character(character: str) -> str:
    if character in "+-":
        return r"(?:[+-]|(?i:%2b|\\{1,8}u002b))"
    return r"(?:_|\\{0,8}/|(?i:%2f))" if character in "/_" else character


def _in_base64(key: str) -> list[str]:
    octets = key.encode()
    if len(key) < SHORT_KEY_CHARS:
        return [base64.b64encode(octets).decode().rstrip("=")]
    return [_inside_base64(octets, offset) for offset in range(3)]


def _inside_base64(octets: bytes, offset: int) -> str:
    """Return the base64 characters that depend on these bytes alone, after `offset` other bytes."""
    encoded = base64.b64encode(bytes(offset) + octets).decode()
    return encoded[-(-offset * 8 // 6) : (offset + len(octets)) * 8 // 6]


_URL = re.compile(
    r"(?P<scheme>https?)://"
    r"(?P<host>[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?|\[[0-9a-f:.]+\])"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?:/[\w.~!$&'()*+,;=:%-]*)*",
    re.IGNORECASE | re.ASCII,
)
_DEFAULT_PORTS = {"http": 80, "https": 443}
# Host names under which clouds serve a machine's own credentials.
_METADATA_NAMES = frozenset(
    {"metadata", "metadata.google.internal", "metadata.goog", "metadata.azure.internal"}
    | {"instance-data", "instance-data.ec2.internal"}
)
# Link-local networks, and the addresses that clouds use outside of them.
_METADATA_NETWORKS = tuple(
    map(
        ipaddress.ip_network,
        (
            "169.254.0.0/16",
            "fe80::/10",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd20:ce::254",
            "fd00:42::42",
        ),
    )
)

# IPv6 networks whose last 32 bits are an IPv4 address: IPv4-compatible, and NAT64 (RFC 6052).
_EMBEDDING = tuple(map(ipaddress.IPv6Network, ("::/96", "64:ff9b::/96")))

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def origin(url: str) -> str | None:
    """Return `scheme://host:port` in lower case of an http or https URL, None for anything else.

    The URL has no user, query or fragment, and its host is ASCII.
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
    """Whether a host is link-local or a cloud's metadata service; no model is served there."""
    address = _address(host)
    if address is None:
        return host.lower() in _METADATA_NAMES
    return any(address in network for network in _METADATA_NETWORKS)


def _address(host: str) -> Address | None:
    """Read an IP address as the operating system would, also IPv4 in IPv6; None for a name."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return _legacy_address(host)
    if address.version == 4 or address.is_loopback or address.is_unspecified:
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
