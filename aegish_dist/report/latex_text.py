"""Escaping of text for LaTeX: every character is typeset, and none acts as a command.

The result is ASCII and needs no package, so it compiles with pdfTeX in any encoding.
"""

import re
import unicodedata

from aegish_dist.core.printable import printable

_SIGNS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"{\ttfamily\char34}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "[": "{[}",  # after `\\` it would begin an argument
    "*": "{*}",  # and this one would be part of the command
    " ": "\\ ",
    "-": r"-\/",  # two of them would become a dash, with LuaTeX even with `{}` between them
    ",": r",\/",  # and two of these a quotation mark
    "\N{EN DASH}": "--",
    "\N{EM DASH}": "---",
    "\N{MINUS SIGN}": "$-$",
    "\N{PLUS-MINUS SIGN}": r"$\pm$",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
    "\N{GREATER-THAN OR EQUAL TO}": r"$\geq$",
    "\N{LESS-THAN OR EQUAL TO}": r"$\leq$",
    "\N{MIDDLE DOT}": r"$\cdot$",
    "\N{RIGHTWARDS ARROW}": r"$\rightarrow$",
    "\N{DAGGER}": r"\textdagger{}",
    "\N{HORIZONTAL ELLIPSIS}": r"\dots{}",
    "\N{RIGHT SINGLE QUOTATION MARK}": "'",
    "\N{LATIN SMALL LETTER SHARP S}": r"\ss{}",
}
_ACCENTS = {
    "\N{COMBINING GRAVE ACCENT}": "`",
    "\N{COMBINING ACUTE ACCENT}": "'",
    "\N{COMBINING CIRCUMFLEX ACCENT}": "^",
    "\N{COMBINING TILDE}": "~",
    "\N{COMBINING DIAERESIS}": '"',
    "\N{COMBINING MACRON}": "=",
    "\N{COMBINING DOT ABOVE}": ".",
    "\N{COMBINING BREVE}": "u",
    "\N{COMBINING CARON}": "v",
    "\N{COMBINING DOUBLE ACUTE ACCENT}": "H",
    "\N{COMBINING CEDILLA}": "c",
    "\N{COMBINING RING ABOVE}": "r",
}
_SPECIAL = re.compile(r"[^A-Za-z0-9 .:;/()=+?!@\],-]|-(?=-)|,(?=,)|(?<= ) ")
"""Characters to be escaped; hyphens, commas and spaces only where they are doubled."""


def latex_text(text: str) -> str:
    r"""Return foreign text for LaTeX, on one line and in ASCII.

    Letters with an accent become commands; a character that no font of TeX can be counted on to
    have is written as its number, such as `U+4E2D`. What is invisible is shown as in every report.
    """
    return _SPECIAL.sub(lambda found: _command(found[0]), printable(text))


def _command(character: str) -> str:
    known = _SIGNS.get(character)
    if known is not None:
        return known
    parts = unicodedata.normalize("NFD", character)
    letter, accent = parts[0], _ACCENTS.get(parts[1:])
    if accent is not None and letter.isascii():
        return f"\\{accent}{{{letter}}}"
    return f"U+{ord(character):04X}"
