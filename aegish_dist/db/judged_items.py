"""Reading every verdict of a model that counts, item by item, with the sample it is about."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sqlalchemy.orm import Session

from aegish_dist.core.run import Run
from aegish_dist.core.sample import Target
from aegish_dist.db.overlays import OverlayInRun
from aegish_dist.db.per_model import PerModel
from aegish_dist.db.statements import counting_statement, statement

_READ_SAMPLES = statement("read_samples")
_READ_CODES = counting_statement("read_codes")
_READ_COMMANDS = statement("read_commands")

ItemCodes = dict[tuple[int, int], int]
"""By key of the sample and epoch, the code of the verdict that counts; see `codes`."""


@dataclass(frozen=True, slots=True)
class LabelledSample:
    """A sample of a run with its label under an overlay."""

    key: int
    dataset: str
    sample_id: str
    target: Target
    category: str | None
    effective: Target | None
    """Label under the overlay; None: left out."""


def labelled_samples(
    session: Session, run: Run, overlay: OverlayInRun
) -> dict[tuple[str, str], LabelledSample]:
    """Return the samples of a run by dataset and sample id."""
    changes = {each.key: each.change for each in overlay.samples}
    found = {}
    for row in session.execute(_READ_SAMPLES, {"run": run.run_id}):
        target = Target(row.target)
        effective = changes[row.key].target if row.key in changes else target
        found[row.dataset, row.sample_id] = LabelledSample(
            row.key, row.dataset, row.sample_id, target, row.category, effective
        )
    return found


def read_item_codes(
    session: Session, run: Run, models: Iterable[str]
) -> Iterator[tuple[str, ItemCodes]]:
    """Yield models with their verdicts: of each item that of the newest generation."""
    of_run = PerModel.of(session, run)
    for model in models:
        (row,) = of_run.newest(session, _READ_CODES, model)
        codes: ItemCodes = {}
        for key, word in zip(row.keys.split(), row.codes.split(), strict=True):
            for item in word.split(","):
                epoch, _, code = item.partition(":")
                codes[int(key), int(epoch)] = int(code)
        yield model, codes


def read_commands(session: Session, keys: Iterable[int]) -> Mapping[int, str]:
    """Return the commands of samples by key."""
    found = session.execute(_READ_COMMANDS, {"keys": sorted(keys)})
    return {row.key: row.command for row in found}
