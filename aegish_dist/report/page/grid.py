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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from importlib.resources import files
from itertools import chain

import msgspec
import numpy as np

from aegish_dist.core.columns import NUMBERS, UNKNOWN, GridCommand, GridNumbers, GridTexts
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.text import JsonObject, printable, printable_lines, shortened
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


def pack_texts(of: GridTexts) -> bytes:
    """Return the texts of some commands, compressed."""
    messages = [attempt.message for attempt in of.attempts]
    # A text that many verdicts share stands in the list once.
    each_once = dict.fromkeys(chain(*of.columns.values(), messages))
    known = [text for text in each_once if text is not None]
    place_of: dict[str | None, int] = {None: UNKNOWN}
    place_of |= {text: place for place, text in enumerate(known)}
    attempts = []
    for attempt in of.attempts:
        attempts.append(
            [
                attempt.cell,
                attempt.attempt,
                ErrorClass(attempt.error_class).words,
                attempt.status,
                attempt.retry_after_s,
                place_of[attempt.message],
                attempt.at_s,
            ]
        )
    document = {
        "at": of.cells,
        **{name: [place_of[text] for text in column] for name, column in of.columns.items()},
        "lengths": {str(cell): length for cell, length in of.lengths.items()},
        "attempts": attempts,
        "texts": [printable_lines(text) for text in known],
    }
    return packed([as_json(document)])


def pack_columns(grid: GridNumbers, blobs: Sequence[int], facts: Mapping[str, object]) -> bytes:
    """Return all columns of a grid with facts in JSON types, compressed.

    `blobs` are the places of the first commands of the blobs of texts.
    """
    return packed(_document(grid, blobs, facts))


def _document(
    grid: GridNumbers, blobs: Sequence[int], facts: Mapping[str, object]
) -> Iterator[str]:
    created = grid.numbers["created_s"]
    has_time = created != UNKNOWN
    # Times as seconds from the first one are short numbers.
    since = int(created.min(where=has_time, initial=2**62)) if has_time.any() else 0
    yield as_json(
        {
            **facts,
            "epochs": created.shape[2],
            "since": since,
            **_commands(grid.commands),
            "blobs": blobs,
        }
    )[:-1]
    before = ',"cells":{'
    for name in NUMBERS:
        column = grid.numbers[name]
        if name == "created_s":
            column = np.where(has_time, created - since, UNKNOWN)
        # At a tenth of the time of `as_json`.
        yield f'{before}"{name}":{msgspec.json.encode(column.ravel().tolist()).decode()}'
        before = ","
    yield "}}"


def _commands(commands: Sequence[GridCommand]) -> JsonObject:
    """Return the columns of commands; names that repeat as places in a list of them."""
    coded: JsonObject = {
        "id": [each.sample_id for each in commands],
        "text": [printable_lines(each.command) for each in commands],
        "excluded": [int(each.excluded) for each in commands],
        "malicious": [int(each.target == TrueLabel.MALICIOUS) for each in commands],
    }
    names: JsonObject = {}
    for kind in ("dataset", "category", "cluster"):
        column = [printable(getattr(each, kind) or "") for each in commands]
        known = sorted({*column} - {""})
        places = {"": UNKNOWN}
        for place, name in enumerate(known):
            places[name] = place
        names[kind] = known
        coded[kind] = [places[name] for name in column]
    return {"names": names, "commands": coded}


def most_missed(grid: GridNumbers, models: Sequence[str]) -> Section:
    """Return 15 commands that most models get wrong, those that the best models miss first.

    They are for paper and for browsers without scripts.

    A model misses a command when more than half of its scored epochs are wrong. `models` are the
    names to show, best first.
    """
    correct = grid.numbers["correct"]
    misses = (correct == 0).sum(axis=2) > (correct == 1).sum(axis=2)
    found = []
    for command, missed in zip(grid.commands, misses.T, strict=True):
        wrong = np.flatnonzero(missed).tolist()
        if wrong:
            found.append((-len(wrong), wrong, printable_lines(command.command), command.target))
    rows = []
    for _, wrong, words, target in nsmallest(15, found):
        best = ", ".join(models[model] for model in wrong[:3])
        rows.append((shortened(words, 160), target, f"{len(wrong)}", best))
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
