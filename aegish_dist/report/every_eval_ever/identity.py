"""Names of records of Every Eval Ever, made of contents: the same verdicts give the same files."""

import hashlib
import re
from dataclasses import dataclass
from uuid import UUID

from aegish_dist.core.snapshot import Snapshot
from aegish_dist.core.text import fingerprint_of

SCHEMA_VERSION = "0.3.0"
COLLECTION = "aegish-dist"
"""Names the evaluation, and the folder of its records."""
MAX_FOLDER_CHARS = 100
"""Of a folder named after a model, whose id may be longer than a file system's names."""

_NOT_PORTABLE = re.compile(r"[^A-Za-z0-9._@+-]")
_RESERVED = re.compile(r"(?:CON|PRN|AUX|NUL|COM\d|LPT\d)(?:\..*)?|data|\..*|", re.IGNORECASE)
"""Names that Windows keeps for itself or the collection for its root, hidden ones, and none."""


@dataclass(frozen=True, slots=True)
class RecordIdentity:
    """The names of a record and its files."""

    evaluation_id: str
    """Names the evaluation, the model, and the verdicts with the opinion about them."""
    developer: str
    model: str

    @property
    def uuid(self) -> UUID:
        """Of the form of a random one, which the format asks for, but made of the evaluation id."""
        digest = hashlib.sha256(self.evaluation_id.encode("utf-8", "surrogatepass")).digest()
        return UUID(bytes=digest[:16], version=4)

    @property
    def record_path(self) -> str:
        """Of the record, below the folder that holds `data`."""
        return f"{self._folder}/{self.uuid}.json"

    @property
    def samples_path(self) -> str:
        """Of the lines, likewise."""
        return f"{self._folder}/{self.uuid}_samples.jsonl"

    @property
    def _folder(self) -> str:
        return f"data/{COLLECTION}/{self.developer}/{self.model}"


def record_identity(snapshot: Snapshot, model: str) -> RecordIdentity:
    """Return the names of the record of a model.

    They stay when the same verdicts are aggregated again, so that a second export replaces the
    first, and change with any verdict, rule set, overlay or formula.
    """
    known = snapshot.identities.get(model)
    opinion = None if snapshot.opinion is None else snapshot.opinion.provenance
    content = fingerprint_of(
        [
            snapshot.verdicts_hash if known is None else known.verdicts_hash,
            snapshot.metrics_version,
            snapshot.scoring,
            snapshot.scoring_version,
            opinion and opinion["scoring"],
            opinion and opinion["overlay"],
        ]
    )
    developer, _, rest = model.partition("/")
    return RecordIdentity(
        evaluation_id=f"{COLLECTION}/{model}/{snapshot.run_id}-{snapshot.scoring}-{content}",
        developer=_folder(developer if rest else "unknown"),
        model=_folder(rest or developer),
    )


def _folder(name: str) -> str:
    plain = _NOT_PORTABLE.sub("_", name)[:MAX_FOLDER_CHARS].rstrip(".")
    return f"_{plain}" if _RESERVED.fullmatch(plain) else plain
