"""A log of Inspect AI, written sample by sample in the layout that all its releases read.

Not written by `inspect_ai` itself: 0.3.285 needs 2.1 ms of CPU a sample with the whole log in
memory, gives other bytes each time, and compresses by Zstandard, which 0.3.170 cannot open. Here
summaries and reductions wait in unnamed files until the end, and the same run gives the same bytes.
"""

import json
import math
import re
import shutil
import zipfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO, Any, Self

import msgspec

from aegish_dist.core.model import ModelSpec
from aegish_dist.core.opinion import Opinion
from aegish_dist.core.run import Run, RunDataset
from aegish_dist.core.sample import TrueLabel
from aegish_dist.interchange.inspect_sample import LAYOUT, MARK, PREFIX, SampleMaker, text_id
from aegish_dist.interchange.record import RATES, ScoredRecord, known

_LAYOUT_VERSION = 2
_MAX_NAME_CHARS = 60  # of a part of the name of a file
_DEFLATE_LEVEL = 1  # half the usual time, files a tenth larger
_FIRST_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest in a zip archive
_SUMMARIES_PER_PART = 1_000

_encode = msgspec.json.Encoder().encode


class LogHead(msgspec.Struct, frozen=True):
    run: Run
    spec: ModelSpec
    dataset: RunDataset
    opinions: Sequence[Opinion]

    @classmethod
    def of(cls, run: Run, model: str, dataset: str, opinions: Sequence[Opinion]) -> Self:
        (spec,) = (each for each in run.models if each.id == model)
        (chosen,) = (each for each in run.datasets if each.name == dataset)
        return cls(run, spec, chosen, opinions)

    @property
    def planned(self) -> int:
        return self.dataset.samples * self.run.epochs

    @property
    def task_id(self) -> str:
        """Tells the logs of a run apart; the same in every export."""
        return text_id(self.run.run_id, self.spec.id, self.dataset.name)

    @property
    def file_name(self) -> str:
        """Return `TIME_DATASET_MODEL_ID.eval`, as Inspect AI names its logs."""
        time = self.run.created_at.isoformat(timespec="seconds")
        parts = (time, self.dataset.name, self.spec.id)
        names = [re.sub(r"[^A-Za-z0-9.+-]+", "-", each)[:_MAX_NAME_CHARS] for each in parts]
        return "_".join([*names, self.task_id]) + ".eval"

    @property
    def config(self) -> dict[str, Any]:
        parameters = self.run.parameters
        if parameters is None:
            return {}
        config = {
            "max_tokens": parameters.max_output_tokens,
            "temperature": parameters.temperature,
            "seed": parameters.seed,
        }
        return known(config)

    def start(self, sample_ids: Sequence[str]) -> dict[str, Any]:
        """Return what a log says of itself when it begins."""
        run, dataset, prompt = self.run, self.dataset, self.run.prompt
        arguments: dict[str, Any] = {"dataset": dataset.name}
        steps: list[dict[str, Any]] = []
        if prompt is not None:
            arguments |= {"prompt": prompt.name, "prompt_fingerprint": prompt.fingerprint}
            if prompt.system:
                steps.append({"solver": "system_message", "params": {"template": prompt.system}})
            steps.append({"solver": "prompt_template", "params": {"template": prompt.template}})
        steps.append({"solver": "generate", "params": {}})
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
            "config": {"epochs": run.epochs, "epochs_reducer": ["mean"], "log_samples": True},
            "packages": {"aegish_dist": run.package_version},
            "metadata": self._metadata(),
            "scorers": [_scorer(each) for each in self.opinions],
        }
        plan = {"name": "plan", "steps": steps, "config": self.config}
        return {"version": _LAYOUT_VERSION, "eval": evaluation, "plan": plan}

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
        return {MARK: LAYOUT} | {PREFIX + name: value for name, value in known(found).items()}


def _scorer(opinion: Opinion) -> dict[str, Any]:
    metrics = ["accuracy", "stderr", *RATES.values()]
    return {
        "name": opinion.rule.name,
        "options": {},
        "metrics": [{"name": metric, "options": {}} for metric in metrics],
        "metadata": {f"{PREFIX}opinion": opinion.provenance},
    }


class _Mean(msgspec.Struct):
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


class _JsonList:
    """A list of JSON values that waits in a file."""

    def __init__(self, files: ExitStack) -> None:
        self._file = files.enter_context(TemporaryFile())  # noqa: SIM115  closed with the log

    def add(self, encoded: bytes) -> None:
        self._file.write((b"," if self._file.tell() else b"[") + encoded)

    def copy_to(self, stream: IO[bytes]) -> None:
        """Write the list, which ends it."""
        if not self._file.tell():
            stream.write(b"[")
        self._file.seek(0)
        shutil.copyfileobj(self._file, stream)
        stream.write(b"]")


