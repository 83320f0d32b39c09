"""The grid of models and commands: its section of the page, and the data that its script unpacks.

The section `#commands` holds the notes, `#grid-state` (a line that says what the script is doing,
or why it cannot), and `#grid-view`, which the script fills:

- `#grid-filters`: a form; its fields are named as the keys of the address: `q`, `target`,
  `dataset`, `category`, `outcome`, `model`, `missed`, `disputed`, `flipping`, `unscored`, `sort`,
  `of`, `order`. `#grid-clear` clears them, `#grid-count` says how many commands are shown;
- `#grid`: the grid, in `#grid-box`, which scrolls. Rows have `data-command` (a sample id), cells
  and column headers `data-model` (a place in the ranking, from 0), cells `data-right` (`yes`, `no`,
  `some`, `none`), too;
- `#grid-detail`: the dialog about a command, with `data-command`; in it one `details` element with
  `data-model` for each model, and `#grid-previous`, `#grid-next`, `#grid-link`, `#grid-copy` and
  `#grid-close`.

The address of a view is `#commands?missed=all&q=tar&open=SAMPLE_ID`.

The data are columns of integers as JSON in ASCII, compressed, in base64: the same values give the
same bytes. In the columns, verdicts are model-major: that of model `m`, command `c` and epoch `e`
(0-based) stands at `(m * commands + c) * epochs + e`, and is `UNKNOWN` where there is none. Texts
are packed in blobs of some commands each, and a page unpacks a blob when one of its commands is
opened. Within a blob, verdicts are command-major, `(command * models + model) * epochs + epoch`,
and columns hold places in the blob's list of texts.
"""

import base64
import json
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from importlib.resources import files
from itertools import chain

import msgspec

from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.text import JsonObject, printable, printable_lines, shortened
from aegish_dist.opinions.verdict_query import NUMBERS, TEXTS, UNKNOWN, GridPart
from aegish_dist.report.layout import Section
from aegish_dist.report.page.tables import TableStyle, table, text

# Returns a value as JSON in ASCII, in which half a surrogate pair is an escape too.
as_json: Callable[[object], str] = json.JSONEncoder(
    ensure_ascii=True, separators=(",", ":"), allow_nan=False
).encode


def packed(parts: Iterable[str]) -> bytes:
    """Return ASCII text, compressed part by part."""
    # Plain JSON would be read with less code, and take the room: of 48,000 verdicts the columns
    # are 0.56 MB packed and 2.8 MB plain, the texts 1.9 and 7.6.
    # The window of 31 stands for gzip, whose header then holds no time.
    pack = zlib.compressobj(6, zlib.DEFLATED, 31)
    return b"".join([*(pack.compress(part.encode("ascii")) for part in parts), pack.flush()])


def data_element(name: str, content: bytes) -> str:
    """Return an element that no browser runs or shows, with content in base64."""
    return f'<script type="text/plain" id="{name}">{base64.b64encode(content).decode()}</script>\n'


class GridShape(msgspec.Struct, frozen=True):
    """How many there are of what."""

    models: int
    epochs: int
    commands_per_blob: int


