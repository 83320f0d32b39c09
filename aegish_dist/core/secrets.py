"""Masking of keys in foreign text, after it was decoded: the one place that does it.

Providers echo keys in error texts, identifiers and answers, as they came or encoded once more.
`KeyMask` hides one key that is known; `mask_key_shapes` hides whatever looks like a key. Text is
masked before it is cut, because a cut key matches no more.
"""

import base64
import re
from functools import cached_property

MASK = "[key]"
SHORT_KEY_CHARS = 12
"""Shorter keys are masked as whole words only: parts of ordinary words would match them."""
LEAST_KEY_CHARS = 4
"""Shorter ones are placeholders for servers that ask for some key, and no secret."""
NO_SECRETS = frozenset(
    {"action", "reason", "confidence", "allow", "warn", "block", "true", "false", "null"}
    | {"none", "empty", "dummy", "test", "local", "ollama", "vllm", "lm-studio", "changeme"}
)
"""Words of an answer, which masking would turn into a format error, and usual placeholders."""

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
    """Return text with everything that has the shape of a key or a URL's password masked.

    Meant for error texts; completions are facts and keep what they say.

    Args:
        text: Decoded text of any length; the time is linear in it.
    """
    return _KEY_SHAPES.sub(MASK, text)


class KeyMask:
    """Hides one key in text, in every form in which a provider may return it."""

    def __init__(self, key: str | None) -> None:
        """Prepare for a key.

        Args:
            key: The credential that was sent, in ASCII; None or a placeholder hides nothing.
        """
        self._key = key if key and _is_secret(key) else ""
        self._signs = (*_SIGNS_OF_ESCAPES, *_encoded_forms(self._key)) if self._key else ()

    def __repr__(self) -> str:
        return f"KeyMask({'on' if self._key else 'off'})"

    def text(self, text: str) -> str:
        """Return text without the key.

        Found are the key itself; with characters escaped as in JSON, a URL or HTML; as UTF-16 or
        UTF-32 that was read byte by byte; in hexadecimal; and in base64, alone or inside of more.
        """
        # The search takes 10 us for an answer; these comparisons, nearly always all, take 1 us.
        if len(text) < len(self._key) or not any(sign in text for sign in self._signs):
            return text
        return self._pattern.sub(MASK, text)

    def value(self, value: object) -> object:
        """Return a JSON value with every string of it masked, names included."""
        if not self._key:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {self.text(name): self.value(item) for name, item in value.items()}
        return value

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        spelled = "".join(map(_character, self._key))
        encoded = "|".join(map(re.escape, _encoded_forms(self._key)[1:]))
        if len(self._key) < SHORT_KEY_CHARS:
            return re.compile(rf"(?<![A-Za-z0-9_])(?:{spelled}|{encoded})(?![A-Za-z0-9_])")
        # The characters at the edges of a base64 form hold bits of the key as well.
        return re.compile(
            rf"{spelled}|[A-Za-z0-9+/_-]{{0,2}}(?:{encoded})[A-Za-z0-9+/_-]{{0,2}}={{0,2}}"
        )


_SIGNS_OF_ESCAPES = ("\\", "%", "&#", "\0")


def _is_secret(key: str) -> bool:
    return len(key) >= LEAST_KEY_CHARS and key.lower() not in NO_SECRETS


def _character(character: str) -> str:
    """Return a pattern of one character in each of its spellings; no part of it is unbounded."""
    code = ord(character)
    spellings = (
        rf"\\{{0,8}}{re.escape(character)}",
        rf"(?i:%(?:25){{0,4}}{code:02x}|\\{{1,8}}(?:u00|x){code:02x})",
        rf"(?i:&#(?:0{{0,6}}{code}|x0{{0,6}}{code:x});)",
    )
    return f"\0{{0,3}}(?:{'|'.join(spellings)})"


def _encoded_forms(key: str) -> list[str]:
    """Return the key, and what hexadecimal and base64 make of it."""
    octets = key.encode()
    if len(key) < SHORT_KEY_CHARS:
        return [key, octets.hex(), base64.b64encode(octets).decode().rstrip("=")]
    inside = [_inside_base64(octets, offset) for offset in range(3)]
    url_safe = [form.translate(str.maketrans("+/", "-_")) for form in inside]
    return list(dict.fromkeys([key, octets.hex(), octets.hex().upper(), *inside, *url_safe]))


def _inside_base64(octets: bytes, offset: int) -> str:
    """Return the characters that stand for these bytes alone, behind others in base64.

    Args:
        octets: The bytes.
        offset: How many bytes stand before them, modulo 3.
    """
    encoded = base64.b64encode(bytes(offset) + octets).decode()
    return encoded[-(-offset * 8 // 6) : (offset + len(octets)) * 8 // 6]
