"""Verdicts for a reader: a list as JSON or CSV in pieces, and one sample with all of its verdicts.

A list of a million verdicts needs no memory.
"""

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec

from aegish_dist.core.text import (
    JsonObject,
    printable,
    printable_line_of_json,
    printable_lines,
    shortened,
    spreadsheet_safe,
)
from aegish_dist.core.verdict import AttemptRecord, VerdictRecord
from aegish_dist.opinions.opinion import Opinion, run_and_opinion
from aegish_dist.opinions.verdict_query import LISTED, JudgedVerdict, ListedPart, ShownSample
from aegish_dist.report.writing import short_names

BEFORE = "correct_before"  # the last column, where a list compares two opinions
# The most of each foreign text of a sample, unless all of it is asked for.
TEXT_CHARS, TEXT_LINES = 2_000, 40
WORDS = {True: "correct", False: "wrong", None: "unscored"}
# Fields of a record that say the same of every verdict about a sample.
OF_SAMPLE = ("dataset", "command", "target", "category", "cluster", "simulated", "metadata")


def listing_json(head: JsonObject, parts: Iterable[ListedPart]) -> Iterator[str]:
    """Yield one JSON document in ASCII: `verdicts`, and `more`, how many the limit left out."""
    columns = _columns(head)
    values = attrgetter(*columns)
    yield "{" + "".join(f'"{key}": {printable_line_of_json(head[key])},\n' for key in head)
    yield '"verdicts": ['
    separator = "\n"
    more = 0
    for part in parts:
        more += part.matched - len(part.verdicts)
        if part.verdicts:
            rows = (_row(columns, values(verdict)) for verdict in part.verdicts)
            yield separator + ",\n".join(map(printable_line_of_json, rows))
            separator = ",\n"
    yield f'\n],\n"more": {more}}}\n'


def listing_csv(head: JsonObject, parts: Iterable[ListedPart]) -> Iterator[str]:
    """Yield CSV (RFC 4180) with a header; unknown is empty.

    Foreign text that a spreadsheet would compute gets a leading `'`. Each row ends with the rule
    set, so that lists under several ones can be stacked.
    """
    rule = head["opinion"]["scoring"]
    source = [spreadsheet_safe(rule["name"]), rule["version"]]
    columns = _columns(head)
    values = attrgetter(*columns)
    yield _csv_lines([[*columns, "scoring", "scoring_version"]])
    for part in parts:
        rows = (_row(columns, values(verdict)) for verdict in part.verdicts)
        yield _csv_lines([*_cells(row), *source] for row in rows)


def _columns(head: JsonObject) -> tuple[str, ...]:
    return (*LISTED, BEFORE) if "opinion_before" in head else LISTED


def _row(columns: Sequence[str], values: Sequence[Any]) -> JsonObject:
    row = dict(zip(columns, values, strict=True))
    if row["cost_usd"] is not None:
        row["cost_usd"] = float(row["cost_usd"])
    return row


def _cells(row: JsonObject) -> list[object]:
    for name in ("correct", BEFORE):
        if row.get(name) is not None:
            row[name] = str(row[name]).lower()  # as JSON writes it
    return [spreadsheet_safe(cell) if type(cell) is str else cell for cell in row.values()]


def _csv_lines(rows: Iterable[Iterable[object]]) -> str:
    target = io.StringIO(newline="")
    csv.writer(target).writerows(rows)
    return target.getvalue()


