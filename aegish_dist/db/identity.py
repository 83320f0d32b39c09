"""Which verdicts were counted: what tells whether they have to be counted again."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy.orm import Session

from aegish_dist.core.run import Run
from aegish_dist.db.per_model import PerModel
from aegish_dist.db.tally_sql import IDENTITY, NUMBER


@dataclass(frozen=True, slots=True)
class VerdictSet:
    """The identity of a set of verdicts."""

    verdicts: int
    verdicts_hash: str
    """Sixteen hexadecimal digits that change with any verdict's identity or outcome. They are made
    of contents, so another store gives the same verdicts the same ones."""
    parser_versions: str
    """Comma-separated."""


@dataclass(frozen=True, slots=True)
class Share:
    """Verdicts of one model that differ in nothing but the item."""

    dataset: str
    code: int
    parser_version: int
    verdicts: int
    digest: int
    """Sum of a hash of the items."""


def identity_of(shares: Iterable[Share]) -> VerdictSet:
    """Return the identity of one model's verdicts, however they are divided into shares."""
    numbers: Counter[tuple[str, int, int]] = Counter()
    digests: Counter[tuple[str, int, int]] = Counter()
    for share in shares:
        kind = (share.dataset, share.code, share.parser_version)
        numbers[kind] += share.verdicts
        digests[kind] += share.digest
    lines = [f"{number} {digests[kind]} {kind!r}" for kind, number in sorted(numbers.items())]
    return VerdictSet(numbers.total(), _hash(lines), _versions(kind[2] for kind in numbers))


def joint_identity(models: Mapping[str, VerdictSet]) -> VerdictSet:
    """Return the identity of a run's verdicts from those of its models."""
    some = {model: each for model, each in sorted(models.items()) if each.verdicts}
    return VerdictSet(
        sum(each.verdicts for each in some.values()),
        _hash(f"{each.verdicts_hash} {model}" for model, each in some.items()),
        _versions(int(v) for each in some.values() for v in each.parser_versions.split(",")),
    )


def identify_models(session: Session, run: Run) -> dict[str, VerdictSet]:
    """Return the identity of the verdicts that count now, by model."""
    models = PerModel.of(session, run)
    with models.readers(session) as readers:
        found = readers.map(lambda reader, model: _identify(reader, models, model), models.keys)
        return dict(zip(models.keys, found, strict=True))


def still(session: Session, models: PerModel, model: str, known: VerdictSet) -> bool:
    """Whether a model's verdicts are the same still; looks closely only where their number is."""
    ((number,),) = models.newest(session, NUMBER, model)
    return bool(number == known.verdicts and _identify(session, models, model) == known)


def _identify(session: Session, models: PerModel, model: str) -> VerdictSet:
    return identity_of(Share(*row) for row in models.newest(session, IDENTITY, model))


def _hash(lines: Iterable[str]) -> str:
    text = "\n".join(lines)
    return hashlib.sha256(text.encode()).hexdigest()[:16] if text else "0" * 16


def _versions(versions: Iterable[int]) -> str:
    return ",".join(map(str, sorted(set(versions))))
