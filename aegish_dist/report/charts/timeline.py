"""Failed attempts over time, a strip for each reason."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from aegish_dist.core.failures import TimedFailures
from aegish_dist.core.verdict import ErrorClass
from aegish_dist.report.charts import theme
from aegish_dist.report.charts.boxes import PixelLine
from aegish_dist.report.charts.captions import counted, sentences
from aegish_dist.report.charts.chart import Chart, Layer, NoChart, Panel
from aegish_dist.report.charts.layers import box_row, boxes, lines, text_row, texts
from aegish_dist.report.charts.rows import RowPlan
from aegish_dist.report.numbers import format_count

_WIDTH, _STRIP_PX = 480.0, 46.0
_MOST_BARS = 60
_LADDER_S = (60, 300, 900, 1800, 3600, 7200, 21600, 43200, 86400, 604800)
_LABEL_PX = 84.0
_TICKS_S = (60, 300, 900, 1800, 3600, 10800, 21600, 43200, 86400, 172800, 604800, 2592000)


def error_timeline(name: str, failures: Sequence[TimedFailures], stretch_s: int) -> Chart | NoChart:
    """Return how many attempts failed when, and why.

    Args:
        stretch_s: Length of their stretches in seconds; 0 when unknown.
    """
    timed = [each for each in failures if each.time is not None]
    if not timed:
        return NoChart(name, "no call failed" if not failures else "the failures have no time")
    grid = _TimeGrid(timed, max(stretch_s, _LADDER_S[0]))
    counts: dict[ErrorClass, Counter[int]] = {}
    for each in timed:
        of_class = counts.setdefault(each.error_class, Counter())
        of_class[grid.bar(each.time)] += max(each.attempts, each.verdicts)
    reasons = sorted(counts, key=lambda reason: (-counts[reason].total(), reason))
    plan = RowPlan([reason.replace("_", " ") for reason in reasons], _STRIP_PX)
    bars, words, floors = [], [], []
    for row, reason in enumerate(reasons):
        most, floor = max(counts[reason].values()), plan.y(row, 1) - 5
        for bar, count in sorted(counts[reason].items()):
            height = (_STRIP_PX - 14) * count / most
            left, right = grid.ends(bar)
            box = box_row(left, floor - height, right, floor, theme.PALETTE[0])
            bars.append({**box, "reason": plan.names[row], "attempts": count})
        floors.append(PixelLine(0, floor, _WIDTH, floor))
        words.append(text_row(_WIDTH + 10, plan.y(row, 0.4), f"most {format_count(most)}"))
        words.append(
            text_row(_WIDTH + 10, plan.y(row, 0.75),
                     f"all {format_count(counts[reason].total())}", theme.SOFT)
        )  # fmt: skip
    layers = [
        *plan.bands(_WIDTH + 90, range(len(reasons))),
        *grid.axis(plan.total),
        lines(floors, theme.LINE),
        boxes(bars),
        *plan.labels(),
        texts(words, size=theme.SMALL_PX),
    ]
    models = len({each.model for each in timed})
    unknown = len(failures) - len(timed)
    return Chart(
        name=name,
        title="Failed attempts over time",
        caption=sentences(
            f"Attempts at calls of {counted(models, 'model')} that failed, those included after "
            f"which another one succeeded, in bars of {grid.bar_in_words}. Each strip has a scale "
            "of its own, from 0 to its most.",
            f"{counted(unknown, 'count')} without a time not drawn." if unknown else "",
        ),
        description="; ".join(
            f"{name}: {format_count(counts[reason].total())} failed attempts, at most "
            f"{format_count(max(counts[reason].values()))} in {grid.bar_in_words}"
            for name, reason in zip(plan.names, reasons, strict=True)
        )
        + ".",
        panel=Panel(_WIDTH, plan.total, max(plan.left, 60), 100, 6, 44, layers),
    )


class _TimeGrid:
    """Bars of equal length from the first failure to the last one."""

    def __init__(self, timed: Sequence[TimedFailures], least_s: int) -> None:
        times = [each.time.timestamp() for each in timed if each.time is not None]
        span = max(times) - min(times) + least_s
        fitting = [step for step in _LADDER_S if step >= least_s and span / step <= _MOST_BARS]
        self._step = fitting[0] if fitting else max(_LADDER_S[-1], least_s)
        self._first = int(min(times) // self._step)
        self._bars = int(max(times) // self._step) - self._first + 1

    def bar(self, time: datetime | None) -> int:
        """Return the number of the bar that a time falls into."""
        return int((time.timestamp() if time else 0) // self._step) - self._first

    def ends(self, bar: int) -> tuple[float, float]:
        """Return where a bar begins and ends, in pixels."""
        width = _WIDTH / self._bars
        return width * bar, width * (bar + 1) - (1 if width > 3 else 0)

    @property
    def bar_in_words(self) -> str:
        """Length of a bar, such as `5 minutes`."""
        for unit, seconds in (("day", 86400), ("hour", 3600), ("minute", 60)):
            if self._step % seconds == 0:
                number = self._step // seconds
                return counted(number, unit)
        return f"{self._step} seconds"

    def axis(self, height: float) -> list[Layer]:
        """Return ticks with times below the strips, and the title of the axis."""
        begin, end = self._first * self._step, (self._first + self._bars) * self._step
        fitting = [step for step in _TICKS_S if (end - begin) / step <= _WIDTH / _LABEL_PX]
        step = fitting[0] if fitting else end - begin
        ticks, words, day = [], [], None
        for second in range(-(-begin // step) * step, end + 1, step):
            x = _WIDTH * (second - begin) / (end - begin)
            moment = datetime.fromtimestamp(second, UTC)
            clock = f"{moment:%H:%M}"
            date = f"{moment:%b} {moment.day}"
            ticks.append(PixelLine(x, height, x, height + 5))
            same_day = clock if moment.date() == day else f"{date} {clock}"
            words.append(text_row(x, height + 14, date if step >= 86400 else same_day))
            day = moment.date()
        first = datetime.fromtimestamp(begin, UTC)
        title = f"time (UTC), {first:%Y}, bars of {self.bar_in_words}"
        return [
            lines(ticks, theme.LINE),
            texts(words, align="center"),
            texts([text_row(_WIDTH / 2, height + 32, title)], align="center"),
        ]
