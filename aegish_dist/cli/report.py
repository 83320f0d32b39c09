"""`aegish-dist report`: a run's leaderboard and details."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import click
from msgspec.structs import replace

from aegish_dist.cli import EXIT_INCONCLUSIVE, EXIT_WORSE
from aegish_dist.cli.command import Advanced, command, flag
from aegish_dist.cli.opinions import (
    note_what_counts,
    typed_words,
    with_bounds,
    with_opinion,
    with_policies,
)
from aegish_dist.cli.options import (
    FiniteRange,
    OneOf,
    Utf8,
    comma_list,
    completes,
    guards,
    known_names,
    open_run,
    or_as_json,
    refuse_usage,
    run_id,
    with_snapshot,
    without_collector,
)
from aegish_dist.cli.printing import note, on_terminal, shown, to_file
from aegish_dist.core.metric import SCORES_WITH_THRESHOLD, TARGET_METRICS, Judgement
from aegish_dist.core.text import did_you_mean
from aegish_dist.files import is_stream
from aegish_dist.findings.recommendation import TAKE_MARGIN
from aegish_dist.findings.snapshot import Gated, gated
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.policy import Requirements, may_be_judged
from aegish_dist.opinions.scoring import DEFAULT_RULE, RULES
from aegish_dist.pipeline.report import ReportPart, report_data, report_grid
from aegish_dist.pipeline.runs import chosen_models
from aegish_dist.pipeline.store import Store
from aegish_dist.report.data import ReportData
from aegish_dist.report.formats import FORMATS, IN_SECTIONS, render
from aegish_dist.report.origins import origins_in_words
from aegish_dist.report.quality import gated_in_words
from aegish_dist.report.sections import SECTION_NAMES

DETAILS = ("completions", "none")
FAIL_ON = ("interval", "value")
# Formats by the ends of their files' names.
FORMS_OF_FILES = {
    ".html": "html",
    ".csv": "csv",
    ".json": "json",
    ".md": "markdown",
    ".tex": "latex",
}
_WITHOUT_WORDS = ("csv", "csv-wide", "reference-json")
# Metrics by the headings of the table, which people type.
_IN_COLUMNS = {"DR": "malicious_detection_rate", "HA": "harmless_acceptance_rate"}
_WITH_THRESHOLD = TARGET_METRICS + SCORES_WITH_THRESHOLD


def _thresholds(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> dict[str, float]:
    """Read `METRIC=VALUE[,METRIC=VALUE...]`."""
    thresholds: dict[str, float] = {}
    for part in comma_list(context, parameter, value):
        left, sign, right = part.partition("=")
        name = left.strip()
        number = right.strip()
        if not sign:
            raise click.BadParameter(f"'{part}' is not METRIC=VALUE")
        if name.endswith((">", "<")):
            equal = f"{name[:-1].strip()}={number}"
            raise click.BadParameter(f"write {equal}: at least that much passes")
        metric = _IN_COLUMNS.get(name.upper(), name)
        if metric in thresholds:
            raise click.BadParameter(f"'{metric}' has two thresholds")
        if metric not in _WITH_THRESHOLD:
            choices = f"choose from {', '.join(_WITH_THRESHOLD)}"
            hint = did_you_mean(metric, _WITH_THRESHOLD, choices)
            raise click.BadParameter(f"'{metric}' is no metric of which more is better: {hint}")
        thresholds[metric] = FiniteRange(0, 1).convert(number, parameter, context)
    return thresholds


@command(
    "aegish-dist report",
    "aegish-dist report --open",
    "aegish-dist report --sections leaderboard,differences",
    "aegish-dist report --run-id nightly --format html -o report.html",
    "aegish-dist report --fail-under aegish_score=0.85,coverage=1",
    "aegish-dist report --fail-under detection_rate_at_fpr_0.01=0.9",
)
@run_id(default="latest")
@click.option(
    "--format",
    "form",
    type=OneOf(FORMATS),
    help="Default: by the suffix, else table. `html` is a page for browsers; `json` and `csv`"
    " carry unrounded numbers, `csv-wide` in one row per model; `latex` has tables for a paper, and"
    " `reference-json` is the result file of the aegish benchmark.",
)
@to_file
@flag(
    "--open",
    "in_browser",
    help="Write the html page, by default to report-RUN.html, and show it in a browser.",
)
@click.option(
    "--sections",
    type=Utf8(),
    multiple=True,
    callback=known_names("section", SECTION_NAMES, everything=True),
    metavar="NAME[,NAME...]|all",
    shell_complete=completes(("all", *SECTION_NAMES)),
    help="What a table, Markdown or LaTeX shows. By itself a table has one screen, Markdown all"
    " sections but scores, LaTeX a choice of them. `scores` takes seconds: html and json have it"
    " with `--sections scores`."
    f" Names: {', '.join(SECTION_NAMES)}.",
)
@or_as_json
@click.option(
    "--fail-under",
    type=Utf8(),
    multiple=True,
    callback=_thresholds,
    metavar="METRIC=VALUE[,...]",
    help="End with exit code 4 where a model is below, with 5 where that cannot be decided.",
)
@guards(
    "--models",
    "ID[,ID...]",
    "Only these are judged by `--fail-under`. Default: all of the run, baselines too.",
)
@click.option(
    "--fail-on",
    type=OneOf(FAIL_ON),
    show_default=FAIL_ON[0],
    help="Compare the threshold with the whole interval, or with the value alone.",
)
@click.option(
    "--details",
    type=OneOf(DETAILS),
    show_default=DETAILS[0],
    help="What `html` holds of single verdicts: all of them, or no grid.",
)
@click.option(
    "--take-margin",
    type=FiniteRange(0, 1, min_open=True, max_open=True),
    default=TAKE_MARGIN,
    show_default=True,
    metavar="SHARE",
    help="How much lower than the best score that of the guard to take may be.",
    cls=Advanced,
)
@with_bounds
@with_snapshot
@with_opinion
@with_policies
def report(
    *,
    run_id: str,
    form: str | None,
    output: Path | None,
    in_browser: bool,
    sections: list[str],
    fail_under: dict[str, float],
    models: list[str],
    fail_on: str | None,
    details: str | None,
    take_margin: float,
    bounds: Requirements | None,
    snapshot: int | None,
    opinion: Opinion,
) -> int:
    """Print a run's leaderboard and details.

    One screen: what to take and why, the leaderboard, what to type next; `--sections all` shows
    everything. PASS: the whole interval reaches the target. FAIL: even its upper end is below.
    UNDECIDED: the target lies inside; ask more commands. `--fail-under` judges in the same way:
    exit code 4 for FAIL, 5 for UNDECIDED or an undefined metric, of any of `--models`. Bounds, as
    `--max-fpr`, add the best system of guards. Without `--snapshot` verdicts are as they are now.
    """
    suffix = "" if output is None else output.suffix.lower()
    default = "html" if in_browser else FORMS_OF_FILES.get(suffix, "table")
    form = form or default
    poured = form == "html" and not in_browser and output is None
    chosen = set(sections)
    if form in ("html", "json"):
        # These have all sections but the one that takes seconds.
        chosen.discard("scores")
    in_sections = ", ".join(IN_SECTIONS)
    whole = form not in IN_SECTIONS
    refuse_usage(
        (suffix == ".pdf", "no format is PDF: write .html, open the page and print it into a PDF"),
        (whole and chosen, f"--sections chooses for {in_sections}; {form} is whole"),
        (details and form != "html", "--details goes with --format html"),
        (fail_on and not fail_under, "--fail-on goes with --fail-under"),
        (models and not fail_under, "--models goes with --fail-under"),
        (bounds and snapshot, "--snapshot has no single verdicts to search systems in"),
        (bounds and form in _WITHOUT_WORDS, f"{form} has no sentence for the best system"),
        (in_browser and form != "html", f"--open shows a page, not {form}"),
        (poured and on_terminal(stderr=False), "html is for a browser: --open or -o report.html"),
        (in_browser and is_stream(output or Path()), "--open needs a file"),
    )
    store, run = open_run(run_id)
    if in_browser and output is None:
        output = page_path(store, run)
    note_what_counts(store, run, opinion, snapshot)
    parts = _parts(form, sections)
    if not fail_under.keys().isdisjoint(SCORES_WITH_THRESHOLD):
        parts.add(ReportPart.SCORES)
    with shown(output) as show:
        with without_collector():
            data = report_data(
                store.engine,
                run,
                opinion,
                snapshot,
                parts=parts,
                bounds=bounds,
                take_margin=take_margin,
            )
            # The commands that the report suggests say the same things again.
            words = typed_words("scoring", "targets", "overlay", "snapshot", "take-margin")
            opinion_words = _opinion_words(data.snapshot.opinion, snapshot)
            data = replace(data, opinion_words=opinion_words, report_words=words)
            chosen_models(data.run, models, opinion.contenders)  # refuses unknown ones
            if form in _WITHOUT_WORDS:
                overlaps = data.overlaps
                names_of_policies = {name: name for name in overlaps}
                note(*origins_in_words(names_of_policies, overlaps, out_of_fold=True))
            draw: Callable[..., str | Iterator[str]]
            if form == "html":
                draw = draw_page(store, data, with_grid=details != "none")
            else:
                draw = partial(render, data, form, sections=sections or None)
        show(draw)
    if in_browser and output is not None:
        _show_in_browser(output)
    return _exit_code(data, fail_under, models, by_value=fail_on == "value")


def _opinion_words(opinion: Opinion | None, snapshot: int | None) -> list[str]:
    """Return words for what counts as right here; a snapshot has its rule set of its own."""
    if snapshot is None:
        return typed_words("scoring", "targets", "overlay")
    rule = DEFAULT_RULE if opinion is None else opinion.rule
    # A rule set of a file cannot be named: the file may be gone.
    if rule.name not in RULES or rule.name == DEFAULT_RULE.name:
        return []
    return ["--scoring", rule.name]


def page_path(store: Store, run_id: str) -> Path:
    """Return where a run's page goes by itself: here, or beside the store if this is read-only."""
    folder = Path() if os.access(".", os.W_OK) else store.settings.home
    # No other run has the id, so what is there is an older page of the run.
    return folder / f"report-{run_id}.html"


