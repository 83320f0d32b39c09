"""Notes on overlays."""

from aegish_dist.cli.printing import note
from aegish_dist.core.opinion import Opinion
from aegish_dist.pipeline.opinions import overlay_notes
from aegish_dist.pipeline.workspace import Workspace


def note_overlay(workspace: Workspace, run_id: str, opinion: Opinion) -> None:
    """Print which part of an overlay a run does not ask; one that does not fit it is refused.

    Args:
        workspace: Has the store.
        run_id: A full run id.
        opinion: Its overlay is looked at.
    """
    for line in overlay_notes(workspace.engine, run_id, opinion):
        note(line)
