"""A log of Inspect AI, written sample by sample in the layout that all its releases read.

Not written by `inspect_ai` itself: 0.3.285 needs 2.1 ms of CPU a sample with the whole log in
memory, gives other bytes each time, and compresses by Zstandard, which 0.3.170 cannot open. Here
summaries and reductions wait in unnamed files until the end, and the same run gives the same bytes.

A verdict is a sample: the prompt stands in messages, the answer in the output, what went wrong in
`error` or `limit`. A verdict that no rule set scores is an error sample without a score, never a
score of 0. The event of the call repeats the messages: data frames are made of events, the viewer
shows both. Long texts of the event are attachments, as Inspect AI itself writes them.

Facts that Inspect AI has no field for, or says less exactly, stand in a sample's metadata, so a new
field of `VerdictRecord` travels without a change here. Retries that a later one has replaced stand
there whole.
"""

import hashlib
import json
import math
import re
import shutil
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime, timedelta
from decimal import Decimal
from tempfile import TemporaryFile
from typing import IO, Self

import msgspec

from aegish_dist.core.metric import RATES
from aegish_dist.core.model import ModelSpec
from aegish_dist.core.outcome import ErrorClass, StopKind, find
from aegish_dist.core.run import Messages, Run, RunDataset
from aegish_dist.core.sample import Sample, TrueLabel
from aegish_dist.core.text import JsonObject, as_number, known
from aegish_dist.core.verdict import VerdictRecord
from aegish_dist.interchange.inspect_reader import (
    DEFAULTS,
    LABELS,
    MARK,
    OTHER_LABELS,
    PREFIX,
    REPLACED,
    InspectSample,
    said_in,
)
from aegish_dist.interchange.record import ScoredRecord, stop_kind_of
from aegish_dist.opinions.opinion import Opinion

_ATTACHED_FROM_CHARS = 100  # longer texts are attachments, as in Inspect AI
_SUMMARY_METADATA_CHARS = 1_000


LAYOUT = 1  # version of what we add to a log
_LAYOUT_VERSION = 2
_MAX_NAME_CHARS = 80  # of a part of the name of a file
_DEFLATE_LEVEL = 1  # half the usual time, files a tenth larger
_FIRST_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest in a zip archive

_encode = msgspec.json.Encoder().encode


def text_id(*parts: object) -> str:
    """Return an id of 22 hexadecimal digits, always the same for the same parts."""
    text = "\0".join(map(str, parts))
    return hashlib.sha256(text.encode()).hexdigest()[:22]


