"""One sample and its verdicts, as lines for a reader or as a JSON document."""

from collections.abc import Iterator
from typing import Any

import msgspec

from aegish_dist.core.listing import ShownSample, ShownVerdict
from aegish_dist.core.opinion import Opinion
from aegish_dist.core.printable import printable, printable_lines
from aegish_dist.core.verdict_record import AttemptRecord, VerdictRecord

TEXT_CHARS = 2_000
"""Of each foreign text, unless all of it is asked for."""
TEXT_LINES = 40
WORDS = {True: "correct", False: "wrong", None: "unscored"}
OF_SAMPLE = ("dataset", "command", "target", "category", "cluster", "simulated", "metadata")
"""Fields of a record that say the same of every verdict."""


def detail_json(shown: ShownSample, opinion: Opinion) -> dict[str, Any]:
    """Return the sample and its verdicts, texts whole."""
    sample = shown.sample
    return {
        "run_id": shown.run_id,
        "scoring": opinion.rule.name,
        "opinion": opinion.provenance,
        "sample": {
            "sample_id": shown.sample_id,
            "dataset": shown.dataset,
            "command": sample.command,
            "target": sample.target,
            "category": sample.category,
            "cluster": sample.cluster,
            "metadata": dict(sample.metadata),
        },
        "verdicts": list(map(_document, shown.verdicts)),
    }


def _document(verdict: ShownVerdict) -> dict[str, Any]:
    # Built from attributes: `to_builtins` refuses half a surrogate pair.
    record = verdict.record
    fields = {
        name: _plain(getattr(record, name))
        for name in record.__struct_fields__
        if name not in OF_SAMPLE
    }
    opinions = {
        "label": verdict.label,
        "correct": verdict.correct,
        "replaced": verdict.replaced,
    }
    return fields | opinions


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [msgspec.structs.asdict(each) for each in value]
    return float(value) if hasattr(value, "as_tuple") else value


def detail_lines(shown: ShownSample, opinion: Opinion, *, full: bool) -> Iterator[str]:
    """Yield the sample and its verdicts line by line, printable."""
    sample = shown.sample
    of = [f"category {sample.category}"] if sample.category else []
    of += [f"cluster {sample.cluster}"] if sample.cluster else []
    facts = ", ".join([sample.target.value, *of])
    yield printable(f"sample {shown.sample_id} of {shown.dataset}: {facts}")
    yield from _text(sample.command, full)
    for verdict in shown.verdicts:
        yield ""
        yield from _verdict(verdict, opinion.rule.name, full)


def _verdict(verdict: ShownVerdict, rule: str, full: bool) -> Iterator[str]:
    record = verdict.record
    repeat = f", epoch {record.epoch}" if record.epoch > 1 else ""
    retry = f", retry {record.generation}" if record.generation else ""
    replaced = ", replaced by a retry" if verdict.replaced else ""
    judged = f"{verdict.label}, {WORDS[verdict.correct]} under {rule}{replaced}"
    yield printable(f"{record.model}{repeat}{retry}: {judged}")
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
        yield "no answer", record.error_class
    if record.confidence is not None:
        yield "confidence", f"{record.confidence:g}"
    facts = {
        "tokens": _tokens(record),
        "cost": "" if record.cost_usd is None else f"{record.cost_usd:f} USD",
        "times": _times(record),
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


def _tokens(record: VerdictRecord) -> str:
    counts = {
        "in": record.input_tokens,
        "from cache": record.cache_read_tokens,
        "to cache": record.cache_write_tokens,
        "out": record.output_tokens,
        "reasoning": record.reasoning_tokens,
    }
    return ", ".join(f"{number:,} {name}" for name, number in counts.items() if number is not None)


def _times(record: VerdictRecord) -> str:
    times = {
        "queue": record.queue_ms,
        "limiter": record.limiter_ms,
        "backoff": record.backoff_ms,
        "service": record.latency_ms,
        "total": record.total_ms,
    }
    return ", ".join(f"{name} {ms:,.0f} ms" for name, ms in times.items() if ms is not None)


def _joined(parts: dict[str, str | None]) -> str:
    return " ".join(f"{name} {part}".strip() for name, part in parts.items() if part)


def _attempt(error: AttemptRecord, full: bool) -> Iterator[str]:
    status = "" if error.status is None else f" {error.status}"
    wait = "" if error.retry_after_s is None else f", retry after {error.retry_after_s:g} s"
    yield printable(
        f"  attempt {error.attempt} failed at {error.at}: {error.error_class}{status}{wait}"
    )
    if error.message:
        yield from _text(error.message, full)


def _text(text: str, full: bool) -> Iterator[str]:
    """Yield foreign text, indented; cut unless all of it is asked for."""
    shown = text if full else text[:TEXT_CHARS]
    lines = shown.splitlines() if full else shown.splitlines()[:TEXT_LINES]
    for line in lines:
        yield f"    {printable_lines(line)}"
    left = len(text) - sum(map(len, lines)) - max(len(lines) - 1, 0)
    if left > 0 and not full:
        yield f"    ... {left:,} more characters; `--full` prints them"
