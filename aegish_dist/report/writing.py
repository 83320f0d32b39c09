"""How reports write numbers and names of models.

What is undefined is an en dash, never 0. A short name still tells a model from the others.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from os.path import commonprefix
from typing import TypeVar

from aegish_dist.core.text import cell_width, counted, printable

UNDEFINED = "\N{EN DASH}"


Number = TypeVar("Number", int, float)


def _or_dash(write: Callable[[Number], str]) -> Callable[[Number | None], str]:
    """Make a writer of numbers write a dash for None."""

    def written(value: Number | None) -> str:
        return UNDEFINED if value is None else write(value)

    return written


@_or_dash
def format_rate(value: float) -> str:
    """Write a rate in [0, 1] as a percentage without its sign: 0.957 is `95.7`."""
    return f"{100 * value:z.1f}"


@_or_dash
def format_points(value: float) -> str:
    """Write a difference or standard error of rates in percentage points: 0.0078 is `0.78`."""
    return f"{100 * value:z.2f}"


def format_interval(
    low: float | None,
    high: float | None,
    write: Callable[[float | None], str] = format_rate,
) -> str:
    """Write an interval: `[93.9, 97.0]`, of differences `[-0.3, +1.9]`."""
    if low is None or high is None:
        return UNDEFINED
    return f"[{write(low)}, {write(high)}]"


@_or_dash
def format_difference(value: float) -> str:
    """Write a difference of rates in percentage points, with its sign: 0.012 is `+1.2`, 0 `0.0`."""
    points = f"{100 * value:+.1f}"
    return points[1:] if points in ("+0.0", "-0.0") else points


@_or_dash
def format_p(value: float) -> str:
    """Write a p value: three decimals, `<0.001` below, never `0.000`."""
    return format_decimal(value) if value >= 0.001 else "<0.001"


@_or_dash
def format_decimal(value: float) -> str:
    """Write a number that is no rate, such as a Brier score, with three decimals."""
    return f"{value:z.3f}"


@_or_dash
def format_count(value: int) -> str:
    """Write a count with thousands separators."""
    return f"{value:,}"


def format_span(counts: Iterable[int], between: str = " to ") -> str:
    """Write the least and the greatest count: `3 to 12`, or `3` where they are the same."""
    ordered = sorted(counts)
    if not ordered:
        return ""
    ends = dict.fromkeys(map(format_count, (ordered[0], ordered[-1])))
    return between.join(ends)


@_or_dash
def format_usd(value: float) -> str:
    """Write an amount in USD: cents from one dollar on, three significant digits below."""
    if value == 0 or value >= 1:
        return f"${value:,.2f}"
    return f"${value:.{2 - math.floor(math.log10(value))}f}"


@_or_dash
def format_ms(value: float) -> str:
    """Write a time given in milliseconds: `0.4 ms`, `812 ms`, `2.31 s`, `23.1 s`, `231 s`."""
    # The bounds are where rounding to the shown digits would need one digit more.
    if value < 999.5:
        return f"{value:.1f} ms" if value < 9.95 else f"{value:.0f} ms"
    seconds = value / 1000
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    return f"{seconds:.1f} s" if seconds < 99.95 else f"{seconds:,.0f} s"


def format_length(length_s: int) -> str:
    """Write a length of time by its largest unit: `10 s`, `5 minutes`, `3 hours`, `2 days`."""
    for unit, seconds in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if length_s >= seconds:
            return counted(length_s // seconds, unit)
    return f"{length_s} s"


def format_time(moment: datetime) -> str:
    """Write a time to the minute, in UTC."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


