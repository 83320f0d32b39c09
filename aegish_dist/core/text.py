"""Foreign text, cleaned at intake and made safe to print; counts in words; fingerprints.

Every store can hold a cleaned text, and no printed text can move a cursor, change a colour, write
the clipboard or reorder a line. CSV (RFC 4180) holds nothing that a spreadsheet would compute.
"""

import csv
import hashlib
import io
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import accumulate, takewhile
from typing import Any, TypeVar

JsonObject = dict[str, Any]
T = TypeVar("T")
_ON_ONE_LINE = json.JSONEncoder(allow_nan=False)
_WORD = re.compile(r" *[^ ]+ *")
# Letters and marks by category that show nothing (Unicode's Default_Ignorable_Code_Point).
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)


def printable(text: str) -> str:
    r"""Return text with everything invisible shown as an escape such as `\x1b` or `\u202e`.

    That is what Python calls not printable: C0, C1 and DEL, bidirectional overrides, zero-width
    characters, lone surrogates, line separators and every space but U+0020; besides, letters and
    marks that show nothing. The result is one line.
    """
    if text.isprintable() and (text.isascii() or not _BLANK.search(text)):
        return text
    return "".join(map(_shown, text))


def escaped(character: str) -> str:
    r"""Return a character as shells and TOML write it, such as `\u202e`."""
    code = ord(character)
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\U{code:08x}"


def printable_lines(text: str) -> str:
    """Return a text as `printable` does, but keep its line breaks and tabs."""
    if text.isascii() and text.isprintable():
        return text
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


def cell_width(text: str) -> int:
    """Return how many columns of a terminal a text takes; Chinese letters take two each."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def cut_to_cells(text: str, width: int) -> str:
    """Return the longest beginning of a text that takes at most this many columns."""
    if text.isascii():
        return text[: max(0, width)]
    ends = accumulate(map(_columns, text))
    return text[: sum(1 for _ in takewhile(lambda end: end <= width, ends))]


def filled(
    pieces: Iterable[str], width: float, measure: Callable[[str], float] = cell_width
) -> list[str]:
    """Put pieces into the fewest lines of at most this width; one that is wider alone is broken."""
    lines = [""]
    for piece in pieces:
        if lines[-1] and measure((lines[-1] + piece).rstrip()) > width:
            lines.append("")
        rest = lines.pop() + piece
        while measure(rest.rstrip()) > width:
            lines.append(cut_to_cells(rest, int(width)) or rest[0])  # also a letter of two columns
            rest = rest[len(lines[-1]) :]
        lines.append(rest)
    return [line.strip() for line in lines if line.strip()]


def sentence_lines(text: str, width: int) -> list[str]:
    """Break a text between its words, or within one that is wider than a line."""
    return filled(_WORD.findall(text), width)


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0  # a combining mark takes no column of its own
    return 2 if unicodedata.east_asian_width(character) in "FW" else 1


def shortened(text: str, length: int) -> str:
    """Cut a text to at most this many characters; dots mark the end of a longer text."""
    return text if len(text) <= length else f"{text[: length - 3]}..."


def printable_json(document: object, *, sort_keys: bool = False) -> str:
    """Return indented JSON in ASCII with everything invisible escaped."""
    import msgspec  # noqa: PLC0415  not for help texts

    text = json.dumps(document, sort_keys=sort_keys, allow_nan=False)
    try:
        # `dumps` would indent in Python, in five times the time.
        text = msgspec.json.format(text, indent=2)
    except msgspec.DecodeError:  # half of a surrogate pair
        text = json.dumps(document, indent=2, sort_keys=sort_keys, allow_nan=False)
    return _without_del(text)


def printable_line_of_json(value: object) -> str:
    """Return one value as JSON in ASCII on one line; no NaN."""
    return _without_del(_ON_ONE_LINE.encode(value))


def _without_del(text: str) -> str:
    # DEL is ASCII, so `dumps` lets it through; outside strings JSON has none.
    return text.replace("\x7f", "\\u007f")


def _shown(character: str) -> str:
    if character.isprintable() and not _BLANK.match(character):
        return character
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def as_number(amount: Decimal | None) -> float | None:
    """Return an exact amount as JSON has numbers; None where it is unknown."""
    return None if amount is None else float(amount)


def known(values: Mapping[str, T | None]) -> dict[str, T]:
    return {name: value for name, value in values.items() if value is not None}


def counted(number: int, noun: str, plural: str = "s") -> str:
    """Return how many there are of something: `1 command`, `1,172 commands`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}{plural}"


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return a question with the known names that are like an unknown one, three at most.

    Where none is, return `otherwise`: which names there are, or what lists them.
    """
    from difflib import SequenceMatcher, get_close_matches  # noqa: PLC0415  for what is wrong alone

    typed = name[:100].lower()
    folded = {each.lower(): each for each in known}
    if near := get_close_matches(typed, folded, cutoff=0.68):  # `import` is not nearly `report`
        best = SequenceMatcher(None, near[0], typed).ratio()
        near = get_close_matches(typed, near, cutoff=best - 0.05)
    elif len(typed) >= 3:
        swapped = sorted(typed)
        near = [each for each in folded if typed in each or sorted(each) == swapped][:3]
    asked = " or ".join(f"'{printable(folded[each])}'" for each in near)
    return f"did you mean {asked}?" if near else otherwise


def fingerprint_of(content: object) -> str:
    """Return sixteen hexadecimal digits of the SHA-256 of JSON with sorted keys."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


