"""The library: all that a program may call, and what does not change without notice.

Opening the store, starting a run, and from a run's verdicts to its numbers::

    from aegish_dist import api

    with api.Workspace(api.load_settings()) as workspace:
        run_id = api.find_run(workspace.engine, "latest")
        data = api.report_data(workspace.engine, run_id, api.Opinion())
        print(api.render(data, "markdown"))

Expected failures are `AegishError`s with a message of one line. Whatever is not in `__all__` is
internal, in this package and in its modules.
"""

from aegish_dist.core.comparison import Comparison, Difference
from aegish_dist.core.estimates import Estimate
from aegish_dist.core.failure_times import TimedFailures
from aegish_dist.core.gate import GateVerdict
from aegish_dist.core.listing import (
    Correctness,
    ListedPart,
    ListedVerdict,
    ShownSample,
    VerdictFilter,
)
from aegish_dist.core.metrics import METRICS_VERSION, ModelMetrics, measure
from aegish_dist.core.model import CallParameters
from aegish_dist.core.opinion import AEGISH_TARGETS, LabelChange, Opinion, Overlay, Targets
from aegish_dist.core.parsing import PARSER_VERSION, parse
from aegish_dist.core.run import Held, Run, RunSummary
from aegish_dist.core.sample import Dataset, Sample, Target
from aegish_dist.core.scoring import DEFAULT_RULE, RULES, Composite, Label, ScoringRule, rule_named
from aegish_dist.core.side import Side
from aegish_dist.core.snapshot import Snapshot
from aegish_dist.core.status import RunStatus, State
from aegish_dist.core.tally import Cell, ConfidenceCell, Finding, ModelTally
from aegish_dist.core.verdict import Outcome, ParsedCompletion
from aegish_dist.errors import AegishError
from aegish_dist.pipeline.aggregate import aggregate, current_snapshot
from aegish_dist.pipeline.audit import AuditedRun, audit_run
from aegish_dist.pipeline.compare import Question, compare_models, compare_runs
from aegish_dist.pipeline.datasets import choose_dataset, known_datasets, store_dataset
from aegish_dist.pipeline.export_every_eval_ever import export_every_eval_ever
from aegish_dist.pipeline.extend import Extended, extend_run
from aegish_dist.pipeline.extension import Addition
from aegish_dist.pipeline.failure_times import Stretch, failure_times
from aegish_dist.pipeline.hold import Holding, hold_run
from aegish_dist.pipeline.list_verdicts import list_verdicts
from aegish_dist.pipeline.observer import Observer
from aegish_dist.pipeline.opinions import load_opinion
from aegish_dist.pipeline.plan import Request
from aegish_dist.pipeline.plan_repeats import PilotPlan, plan_from_pilot
from aegish_dist.pipeline.publish_dataset import publish_dataset
from aegish_dist.pipeline.reparse import ChangedVerdict, Reparsed, reparse_runs
from aegish_dist.pipeline.report import ReportPart, report_data
from aegish_dist.pipeline.resume import Resumed, resume_run
from aegish_dist.pipeline.runs import find_run, recent_runs
from aegish_dist.pipeline.show_verdicts import show_sample
from aegish_dist.pipeline.start_run import Started, start_run
from aegish_dist.pipeline.status import run_status
from aegish_dist.pipeline.workspace import Workspace
from aegish_dist.report.charts import CHARTS, chart_specification
from aegish_dist.report.comparison_data import ComparisonData
from aegish_dist.report.comparison_formats import COMPARISON_FORMATS, render_comparison
from aegish_dist.report.data import ReportData
from aegish_dist.report.report_formats import FORMATS, render
from aegish_dist.report.sections import SECTION_NAMES
from aegish_dist.settings import Settings, load_settings

__all__ = [
    "AEGISH_TARGETS",
    "CHARTS",
    "COMPARISON_FORMATS",
    "DEFAULT_RULE",
    "FORMATS",
    "METRICS_VERSION",
    "PARSER_VERSION",
    "RULES",
    "SECTION_NAMES",
    "Addition",
    "AegishError",
    "AuditedRun",
    "CallParameters",
    "Cell",
    "ChangedVerdict",
    "Comparison",
    "ComparisonData",
    "Composite",
    "ConfidenceCell",
    "Correctness",
    "Dataset",
    "Difference",
    "Estimate",
    "Extended",
    "Finding",
    "GateVerdict",
    "Held",
    "Holding",
    "Label",
    "LabelChange",
    "ListedPart",
    "ListedVerdict",
    "ModelMetrics",
    "ModelTally",
    "Observer",
    "Opinion",
    "Outcome",
    "Overlay",
    "ParsedCompletion",
    "PilotPlan",
    "Question",
    "Reparsed",
    "ReportData",
    "ReportPart",
    "Request",
    "Resumed",
    "Run",
    "RunStatus",
    "RunSummary",
    "Sample",
    "ScoringRule",
    "Settings",
    "ShownSample",
    "Side",
    "Snapshot",
    "Started",
    "State",
    "Stretch",
    "Target",
    "Targets",
    "TimedFailures",
    "VerdictFilter",
    "Workspace",
    "aggregate",
    "audit_run",
    "chart_specification",
    "choose_dataset",
    "compare_models",
    "compare_runs",
    "current_snapshot",
    "export_every_eval_ever",
    "extend_run",
    "failure_times",
    "find_run",
    "hold_run",
    "known_datasets",
    "list_verdicts",
    "load_opinion",
    "load_settings",
    "measure",
    "parse",
    "plan_from_pilot",
    "publish_dataset",
    "recent_runs",
    "render",
    "render_comparison",
    "reparse_runs",
    "report_data",
    "resume_run",
    "rule_named",
    "run_status",
    "show_sample",
    "start_run",
    "store_dataset",
]
