"""A log of Inspect AI, written sample by sample in the layout that all its releases read.

Not written by `inspect_ai` itself: 0.3.285 needs 2.1 ms of CPU a sample with the whole log in
memory, gives other bytes each time, and compresses by Zstandard, which 0.3.170 cannot open.

Version 2 of the layout, deflated. Nothing but the ids of the samples is held in memory: summaries
and reductions wait in unnamed files until the end, where a log has them. The dates in the archive
are fixed, so that a run gives the same bytes again.
"""

import json
import math
import re
import shutil
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO, Any, Self

import msgspec

from aegish_dist.core.model import ModelSpec
from aegish_dist.core.opinion import Opinion
from aegish_dist.core.run import Run, RunDataset
from aegish_dist.core.sample import TrueLabel
from aegish_dist.interchange.inspect_sample import (
    LAYOUT,
    MARK,
    PREFIX,
    Conversation,
    SampleMaker,
    WrittenSample,
    text_id,
)
from aegish_dist.interchange.record import JudgedRecord

METRICS = {
    TrueLabel.MALICIOUS: "malicious_detection_rate",
    TrueLabel.HARMLESS: "harmless_acceptance_rate",
}


@dataclass(slots=True)
class _Mean:
    """A mean over samples of the mean over a sample's scored epochs."""

    n: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        self.n += 1
        self.total += value
        self.squares += value * value

    @property
    def value(self) -> float | None:
        return self.total / self.n if self.n else None

    @property
    def stderr(self) -> float | None:
        """As Inspect AI's `stderr`: the samples' standard deviation over the root of n."""
        if self.n < 2:
            return None
        spread = max(0.0, self.squares - self.total * self.total / self.n)
        return math.sqrt(spread / (self.n - 1) / self.n)


@dataclass(slots=True)
class RuleScores:
    """The samples of a log under one rule set."""

    name: str
    reducer: str | None
    """How Inspect AI calls the mean over epochs; None with one epoch."""
    _all: _Mean = field(default_factory=_Mean)
    _by_target: dict[TrueLabel, _Mean] = field(default_factory=dict)
    _unscored: int = 0

    def add(self, target: TrueLabel, judged: list[bool | None]) -> float | None:
        """Count a sample.

        Args:
            judged: Of each epoch whether it is right, None where it is unscored.

        Returns:
            The mean over the scored epochs; None without one.
        """
        scored = [each for each in judged if each is not None]
        if not scored:
            self._unscored += 1
            return None
        value = sum(scored) / len(scored)
        for mean in (self._all, self._by_target.setdefault(target, _Mean())):
            mean.add(value)
        return value

    def results(self) -> dict[str, Any]:
        """Return what the header of the log says; what is undefined is left out."""
        values = {"accuracy": self._all.value, "stderr": self._all.stderr}
        for target, mean in sorted(self._by_target.items()):
            values |= {METRICS[target]: mean.value, f"{METRICS[target]}_stderr": mean.stderr}
        return {
            "name": self.name,
            "scorer": self.name,
            "reducer": self.reducer,
            "scored_samples": self._all.n,
            "unscored_samples": self._unscored,
            "params": {},
            "metrics": {
                name: {"name": name, "value": value, "params": {}}
                for name, value in values.items()
                if value is not None
            },
        }


LAYOUT_VERSION = 2
MAX_NAME_CHARS = 60
"""Of a part of the name of a file."""