class LogHead(msgspec.Struct, frozen=True):
    run: Run
    spec: ModelSpec
    dataset: RunDataset
    opinions: Sequence[Opinion]

    @classmethod
    def of(
        cls,
        run: Run,
        model: str,
        dataset: str,
        opinions: Sequence[Opinion],
    ) -> Self:
        (spec,) = (spec for spec in run.models if spec.id == model)
        (asked,) = (asked for asked in run.datasets if asked.name == dataset)
        return cls(run, spec, asked, opinions)

    @property
    def task_id(self) -> str:
        """Tells the logs of a run apart; the same in every export."""
        return text_id(self.run.run_id, self.spec.id, self.dataset.name)

    @property
    def file_name(self) -> str:
        """Return `TIME_DATASET_MODEL_ID.eval`, as Inspect AI names its logs."""
        parts = []
        for text in (
            self.run.created_at.isoformat(timespec="seconds"),
            self.dataset.name,
            self.spec.id,
        ):
            plain = re.sub(r"[^A-Za-z0-9.+-]+", "-", text)
            parts.append(plain[:_MAX_NAME_CHARS])

        return "_".join([*parts, self.task_id]) + ".eval"

    @property
    def config(self) -> JsonObject:
        parameters = self.run.parameters
        if parameters is None:
            return {}
        config = {
            "max_tokens": parameters.max_output_tokens,
            "temperature": parameters.temperature,
            "seed": parameters.seed,
        }
        return known(config)

    def start(self, sample_ids: Sequence[str]) -> JsonObject:
        """Return what a log says of itself when it begins."""
        run = self.run
        dataset = self.dataset
        prompt = run.prompt_of(self.spec.id)
        arguments: JsonObject = {"dataset": dataset.name}
        steps: list[JsonObject] = []
        if prompt is not None:
            arguments |= {
                "prompt": prompt.name,
                "prompt_fingerprint": prompt.fingerprint,
            }
            if prompt.system:
                steps.append(_step("system_message", template=prompt.system))
            steps.append(_step("prompt_template", template=prompt.template))

        steps.append(_step("generate"))
        if run.parameters is not None:
            arguments["time_limit_s"] = run.parameters.time_limit_s
        evaluation = {
            "eval_id": text_id("eval", self.task_id),
            "run_id": run.run_id,
            "created": run.created_at.isoformat(),
            "task": dataset.name,
            "task_id": self.task_id,
            "task_version": 0,
            "task_attribs": {},
            "task_args": arguments,
            "task_args_passed": arguments,
            "dataset": {
                "name": dataset.name,
                "location": dataset.source or None,
                "samples": dataset.samples,
                "sample_ids": sample_ids,
                "shuffled": False,
            },
            "model": self.spec.id,
            "model_generate_config": self.config,
            "model_args": {},
            "config": {
                "epochs": run.epochs,
                "epochs_reducer": ["mean"],
                "log_samples": True,
            },
            "packages": {"aegish_dist": run.package_version},
            "metadata": self._metadata(),
            "scorers": list(map(_scorer, self.opinions)),
        }
        plan = {
            "name": "plan",
            "steps": steps,
            "config": self.config,
        }
        return {
            "version": _LAYOUT_VERSION,
            "eval": evaluation,
            "plan": plan,
        }

    def _metadata(self) -> JsonObject:
        run = self.run
        prompt = run.prompt_of(self.spec.id)
        facts = {
            "run_id": run.run_id,
            "run_name": run.name,
            "origin": run.origin,
            "version": run.package_version,
            "prompt_fingerprint": None if prompt is None else prompt.fingerprint,
            "dataset_fingerprint": self.dataset.fingerprint,
            "dataset_licence": self.dataset.licence or None,
            "simulated": self.spec.simulated,
        }
        metadata: JsonObject = {MARK: LAYOUT}
        for name, value in known(facts).items():
            metadata[PREFIX + name] = value
        return metadata

    def sample(self, verdicts: Sequence[ScoredRecord]) -> tuple[JsonObject, JsonObject]:
        """Return the sample of one item, and its line in the summaries."""
        record = verdicts[-1].record
        replaced = [older.record for older in verdicts[:-1]]
        output = _output(record)
        times = _times(record)
        sample = Sample(
            command=record.command,
            target=record.target,
            category=record.category,
            cluster=record.cluster,
        )
        uuid = text_id(
            self.run.run_id, record.model, record.dataset, sample.sample_id, record.epoch
        )
        as_read = msgspec.convert({**times, "output": output}, InspectSample)
        # Of the raw stop reason the reader knows the kind.
        said = {
            **said_in(as_read),
            "stop_kind": stop_kind_of(record.stop_reason),
        }
        metadata = _metadata(record, said, replaced)
        common = {
            "id": sample.sample_id,
            "epoch": record.epoch,
            "input": record.command,
            "target": record.target,
            "scores": self._scores(verdicts[-1]),
            "model_usage": {record.model: output["usage"]} if "usage" in output else {},
            **times,
            "uuid": uuid,
        }
        messages = self._messages(uuid, record, output)
        retries = _retries(record, replaced)
        error, limit = self._failure(record, has_score=bool(common["scores"]))
        content = common | {
            "messages": messages,
            "output": output,
            "metadata": metadata,
            "store": {},
            **self._transcript(common, messages, output, error),
            "error_retries": [_as_error(each) for each in retries],
        }
        summary = common | {
            "metadata": {key: value for key, value in metadata.items() if _is_short(value)},
            "retries": len(retries),
            "completed": True,
            "message_count": len(messages),
        }
        if error is not None:
            content["error"] = _as_error(error)
            summary["error"] = error

        if limit is not None:
            content["limit"] = limit
            summary["limit"] = limit["type"]

        return content, summary

    def _scores(self, verdict: ScoredRecord) -> JsonObject:
        record = verdict.record
        finding = find(record.outcome, record.stop_kind, record.error_class)
        scores: JsonObject = {}
        for opinion, right in zip(self.opinions, verdict.correct, strict=True):
            if right is not None:
                scores[opinion.rule.name] = {
                    "value": "C" if right else "I",
                    "answer": opinion.rule.labels[finding],
                    "explanation": record.reason or _without_reason(record),
                }

        return scores

    def _failure(
        self, record: VerdictRecord, *, has_score: bool
    ) -> tuple[str | None, JsonObject | None]:
        """Return why a verdict is an error sample, or else the limit that ended its call."""
        if not has_score:
            if record.error_class:
                return _in_words(record), None
            return f"not scored: {record.outcome}", None

        if record.error_class is not ErrorClass.DEADLINE:
            return None, None
        limit_s = self.run.parameters and self.run.parameters.time_limit_s
        took_s = (record.latency_ms or 0) / 1000
        return None, {"type": "time", "limit": limit_s or took_s}

    def _messages(
        self,
        uuid: str,
        record: VerdictRecord,
        output: JsonObject,
    ) -> list[JsonObject]:
        """Return system text, command and answer, each where there is one."""
        prompt = self.run.prompt_of(self.spec.id)
        texts = Messages("", record.command)
        if prompt is not None:
            texts = prompt.render(record.command)
        messages: list[JsonObject] = []
        if texts.system:
            messages.append({"role": "system", "content": texts.system})
        messages.append(
            {
                "role": "user",
                "content": texts.user,
                "source": "input",
            }
        )
        messages += [choice["message"] for choice in output["choices"]]
        for number, message in enumerate(messages):
            message["id"] = f"{uuid}{number}"
        return messages

    def _transcript(
        self,
        sample: JsonObject,
        messages: Sequence[JsonObject],
        output: JsonObject,
        error: str | None,
    ) -> JsonObject:
        attachments: dict[str, str] = {}
        said = []
        for message in messages:
            text = message["content"]
            name = text_id(text)
            if len(text) > _ATTACHED_FROM_CHARS:
                attachments[name] = text
                text = f"attachment://{name}"
            said.append(message | {"content": text})

        # The answer is the last message, and stands in the output alone.
        choices = [choice | {"message": said.pop()} for choice in output["choices"]]
        shown = output | {"choices": choices}
        shown.pop("completion", None)
        event = {
            "event": "model",
            "uuid": f"{sample['uuid']}e",
            "timestamp": sample.get("started_at", self.run.created_at.isoformat()),
            "working_start": 0,
            "model": self.spec.id,
            "input": said,
            "tools": [],
            "tool_choice": "none",
            "config": self.config,
            "output": shown,
            "error": error,
            "completed": sample.get("completed_at"),
            "working_time": sample.get("working_time"),
        }
        return {"events": [known(event)], "attachments": attachments}


