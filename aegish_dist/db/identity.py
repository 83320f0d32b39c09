"""The identity of a set of verdicts: whether they have to be counted again."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy.orm import Session

from aegish_dist.core.run import Run
from aegish_dist.core.snapshot import VerdictSet
from aegish_dist.db.per_model import PerModel, prepare_counting
from aegish_dist.db.statements import counting_statement

_HASH_VERDICTS = counting_statement("hash_verdicts")


@dataclass(frozen=True, slots=True)
class AlikeVerdicts:
    """Verdicts of one model that differ in nothing but the item."""

    dataset: str
    code: int
    """Outcome, error class and stop kind; see `codes`."""
    parser_version: int
    """Version of the parser that read the answers."""
    verdicts: int
    """How many there are, at least 1."""
    digest: int


def identity_of(groups: Iterable[AlikeVerdicts]) -> VerdictSet:
    """Return the identity of one model's verdicts, however they are divided into groups."""
    numbers: Counter[tuple[str, int, int]] = Counter()
    digests: Counter[tuple[str, int, int]] = Counter()
    for each in groups:
        kind = (each.dataset, each.code, each.parser_version)
        numbers[kind] += each.verdicts
        digests[kind] += each.digest
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


def local_hash(verdicts: int, row_hashes: int | None) -> str:
    """Return `VerdictSet.local_hash` from the columns of the statement `hash_verdicts`."""
    return _hash([f"{verdicts} {row_hashes}"])


def unchanged_models(
    session: Session, models: PerModel, known: Mapping[str, VerdictSet]
) -> set[str]:
    """Return the models whose verdicts that count are still those that were known."""
    unchanged = set()
    for model in models.keys & known.keys():
        (row,) = models.newest(session, _HASH_VERDICTS, model)
        if local_hash(row.verdicts, row.row_hashes) == known[model].local_hash:
            unchanged.add(model)
    return unchanged


def is_unchanged(session: Session, run: Run, known: Mapping[str, VerdictSet]) -> bool:
    """Return whether the verdicts of all models of a run are still those that were known."""
    models = PerModel.of(session, run)
    prepare_counting(session)
    return unchanged_models(session, models, known) == set(models.keys) == set(known)


def _hash(lines: Iterable[str]) -> str:
    text = "\n".join(lines)
    return hashlib.sha256(text.encode()).hexdigest()[:16] if text else "0" * 16


def _versions(versions: Iterable[int]) -> str:
    return ",".join(map(str, sorted(set(versions))))
