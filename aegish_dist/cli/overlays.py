"""Notes on overlays."""

from aegish_dist.cli.options import refuse_an_opinion
from aegish_dist.cli.printing import note
from aegish_dist.core.opinion import Opinion
from aegish_dist.pipeline.opinions import overlay_notes
from aegish_dist.pipeline.workspace import Workspace


def note_overlay(workspace: Workspace, run_id: str, opinion: Opinion) -> None:
    """Print which part of an overlay a run does not ask; one that does not fit it is refused."""
    for line in overlay_notes(workspace.engine, run_id, opinion):
        note(line)


def note_what_counts(
    workspace: Workspace, run_id: str, opinion: Opinion, snapshot: int | None
) -> None:
    """Note the same for what is shown; of a stored snapshot, refuse an opinion of one's own.

    Args:
        snapshot: Number of the snapshot to show, which has its opinion; None: as they are now.
    """
    if snapshot is None:
        note_overlay(workspace, run_id, opinion)
    else:
        refuse_an_opinion()
