"""A run that goes on, drawn on a terminal of any size; no line is wider than the terminal.

From top to bottom: the whole run, its models, the last errors, and what to do next.

If there are too few lines, models that move or need help stand before the others, and a last line
counts the models that are left out. If there are too few columns, the least needed columns of the
table are dropped. Wide characters take two columns.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import itemgetter

from msgspec import Struct
from rich.text import Text

from aegish_dist.core.status import ModelStatus, RunStatus, State, may_move
from aegish_dist.core.text import cell_width, cut_to_cells, filled, printable, sentence_lines
from aegish_dist.report.run_words import error_words, headline, left_of, pace, why
from aegish_dist.report.writing import format_usd, short_names


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Return a text that fills this many columns, if it is not wider."""
    space = " " * (width - cell_width(text))
    if right:
        return space + text
    return text + space


class Canvas(Struct, frozen=True):
    width: int
    height: int
    ascii_only: bool = False

    @property
    def dots(self) -> str:
        """Stand for what is left out."""
        if self.ascii_only:
            return "..."
        return "\N{HORIZONTAL ELLIPSIS}"

    def cut(self, text: str, width: int | None = None) -> str:
        """Return a text of at most a line, or of so many columns; dots end one that was longer."""
        if width is None:
            width = self.width
        if cell_width(text) <= width:
            return text
        kept = cut_to_cells(text, width - cell_width(self.dots))
        shortened = kept.rstrip() + self.dots
        return shortened[: max(0, width)]

    def packed(self, facts: Iterable[str]) -> list[Text]:
        """Put facts into lines; a fact is cut only if it is wider than a line of its own."""
        shown = [f"{self.cut(fact)}   " for fact in facts]
        return [Text(line) for line in filled(shown, self.width)]

    def folded(self, text: str, lines: int) -> list[str]:
        """Return a text on at most so many lines, broken at spaces."""
        folded = sentence_lines(text, self.width)
        if len(folded) <= lines:
            return folded
        rest = " ".join(folded[lines - 1 :])
        return [*folded[: lines - 1], self.cut(rest)]

    def names(self, models: Sequence[ModelStatus], width: int) -> dict[str, str]:
        """Return what is shown for each id of a model."""
        names = short_names([model.model for model in models], width, dots=self.dots)
        return {model: self.cut(name, width) for model, name in names.items()}


GAP = 2


def _usd(amount: float | None) -> str:
    if amount is None:
        return "-"
    return format_usd(amount)


