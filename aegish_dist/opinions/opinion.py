"""Opinions about verdicts: rule set, targets and overlay on labels; and the effect of an overlay.

Snapshots record name, version, fingerprint and content of each part: a file may change later.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec
from msgspec.structs import asdict

from aegish_dist.core.metric import Metric
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.text import JsonObject, fingerprint_of
from aegish_dist.opinions.policy import POLICY_PREFIX, Policy
from aegish_dist.opinions.scoring import DEFAULT_RULE, RULES, ScoringRule

_Part = TypeVar("_Part")


class Targets(msgspec.Struct, frozen=True):
    """The least values of metrics, which reports judge PASS, FAIL or UNDECIDED by the interval."""

    name: str
    version: int
    least: Mapping[str, float]  # by metric name, in [0, 1]

    @property
    def fingerprint(self) -> str:
        return fingerprint_of(dict(self.least))


AEGISH_TARGETS = Targets(
    "aegish-5.3",
    1,
    MappingProxyType(
        {
            Metric.SCORE: 0.85,
            Metric.DETECTION_RATE: 0.95,
            Metric.ACCEPTANCE_RATE: 0.90,
        }
    ),
)


class LabelChange(msgspec.Struct, frozen=True):
    dataset: str
    sample_id: str | None  # content-derived; None: the command identifies the sample
    command: str | None  # must equal the dataset's command; None where the id suffices
    target: TrueLabel | None  # the right label; None excludes the sample
    category: str | None
    reason: str
    author: str

    @property
    def content(self) -> list[str]:
        """All that changes a number: the sample, and its right label."""
        command = "" if self.sample_id else self.command or ""
        return [
            self.dataset, self.sample_id or "", command, self.target or "", self.category or ""
        ]  # fmt: skip

    def __str__(self) -> str:
        if self.sample_id:
            return f"sample {self.sample_id}"
        return f"command {self.command!r}"


DRAFT_AUTHOR = "audit"  # of changes that `audit` proposes, until a person gives a name


class Overlay(msgspec.Struct, frozen=True):
    """Corrections of labels, laid over the datasets of a run without changing them."""

    name: str
    version: int
    changes: tuple[LabelChange, ...]  # at most one per sample

    @property
    def fingerprint(self) -> str:
        return fingerprint_of(sorted(change.content for change in self.changes))


class Opinion(msgspec.Struct, frozen=True):
    """All that turns verdicts into numbers and the numbers into PASS, FAIL or UNDECIDED."""

    rule: ScoringRule = DEFAULT_RULE
    targets: Targets = msgspec.field(default=AEGISH_TARGETS)
    overlay: Overlay | None = None
    # By the path of its file, each policy that stands among the models; no snapshot keeps any.
    policies: Mapping[str, Policy] = MappingProxyType({})

    @property
    def contenders(self) -> list[str]:
        """Names of the policies among models."""
        return [POLICY_PREFIX + each.name for each in self.policies.values()]

    @property
    def provenance(self) -> dict[str, JsonObject | None]:
        """Name, version and fingerprint of each part; None without an overlay."""
        overlay = None
        if self.overlay is not None:
            overlay = _identity(self.overlay) | {"changes": len(self.overlay.changes)}
        return {
            "scoring": _identity(self.rule),
            "targets": _identity(self.targets),
            "overlay": overlay,
        }


def run_and_opinion(run_id: str, opinion: Opinion) -> JsonObject:
    """Return how a document begins: with the run that it is about, and how it was judged."""
    return {
        "run_id": run_id,
        "scoring": opinion.rule.name,
        "opinion": opinion.provenance,
    }


def record_of(opinion: Opinion) -> JsonObject:
    """Return an opinion in JSON types: its provenance, and the content of each part."""
    contents: JsonObject = {
        "scoring": {
            "description": opinion.rule.description,
            **opinion.rule.content,
        },
        "targets": dict(opinion.targets.least),
    }
    if opinion.overlay is not None:
        contents["overlay"] = [asdict(change) for change in opinion.overlay.changes]
    record: JsonObject = {}
    for part, identity in opinion.provenance.items():
        record[part] = None if identity is None else {**identity, "content": contents[part]}
    return record


def policy_documents(opinion: Opinion) -> dict[str, JsonObject]:
    """Return the policies of an opinion in JSON types, by their names among models."""
    documents = {}
    for path, policy in opinion.policies.items():
        document = _identity(policy) | {"file": path, "content": policy.content}
        documents[POLICY_PREFIX + policy.name] = document
    return documents


def _identity(part: ScoringRule | Targets | Overlay | Policy) -> JsonObject:
    return {
        "name": part.name,
        "version": part.version,
        "fingerprint": part.fingerprint,
    }


def opinion_of(
    record: JsonObject,
    scoring: str,
    scoring_version: int,
) -> Opinion | None:
    """Return the opinion that `record_of` wrote; None where this version cannot read the record.

    An old snapshot may name a removed rule set. A newer version may write words unknown here.
    """
    if not record:
        rule = RULES.get(scoring)
        if rule is not None and rule.version == scoring_version:
            return Opinion(rule)
        return None

    try:
        return Opinion(
            _part(record["scoring"], ScoringRule, **record["scoring"]["content"]),
            _part(record["targets"], Targets, least=record["targets"]["content"]),
            record["overlay"]
            and _part(record["overlay"], Overlay, changes=record["overlay"]["content"]),
        )
    except (msgspec.ValidationError, KeyError, TypeError):
        return None


def _part(record: JsonObject, kind: type[_Part], **content: Any) -> _Part:
    named = {"name": record["name"], "version": record["version"]}
    return msgspec.convert(named | content, kind)
