"""A log of Inspect AI, written sample by sample in the layout that all its releases read.

Version 2 of the layout, deflated: releases before 0.3.180 know no Zstandard. Nothing but the ids
of the samples is held in memory; summaries and reductions wait in unnamed files until the end,
where a log has them. The dates in the archive are fixed, so that a run gives the same bytes again.
"""

import json
import shutil
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO, Any, Self

import msgspec

from aegish_dist.core.sample import Target
from aegish_dist.recordings.inspect_conversation import Conversation
from aegish_dist.recordings.inspect_header import LogHead
from aegish_dist.recordings.inspect_scores import RuleScores
from aegish_dist.recordings.inspect_written_sample import SampleMaker, WrittenSample
from aegish_dist.recordings.judged_lines import JudgedRecord

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
        """Begin."""
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
        target = Target(newest[0].record.target)
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
