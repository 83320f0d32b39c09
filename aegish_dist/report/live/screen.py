"""A run that goes on, drawn on a terminal of any size; no line is wider than it.

What a user needs comes first: the whole run, then its models, the last errors and what to do. Where
lines are few, models that move or need help stand before the others, and the rest is counted.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from aegish_dist.core.status import ModelStatus, RunStatus, State
from aegish_dist.core.text import printable
from aegish_dist.report.live.columns import fitted, shown_names
from aegish_dist.report.live.fitting import cut, folded, packed, padded
from aegish_dist.report.live.words import error_words, headline, why

STYLES = {
    State.RUNNING: "green",
    State.WAITING: "yellow",
    State.PARKED: "red",
    State.OVER_BUDGET: "red",
    State.PAUSED: "yellow",
    State.CANCELLED: "yellow",
    State.COMPLETE: "dim",
}
ORDER = (State.PARKED, State.OVER_BUDGET, State.RUNNING, State.WAITING)
"""Models in these states stand in front where not all fit; the others follow."""
LEAST_ERRORS = 2
LEAST_STEPS = 2
"""Lines that errors and steps keep, if they need them, before models get theirs."""
LEAST_NAME = 20
"""Columns that the id of a model has beside an error."""


@dataclass(frozen=True, slots=True)
class Scene:
    """All that is drawn."""

    status: RunStatus
    counted_at: str = ""
    steps: Sequence[str] = ()
    """Lines about what a user could do next."""


@dataclass(frozen=True, slots=True)
class Canvas:
    """The terminal."""

    width: int
    height: int
    ascii_only: bool = False

    @property
    def dots(self) -> str:
        """Stand for what is left out."""
        return "..." if self.ascii_only else "\N{HORIZONTAL ELLIPSIS}"


def draw(scene: Scene, canvas: Canvas) -> list[Text]:
    """Return the lines of a run, at most as many as the terminal has."""
    status = scene.status
    head = _head(scene, canvas)
    outcomes = _outcomes(status, canvas)
    errors, steps = _errors(status, canvas), _steps(scene, canvas)
    least = min(len(errors), LEAST_ERRORS + 1) + min(len(steps), LEAST_STEPS + 1)
    free = canvas.height - len(head) - len(outcomes)
    models = _models(status, canvas, max(0, free - least))
    free -= len(models)
    errors = errors[: max(0, free - min(len(steps), LEAST_STEPS + 1))]
    steps = steps[: max(0, free - len(errors))]
    return [*head, *models, *outcomes, *errors, *steps][: canvas.height]


def _head(scene: Scene, canvas: Canvas) -> list[Text]:
    status = scene.status
    state = f"{status.state}  {scene.counted_at}".rstrip()
    name = f"Run {status.run_id}" + (f" {printable(status.name)}" if status.name else "")
    left = cut(name, max(0, canvas.width - len(state) - 2), canvas.dots)
    first = Text(padded(left, canvas.width - len(state)), style="bold")
    first.append(state, style=STYLES[status.state])
    first.truncate(canvas.width)
    facts = packed(headline(status), canvas.width, canvas.dots)
    return [first, _bar(status, canvas), *map(Text, facts)]


def _bar(status: RunStatus, canvas: Canvas) -> Text:
    percent = 100 * status.done // status.planned if status.planned else 100
    numbers = f" {status.done:,} of {status.planned:,}  {percent} %"
    room = max(0, canvas.width - len(numbers))
    full = room * status.done // status.planned if status.planned else room
    marks = "#-" if canvas.ascii_only else "\N{FULL BLOCK}\N{LIGHT SHADE}"
    bar = Text(marks[0] * full, style=STYLES[status.state])
    bar.append(marks[1] * (room - full), style="dim")
    bar.append(cut(numbers, canvas.width, canvas.dots), style="bold")
    return bar


def _models(status: RunStatus, canvas: Canvas, lines: int) -> list[Text]:
    table = fitted(status.models, canvas.width, canvas.dots)
    heading = [Text(), Text(table.heading(), style="bold")]
    entries = [_entry(model, table.row(model), canvas) for model in status.models]
    if len(heading) + sum(map(len, entries)) <= lines:
        return [*heading, *(line for entry in entries for line in entry)]
    # Where lines are few, the waits of models that move are those in the head.
    entries = [
        entry[:1] if model.state is State.RUNNING else entry
        for entry, model in zip(entries, status.models, strict=True)
    ]
    placed = sorted(range(len(entries)), key=lambda number: (_rank(status.models[number]), number))
    shown, free = set[int](), lines - len(heading) - 1
    for number in placed:
        if len(entries[number]) > free:
            break
        shown.add(number)
        free -= len(entries[number])
    rest = [model for number, model in enumerate(status.models) if number not in shown]
    rows = [line for number in sorted(shown) for line in entries[number]]
    return [*heading, *rows, _more(rest, canvas)][: max(0, lines)]


def _rank(model: ModelStatus) -> int:
    return ORDER.index(model.state) if model.state in ORDER else len(ORDER)


def _entry(model: ModelStatus, row: str, canvas: Canvas) -> list[Text]:
    style = STYLES[model.state] if model.state is not State.RUNNING else ""
    reason = why(model)
    if not reason:
        return [Text(row, style=style)]
    together = f"{row}  {reason}"
    if cell_len(together) <= canvas.width:
        return [Text(together, style=style)]
    below = cut(f"  {reason}", canvas.width, canvas.dots)
    return [Text(row, style=style), Text(below, style=style)]


def _more(models: Sequence[ModelStatus], canvas: Canvas) -> Text:
    states = Counter(model.state.value for model in models)
    kinds = ", ".join(f"{number} {state}" for state, number in states.items())
    return Text(cut(f"and {len(models)} more: {kinds}", canvas.width, canvas.dots), style="dim")


def _outcomes(status: RunStatus, canvas: Canvas) -> list[Text]:
    facts = [f"{name} {number:,}" for name, number in status.outcomes.items()]
    return [Text(), *map(Text, packed(facts, canvas.width, canvas.dots))] if facts else []


def _errors(status: RunStatus, canvas: Canvas) -> list[Text]:
    if not status.last_errors:
        return []
    lines = [Text("Last errors", style="bold")]
    names = shown_names(status.models, max(LEAST_NAME, canvas.width // 4), canvas.dots)
    for error in status.last_errors:
        time = f"{error.at.astimezone():%H:%M:%S}"
        words = f"{time}  {names.get(error.model, printable(error.model))}  {error_words(error)}"
        lines.append(Text(cut(words, canvas.width, canvas.dots)))
    return lines


def _steps(scene: Scene, canvas: Canvas) -> list[Text]:
    lines = _lines(scene.steps, canvas, 3)
    return [Text("Next", style="bold"), *lines] if lines else []


def _lines(texts: Sequence[str], canvas: Canvas, most: int) -> list[Text]:
    """Fold each text to at most so many lines."""
    return [
        Text(line)
        for text in texts
        for line in folded(printable(text), canvas.width, most, canvas.dots)
    ]