# Columns of a name in a sentence.
NAME_WIDTH = 36
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
    texts = {id: printable(id) for id in sorted({*ids})}
    # Two ids look alike where one has a character and the other one its escape.
    if len({*texts.values()}) < len(texts):
        texts = {id: id.encode("unicode_escape").decode() for id in texts}
    if width is not None and all(measure(text) <= width for text in texts.values()):
        return texts
    alike = commonprefix([*texts.values()])  # noqa: RUF071  character by character
    shared = alike.rfind("/") + 1 if len(texts) > 1 else 0
    if all(len(text) > shared for text in texts.values()):
        texts = {id: text[shared:] for id, text in texts.items()}
    if width is None:
        return texts
    names = {}
    taken = {*texts.values()}
    for id, text in texts.items():
        others = [other for other in texts.values() if other != text]
        names[id] = _name(text, others, taken, width, dots=dots, measure=measure)
        taken.add(names[id])
    return names


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
    forms = {*others, *(other.rpartition("/")[2] for other in others)}
    while width < measure(text):
        for pieces in _cuts(text, width, measure(dots), measure):
            name = dots.join(pieces)
            if name not in taken and not any(_may_name(pieces, form) for form in forms):
                return name
        width += measure("n")
    return text


def _may_name(pieces: _Pieces, text: str) -> bool:
    """Whether a text has these pieces in this order, the outer ones at its ends."""
    # The pieces of a shorter text would overlap.
    if len(pieces) == 1 or len(text) < sum(map(len, pieces)):
        return text == pieces[0]
    first, *middle, last = pieces
    between = text[len(first) : len(text) - len(last)]
    ends = text.startswith(first) and text.endswith(last)
    return ends and all(piece in between for piece in middle)


def _cuts(
    text: str,
    width: float,
    dots: float,
    measure: Callable[[str], float],
) -> Iterator[_Pieces]:
    """Yield what may be kept of a text in this width, the most wanted first."""
    part = text.rpartition("/")[2]
    of_text = list(_one_cut(text, width - dots, measure))
    # The longest beginning of the path that leaves the last part whole.
    in_path = [(head, end) for head, end in of_text if len(head) > 3 and len(end) > len(part)]
    yield from in_path[-1:]
    if measure(part) <= width:
        yield (part,)
    of_part = list(_one_cut(part, width - dots, measure))
    for cuts in (of_part, of_text):
        yield from sorted(cuts, key=_unevenness)
    yield from _two_cuts(text, width - 2 * dots, measure)


def _unevenness(pieces: _Pieces) -> int:
    head, end = pieces
    return abs(len(head) - len(end))


def _one_cut(text: str, room: float, measure: Callable[[str], float]) -> Iterator[_Pieces]:
    """Yield each beginning of a text with the longest end for which it leaves room."""
    ends = list(accumulate(map(measure, text), initial=0.0))
    longest = bisect_left(ends, room)
    for head in range(1, longest):
        # From here on the text takes what the beginning leaves of the room.
        begins = ends[-1] + ends[head] - room
        tail = bisect_left(ends, begins)
        if head < tail < len(text):
            yield text[:head], text[tail:]


def _two_cuts(text: str, room: float, measure: Callable[[str], float]) -> Iterator[_Pieces]:
    """Yield a beginning and an end, of a quarter of the room each, with each part in between."""
    ends = list(accumulate(map(measure, text), initial=0.0))
    quarter = room / 4
    head = bisect_right(ends, quarter) - 1
    tail = bisect_left(ends, ends[-1] - quarter)
    # A name shows how its text begins and how it ends.
    if head <= 0 or tail >= len(text):
        return
    left = room - ends[head] - (ends[-1] - ends[tail])
    for start in range(head + 1, tail):
        stop = bisect_right(ends, ends[start] + left) - 1
        if start < stop < tail:
            yield text[:head], text[start:stop], text[tail:]


def listed(names: Sequence[str]) -> str:
    """Return names for a sentence, the first ones of many."""
    if not names:
        return ""
    *others, last = names
    if len(others) > MOST_NAMES:
        others = [*names[:MOST_NAMES]]
        last = f"{len(names) - MOST_NAMES} others"
    return f"{', '.join(others)} and {last}" if others else last
