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
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from tempfile import TemporaryFile
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


def _mean(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return a mean and, as Inspect AI's `stderr`, the standard deviation over the root of n."""
    n, total = len(values), sum(values)
    if n < 2:
        return (total if n else None), None
    spread = max(0.0, sum(value * value for value in values) - total * total / n)
    return total / n, math.sqrt(spread / (n - 1) / n)


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
        self.about = {"scorer": name, "reducer": "mean" if epochs > 1 else None}
        self.reductions, self._unscored = _JsonList(files), 0
        self._values = defaultdict[TrueLabel | None, list[float]](list)  # of all with None

    def add(self, sample_id: str, newest: Sequence[ScoredRecord], number: int) -> None:
        """Count a sample by the newest verdict of each epoch, whose `number`th opinion this is."""
        judged = [each.correct[number] for each in newest]
        scored = [each for each in judged if each is not None]
        if not scored:
            self._unscored += 1
            return
        record, value = newest[0].record, sum(scored) / len(scored)
        for part in (None, record.target):
            self._values[part].append(value)
        answer = record.outcome if len(newest) == 1 else None
        self.reductions.add({"value": value, "answer": answer, "sample_id": sample_id})

    def results(self) -> dict[str, Any]:
        """Return what the header of the log says; what is undefined is left out."""
        values = dict(zip(("accuracy", "stderr"), _mean(self._values[None]), strict=True))
        for target, rate in sorted(RATES.items()):
            values[rate], values[f"{rate}_stderr"] = _mean(self._values[target])
        return {
            "name": self.about["scorer"],
            **self.about,
            "scored_samples": len(self._values[None]),
            "unscored_samples": self._unscored,
            "params": {},
            "metrics": {
                name: {"name": name, "value": value, "params": {}}
                for name, value in known(values).items()
            },
        }


class _Totals:
    """What the header of a log says of all its samples."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self._usage = Counter[str]()
        self._verdicts = self._completed = 0
        self._started_at = self._completed_at = ""

    def add(self, content: dict[str, Any]) -> None:
        for usage in content["model_usage"].values():
            self._usage.update(usage)
        self._verdicts += 1
        self._completed += "error" not in content
        if "started_at" in content:
            started_at = content["started_at"]
            self._started_at = min(self._started_at or started_at, started_at)
        self._completed_at = max(self._completed_at, content.get("completed_at", ""))

    def closing(self, head: LogHead, scores: Sequence[_RuleScores]) -> dict[str, Any]:
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
    rules, totals = [opinion.rule for opinion in head.opinions], _Totals()
    maker = SampleMaker(head.run, head.spec.id, head.config, rules)
    with zipfile.ZipFile(stream, "w") as archive, ExitStack() as files:
        summaries = _JsonList(files)
        scores = [_RuleScores(rule.name, head.run.epochs, files) for rule in rules]
        for epochs in samples:
            for verdicts in epochs:
                content, summary = maker.make(verdicts)
                name = f"samples/{content['id']}_epoch_{content['epoch']}.json"
                _write(archive, name, _encode(content))
                summaries.add(summary)
                totals.add(content)
            totals.ids.append(content["id"])
            newest = [verdicts[-1] for verdicts in epochs]
            for number, each in enumerate(scores):
                each.add(content["id"], newest, number)
        start = head.start(totals.ids)
        _write(archive, "_journal/start.json", _json(start))
        with archive.open(_member("summaries.json"), "w", force_zip64=True) as member:
            summaries.copy_to(member)
        with archive.open(_member("reductions.json"), "w", force_zip64=True) as member:
            _write_reductions(scores, member)
        _write(archive, "header.json", _json(start | totals.closing(head, scores)))


def _write_reductions(scores: Sequence[_RuleScores], stream: IO[bytes]) -> None:
    for number, each in enumerate(scores):
        stream.write((b"," if number else b"[") + _json(each.about)[:-1] + b',"samples":')
        each.reductions.copy_to(stream)
        stream.write(b"}")
    stream.write(b"]")


def _write(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(_member(name), data, compresslevel=_DEFLATE_LEVEL)


def _member(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name, _FIRST_DATE)
    member.compress_type, member.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
    return member


def _json(value: object) -> bytes:
    """Encode with any number, which sums of tokens need."""
    return json.dumps(value).encode()