REPLACEMENT = "\ufffd"
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
# JSON holds these as escapes; Python's `json` also accepts surrogates as three bytes.
_SIGN = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
_SIGN_IN_BYTES = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])|\xed[\xa0-\xbf]")


def clean_text(text: str) -> str:
    """Put U+FFFD in place of U+0000, which PostgreSQL refuses, and of lone surrogates."""
    return text if text.isascii() and "\0" not in text else _UNSTORABLE.sub(REPLACEMENT, text)


def squeezed(text: str) -> str:
    """Return text without what quoting it in prose, in JSON or in a shell changes."""
    return re.sub(r"[\s\\]+", "", text).lower()


def clean_json(encoded: str | bytes, value: Any) -> Any:
    """Clean all texts of a JSON value, keys included, if its encoding shows a sign of such text."""
    if isinstance(encoded, str):
        sign: object = _SIGN.search(encoded) or (
            not encoded.isascii() and _UNSTORABLE.search(encoded)
        )
    else:  # a zero byte means UTF-16 or UTF-32, where the pattern finds nothing
        sign = b"\0" in encoded or _SIGN_IN_BYTES.search(encoded)
    return changed_texts(value, clean_text) if sign else value


def changed_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with all its texts changed, keys included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [changed_texts(each, change) for each in value]
    if isinstance(value, dict):
        return {change(key): changed_texts(each, change) for key, each in value.items()}
    return value


# Where a cell would begin that a spreadsheet computes; some take full-width signs for plain ones,
# and in some countries a semicolon separates cells.
_FORMULA = re.compile(
    r"""(^|[;|])(?=[\s"']*[=+@\-\N{MINUS SIGN}\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b])"""
)


def csv_text(columns: Sequence[str], rows: Iterable[JsonObject]) -> str:
    """Return these columns of rows as CSV; what is absent is empty, texts suit spreadsheets."""
    target = io.StringIO(newline="")
    writer = csv.DictWriter(target, columns, restval="", extrasaction="ignore")
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {name: spreadsheet_safe(v) if isinstance(v, str) else v for name, v in row.items()}
        )
    return target.getvalue()


def spreadsheet_safe(text: str) -> str:
    """Return foreign text on one line, with a `'` where a spreadsheet would compute it."""
    shown = printable(text)
    if text[:1].isalnum() and not (";" in text or "|" in text):
        return shown  # nearly always, and the pattern takes ten times as long
    return _FORMULA.sub(r"\1'", shown)