# All columns after the id of the model, from left to right: heading, rank and how a cell is made.
# Columns are kept in the order of their ranks while they fit, so that of rank 10 is dropped first.
COLUMNS: Sequence[tuple[str, int, Callable[[ModelStatus], str]]] = (
    ("Done", 0, lambda m: f"{m.done:,}/{m.planned:,}"),
    ("%", 7, lambda m: str(100 * m.done // m.planned if m.planned else 100)),
    ("Rate", 2, lambda m: "-" if m.state is State.COMPLETE else pace(m.rate_per_s)),
    ("In flight", 3, lambda m: "-" if m.state is State.COMPLETE else f"{m.in_flight:,}"),
    ("429s", 4, lambda m: f"{m.rate_limited:,}"),
    ("In 1 min", 10, lambda m: f"{m.rate_limited_last_minute:,}"),
    ("Retries", 9, lambda m: f"{m.retries:,}"),
    ("Failed", 6, lambda m: f"{m.failed:,}"),
    ("Cost", 5, lambda m: _usd(m.cost_usd)),
    ("At end", 8, lambda m: _usd(m.cost_at_end_usd)),
    ("Left", 1, left_of),
)


def table_lines(models: Sequence[ModelStatus], canvas: Canvas) -> list[str]:
    """Return the line of headings and a line for each model, all with the same columns."""
    ids = [printable(model.model) for model in models]
    longest = max(map(cell_width, ["Model", *ids]))
    room = canvas.width
    chosen: dict[str, list[str]] = {}
    for heading, priority, cell in sorted(COLUMNS, key=itemgetter(1)):
        column = [heading, *map(cell, models)]
        column_width = max(map(cell_width, column))
        # Ids keep 24 columns, if they need them, before another column is dropped.
        least = min(longest, 24 if priority else 8)
        if column_width + GAP + least <= room:
            chosen[heading] = [padded(text, column_width, right=True) for text in column]
            room -= column_width + GAP
    model_width = max(0, min(longest, room))
    names = canvas.names(models, model_width)
    shown = ["Model", *(names[model.model] for model in models)]
    columns = [[padded(name, model_width) for name in shown]]
    for heading, _, _ in COLUMNS:
        if heading in chosen:
            columns.append(chosen[heading])
    gap = " " * GAP
    return [gap.join(cells) for cells in zip(*columns, strict=True)]


STYLES = {
    State.RUNNING: "green",
    State.WAITING: "yellow",
    State.PARKED: "red",
    State.OVER_BUDGET: "red",
    State.PAUSED: "yellow",
    State.CANCELLED: "yellow",
    State.COMPLETE: "dim",
}
# Models in these states stand in front where not all fit; the others follow.
ORDER = (State.PARKED, State.OVER_BUDGET, State.RUNNING, State.WAITING)
# Lines that errors and steps keep with their headings, if needed, before models get theirs.
LEAST_LINES = 3


class Scene(Struct, frozen=True):
    status: RunStatus
    counted_at: str = ""
    steps: Sequence[str] = ()  # lines about what a user could do next


def draw(scene: Scene, canvas: Canvas) -> list[Text]:
    """Return the lines of a run, at most as many as the terminal has."""
    status = scene.status
    head = _head(scene, canvas)
    outcomes = _outcomes(status, canvas)
    errors = _errors(status, canvas)
    steps = _steps(scene, canvas)
    # Models get what is left of the lines, and what they do not need goes to errors and steps.
    for_errors = min(len(errors), LEAST_LINES)
    for_steps = min(len(steps), LEAST_LINES)
    free = canvas.height - len(head) - len(outcomes)
    models = _models(status, canvas, max(0, free - for_errors - for_steps))
    free -= len(models)
    errors = errors[: max(0, free - for_steps)]
    steps = steps[: max(0, free - len(errors))]
    lines = [*head, *models, *outcomes, *errors, *steps]
    return lines[: canvas.height]


def _outcomes(status: RunStatus, canvas: Canvas) -> list[Text]:
    facts = [f"{name} {number:,}" for name, number in status.outcomes.items()]
    lines = canvas.packed(facts)
    if lines:
        return [Text(), *lines]
    return []


def _head(scene: Scene, canvas: Canvas) -> list[Text]:
    status = scene.status
    state = f"{status.state}  {scene.counted_at}".rstrip()
    name = f"Run {status.run_id} {printable(status.name)}".rstrip()
    room = canvas.width - len(state)
    title = canvas.cut(name, max(0, room - 2))
    first = Text(padded(title, room), style="bold")
    first.append(state, style=STYLES[status.state])
    first.truncate(canvas.width)
    return [first, _bar(status, canvas), *canvas.packed(headline(status))]


def _bar(status: RunStatus, canvas: Canvas) -> Text:
    """Return how much is done; a run that asks nothing is complete."""
    done = status.done
    planned = status.planned
    if not planned:
        done = planned = 1
    numbers = f" {status.done:,} of {status.planned:,}  {100 * done // planned} %"
    room = max(0, canvas.width - len(numbers))
    full = room * done // planned
    done_mark = "#" if canvas.ascii_only else "\N{FULL BLOCK}"
    rest_mark = "-" if canvas.ascii_only else "\N{LIGHT SHADE}"
    bar = Text(done_mark * full, style=STYLES[status.state])
    bar.append(rest_mark * (room - full), style="dim")
    bar.append(canvas.cut(numbers), style="bold")
    return bar


def _models(status: RunStatus, canvas: Canvas, lines: int) -> list[Text]:
    models = status.models
    headings, *rows = table_lines(models, canvas)
    shown = [Text(), Text(headings, style="bold")]
    entries = []
    for model, row in zip(models, rows, strict=True):
        entries.append(_entry(status, model, row, canvas))
    if len(shown) + sum(map(len, entries)) <= lines:
        return [*shown, *chain.from_iterable(entries)]
    for model, entry in zip(models, entries, strict=True):
        if may_move(model):  # its waits are those in the head
            del entry[1:]
    heights = [len(entry) for entry in entries]
    chosen = _chosen(models, heights, lines - len(shown) - 1)
    left_out: Counter[State] = Counter()
    for number, model in enumerate(models):
        if number in chosen:
            shown += entries[number]
        else:
            left_out[model.state] += 1
    kinds = ", ".join(f"{number} {state}" for state, number in left_out.items())
    more = canvas.cut(f"and {left_out.total()} more: {kinds}")
    shown.append(Text(more, style="dim"))
    return shown[: max(0, lines)]


def _chosen(models: Sequence[ModelStatus], heights: Sequence[int], free: int) -> set[int]:
    """Return which models have room: those that move or need help before the others."""
    ranks = [(*ORDER, model.state).index(model.state) for model in models]
    chosen = set[int]()
    for number in sorted(range(len(models)), key=ranks.__getitem__):
        if heights[number] > free:
            break
        chosen.add(number)
        free -= heights[number]
    return chosen


def _entry(
    status: RunStatus,
    model: ModelStatus,
    row: str,
    canvas: Canvas,
) -> list[Text]:
    style = "" if model.state is State.RUNNING else STYLES[model.state]
    reason = why(model, status)
    if not reason:
        return [Text(row, style=style)]
    beside = f"{row}  {reason}"
    if cell_width(beside) <= canvas.width:
        return [Text(beside, style=style)]
    below = canvas.cut(f"  {reason}")
    return [Text(row, style=style), Text(below, style=style)]


def _errors(status: RunStatus, canvas: Canvas) -> list[Text]:
    if not status.last_errors:
        return []
    lines = [Text("Last errors", style="bold")]
    names = canvas.names(status.models, max(20, canvas.width // 4))
    for error in status.last_errors:
        model = names.get(error.model, printable(error.model))
        time = error.at.astimezone()
        words = f"{time:%H:%M:%S}  {model}  {error_words(error)}"
        lines.append(Text(canvas.cut(words)))
    return lines


def _steps(scene: Scene, canvas: Canvas) -> list[Text]:
    if not scene.steps:
        return []
    lines = [Text("Next", style="bold")]
    for step in scene.steps:
        lines += map(Text, canvas.folded(printable(step), 3))
    return lines
