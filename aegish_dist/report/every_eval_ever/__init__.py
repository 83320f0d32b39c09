"""A snapshot in the format of Every Eval Ever: a record per model, and a line per verdict.

`identity` names the record and its files, `definitions` says of each metric what it means, `record`
makes the document of a model, and `samples` the lines beside it.
"""

from aegish_dist.report.every_eval_ever.identity import RecordIdentity, record_identity
from aegish_dist.report.every_eval_ever.record import SamplesFile, evaluation_record
from aegish_dist.report.every_eval_ever.samples import CORRECT, Relabelled, SampleLines

__all__ = [
    "CORRECT",
    "RecordIdentity",
    "Relabelled",
    "SampleLines",
    "SamplesFile",
    "evaluation_record",
    "record_identity",
]
