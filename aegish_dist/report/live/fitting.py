"""Text that has to fit into so many columns of a terminal; wide characters take two."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from rich.cells import cell_len, set_cell_size


def cut(text: str, width: int, dots: str) -> str:
    """Return a text of at most this many columns; dots end one that was longer."""
    if cell_len(text) <= width:
        return text
    kept = max(0, width - cell_len(dots))
    return (set_cell_size(text, kept).rstrip() + dots)[: max(0, width)]


def shortened_middle(text: str, width: int, dots: str) -> str:
    """Return a text of at most this many columns, with dots in place of its middle.

    Ids of models differ at both ends: the provider in front, the version at the end.
    """
    room = width - cell_len(dots)
    if cell_len(text) <= width or room < 2:
        return cut(text, width, dots)
    back, taken = room // 2, 0
    for start in range(len(text) - 1, -1, -1):
        taken += cell_len(text[start])
        if taken > back:
            tail = text[start + 1 :]
            break
    front = set_cell_size(text, room - cell_len(tail)).rstrip()
    return f"{front}{dots}{tail}"


def distinct_names(names: Sequence[str], width: int, dots: str) -> dict[str, str]:
    """Return each name in at most this many columns, so that different ones still differ.

    Those that look alike without their middles show the part in which they differ instead.
    """
    alike = defaultdict[str, list[str]](list)
    for name in dict.fromkeys(names):
        alike[shortened_middle(name, width, dots)].append(name)
    return {
        name: short if len(group) == 1 else _by_difference(name, group, width, dots)
        for short, group in alike.items()
        for name in group
    }


def _by_difference(name: str, group: Sequence[str], width: int, dots: str) -> str:
    front = _common_start(group)
    back = _common_start([each[len(front) :][::-1] for each in group])[::-1]
    own = name[len(front) : len(name) - len(back)]
    room = width - cell_len(own) - 2 * cell_len(dots)
    if room < 0:
        return shortened_middle(own, width, dots)
    head = set_cell_size(front, (room + 1) // 2).rstrip()
    tail = back[len(back) - room // 2 :] if room > 1 else ""
    return cut(f"{head}{dots}{own}{dots}{tail}", width, dots)


def _common_start(names: Sequence[str]) -> str:
    first, last = min(names), max(names)  # all others stand between them
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return "".join(letter for letter, _ in alike)


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Return a text that fills this many columns, if it is not wider."""
    space = " " * (width - cell_len(text))
    return space + text if right else text + space


def packed(facts: Iterable[str], width: int, dots: str, gap: str = "   ") -> Iterator[str]:
    """Put facts into lines of at most this many columns; one is cut only if it is wider alone.

    Args:
        facts: In their order.
    """
    line = ""
    for fact in facts:
        joined = f"{line}{gap}{fact}" if line else fact
        if line and cell_len(joined) > width:
            yield line
            joined = fact
        line = cut(joined, width, dots)
    if line:
        yield line


def folded(text: str, width: int, lines: int, dots: str) -> list[str]:
    """Return a text on at most so many lines, broken at spaces; dots end one that is longer.

    Args:
        lines: How many at most.
    """
    words, folded = text.split(), list[str]()
    for line in packed(words, width, dots, gap=" "):
        folded.append(line)
    if len(folded) <= lines:
        return folded
    return [*folded[: lines - 1], cut(" ".join(folded[lines - 1 :]), width, dots)]
