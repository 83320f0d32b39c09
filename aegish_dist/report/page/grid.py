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
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aegish_dist.report.page.markup import text
from aegish_dist.report.page.packing import data_element

_SECTION = """<section id="commands">
<h2>Commands</h2>
{notes}<noscript><p>All commands with the answers of all models are in this file, compressed; \
showing them takes JavaScript.</p></noscript>
<p id="grid-state" role="status">The commands are at the end of this file: if this line stays, the \
file is cut off or scripts are turned off.</p>
<div id="grid-view"></div>
</section>
"""
_NOTES_ALONE = """<section id="commands">
<h2>Commands</h2>
{notes}</section>
"""


@dataclass(frozen=True, slots=True)
class Grid:
    """The verdicts of a run, packed for the page."""

    columns: bytes | None
    """All commands and the numbers of all verdicts; None where the page has none, which `notes`
    explains."""
    texts: Sequence[bytes] = ()
    notes: Sequence[str] = ()
    """Lines that a reader of the grid has to know; may hold foreign text."""


def grid_section(grid: Grid) -> Iterator[str]:
    """Yield the section of the grid, with its data."""
    notes = "".join(f"<p>{text(note)}</p>\n" for note in grid.notes)
    if grid.columns is None:
        yield _NOTES_ALONE.format(notes=notes)
        return
    yield _SECTION.format(notes=notes)
    yield data_element("grid-columns", grid.columns)
    for number, blob in enumerate(grid.texts):
        yield data_element(f"grid-texts-{number}", blob)
