"""Foreign text made safe to look at.

Run names, model ids and dataset names come from users and files. A report must show them without
letting them move a cursor, change a colour or reorder a line.
"""


def printable(text: str) -> str:
    r"""Return text with everything invisible shown as an escape such as `\x1b` or `\u202e`.

    That is what Python calls not printable: C0, C1 and DEL, bidirectional overrides, zero-width
    characters, lone surrogates, line separators and every space but U+0020. The result is one line.
    """
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable()
        else character.encode("unicode_escape", "surrogatepass").decode("ascii")
        for character in text
    )