def command_table(
    commands: Sequence[Sequence[JudgedVerdict]],
    width: int,
    *,
    alike: bool,
    before: bool,
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return headings and a row for each command: its label, which models said what, and its id.

    Args:
        alike: Whether all verdicts are correct, or all are wrong: then only the heading says which.
        before: Whether rows also say how the other opinion of `--changed-between` judges a verdict.
    """
    models = {verdict.model for verdict in chain.from_iterable(commands)}
    names = short_names(sorted(models), width / 4)
    rows: list[tuple[str, ...]] = []
    for verdicts in commands:
        models_by_words = defaultdict[str, Counter[str]](Counter)
        for verdict in verdicts:
            words = str(verdict.label)
            if before:
                words += f" ({WORDS[verdict.correct]}, was {WORDS[verdict.correct_before]})"
            elif not alike:
                words += f" ({WORDS[verdict.correct]})"
            models_by_words[words][names[verdict.model]] += 1
        answers = [f"{words}: {_counted(count)}" for words, count in models_by_words.items()]
        first = verdicts[0]
        label = first.target.value
        if first.category:
            label = f"{label} {first.category}"
        # Folded once, it leaves room for its label, id and verdicts.
        command = shortened(printable(first.command), width - 38)
        rows.append((command, label, "; ".join(answers), first.sample_id[:8]))
    judged = "Verdicts"
    if alike and rows:
        judged = WORDS[commands[0][0].correct].capitalize()
    return ("Command", "Label", judged, "Sample"), rows


def _counted(epochs: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({n} epochs)" if n > 1 else name for name, n in epochs.items())


def detail_json(shown: ShownSample, opinion: Opinion) -> JsonObject:
    """Return the sample and its verdicts, texts whole."""
    sample = shown.sample
    return {
        **run_and_opinion(shown.run_id, opinion),
        "sample": {
            "sample_id": shown.sample_id,
            "dataset": shown.dataset,
            "command": sample.command,
            "target": sample.target,
            "category": sample.category,
            "cluster": sample.cluster,
            "metadata": dict(sample.metadata),
        },
        # Built from attributes: `to_builtins` refuses half a surrogate pair.
        "verdicts": [
            {name: _plain(getattr(verdict, name)) for name in _OF_VERDICT}
            for verdict in shown.verdicts
        ],
    }


_OF_VERDICT = (
    *(name for name in VerdictRecord.__struct_fields__ if name not in OF_SAMPLE),
    "label",
    "correct",
    "replaced",
)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [msgspec.structs.asdict(attempt) for attempt in value]
    # A cost is a Decimal.
    return float(value) if hasattr(value, "as_tuple") else value


def detail_lines(shown: ShownSample, opinion: Opinion, *, full: bool) -> Iterator[str]:
    """Yield the sample and its verdicts line by line, printable."""
    sample = shown.sample
    facts = sample.target.value
    if sample.category:
        facts += f", category {sample.category}"
    if sample.cluster:
        facts += f", cluster {sample.cluster}"
    yield printable(f"sample {shown.sample_id} of {shown.dataset}: {facts}")
    yield from _text(sample.command, full)
    for verdict in shown.verdicts:
        yield ""
        yield from _verdict(verdict, opinion.rule.name, full)


def _verdict(record: JudgedVerdict, rule: str, full: bool) -> Iterator[str]:
    title = record.model
    if record.epoch > 1:
        title += f", epoch {record.epoch}"
    if record.generation:
        title += f", retry {record.generation}"
    title += f": {record.label}, {WORDS[record.correct]} under {rule}"
    if record.replaced:
        title += ", replaced by a retry"
    yield printable(title)
    for name, fact in _facts(record):
        yield printable(f"  {name:11} {fact}")
    if record.reason is not None:
        yield "  reason"
        yield from _text(record.reason, full)
    if record.pruned:
        yield "  completion  deleted by `runs prune --completions`"
    if record.completion is not None:
        yield "  completion"
        yield from _text(record.completion, full)
    for error in record.call_errors:
        yield from _attempt(error, full)


def _facts(record: VerdictRecord) -> Iterator[tuple[str, str]]:
    if record.error_class is not None:
        yield "no answer", record.error_class.words
    if record.confidence is not None:
        yield "confidence", f"{record.confidence:g}"
    if record.suspicion is not None:
        yield "suspicion", f"{record.suspicion:g}"
    facts = {
        "tokens": _numbers(record, _TOKENS, "{1:,} {0}"),
        "cost": "" if record.cost_usd is None else f"{record.cost_usd:f} USD",
        "times": _numbers(record, _TIMES, "{0} {1:,.0f} ms"),
        "stopped": _joined({"": record.stop_reason, "as": record.stop_kind}),
        "refusal": record.refusal or "",
        "answered": _joined(
            {"at": record.created_at, "by": record.returned_model, "host": record.upstream}
        ),
        "request": _joined({"": record.request_id, "worker": record.worker}),
        "attempts": f"{record.attempts}, {len(record.call_errors)} failed",
        "parser": str(record.parser_version) if record.parser_version else "",
    }
    yield from ((name, fact) for name, fact in facts.items() if fact)


_TOKENS = {
    "in": "input_tokens",
    "from cache": "cache_read_tokens",
    "to cache": "cache_write_tokens",
    "out": "output_tokens",
    "reasoning": "reasoning_tokens",
}
_TIMES = {
    "queue": "queue_ms",
    "limiter": "limiter_ms",
    "backoff": "backoff_ms",
    "service": "latency_ms",
    "total": "total_ms",
}


def _numbers(record: VerdictRecord, fields: Mapping[str, str], form: str) -> str:
    """Write the numbers of some fields that are known, each in a form of its name and value."""
    numbers = ((name, getattr(record, field)) for name, field in fields.items())
    return ", ".join(form.format(name, value) for name, value in numbers if value is not None)


def _joined(parts: dict[str, str | None]) -> str:
    return " ".join(f"{name} {part}".strip() for name, part in parts.items() if part)


def _attempt(error: AttemptRecord, full: bool) -> Iterator[str]:
    line = f"  attempt {error.attempt} failed at {error.at}: {error.error_class.words}"
    if error.status is not None:
        line += f" {error.status}"
    if error.retry_after_s is not None:
        line += f", retry after {error.retry_after_s:g} s"
    yield printable(line)
    if error.message:
        yield from _text(error.message, full)


def _text(text: str, full: bool) -> Iterator[str]:
    """Yield foreign text, indented; cut unless all of it is asked for."""
    lines = text.splitlines()
    if not full:
        lines = text[:TEXT_CHARS].splitlines()[:TEXT_LINES]
    for line in lines:
        yield f"    {printable_lines(line)}"
    shown = sum(map(len, lines)) + max(len(lines) - 1, 0)
    left = len(text) - shown
    if left > 0 and not full:
        yield f"    ... {left:,} more characters; `--full` prints them"
