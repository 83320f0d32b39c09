"""Facts that Inspect AI has no field for: written into a sample's metadata, and read from it.

A fact is written there when the fields of the sample do not say it, or say it less exactly, so a
new field of `VerdictRecord` travels without a change here. Retries that a later one has replaced
stand there whole.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import msgspec
from msgspec.structs import fields

from aegish_dist.core.verdict_record import VerdictRecord
from aegish_dist.errors import InputError
from aegish_dist.interchange.record import FACTS, from_values

PREFIX = "aegish_dist_"
"""Begins every key of ours, in the metadata of samples and of logs."""
MARK = f"{PREFIX}export"
"""In the metadata of a log: the version of this layout."""
LAYOUT = 1
LABELS = ("dataset", "binary", "cluster", "category")
"""Metadata of a sample with a place of its own in a recording."""
OTHER_LABELS = f"{PREFIX}metadata"
"""The labels of the command whose own keys are taken."""
REPLACED = f"{PREFIX}replaced"
"""The verdicts that a retry has replaced, oldest first."""
OF_THE_SAMPLE = (
    *("model", "dataset", "command", "target", "category", "cluster", "epoch", "metadata"),
)
"""Facts that all retries of an item share."""

_NAMES = tuple(each.name for each in fields(VerdictRecord) if each.name in FACTS)
_OWN = tuple(name for name in _NAMES if name not in (*OF_THE_SAMPLE, "answered"))
_DEFAULTS = {
    each.name: None if each.default is msgspec.NODEFAULT else each.default
    for each in fields(VerdictRecord)
}


def unsaid(record: VerdictRecord, said: Mapping[str, object]) -> dict[str, Any]:
    """Return the facts of a verdict that its sample does not say.

    Args:
        said: The facts that a reader takes from fields of the sample.
    """
    found: dict[str, Any] = {}
    for name in _OWN:
        value = getattr(record, name)
        if value != (said[name] if name in said else _DEFAULTS[name]):
            found[name] = str(value) if isinstance(value, Decimal) else value
    if "call_errors" in found:
        found["call_errors"] = list(map(msgspec.to_builtins, found["call_errors"]))
    return found


def metadata_of(
    record: VerdictRecord, said: Mapping[str, object], replaced: Iterable[VerdictRecord]
) -> dict[str, Any]:
    """Return the metadata of a sample."""
    labels = {name: getattr(record, name) for name in ("dataset", "category", "cluster")}
    found = {name: label for name, label in labels.items() if label is not None}
    taken: dict[str, str] = {}
    for key, text in record.metadata.items():
        (taken if key in LABELS or key.startswith(PREFIX) else found)[key] = text
    if taken:
        found[OTHER_LABELS] = taken
    found[f"{PREFIX}outcome"] = record.outcome
    if record.confidence is not None:
        found[f"{PREFIX}confidence"] = record.confidence
    found |= {PREFIX + name: value for name, value in unsaid(record, said).items()}
    if older := [_whole(each) for each in replaced]:
        found[REPLACED] = older
    return found


def _whole(record: VerdictRecord) -> dict[str, Any]:
    """Return the facts of a verdict that no sample speaks of."""
    found = unsaid(record, {})
    if record.completion is None and record.error_class is None:
        found["answered"] = True  # without text; otherwise it would be one without an answer
    return found


def labels_in(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the free labels of the command in the metadata of a sample."""
    plain = {
        key: value
        for key, value in metadata.items()
        if key not in LABELS and not key.startswith(PREFIX)
    }
    taken = metadata.get(OTHER_LABELS)
    return plain | taken if isinstance(taken, dict) else plain


def records_in(said: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterable[VerdictRecord]:
    """Yield the verdicts of a sample, oldest first."""
    shared = {name: said[name] for name in OF_THE_SAMPLE if name in said}
    replaced = metadata.get(REPLACED) or []
    if not isinstance(replaced, list) or not all(isinstance(each, dict) for each in replaced):
        raise InputError("must be a list of objects", field=REPLACED)
    for each in replaced:
        yield from_values({"completion": None} | each | shared)
    own = {
        key.removeprefix(PREFIX): value for key, value in metadata.items() if key.startswith(PREFIX)
    }
    yield from_values({"completion": None} | dict(said) | _facts(own))


def _facts(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in _OWN}