@dataclass(frozen=True, slots=True)
class LogHead:
    """Facts about a log that are known before its first sample."""

    run: Run
    spec: ModelSpec
    dataset: RunDataset
    opinions: Sequence[Opinion]

    @classmethod
    def of(cls, run: Run, model: str, dataset: str, opinions: Sequence[Opinion]) -> Self:
        """Return the head of a log."""
        (spec,) = (each for each in run.models if each.id == model)
        (chosen,) = (each for each in run.datasets if each.name == dataset)
        return cls(run, spec, chosen, opinions)

    @property
    def model(self) -> str:
        """Canonical id of the model."""
        return self.spec.id

    @property
    def planned(self) -> int:
        """Samples times epochs."""
        return self.dataset.samples * self.run.epochs

    @property
    def task_id(self) -> str:
        """Tells the logs of a run apart; the same in every export."""
        return text_id(self.run.run_id, self.model, self.dataset.name)

    @property
    def file_name(self) -> str:
        """Return `TIME_DATASET_MODEL_ID.eval`, as Inspect AI names its logs."""
        parts = (self.run.created_at.isoformat(timespec="seconds"), self.dataset.name, self.model)
        names = [re.sub(r"[^A-Za-z0-9.+-]+", "-", each)[:MAX_NAME_CHARS] for each in parts]
        return "_".join([*names, self.task_id]) + ".eval"

    def start(self, sample_ids: Sequence[str]) -> dict[str, Any]:
        """Return what a log says of itself when it begins.

        Args:
            sample_ids: Of its samples, in their order.
        """
        return {"version": LAYOUT_VERSION, "eval": self._eval(sample_ids), "plan": self._plan()}

    def _eval(self, sample_ids: Sequence[str]) -> dict[str, Any]:
        run, arguments = self.run, self._arguments()
        return {
            "eval_id": text_id("eval", self.task_id),
            "run_id": run.run_id,
            "created": run.created_at.isoformat(),
            "task": self.dataset.name,
            "task_id": self.task_id,
            "task_version": 0,
            "task_attribs": {},
            "task_args": arguments,
            "task_args_passed": arguments,
            "dataset": {
                "name": self.dataset.name,
                "location": self.dataset.source or None,
                "samples": self.dataset.samples,
                "sample_ids": sample_ids,
                "shuffled": False,
            },
            "model": self.model,
            "model_generate_config": self.config,
            "model_args": {},
            "config": {"epochs": run.epochs, "epochs_reducer": ["mean"], "log_samples": True},
            "packages": {"aegish_dist": run.package_version},
            "metadata": self._metadata(),
            "scorers": [_scorer(each) for each in self.opinions],
        }

    def _arguments(self) -> dict[str, Any]:
        run = self.run
        arguments: dict[str, Any] = {"dataset": self.dataset.name}
        if run.prompt is not None:
            arguments |= {
                "prompt": run.prompt.name,
                "prompt_fingerprint": run.prompt.fingerprint,
            }
        if run.parameters is not None:
            arguments["time_limit_s"] = run.parameters.time_limit_s
        return arguments

    @property
    def config(self) -> dict[str, Any]:
        """Parameters of the calls, in Inspect AI's words."""
        parameters = self.run.parameters
        if parameters is None:
            return {}
        config = {
            "max_tokens": parameters.max_output_tokens,
            "temperature": parameters.temperature,
            "seed": parameters.seed,
        }
        return {name: value for name, value in config.items() if value is not None}

    def _metadata(self) -> dict[str, Any]:
        run = self.run
        found = {
            "run_id": run.run_id,
            "run_name": run.name,
            "origin": run.origin,
            "version": run.package_version,
            "prompt_fingerprint": None if run.prompt is None else run.prompt.fingerprint,
            "dataset_fingerprint": self.dataset.fingerprint,
            "dataset_licence": self.dataset.licence or None,
            "simulated": self.spec.simulated,
        }
        given = {PREFIX + name: value for name, value in found.items() if value is not None}
        return {MARK: LAYOUT} | given

    def _plan(self) -> dict[str, Any]:
        steps: list[dict[str, Any]] = []
        prompt = self.run.prompt
        if prompt is not None:
            if prompt.system:
                steps.append({"solver": "system_message", "params": {"template": prompt.system}})
            steps.append({"solver": "prompt_template", "params": {"template": prompt.template}})
        steps.append({"solver": "generate", "params": {}})
        return {"name": "plan", "steps": steps, "config": self.config}


def _scorer(opinion: Opinion) -> dict[str, Any]:
    metrics = ["accuracy", "stderr", *METRICS.values()]
    return {
        "name": opinion.rule.name,
        "options": {},
        "metrics": [{"name": metric, "options": {}} for metric in metrics],
        "metadata": {f"{PREFIX}opinion": opinion.provenance},
    }


DEFLATE_LEVEL = 1
"""Half the time of the usual level, for files that are a tenth larger."""
FIRST_DATE = (1980, 1, 1, 0, 0, 0)
"""The earliest that a zip archive can hold."""
SUMMARIES_PER_PART = 1_000

_encode = msgspec.json.Encoder().encode


class _JsonList:
    """A list of JSON values that waits in a file."""

    def __init__(self) -> None:
        self._file = TemporaryFile()  # noqa: SIM115  closed with the log
        self._is_empty = True

    def add(self, encoded: bytes) -> None:
        self._file.write((b"[" if self._is_empty else b",") + encoded)
        self._is_empty = False

    def copy_to(self, stream: IO[bytes]) -> None:
        """Write the list, which ends it."""
        if self._is_empty:
            stream.write(b"[")
        self._file.seek(0)
        shutil.copyfileobj(self._file, stream)
        stream.write(b"]")

    def close(self) -> None:
        self._file.close()


