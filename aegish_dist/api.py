"""The library: all that a program may call, and what does not change without notice.

From a run's verdicts to its numbers::

    from aegish_dist import api

    with api.Workspace(api.load_settings()) as workspace:
        run_id = api.find_run(workspace.engine, "latest")
        data = api.report_data(workspace.engine, run_id, api.Opinion())
        print(api.render(data, "markdown"))

Expected failures are `AegishError`s. Whatever is not in `__all__` is internal.
"""

from aegish_dist.core.model import CallParameters
from aegish_dist.core.run import RunPause
from aegish_dist.errors import AegishError
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.parsing import parse
from aegish_dist.opinions.verdict_query import VerdictFilter
from aegish_dist.pipeline.aggregate import aggregate
from aegish_dist.pipeline.compare import Question, compare_models
from aegish_dist.pipeline.control import hold_run, resume_run
from aegish_dist.pipeline.frames import metrics_frame, verdicts_frame
from aegish_dist.pipeline.observer import Observer
from aegish_dist.pipeline.opinions import load_opinion
from aegish_dist.pipeline.plan import Request
from aegish_dist.pipeline.report import ReportPart, report_data
from aegish_dist.pipeline.runs import find_run, recent_runs
from aegish_dist.pipeline.snapshots import current_snapshot
from aegish_dist.pipeline.status import run_status
from aegish_dist.pipeline.submit import start_run
from aegish_dist.pipeline.verdicts import list_verdicts
from aegish_dist.pipeline.workspace import Workspace
from aegish_dist.report.charts.catalogue import chart_specification
from aegish_dist.report.comparison import render_comparison
from aegish_dist.report.formats import FORMATS, render
from aegish_dist.settings import load_settings

__all__ = [
    "FORMATS",
    "AegishError",
    "CallParameters",
    "Observer",
    "Opinion",
    "Question",
    "ReportPart",
    "Request",
    "RunPause",
    "VerdictFilter",
    "Workspace",
    "aggregate",
    "chart_specification",
    "compare_models",
    "current_snapshot",
    "find_run",
    "hold_run",
    "list_verdicts",
    "load_opinion",
    "load_settings",
    "metrics_frame",
    "parse",
    "recent_runs",
    "render",
    "render_comparison",
    "report_data",
    "resume_run",
    "run_status",
    "start_run",
    "verdicts_frame",
]