def _show_in_browser(page: Path) -> None:
    import webbrowser  # noqa: PLC0415

    path = page.resolve()
    if not webbrowser.open(path.as_uri()):
        note(f"no browser was found here: open {path} in one")


def draw_page(
    store: Store, data: ReportData, *, with_grid: bool = True
) -> Callable[..., Iterator[str]]:
    """Return what draws the page of a report part by part, with its grid of verdicts."""
    # The page with its charts takes a third of the time that everything else takes to import.
    from aegish_dist.report.page import render_page  # noqa: PLC0415

    grid = report_grid(store.engine, data) if with_grid else None
    if grid is not None:
        note(*grid.notes)
    return lambda **_: render_page(data, grid)


def _parts(form: str, sections: Sequence[str]) -> set[ReportPart]:
    """Return what has to be gathered besides; a brief table waits for nothing."""
    if form in _WITHOUT_WORDS:
        return set()
    wanted = {*sections, ReportPart.ADVICE.value}
    if not sections or form not in IN_SECTIONS:
        own = IN_SECTIONS.get(form, SECTION_NAMES)
        wanted.update(name for name in own if name != "scores")
    if form == "json":
        wanted.add(ReportPart.BY_CATEGORY)
    elif form == "html":
        wanted.add(ReportPart.GUARDS)
    return {part for part in ReportPart if part in wanted}


def _exit_code(
    data: ReportData, thresholds: Mapping[str, float], models: Sequence[str], *, by_value: bool
) -> int:
    """Note each threshold that a model does not reach; where all do, the first."""
    overlaps = data.overlaps
    calibrated = data.scores.models if data.scores else ()
    scores = {model.model: model.scores for model in calibrated}
    passed: list[Gated] = []
    missed: list[Gated] = []
    for gate in gated(data.snapshot.document, thresholds, scores, by_value=by_value):
        if models and gate.model not in models:
            continue
        if not may_be_judged(overlaps.get(gate.model), gate.metric):
            missed.append(replace(gate, judgement=Judgement.UNDECIDED))
        elif gate.judgement is Judgement.PASS:
            passed.append(gate)
        else:
            missed.append(gate)
    if missed:
        note(*(gated_in_words(gate, overlaps.get(gate.model)) for gate in missed))
        failed = any(gate.judgement is Judgement.FAIL for gate in missed)
        return EXIT_WORSE if failed else EXIT_INCONCLUSIVE
    if passed:
        others = f"; and {len(passed) - 1} more" if passed[1:] else ""
        note(f"{gated_in_words(passed[0])}{others}")
    return 0