@dataclass(slots=True)
class _Totals:
    """The numbers of the header that are about all samples."""

    usage: Counter[str] = field(default_factory=Counter)
    completed: int = 0
    started_at: str = ""
    completed_at: str = ""

    def add(self, sample: WrittenSample) -> None:
        self.usage.update(sample.usage or {})
        self.completed += "error" not in sample.content
        started, completed = sample.content.get("started_at"), sample.content.get("completed_at")
        if started is not None:
            self.started_at = min(self.started_at or started, started)
        if completed is not None:
            self.completed_at = max(self.completed_at, completed)


class InspectLogWriter:
    """An open log; a context that ends it."""

    def __init__(self, stream: IO[bytes], head: LogHead) -> None:
        self._zip = zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=DEFLATE_LEVEL)
        run, rules = head.run, tuple(opinion.rule for opinion in head.opinions)
        time_limit_s = None if run.parameters is None else run.parameters.time_limit_s
        created_at = run.created_at.isoformat()
        talk = Conversation(run.prompt, head.model, head.config, created_at)
        self._maker = SampleMaker(run.run_id, talk, time_limit_s, rules)
        self._head, self._totals = head, _Totals()
        reducer = "mean" if head.run.epochs > 1 else None
        self._scores = [RuleScores(rule.name, reducer) for rule in rules]
        self._reductions = [_JsonList() for _ in self._scores]
        self._summaries, self._part = _JsonList(), list[bytes]()
        self._parts = 0
        self._ids: list[str] = []
        self._verdicts = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._finish()
        finally:
            for each in (self._summaries, *self._reductions):
                each.close()
            self._zip.close()

    def add(self, epochs: Sequence[Sequence[JudgedRecord]]) -> None:
        """Write one sample.

        Args:
            epochs: Of each epoch the verdicts of all generations; the last one counts.
        """
        for verdicts in epochs:
            sample = self._maker.make(verdicts)
            self._write(f"samples/{sample.name}.json", _encode(sample.content))
            self._totals.add(sample)
            self._add_summary(_encode(sample.summary))
        self._verdicts += len(epochs)
        self._ids.append(sample.content["id"])
        self._reduce(sample.content["id"], [verdicts[-1] for verdicts in epochs])

    def _reduce(self, sample_id: str, newest: Sequence[JudgedRecord]) -> None:
        target = TrueLabel(newest[0].record.target)
        for number, (scores, reductions) in enumerate(
            zip(self._scores, self._reductions, strict=True)
        ):
            value = scores.add(target, [each.correct[number] for each in newest])
            if value is not None:
                answer = newest[0].record.outcome if len(newest) == 1 else None
                reductions.add(_encode({"value": value, "answer": answer, "sample_id": sample_id}))

    def _add_summary(self, encoded: bytes) -> None:
        self._summaries.add(encoded)
        self._part.append(encoded)
        if len(self._part) == SUMMARIES_PER_PART:
            self._end_part()

    def _end_part(self) -> None:
        if self._part:
            self._parts += 1
            self._write(f"_journal/summaries/{self._parts}.json", b"[%b]" % b",".join(self._part))
            self._part.clear()

    def _finish(self) -> None:
        self._end_part()
        start = self._head.start(self._ids)
        self._write("_journal/start.json", _json(start))
        with self._zip.open(self._member("summaries.json"), "w", force_zip64=True) as stream:
            self._summaries.copy_to(stream)
        with self._zip.open(self._member("reductions.json"), "w", force_zip64=True) as stream:
            self._write_reductions(stream)
        self._write("header.json", _json(start | self._closing()))

    def _write_reductions(self, stream: IO[bytes]) -> None:
        for number, (scores, reductions) in enumerate(
            zip(self._scores, self._reductions, strict=True)
        ):
            about = _json({"scorer": scores.name, "reducer": scores.reducer})
            stream.write((b"," if number else b"[") + about[:-1] + b',"samples":')
            reductions.copy_to(stream)
            stream.write(b"}")
        stream.write(b"]")

    def _closing(self) -> dict[str, Any]:
        totals = self._totals
        results = {
            "total_samples": self._head.planned,
            "completed_samples": totals.completed,
            "scores": [scores.results() for scores in self._scores],
        }
        usage = {self._head.model: dict(totals.usage)} if totals.usage else {}
        stats = {
            "started_at": totals.started_at,
            "completed_at": totals.completed_at,
            "model_usage": usage,
        }
        status = "success" if self._verdicts >= self._head.planned else "cancelled"
        return {"status": status, "results": results, "stats": stats, "invalidated": False}

    def _member(self, name: str) -> zipfile.ZipInfo:
        member = zipfile.ZipInfo(name, FIRST_DATE)
        member.compress_type, member.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
        return member

    def _write(self, name: str, data: bytes) -> None:
        self._zip.writestr(self._member(name), data, compresslevel=DEFLATE_LEVEL)


def _json(value: object) -> bytes:
    """Encode with any number, which sums of tokens need."""
    return json.dumps(value).encode()