def _step(solver: str, **params: str) -> JsonObject:
    return {"solver": solver, "params": params}


def _scorer(opinion: Opinion) -> JsonObject:
    names = ("accuracy", "stderr", *RATES.values())
    return {
        "name": opinion.rule.name,
        "options": {},
        "metrics": [{"name": name, "options": {}} for name in names],
        "metadata": {f"{PREFIX}opinion": opinion.provenance},
    }


def _is_short(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= _SUMMARY_METADATA_CHARS
    return not isinstance(value, list | dict)


def _output(record: VerdictRecord) -> JsonObject:
    output: JsonObject = {
        "model": "",
        "choices": [],
        **known({"time": _seconds(record.latency_ms)}),
    }
    if record.error_class is not None:
        return output
    text = record.completion or ""
    model = record.returned_model or ""
    # Inspect AI's words are those of our kinds.
    kind = record.stop_kind
    stop_reason = "unknown" if kind in (None, StopKind.OTHER) else f"{kind}"
    message = {
        "role": "assistant",
        "content": text,
        "source": "generate",
        "model": model or record.model,
    }
    output |= {
        "model": model,
        "choices": [{"message": message, "stop_reason": stop_reason}],
        "completion": text,
    }
    if record.refusal is not None:
        output["error"] = record.refusal
    if usage := _usage(record):
        output["usage"] = usage
    return output


def _usage(record: VerdictRecord) -> JsonObject:
    """Return the tokens in Inspect AI's meaning: input without the cache, output with reasoning."""
    given = record.input_tokens
    generated = record.output_tokens
    read = record.cache_read_tokens
    written = record.cache_write_tokens
    reasoning = record.reasoning_tokens
    if {given, generated, read, written, reasoning, record.cost_usd} == {None}:
        return {}
    cached = (read or 0) + (written or 0)
    beside = max(0, (given or 0) - cached)
    usage = {
        "input_tokens": beside,
        "output_tokens": generated or 0,
        "total_tokens": beside + cached + (generated or 0),
        "input_tokens_cache_read": read,
        "input_tokens_cache_write": written,
        "reasoning_tokens": reasoning,
        "total_cost": as_number(record.cost_usd),
    }
    return known(usage)


def _metadata(
    record: VerdictRecord, said: JsonObject, replaced: Iterable[VerdictRecord]
) -> JsonObject:
    metadata: JsonObject = known(
        {
            "dataset": record.dataset,
            "category": record.category,
            "cluster": record.cluster,
        }
    )
    taken: dict[str, str] = {}
    for key, text in record.metadata.items():
        if key in LABELS or key.startswith(PREFIX):
            taken[key] = text
        else:
            metadata[key] = text

    if taken:
        metadata[OTHER_LABELS] = taken
    facts: JsonObject = {"outcome": record.outcome}
    if record.confidence is not None:
        facts["confidence"] = record.confidence
    facts |= _unsaid(record, said)
    for name, value in facts.items():
        metadata[PREFIX + name] = value
    older = []
    for verdict in replaced:
        older.append(_unsaid(verdict, {}))
        if verdict.completion is None and not verdict.error_class:
            # The mark tells an answer without a text from no answer.
            older[-1]["answered"] = True

    if older:
        metadata[REPLACED] = older
    return metadata


def _unsaid(record: VerdictRecord, said: JsonObject) -> JsonObject:
    """Return the facts of a verdict beside those that a reader takes from the sample's fields."""
    found: JsonObject = {}
    for name, default in DEFAULTS.items():
        value = getattr(record, name)
        if value != said.get(name, default):
            found[name] = str(value) if isinstance(value, Decimal) else value

    if "call_errors" in found:
        found["call_errors"] = msgspec.to_builtins(list(found["call_errors"]))
    return found


def _times(record: VerdictRecord) -> JsonObject:
    times: JsonObject = known({"completed_at": record.created_at})
    if record.created_at is not None:
        took_ms = record.latency_ms if record.total_ms is None else record.total_ms
        with suppress(OverflowError):
            took = timedelta(milliseconds=took_ms or 0)
            started = datetime.fromisoformat(record.created_at) - took
            times["started_at"] = started.isoformat()

    seconds = {
        "total_time": _seconds(record.total_ms),
        "working_time": _seconds(record.latency_ms),
    }
    return times | known(seconds)


def _seconds(ms: float | None) -> float | None:
    if ms is None:
        return None
    return ms / 1000


def _as_error(text: str) -> dict[str, str]:
    return {
        "message": text,
        "traceback": "",
        "traceback_ansi": "",
    }


def _without_reason(record: VerdictRecord) -> str:
    """Return how an item ended for which the model stated no reason."""
    if record.error_class is ErrorClass.DEADLINE:
        return "no answer within the time limit"
    reason = record.error_class or "the answer states no reason"
    return f"{record.outcome}: {reason}"


def _in_words(record: VerdictRecord) -> str:
    words = f"{record.outcome}: {record.error_class}"
    if record.call_errors and record.call_errors[-1].message:
        words += f": {record.call_errors[-1].message}"
    return words


def _retries(record: VerdictRecord, replaced: Iterable[VerdictRecord]) -> list[str]:
    """Return the verdicts that were replaced, and the attempts that failed before the answer."""
    lines = []
    for older in replaced:
        words = _in_words(older) if older.error_class else older.outcome
        lines.append(f"replaced by a retry: {words}")

    failed = record.call_errors if record.error_class is None else record.call_errors[:-1]
    for error in failed:
        kind = f"{error.error_class}"
        if error.status is not None:
            kind += f" (HTTP {error.status})"
        message = error.message or ""
        lines.append(f"{kind}: {message}")

    return lines


def _mean(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return a mean and, as Inspect AI's `stderr`, the standard deviation over the root of n."""
    # Not by `sum`, which rounds in another way from Python 3.12 on.
    n = len(values)
    if not n:
        return None, None
    total = math.fsum(values)
    if n == 1:
        return total, None
    squares = math.fsum(value * value for value in values)
    spread = max(0.0, squares - total * total / n)
    variance = spread / (n - 1)
    return total / n, math.sqrt(variance / n)


class _JsonList:
    """A list of JSON values that waits in a file."""

    def __init__(self, files: ExitStack) -> None:
        self._file = files.enter_context(TemporaryFile())  # noqa: SIM115  closed with the log

    def add(self, value: object) -> None:
        self._file.write(b"," + _encode(value))

    def copy_to(self, stream: IO[bytes]) -> None:
        """Write the list, which ends it."""
        stream.write(b"[")
        self._file.seek(1)
        shutil.copyfileobj(self._file, stream)
        stream.write(b"]")


class _RuleScores:
    """The samples of a log under one rule set; a sample's value is the mean over its epochs."""

    def __init__(self, name: str, epochs: int, files: ExitStack) -> None:
        self.about = {
            "scorer": name,
            "reducer": "mean" if epochs > 1 else None,
        }
        self.reductions = _JsonList(files)
        self._unscored = 0
        self._values = defaultdict[TrueLabel | None, list[float]](list)  # of all with None

    def add(
        self,
        sample_id: str,
        newest: Sequence[ScoredRecord],
        number: int,
    ) -> None:
        """Count a sample by the newest verdict of each epoch, whose `number`th opinion this is."""
        judged = [verdict.correct[number] for verdict in newest]
        scored = [right for right in judged if right is not None]
        if not scored:
            self._unscored += 1
            return

        record = newest[0].record
        value = sum(scored) / len(scored)
        self._values[None].append(value)
        self._values[record.target].append(value)
        reduction = {
            "value": value,
            "answer": record.outcome if len(newest) == 1 else None,
            "sample_id": sample_id,
        }
        self.reductions.add(reduction)

    def results(self) -> JsonObject:
        """Return what the header of the log says; what is undefined is left out."""
        values = {}
        values["accuracy"], values["stderr"] = _mean(self._values[None])
        for target, rate in sorted(RATES.items()):
            values[rate], values[f"{rate}_stderr"] = _mean(self._values[target])
        metrics = {}
        for name, value in known(values).items():
            metrics[name] = {
                "name": name,
                "value": value,
                "params": {},
            }

        return {
            "name": self.about["scorer"],
            **self.about,
            "scored_samples": len(self._values[None]),
            "unscored_samples": self._unscored,
            "params": {},
            "metrics": metrics,
        }


class _Totals:
    """Sums over the samples of a log, for its header."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self._usage = Counter[str]()
        self._verdicts = self._completed = 0
        self._started_at = self._completed_at = ""

    def add(self, content: JsonObject) -> None:
        for usage in content["model_usage"].values():
            self._usage.update(usage)
        self._verdicts += 1
        self._completed += "error" not in content
        if "started_at" in content:
            started_at = content["started_at"]
            self._started_at = min(self._started_at or started_at, started_at)
        self._completed_at = max(self._completed_at, content.get("completed_at", ""))

    def closing(self, head: LogHead, scores: Sequence[_RuleScores]) -> JsonObject:
        planned = head.dataset.samples * head.run.epochs
        return {
            "status": "success" if self._verdicts >= planned else "cancelled",
            "results": {
                "total_samples": planned,
                "completed_samples": self._completed,
                "scores": [each.results() for each in scores],
            },
            "stats": {
                "started_at": self._started_at,
                "completed_at": self._completed_at,
                "model_usage": {head.spec.id: dict(self._usage)} if self._usage else {},
            },
            "invalidated": False,
        }


def write_inspect_log(
    stream: IO[bytes], head: LogHead, samples: Iterable[Sequence[Sequence[ScoredRecord]]]
) -> None:
    """Write a log; of each sample by epoch the verdicts of all generations, the last one counts."""
    totals = _Totals()
    with zipfile.ZipFile(stream, "w") as archive, ExitStack() as files:
        summaries = _JsonList(files)
        scores = [_RuleScores(each.rule.name, head.run.epochs, files) for each in head.opinions]
        for epochs in samples:
            for verdicts in epochs:
                content, summary = head.sample(verdicts)
                name = f"samples/{content['id']}_epoch_{content['epoch']}.json"
                _write(archive, name, _encode(content))
                summaries.add(summary)
                totals.add(content)
            totals.ids.append(content["id"])
            newest = [verdicts[-1] for verdicts in epochs]
            for number, under_rule in enumerate(scores):
                under_rule.add(content["id"], newest, number)
        start = head.start(totals.ids)
        _write(archive, "_journal/start.json", _json(start))
        with archive.open(_member("summaries.json"), "w", force_zip64=True) as member:
            summaries.copy_to(member)
        with archive.open(_member("reductions.json"), "w", force_zip64=True) as member:
            _write_reductions(scores, member)
        # The header comes last: a log without it is one that was cut off.
        _write(archive, "header.json", _json(start | totals.closing(head, scores)))


def _write_reductions(scores: Sequence[_RuleScores], stream: IO[bytes]) -> None:
    before = b"["
    for under_rule in scores:
        about = _json(under_rule.about).removesuffix(b"}")
        stream.write(before + about + b',"samples":')
        under_rule.reductions.copy_to(stream)
        stream.write(b"}")
        before = b","
    stream.write(b"]")


def _write(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(_member(name), data, compresslevel=_DEFLATE_LEVEL)


def _member(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name, _FIRST_DATE)
    member.compress_type = zipfile.ZIP_DEFLATED
    member.external_attr = 0o644 << 16
    return member


def _json(value: object) -> bytes:
    """Encode with any number, which sums of tokens need."""
    return json.dumps(value).encode()
