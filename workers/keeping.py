"""Keeping answers that the database does not take: each goes to a file."""

from collections.abc import Sequence
from pathlib import Path

from aegish_dist.errors import OutputError
from aegish_dist.logs import get_logger
from aegish_dist.pipeline.evaluate import Evaluated
from aegish_dist.pipeline.spool import LEFT_OVER, REFUSED, spool
from workers.writer import Grouped, facts

log = get_logger(__name__)


class Keeper:
    """Records verdicts, and writes to a file those that cannot be recorded."""

    def __init__(self, record: Grouped[Evaluated, None], folder: Path) -> None:
        """Wrap the writer.

        Args:
            record: Stores verdicts; an error of it is one of the verdict's own.
            folder: Where the files go.
        """
        self._record = record
        self._folder = folder

    async def __call__(self, evaluated: Evaluated) -> None:
        """Return once the verdict is committed, or refused for good and in a file."""
        try:
            await self._record(evaluated)
        except Exception as error:
            item = evaluated.item
            log.error(
                "verdict_refused",
                run=item.run_id,
                model=item.model,
                sample=item.sample_key,
                epoch=item.epoch,
                generation=item.generation,
                **facts(error),
            )
            self._keep([evaluated], REFUSED)

    async def close(self) -> None:
        """Write down what is not stored yet; the messages go back, and may be paid for again."""
        left = await self._record.close()
        if left:
            self._keep(left, LEFT_OVER)

    def _keep(self, group: Sequence[Evaluated], kind: str) -> None:
        try:
            path = spool(self._folder, group, kind)
        except (OSError, OutputError) as error:
            log.error("answers_lost", answers=len(group), problem=str(error))
        else:
            log.error("answers_kept_in_file", answers=len(group), path=str(path))