def pack_texts(part: GridPart, shape: GridShape) -> list[bytes]:
    """Return the texts of a part, so many commands in each blob; none without any texts."""
    if not part.texts:
        return []
    cells = [
        (command * shape.models + model) * shape.epochs + epoch - 1
        for model, command, epoch in zip(part.model, part.command, part.epoch, strict=True)
    ]
    size = shape.models * shape.epochs * shape.commands_per_blob
    count = -(-len(part.commands) // shape.commands_per_blob)
    blobs: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for cell, verdict in sorted(zip(cells, range(len(cells)), strict=True)):
        blobs[cell // size].append((cell % size, verdict))
    return [packed([as_json(_blob(part, places))]) for places in blobs]


def _blob(part: GridPart, places: Sequence[tuple[int, int]]) -> JsonObject:
    cell_of = {verdict: cell for cell, verdict in places}
    columns = {name: [part.texts[name][verdict] for _, verdict in places] for name in TEXTS}
    failed = [attempt for attempt in part.attempts if attempt.verdict in cell_of]
    messages = [attempt.message for attempt in failed]
    # A text that many verdicts share stands in the list once.
    each_once = dict.fromkeys(chain(*columns.values(), messages))
    known = [text for text in each_once if text is not None]
    place_of: dict[str | None, int] = {None: UNKNOWN}
    place_of |= {text: place for place, text in enumerate(known)}
    attempts = []
    for attempt in failed:
        attempts.append(
            [
                cell_of[attempt.verdict],
                attempt.attempt,
                ErrorClass(attempt.error_class).words,
                attempt.status,
                attempt.retry_after_s,
                place_of[attempt.message],
                attempt.at_s,
            ]
        )
    lengths = {}
    for cell, verdict in places:
        if verdict in part.lengths:
            lengths[str(cell)] = part.lengths[verdict]
    return {
        "at": [cell for cell, _ in places],
        **{name: [place_of[text] for text in column] for name, column in columns.items()},
        "lengths": lengths,
        "attempts": attempts,
        "texts": [printable_lines(text) for text in known],
    }


class PackedPart(msgspec.Struct, frozen=True):
    """A part of the grid in its own columns."""

    commands: Mapping[str, Sequence[str | int]]
    """Of each command what is known of it."""
    numbers: "Mapping[str, array[int]]"
    texts: Sequence[bytes]
    """Blobs of texts; empty where none were asked for."""

    @property
    def size(self) -> int:
        """How many commands there are."""
        return len(self.commands["id"])


def pack_part(part: GridPart, shape: GridShape) -> PackedPart:
    """Return a part of the grid as columns, its texts packed."""
    count = len(part.commands)
    cells = [
        (model * count + command) * shape.epochs + epoch - 1
        for model, command, epoch in zip(part.model, part.command, part.epoch, strict=True)
    ]
    at = [UNKNOWN] * (shape.models * count * shape.epochs)
    for verdict, cell in enumerate(cells):
        at[cell] = verdict
    return PackedPart(
        {
            "id": [each.sample_id for each in part.commands],
            "text": [printable_lines(each.command) for each in part.commands],
            "dataset": [printable(each.dataset) for each in part.commands],
            "target": [each.target.value for each in part.commands],
            "category": [printable(each.category or "") for each in part.commands],
            "cluster": [printable(each.cluster or "") for each in part.commands],
            "excluded": [int(each.excluded) for each in part.commands],
        },
        {name: _placed(at, part.numbers.get(name)) for name in NUMBERS},
        pack_texts(part, shape),
    )


def _placed(at: Sequence[int], values: Sequence[int] | None) -> "array[int]":
    """Return a column by cells; `at` holds the verdict of each cell, `UNKNOWN` where there is none.

    That is the last place of a list, where a value for it is put: no loop of Python's is needed.
    """
    if values is None:
        return array("q", [UNKNOWN]) * len(at)
    return array("q", map([*values, UNKNOWN].__getitem__, at))


def pack_columns(
    parts: Sequence[PackedPart], shape: GridShape, facts: Mapping[str, object]
) -> bytes:
    """Return all columns of a grid with facts in JSON types, compressed."""
    return packed(_document(parts, shape, facts))


def _document(
    parts: Sequence[PackedPart],
    shape: GridShape,
    facts: Mapping[str, object],
) -> Iterator[str]:
    times = chain.from_iterable(part.numbers["created_s"] for part in parts)
    # Times as seconds from the first one are short numbers.
    since = min((time for time in times if time != UNKNOWN), default=0)
    yield as_json(
        {
            **facts,
            "epochs": shape.epochs,
            "since": since,
            **_commands(parts, shape),
        }
    )[:-1]
    before = ',"cells":{'
    for name in NUMBERS:
        column = list(chain.from_iterable(_slices(parts, shape, name)))
        if name == "created_s":
            column = [time - since if time != UNKNOWN else time for time in column]
        # At a tenth of the time of `as_json`.
        yield f'{before}"{name}":{msgspec.json.encode(column).decode()}'
        before = ","
    yield "}}"


def _slices(parts: Iterable[PackedPart], shape: GridShape, name: str) -> Iterator["array[int]"]:
    """Yield the pieces of a column, model by model."""
    for model in range(shape.models):
        for part in parts:
            width = part.size * shape.epochs
            yield part.numbers[name][model * width : (model + 1) * width]


def _commands(parts: Sequence[PackedPart], shape: GridShape) -> JsonObject:
    """Return the columns of commands; names that repeat as places in a list of them."""

    def whole(name: str) -> list[str | int]:
        return list(chain.from_iterable(part.commands[name] for part in parts))

    coded: JsonObject = {name: whole(name) for name in ("id", "text", "excluded")}
    coded["malicious"] = [int(target == TrueLabel.MALICIOUS) for target in whole("target")]
    names: JsonObject = {}
    for kind in ("dataset", "category", "cluster"):
        column = list(map(str, whole(kind)))
        known = sorted({*column} - {""})
        places = {"": UNKNOWN}
        for place, name in enumerate(known):
            places[name] = place
        names[kind] = known
        coded[kind] = [places[name] for name in column]
    return {
        "names": names,
        "commands": coded,
        "blobs": _first_commands(parts, shape),
    }


def _first_commands(parts: Sequence[PackedPart], shape: GridShape) -> list[int]:
    """Return the first command of each blob of texts; only the last one of a part may have less."""
    found: list[int] = []
    first = 0
    for part in parts:
        found += [first + shape.commands_per_blob * number for number in range(len(part.texts))]
        first += part.size
    return found


def most_missed(parts: Sequence[PackedPart], shape: GridShape, models: Sequence[str]) -> Section:
    """Return 15 commands that most models get wrong, those that the best models miss first.

    They are for paper and for browsers without scripts.

    A model misses a command when more than half of its scored epochs are wrong. `models` are the
    names to show, best first.
    """
    found = []
    for part in parts:
        texts, targets = part.commands["text"], part.commands["target"]
        correct, epochs = part.numbers["correct"], shape.epochs
        for place, (command, target) in enumerate(zip(texts, targets, strict=True)):
            wrong = []
            # Columns are model-major: the next model's epochs stand a whole part further on.
            firsts = range(place * epochs, len(correct), part.size * epochs)
            for model, first in enumerate(firsts):
                cells = correct[first : first + epochs]
                if cells.count(0) > cells.count(1):
                    wrong.append(model)
            found.append((-len(wrong), wrong, str(command), str(target)))
    rows = []
    for _, wrong, command, target in nsmallest(15, found):
        if wrong:
            best = ", ".join(models[model] for model in wrong[:3])
            rows.append((shortened(command, 160), target, f"{len(wrong)}", best))
    headings = ("command", "label", "models wrong", "the best of them")
    return Section.of("Commands that most models get wrong", headings, rows)


class Grid(msgspec.Struct, frozen=True):
    """The verdicts of a run, packed for the page."""

    columns: bytes | None
    """All commands and the numbers of all verdicts; None where the page has none, which `notes`
    explains."""
    texts: Sequence[bytes] = ()
    notes: Sequence[str] = ()
    """Lines that a reader of the grid has to know; may hold foreign text."""
    missed: Section | None = None
    """See `most_missed`; None where the verdicts are not known."""


def grid_section(grid: Grid) -> Iterator[str]:
    notes = "".join(f"<p>{text(note)}</p>\n" for note in grid.notes)
    if grid.columns is None:
        yield f'<section id="commands">\n<h2>Commands</h2>\n{notes}</section>\n'
        return
    missed = ""
    if grid.missed is not None and grid.missed.rows:
        missed = table(grid.missed, TableStyle(classes="missed"))
    section = files(__package__).joinpath("assets/grid.html").read_text(encoding="utf-8")
    yield section.format(notes=notes, missed=missed)
    yield data_element("grid-columns", grid.columns)
    for number, blob in enumerate(grid.texts):
        yield data_element(f"grid-texts-{number}", blob)