class _RuleScores(msgspec.Struct):
    """The samples of a log under one rule set."""

    name: str
    reducer: str | None  # of the mean over epochs; None with one epoch
    reductions: _JsonList
    _all: _Mean = msgspec.field(default_factory=_Mean)
    _by_target: dict[TrueLabel, _Mean] = msgspec.field(default_factory=lambda: defaultdict(_Mean))
    _unscored: int = 0

    def add(
        self, sample_id: str, target: TrueLabel, answer: str | None, judged: Sequence[bool | None]
    ) -> None:
        """Count a sample; `answer` is None of several epochs, `judged` where one is unscored."""
        scored = [each for each in judged if each is not None]
        if not scored:
            self._unscored += 1
            return
        value = sum(scored) / len(scored)
        self._all.add(value)
        self._by_target[target].add(value)
        self.reductions.add(_encode({"value": value, "answer": answer, "sample_id": sample_id}))

    def results(self) -> dict[str, Any]:
        """Return what the header of the log says; what is undefined is left out."""
        values = {"accuracy": self._all.value, "stderr": self._all.stderr}
        for target, mean in sorted(self._by_target.items()):
            values |= {RATES[target]: mean.value, f"{RATES[target]}_stderr": mean.stderr}
        return {
            "name": self.name,
            "scorer": self.name,
            "reducer": self.reducer,
            "scored_samples": self._all.n,
            "unscored_samples": self._unscored,
            "params": {},
            "metrics": {
                name: {"name": name, "value": value, "params": {}}
                for name, value in known(values).items()
            },
        }


class InspectLogWriter:
    """An open log; a context that ends it."""

    def __init__(self, stream: IO[bytes], head: LogHead) -> None:
        self._zip = zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=_DEFLATE_LEVEL)
        rules = [opinion.rule for opinion in head.opinions]
        self._maker = SampleMaker(head.run, head.spec.id, head.config, rules)
        self._head, self._files = head, ExitStack()
        reducer = "mean" if head.run.epochs > 1 else None
        self._scores = [_RuleScores(rule.name, reducer, _JsonList(self._files)) for rule in rules]
        self._summaries, self._part = _JsonList(self._files), list[bytes]()
        self._parts = self._verdicts = self._completed = 0
        self._ids: list[str] = []
        self._usage = Counter[str]()
        self._started_at = self._completed_at = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._zip, self._files:
            if error is None:
                self._finish()

    def add(self, epochs: Sequence[Sequence[ScoredRecord]]) -> None:
        """Write one sample: by epoch the verdicts of all generations; the last one counts."""
        for verdicts in epochs:
            content, summary = self._maker.make(verdicts)
            sample_id = content["id"]
            self._write(f"samples/{sample_id}_epoch_{content['epoch']}.json", _encode(content))
            self._count(content)
            self._add_summary(_encode(summary))
        self._verdicts += len(epochs)
        self._ids.append(sample_id)
        newest = [verdicts[-1] for verdicts in epochs]
        first = newest[0].record
        answer = first.outcome if len(newest) == 1 else None
        for number, scores in enumerate(self._scores):
            judged = [each.correct[number] for each in newest]
            scores.add(sample_id, first.target, answer, judged)

    def _count(self, content: dict[str, Any]) -> None:
        """Add a sample to the numbers of the header."""
        for usage in content["model_usage"].values():
            self._usage.update(usage)
        self._completed += "error" not in content
        if "started_at" in content:
            started_at = content["started_at"]
            self._started_at = min(self._started_at or started_at, started_at)
        self._completed_at = max(self._completed_at, content.get("completed_at", ""))

    def _add_summary(self, encoded: bytes) -> None:
        self._summaries.add(encoded)
        self._part.append(encoded)
        if len(self._part) == _SUMMARIES_PER_PART:
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
        with self._zip.open(_member("summaries.json"), "w", force_zip64=True) as stream:
            self._summaries.copy_to(stream)
        with self._zip.open(_member("reductions.json"), "w", force_zip64=True) as stream:
            for number, scores in enumerate(self._scores):
                about = _json({"scorer": scores.name, "reducer": scores.reducer})
                stream.write((b"," if number else b"[") + about[:-1] + b',"samples":')
                scores.reductions.copy_to(stream)
                stream.write(b"}")
            stream.write(b"]")
        self._write("header.json", _json(start | self._closing()))

    def _closing(self) -> dict[str, Any]:
        return {
            "status": "success" if self._verdicts >= self._head.planned else "cancelled",
            "results": {
                "total_samples": self._head.planned,
                "completed_samples": self._completed,
                "scores": [scores.results() for scores in self._scores],
            },
            "stats": {
                "started_at": self._started_at,
                "completed_at": self._completed_at,
                "model_usage": {self._head.spec.id: dict(self._usage)} if self._usage else {},
            },
            "invalidated": False,
        }

    def _write(self, name: str, data: bytes) -> None:
        self._zip.writestr(_member(name), data, compresslevel=_DEFLATE_LEVEL)


def _member(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name, _FIRST_DATE)
    member.compress_type, member.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
    return member


def _json(value: object) -> bytes:
    """Encode with any number, which sums of tokens need."""
    return json.dumps(value).encode()
