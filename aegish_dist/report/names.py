"""Names of models that are short and still tell the models apart."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import accumulate
from os.path import commonprefix

from aegish_dist.core.text import cell_width, printable

NAME_WIDTH = 36
"""Columns of a name in a sentence."""
MOST_NAMES = 3
DOTS = "\N{HORIZONTAL ELLIPSIS}"
_Pieces = tuple[str, ...]  # the pieces of an id that its short name keeps, in order; dots join them


def short_names(
    ids: Sequence[str],
    width: float | None = None,
    *,
    dots: str = DOTS,
    measure: Callable[[str], float] = cell_width,
) -> dict[str, str]:
    """Return a printable name for each id; different ids have different names.

    Ids stay whole if all of them fit. Else all lose the path that they share, and an id that is
    still too wide loses the middle of its path, then its path, then the middle of its last part:
    nothing by which it differs from another id. A name is wider than `width` only where the id
    has no shorter name of its own. The order of the ids does not matter.

    Args:
        ids: Foreign text, such as `openai/gpt-5.1`.
        width: In the unit of `measure`; None cuts off the shared path and nothing else.
        dots: Stand for what is cut out.
        measure: Returns the width of a text, the sum of the widths of its characters.
    """
    texts = {each: printable(each) for each in sorted({*ids})}
    if len({*texts.values()}) < len(texts):  # escapes look like a backslash that was typed
        texts = {each: each.encode("unicode_escape").decode() for each in texts}
    if width is not None and all(measure(text) <= width for text in texts.values()):
        return texts
    alike = commonprefix([*texts.values()])  # noqa: RUF071  character by character
    shared = alike.rfind("/") + 1 if len(texts) > 1 else 0
    if all(len(text) > shared for text in texts.values()):
        texts = {each: text[shared:] for each, text in texts.items()}
    if width is None:
        return texts
    found, taken = {}, {*texts.values()}
    for each, text in texts.items():
        others = [other for other in texts.values() if other != text]
        found[each] = _name(text, others, taken, width, dots=dots, measure=measure)
        taken.add(found[each])
    return found


def _name(
    text: str,
    others: Collection[str],
    taken: Collection[str],
    width: float,
    *,
    dots: str,
    measure: Callable[[str], float],
) -> str:
    """Return the first name of a text that fits, and that no other text could have."""
    forms = {form for other in others for form in (other, other.rpartition("/")[2])}
    while width < measure(text):
        for pieces in _cuts(text, width, measure(dots), measure):
            name = dots.join(pieces)
            if name not in taken and not any(_may_name(pieces, form) for form in forms):
                return name
        width += measure("n")
    return text


def _may_name(pieces: _Pieces, text: str) -> bool:
    """Whether a text has these pieces in this order, the outer ones at its ends."""
    if len(pieces) == 1 or len(text) < sum(map(len, pieces)):
        return text == pieces[0]
    first, *middle, last = pieces
    between = text[len(first) : len(text) - len(last)]
    ends = text.startswith(first) and text.endswith(last)
    return ends and all(piece in between for piece in middle)


def _cuts(
    text: str, width: float, dots: float, measure: Callable[[str], float]
) -> Iterator[_Pieces]:
    """Yield what may be kept of a text in this width, the most wanted first."""
    part = text.rpartition("/")[2]
    whole = list(_one_cut(text, width - dots, measure))
    yield from [cut for cut in whole if len(cut[0]) > 3 and len(cut[1]) > len(part)][-1:]
    if measure(part) <= width:
        yield (part,)
    for cuts in (list(_one_cut(part, width - dots, measure)), whole):
        yield from sorted(cuts, key=lambda cut: abs(len(cut[0]) - len(cut[1])))
    yield from _two_cuts(text, width - 2 * dots, measure)


def _one_cut(text: str, room: float, measure: Callable[[str], float]) -> Iterator[_Pieces]:
    """Yield each beginning of a text with the longest end for which it leaves room."""
    ends = list(accumulate(map(measure, text), initial=0.0))
    for head in range(1, bisect_left(ends, room)):
        tail = bisect_left(ends, ends[-1] + ends[head] - room)
        if head < tail < len(text):
            yield text[:head], text[tail:]


def _two_cuts(text: str, room: float, measure: Callable[[str], float]) -> Iterator[_Pieces]:
    """Yield a beginning and an end, of a quarter of the room each, with each part in between."""
    if room <= 0:
        return
    ends = list(accumulate(map(measure, text), initial=0.0))
    head = bisect_right(ends, room / 4) - 1
    tail = bisect_left(ends, ends[-1] - room / 4)
    left = room - ends[head] - (ends[-1] - ends[tail])
    for start in range(head + 1, tail):
        stop = bisect_right(ends, ends[start] + left) - 1
        if head > 0 and start < stop < tail < len(text):
            yield text[:head], text[start:stop], text[tail:]


def listed(names: Sequence[str]) -> str:
    """Return names for a sentence, the first ones of many."""
    if len(names) > MOST_NAMES + 1:
        names = [*names[:MOST_NAMES], f"{len(names) - MOST_NAMES} others"]
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
