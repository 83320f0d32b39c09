"""`aegish-dist verdicts`: list, show, import, export and recover; `reparse` and `errors`.

What reads and writes files is imported when it is called: the list needs none of it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import datetime
from itertools import chain, islice
from pathlib import Path

import click
from msgspec import to_builtins
from msgspec.structs import asdict

from aegish_dist.cli.command import FILE, Advanced, command, file_option, flag, group
from aegish_dist.cli.opinions import refuse_an_opinion, with_opinion
from aegish_dist.cli.options import (
    LIST_FORMATS,
    MAX_INTEGER,
    OneOf,
    Utf8,
    as_json,
    completes,
    guards,
    in_a_form,
    limited,
    names,
    open_run,
    open_store,
    refuse_usage,
    run_id,
    without_collector,
)
from aegish_dist.cli.printing import (
    binary_output,
    form_of,
    in_columns,
    list_width,
    note,
    note_written,
    put_out,
    say,
    say_columns,
    say_json,
    say_lines,
    say_table,
    terminal_width,
)
from aegish_dist.cli.workspace import open_run_to_ask, open_workspace
from aegish_dist.core.outcome import Outcome
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.status import TimedFailures, timeline, totals
from aegish_dist.core.text import counted, printable_json, shortened
from aegish_dist.errors import ConfigError, DatasetError, StoreError
from aegish_dist.files import is_stream
from aegish_dist.opinions.opinion import Opinion, run_and_opinion
from aegish_dist.opinions.scoring import DEFAULT_RULE
from aegish_dist.opinions.verdict_query import Correctness, JudgedVerdict, ListedPart, VerdictFilter
from aegish_dist.pipeline.datasets import choose_dataset
from aegish_dist.pipeline.runs import find_run
from aegish_dist.pipeline.verdicts import (
    COUNTED,
    failure_times,
    list_commands,
    list_verdicts,
    opinions_of_snapshots,
    outcomes_or_labels,
    reparse_run,
    show_sample,
)
from aegish_dist.report.operations import failures_csv, failures_document
from aegish_dist.report.verdicts import (
    command_table,
    detail_json,
    detail_lines,
    listing_csv,
    listing_json,
)

COUNTS = ("Attempts", "Verdicts")
# Commands of a table, and verdicts on standard output, unless `--limit` says otherwise.
LIMITS = {"table": 20, "json": 10_000, "csv": 10_000}
FOLDER = "inspect"  # the format of exports that is a folder of files
EXPORT_FORMATS = ("jsonl", "parquet", "csv", FOLDER)


@group("aegish-dist verdicts list --wrong")
def verdicts() -> None:
    """List, show, import and export verdicts."""


@verdicts.command(
    "list",
    examples=(
        "aegish-dist verdicts list --models openai/gpt-5.1 --wrong",
        "aegish-dist verdicts list --missed-by-all --format csv -o missed.csv",
    ),
)
@run_id(default="latest")
@guards("--models", "ID[,ID...]", "Verdicts of these models.")
@names(
    "--outcome",
    "NAME[,NAME...]",
    "Verdicts that ended so, such as BLOCK or TIMEOUT_ERROR.",
    shell_complete=completes(tuple(Outcome)),
)
@flag("--correct", help="Verdicts that the rule set counts as correct.")
@flag("--wrong", help="Verdicts that it counts as wrong.")
@names("--category", "NAME[,NAME...]", "Commands of these categories.")
@names("--dataset", "NAME[,NAME...]", "Commands of these datasets.")
@click.option(
    "--target", type=OneOf([label.value for label in TrueLabel]), help="Commands with this label."
)
@guards(
    "--missed-by",
    "ID[,ID...]",
    "Commands that each of these models got wrong, with their verdicts or those of --models.",
)
@flag("--missed-by-all", help="Commands that every model got wrong.")
@flag("--disputed", help="Commands that one model got right and another one wrong.")
@flag("--inconsistent", help="Verdicts of a model whose epochs state different actions.")
@names(
    "--changed-between",
    "A,B",
    "Verdicts that these snapshots judge differently, as B does; `correct_before` is A's.",
)
@click.option(
    "--text",
    type=Utf8(),
    metavar="TEXT",
    help="Verdicts with this in command, reason or completion, in any letter case.",
)
@limited(
    "At most this many commands in a table, or verdicts as JSON or CSV; 0 for all. Default: 20"
    " commands; 10,000 verdicts, all with `-o`."
)
@in_a_form
@with_opinion
def list_(
    run_id: str,
    opinion: Opinion,
    *,
    models: list[str],
    outcome: list[str],
    correct: bool,
    wrong: bool,
    category: list[str],
    dataset: list[str],
    target: str | None,
    missed_by: list[str],
    missed_by_all: bool,
    disputed: bool,
    inconsistent: bool,
    changed_between: list[str],
    text: str | None,
    limit: int | None,
    form: str | None,
    output: Path | None,
) -> None:
    """List the verdicts that meet all conditions, a command a row.

    JSON and CSV have a verdict a row, the newest of each item. `--missed-by` and `--disputed`
    choose commands; `--models` chooses whose verdicts are listed, and which models `--disputed`
    compares. With several epochs, most of them decide whether a model got a command right.
    `verdicts show ID` prints everything about a command.
    """
    form = form or form_of(output, LIMITS)
    if limit is None:
        # A file of verdicts is whole; a table is to be read, also in a file.
        limit = LIMITS[form] if output is None or form == "table" else 0
    numbers = _snapshots(changed_between)
    before = None
    if numbers is None:
        store, run_id = open_run(run_id)
    else:
        # The snapshots say which run it is, and what counts as right.
        store = open_store()
        run_id, before, opinion = opinions_of_snapshots(store.engine, *numbers)
    correctness = set()
    if correct:
        correctness.add(Correctness.CORRECT)
    if wrong:
        correctness.add(Correctness.WRONG)
    chosen = VerdictFilter(
        models=tuple(models or missed_by),
        outcomes=outcomes_or_labels(outcome, opinion.rule),
        correctness=frozenset(correctness),
        datasets=tuple(dataset),
        targets=frozenset() if target is None else frozenset({TrueLabel(target)}),
        categories=frozenset(category),
        missed_by=tuple(missed_by),
        missed_by_all=missed_by_all,
        disputed=disputed,
        inconsistent=inconsistent,
        text=text or "",
    )
    if form == "table":
        commands, more = list_commands(store.engine, run_id, chosen, opinion, limit, before=before)
        width = list_width()
        alike = len(chosen.correctness) == 1
        columns, rows = command_table(commands, width, alike=alike, before=before is not None)
        _print_commands(in_columns(columns, rows, width=width), commands, more, output)
        return
    parts = list_verdicts(store.engine, run_id, chosen, opinion, limit, before=before)
    passed: Counter[str] = Counter()
    head = run_and_opinion(run_id, opinion)
    if before is not None:
        head["opinion_before"] = before.provenance
    with closing(parts):
        # Read before anything is printed: what is refused leaves no half of a document behind.
        first = list(islice(parts, 1))
        listing = listing_csv if form == "csv" else listing_json
        put_out(listing(head, _counted(chain(first, parts), passed)), output)
    _note(passed, output)


def _snapshots(given: list[str]) -> tuple[int, int] | None:
    """Return the numbers of `--changed-between`; None without it."""
    if not given:
        return None
    # `int` reads digits of every script, and takes long for a text of a million digits.
    numbers = [int(text) for text in given if re.fullmatch("[0-9]{1,10}", text)]
    in_range = all(0 < number <= MAX_INTEGER for number in numbers)
    if len(given) != 2 or len(numbers) != 2 or not in_range:
        raise click.UsageError(
            "--changed-between takes the numbers of two snapshots, which `aggregate` prints: A,B"
        )
    if numbers[0] == numbers[1]:
        raise click.UsageError(f"--changed-between names snapshot {numbers[0]} twice")
    refuse_an_opinion("--changed-between", "run-id")
    return numbers[0], numbers[1]


def _counted(parts: Iterable[ListedPart], passed: Counter[str]) -> Iterator[ListedPart]:
    for part in parts:
        shown = len(part.verdicts)
        passed.update(shown=shown, more=part.matched - shown)
        yield part


def _print_commands(
    table: str, commands: list[list[JudgedVerdict]], more: int, output: Path | None
) -> None:
    if output is not None:
        put_out([f"{table}\n"], output)
    elif commands:
        say_columns(table)
    passed = Counter(shown=sum(map(len, commands)), more=more)
    _note(passed, output, " verdicts about further commands")


def _note(passed: Counter[str], output: Path | None, of: str = "") -> None:
    shown = passed["shown"]
    more = passed["more"]
    if not shown:
        note("no verdict meets these conditions")
    if more:
        # Counting ends there: the rest would take longer than the list itself.
        at_least = "at least " if more >= COUNTED else ""
        note(f"{at_least}{more:,} more{of}; `--limit` lists more of them, 0 all")
    if output is not None and not is_stream(output):
        note(f"{counted(shown, 'verdict')} written to {output}")


@verdicts.command(examples=("aegish-dist verdicts show 'base64 -w0 /etc/shadow'",))
@click.argument("sample", type=Utf8())
@run_id(default="latest")
@with_opinion
@guards("--models", "ID[,ID...]", "Verdicts of these models. Default: all.")
@click.option(
    "--dataset",
    type=Utf8(),
    metavar="NAME",
    help="Choose one, if several datasets hold the command.",
)
@flag("--full", help="Print long texts whole.")
@as_json
def show(
    sample: str,
    run_id: str,
    opinion: Opinion,
    *,
    models: list[str],
    dataset: str | None,
    full: bool,
    as_json: bool,
) -> None:
    """Show one command and every verdict about it.

    SAMPLE is a sample id, its first digits, a command, or a text that occurs in only one command.
    Shows completion, reason, tokens, cost, times and failed attempts of every model, epoch and
    retry. Invisible characters are escaped; `--json` has the exact texts.
    """
    store, run = open_run(run_id)
    shown = show_sample(store.engine, run, sample, opinion, models=models, dataset=dataset)
    if as_json:
        say_json(detail_json(shown, opinion))
    else:
        lines = detail_lines(shown, opinion, full=full)
        say_lines("\n".join(lines))


@verdicts.command(
    "import",
    examples=(
        "aegish-dist verdicts import verdicts.jsonl --name march",
        "aegish-dist verdicts import p.jsonl --predictions-of kestrel shellrisk-bench",
    ),
)
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option("--name", type=Utf8(), help="A name for the run.")
@click.option(
    "--predictions-of",
    nargs=2,
    metavar="MODEL DATASET",
    type=Utf8(),
    help="Read lines of {id, prediction}, as answers of MODEL about the samples of DATASET.",
)
@as_json
def import_(
    files: tuple[Path, ...], name: str | None, predictions_of: tuple[str, str] | None, as_json: bool
) -> None:
    """Store recorded verdicts as one run.

    FILES are logs of Inspect AI (.eval), verdict lines (.jsonl) or the same as .parquet. A wrong
    line stops the import, and nothing is stored. With `--predictions-of`, lines are
    `{"id": ID, "prediction": WORD}`: a sample's id and a word such as risky, safe, deny or 1.
    """
    from aegish_dist.interchange.verdict_files import decoder_of_predictions  # noqa: PLC0415
    from aegish_dist.pipeline.verdict_files import import_verdicts  # noqa: PLC0415

    workspace = open_workspace()
    decoder = None
    if predictions_of:
        model, name_of_dataset = predictions_of
        dataset = choose_dataset(workspace.engine, name_of_dataset)
        decoder = decoder_of_predictions(dataset, model)
    with without_collector():
        output_of = workspace.catalog.output_of
        stored = import_verdicts(workspace.engine, files, name or "", decoder, output_of)
    if as_json:
        document = asdict(stored)
        # Scripts rely on the other keys alone.
        for key in ("negative_times", "unread"):
            if not document[key]:
                del document[key]
        say_json(document)
        return
    say(stored.run_id)
    if name:
        try:
            find_run(workspace.engine, name)
        except StoreError as error:
            # Another run has the name, too: from now on it names neither.
            rename = f"`aegish-dist runs rename --run-id {stored.run_id} NAME`"
            note(f"{error}; {rename} gives this one a name of its own")
    note(
        f"{counted(stored.verdicts, 'verdict')} of {counted(stored.models, 'model')} about"
        f" {counted(stored.samples, 'sample')}"
    )
    if predictions_of:
        lacking = len(dataset.samples) - stored.samples
        if lacking:
            samples = f"{counted(lacking, 'sample')} of {dataset.name}"
            note(f"without a prediction, and not scored: {samples}")
    note_unread(stored.run_id, stored.unread)
    if stored.negative_times:
        note(
            f"{stored.negative_times:,} verdicts carry a time below zero, a fault of some versions"
            " of Inspect AI; it counts as unknown"
        )


@verdicts.command(
    examples=(
        "aegish-dist verdicts export --run-id latest -o verdicts.parquet",
        "aegish-dist verdicts export --run-id latest --format inspect -o logs",
    )
)
@run_id()
@file_option(
    "-o",
    "--output",
    metavar="FILE|DIR",
    help="A .jsonl, .parquet or .csv file, or the folder for a format of several files.",
)
@click.option(
    "--format",
    "chosen",
    type=OneOf(EXPORT_FORMATS),
    help="Default: what the suffix of the file says, JSONL without a file.",
)
@names(
    "--correct",
    "RULES[,RULES...]",
    "Also whether each verdict is correct, by rule set: names, files, or `all`.",
)
@file_option("--overlay", cls=Advanced, help="Corrections of labels that --correct applies first.")
def export(
    run_id: str, output: Path | None, chosen: str | None, correct: list[str], overlay: Path | None
) -> None:
    """Write every verdict of a run into files.

    Importing `jsonl`, `parquet` or `inspect` gives the same run. `csv` is for spreadsheets: no
    completions, the newest verdict of each item. `--correct` adds a column for each rule set, which
    import ignores. `inspect` writes a log of Inspect AI per model and dataset; other
    files in the folder stay.
    """
    from aegish_dist.pipeline import verdict_files  # noqa: PLC0415
    from aegish_dist.pipeline.opinions import load_opinions  # noqa: PLC0415

    if chosen is None and form_of(output, ("csv",)) == "csv":
        chosen = "csv"
    # These formats have scores without `--correct` as well, which an overlay changes.
    if not correct and overlay is not None and chosen in (FOLDER, "csv"):
        correct = [DEFAULT_RULE.name]
    opinions: list[Opinion] = []
    for rule in correct:
        opinions += load_opinions(rule, None, overlay)
    no_path = output is None and chosen not in (None, "jsonl", "csv")
    refuse_usage(
        (chosen == "csv" and len(opinions) > 1, "csv has `correct` by one rule set"),
        (no_path, f"--format {chosen} needs a path: add -o"),
    )
    store, run = open_run(run_id)
    engine = store.engine
    if chosen == "csv":
        opinion = opinions[0] if opinions else Opinion()
        parts = list_verdicts(engine, run, VerdictFilter(), opinion)
        put_out(listing_csv({"opinion": opinion.provenance}, parts), output)
        if output is not None:
            note_written(output)
    elif output is None:
        with binary_output() as stream:
            verdict_files.export_lines(engine, run, stream, opinions)
    elif chosen == FOLDER:
        if is_stream(output):
            raise ConfigError(f"--format {chosen} writes several files: name a folder with -o")
        files = verdict_files.export_inspect(engine, run, output, opinions)
        note(f"{counted(len(files), 'file')} written to {output}")
    else:
        # Without a format, the suffix of the file decides.
        table = None if chosen is None else chosen == "parquet"
        verdict_files.export_file(engine, run, output, opinions, table=table)
        note_written(output)


@verdicts.command("recover", examples=("aegish-dist verdicts recover spool-1.jsonl",))
@click.argument("files", nargs=-1, required=True, type=FILE)
def recover_(files: tuple[Path, ...]) -> None:
    """Store answers that workers left in files.

    FILES are named in the log of the worker. Each is removed once it is stored; lines that cannot
    be stored are kept beside it.
    """
    from aegish_dist.pipeline.spool import recover  # noqa: PLC0415

    engine = open_store().engine
    for path in files:
        recovered = recover(engine, path)
        stored = counted(recovered.stored, "answer")
        note(f"{path}: {stored} stored, {recovered.present:,} were there already")
        if recovered.kept is not None:
            problem = recovered.problem
            raise DatasetError(
                f"{recovered.damaged:,} lines cannot be stored and are kept there ({problem})",
                source=str(recovered.kept),
            )


@command("aegish-dist reparse --run-id latest --dry-run")
@run_id()
@flag("--dry-run", help="Show what would change, and change nothing.")
@limited("List at most this many changed verdicts, 0 for all; `--json` lists all.", default=50)
@as_json
def reparse(run_id: str, dry_run: bool, limit: int, as_json: bool) -> None:
    """Apply today's parser to the stored answers.

    Answers of a model with an `output` mapping in the catalog are read by that mapping. The run
    keeps the mapping. A mapping that the catalog lacks is not applied: the answers it has read stay
    as they are. Calls no model and changes no completion. Lists the verdicts whose outcome
    changes. Earlier snapshots stay; the next `report` or `aggregate` counts again.
    """
    from aegish_dist.cli.status import Shown  # noqa: PLC0415
    from aegish_dist.opinions.parsing import PARSER_VERSION  # noqa: PLC0415

    workspace, run = open_run_to_ask(run_id)
    with without_collector():
        output_of = workspace.catalog.output_of
        reparsed = reparse_run(workspace.engine, run, output_of, dry_run=dry_run, observer=Shown())
    if as_json:
        document = {"parser_version": PARSER_VERSION, "dry_run": dry_run, "runs": [reparsed]}
        say_json(to_builtins(document))
        return
    changed = reparsed.changed
    would = "would be " if dry_run else ""
    completions = counted(reparsed.completions, "completion")
    outcomes = counted(len(changed), "outcome")
    say(
        f"{run}: {completions} read by parser {PARSER_VERSION},"
        f" {reparsed.updated:,} {would}updated, {outcomes} {would}changed"
    )
    if reparsed.pruned:
        note(
            f"{run}: {counted(reparsed.pruned, 'completion')} pruned; their verdicts stay as"
            " an earlier parser read them"
        )
    listed = changed[:limit] if limit else changed
    if listed:
        rows = [(run, v.model, v.command, v.before.value, v.after.value) for v in listed]
        say_table(("Run", "Model", "Command", "From", "To"), rows)
    if len(listed) < len(changed):
        note(f"{len(changed) - len(listed):,} more: `--json` lists all")
    note_unread(run, reparsed.unread)


def note_unread(run_id: str, models: Sequence[str]) -> None:
    if models:
        note(
            f"answers of {', '.join(models)} were read by an `output` that your catalog lacks, and"
            " count as they stand: give the model an `output` in a catalog, name the catalog in"
            f" AEGISH_DIST_CATALOG, then `aegish-dist reparse --run-id {run_id}`"
        )


@command("aegish-dist errors", "aegish-dist errors --models openai/gpt-5.1 --format csv")
@run_id(default="latest")
@guards("--models", "ID[,ID...]", "Only these models. Default: all.")
@limited("Rows by minute in a table, the newest; 0: all.", default=50)
@in_a_form
def errors(
    run_id: str,
    models: Sequence[str],
    limit: int,
    *,
    form: str | None,
    output: Path | None,
) -> None:
    """Show when and why calls failed.

    Failed attempts of every minute by model and reason, also those that a retry made good, such as
    429s, and verdicts without an answer. Attempts appear once their item has a verdict; for a model
    parked from the start, see the worker log. `status` counts attempts in progress.
    """
    store, run = open_run(run_id)
    rows = failure_times(store.engine, run, models)
    form = form or form_of(output, LIST_FORMATS)
    if output is not None or form != "table":
        put_out([_text(form, run, rows)], output)
    elif rows:
        listed = rows[-limit:]  # of no limit, -0, all
        say_columns(_tables(rows, listed, terminal_width()))
        if len(listed) < len(rows):
            note(f"{len(rows) - len(listed):,} earlier; `--limit` lists more of them, 0 all")
    if output is not None:
        note_written(output)
    if not rows:
        note("no failed call is stored; unreadable answers: `verdicts list --outcome FORMAT_ERROR`")


def _text(form: str, run_id: str, rows: Sequence[TimedFailures]) -> str:
    if form == "csv":
        return failures_csv(rows)
    if form == "json":
        document = {"run_id": run_id, "by": "minute"} | failures_document(rows)
        return printable_json(document) + "\n"
    if rows:
        return _tables(rows, rows, None) + "\n"
    return ""


def _tables(
    rows: Sequence[TimedFailures], listed: Sequence[TimedFailures], width: int | None
) -> str:
    """Return a table of all failures by model and reason, and one of those that are listed."""
    return f"{_summary(rows, width)}\n\n{_by_time(listed, width)}"


def _summary(rows: Sequence[TimedFailures], width: int | None) -> str:
    sums = totals(rows)
    # A verdict without an attempt has no time.
    first = min((total.first_at for total in sums if total.first_at), default=None)
    last = max((total.last_at for total in sums if total.last_at), default=None)
    caption = ""
    if first and last:
        caption = f"Timeline: {_moment(first)} to {_moment(last)} UTC"
    cells = []
    for total in sums:
        drawn = ""
        if first and last:
            kind = (total.model, total.error_class)
            alike = [row for row in rows if (row.model, row.error_class) == kind]
            drawn = timeline(alike, first, last, width=40)
        cells.append((total.model, *_why(total), f"|{drawn}|", *_numbers(total)))
    columns = ("Model", "Reason", "Status", "Newest message", "Timeline")
    return in_columns(columns, cells, COUNTS, caption=caption, width=width)


def _by_time(rows: Sequence[TimedFailures], width: int | None) -> str:
    columns = ("Time (UTC)", "Model", "Reason", "Status", "Newest message")
    cells = []
    for row in rows:
        cells.append((_moment(row.time), row.model, *_why(row), *_numbers(row)))
    return in_columns(columns, cells, COUNTS, width=width)


def _why(failures: TimedFailures) -> tuple[str, str, str]:
    statuses = " ".join(map(str, failures.statuses))
    on_one_line = " ".join(failures.message.split())
    message = shortened(on_one_line, 80)
    return failures.error_class.words, statuses or "-", message or "-"


def _numbers(failures: TimedFailures) -> tuple[str, str]:
    return f"{failures.attempts:,}", f"{failures.verdicts:,}"


def _moment(time: datetime | None) -> str:
    if time is None:
        return "unknown"
    return f"{time:%Y-%m-%d %H:%M}"
