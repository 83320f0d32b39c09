"""Archives as a stranger writes them: any content, under sums that fit."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

RUN, VERDICTS, SNAPSHOTS = "run.json", "verdicts.jsonl", "snapshots.jsonl"
Document = dict[str, Any]


def seal(place: Path) -> None:
    """Have the sums of an archive be those of its files."""
    digests = [
        f"{hashlib.sha256((place / name).read_bytes()).hexdigest()}  {name}\n"
        for name in (RUN, VERDICTS, SNAPSHOTS)
    ]
    (place / "SHA256SUMS").write_text("".join(digests))


def forge_run(place: Path, change: Callable[[Document], object]) -> None:
    """Change the run of an archive in place."""
    asked = json.loads((place / RUN).read_text())
    change(asked)
    (place / RUN).write_text(json.dumps(asked))
    seal(place)


def forge_verdicts(place: Path, change: Callable[[list[Document]], object]) -> None:
    """Change the list of the verdicts of an archive in place."""
    verdicts = [json.loads(line) for line in (place / VERDICTS).read_text().splitlines()]
    change(verdicts)
    (place / VERDICTS).write_text("".join(json.dumps(each) + "\n" for each in verdicts))
    forge_run(place, lambda asked: asked.update(verdicts=len(verdicts)))
