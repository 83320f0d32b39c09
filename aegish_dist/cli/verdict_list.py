"""`aegish-dist verdicts list`: the verdicts of a run that meet some conditions."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import chain, islice
from pathlib import Path
from typing import Any

import click

from aegish_dist.cli.context import open_workspace
from aegish_dist.cli.options import MAX_INTEGER, Utf8, comma_list, run_id, with_opinion
from aegish_dist.cli.printing import (
    TextTable,
    form_of,
    in_columns,
    note,
    print_table,
    say_rendered,
    to_file,
)
from aegish_dist.core.listing import Correctness, ListedPart, ListedVerdict, VerdictFilter
from aegish_dist.core.opinion import Opinion
from aegish_dist.core.printable import shortened
from aegish_dist.core.sample import Target
from aegish_dist.core.verdict_record import MAX_COUNT
from aegish_dist.core.words import counted
from aegish_dist.files import is_stream, replacing_text
from aegish_dist.pipeline.list_verdicts import COUNTED, list_verdicts, outcomes_or_labels
from aegish_dist.pipeline.runs import find_run
from aegish_dist.report.listing import listing_csv, listing_json

LIMITS = {"table": 50, "json": 10_000, "csv": 10_000}
"""Verdicts on standard output, unless `--limit` says otherwise."""
COMMAND_CHARS = 100


def _names(name: str, metavar: str, text: str) -> Callable[[Any], Any]:
    return click.option(
        name, multiple=True, type=Utf8(), callback=comma_list, metavar=metavar, help=text
    )


@click.command("list")
@run_id(default="latest")
@with_opinion
@_names("--models", "ID[,ID...]", "Verdicts of these models.")
@_names("--outcome", "NAME[,NAME...]", "Verdicts that ended so, such as BLOCK or TIMEOUT_ERROR.")
@click.option("--correct", is_flag=True, help="Verdicts that the rule set counts as correct.")
@click.option("--wrong", is_flag=True, help="Verdicts that it counts as wrong.")
@click.option("--unscored", is_flag=True, help="Verdicts that it does not count.")
@_names("--category", "NAME[,NAME...]", "Commands of these categories.")
@_names("--dataset", "NAME[,NAME...]", "Commands of these datasets.")
@click.option(
    "--target", type=click.Choice([each.value for each in Target]), help="Commands with this label."
)
@_names("--missed-by", "ID[,ID...]", "Commands that each of these models got wrong.")
@click.option("--missed-by-all", is_flag=True, help="Commands that every model got wrong.")
@click.option(
    "--disputed", is_flag=True, help="Commands that one model got right and another one wrong."
)
@click.option(
    "--flipped", is_flag=True, help="Verdicts of a model whose epochs state different actions."
)
@click.option(
    "--text",
    type=Utf8(),
    default="",
    metavar="TEXT",
    help="Verdicts with this in command, reason or completion, in any letter case.",
)
@click.option(
    "--epoch",
    type=click.IntRange(1, MAX_COUNT),
    multiple=True,
    metavar="N",
    help="Verdicts of this epoch.",
)
@click.option("--all-generations", is_flag=True, help="Also verdicts that a retry has replaced.")
@click.option(
    "--limit",
    type=click.IntRange(0, MAX_INTEGER),
    metavar="N",
    help="At most this many, 0 for all. Default: 50 in a table, 10,000 as JSON or CSV, all with"
    " `-o`.",
)
@click.option("--format", "form", type=click.Choice(tuple(LIMITS)), help="Default: table.")
@click.option("--json", "as_json", is_flag=True, help="The same as `--format json`.")
@to_file
def list_(
    run_id: str,
    opinion: Opinion,
    *,
    limit: int | None,
    form: str | None,
    as_json: bool,
    output: Path | None,
    **conditions: Any,
) -> None:
    """List the verdicts that meet all conditions.

    Sorted by dataset, command, model and epoch. Of an item that was asked again the newest verdict
    counts. Conditions on commands (`--missed-by`, `--disputed`) leave the models alone that are
    listed: all, or those of `--models`, which are also the ones that `--disputed` compares. With
    several epochs a model got a command right, or wrong, if it did so in most of the scored ones.
    """
    chosen = _filter(opinion, conditions)
    form = "json" if as_json else form or form_of(output, LIMITS)
    if limit is None and (output is None or form == "table"):
        limit = LIMITS[form]
    workspace = open_workspace()
    found = find_run(workspace.engine, run_id)
    parts = list_verdicts(workspace.engine, found, chosen, opinion, limit or None)
    passed = _Counted()
    with closing(parts):
        # Read before anything is printed: what is refused leaves no half of a document behind.
        first = list(islice(parts, 1))
        _write(form, passed.over(chain(first, parts)), _head(found, opinion), output)
    _note(passed, output)


def _filter(opinion: Opinion, conditions: dict[str, Any]) -> VerdictFilter:
    return VerdictFilter(
        models=tuple(conditions["models"]),
        outcomes=outcomes_or_labels(conditions["outcome"], opinion.rule),
        correctness=frozenset(each for each in Correctness if conditions[each]),
        datasets=tuple(conditions["dataset"]),
        targets=frozenset([Target(conditions["target"])] if conditions["target"] else ()),
        categories=frozenset(conditions["category"]),
        epochs=frozenset(conditions["epoch"]),
        missed_by=tuple(conditions["missed_by"]),
        missed_by_all=conditions["missed_by_all"],
        disputed=conditions["disputed"],
        flipped=conditions["flipped"],
        text=conditions["text"],
        all_generations=conditions["all_generations"],
    )


class _Counted:
    """Counts what passes by."""

    def __init__(self) -> None:
        self.shown = 0
        self.more = 0

    def over(self, parts: Iterable[ListedPart]) -> Iterator[ListedPart]:
        for part in parts:
            self.shown += len(part.verdicts)
            self.more += part.matched - len(part.verdicts)
            yield part


def _head(run_id: str, opinion: Opinion) -> dict[str, Any]:
    return {"run_id": run_id, "scoring": opinion.rule.name, "opinion": opinion.provenance}


def _write(
    form: str, parts: Iterable[ListedPart], head: dict[str, Any], output: Path | None
) -> None:
    if form == "table":
        table = _table(parts)
        if output is None:
            if table.rows:
                print_table(table)
            return
        pieces: Iterable[str] = [in_columns(table) + "\n"]
    else:
        pieces = (listing_csv if form == "csv" else listing_json)(head, parts)
    if output is None:
        for piece in pieces:
            say_rendered(piece)
        return
    with replacing_text(output) as stream:
        for piece in pieces:
            stream.write(piece)


def _table(parts: Iterable[ListedPart]) -> TextTable:
    rows = [_row(verdict) for part in parts for verdict in part.verdicts]
    columns = ("Sample", "Model", "Epoch", "Target", "Category", "Outcome", "Correct", "Command")
    return TextTable(columns, rows)


def _row(verdict: ListedVerdict) -> tuple[str, ...]:
    words = {None: "-", True: "yes", False: "no"}
    return (
        verdict.sample_id[:8],
        verdict.model,
        str(verdict.epoch),
        verdict.target,
        verdict.category or "-",
        verdict.label,
        words[verdict.correct],
        shortened(verdict.command, COMMAND_CHARS),
    )


def _note(passed: _Counted, output: Path | None) -> None:
    if not passed.shown:
        note("no verdict meets these conditions")
    if passed.more:
        at_least = "at least " if passed.more >= COUNTED else ""
        note(f"{at_least}{passed.more:,} more; `--limit` lists more of them, 0 all")
    if output is not None and not is_stream(output):
        note(f"{counted(passed.shown, 'verdict')} written to {output}")
