"""Which commit a checkout is at, read from its files: no git is run."""

import re
from pathlib import Path

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def commit_of(checkout: Path) -> str | None:
    """The full id of the commit that is checked out; None when that cannot be told."""
    git = checkout / ".git"
    if git.is_file():  # a worktree or submodule keeps its data elsewhere
        git = checkout / _read(git).removeprefix("gitdir:").strip()
    head = _read(git / "HEAD")
    if head.startswith("ref:"):
        head = _resolve(git, head.removeprefix("ref:").strip())
    return head if _COMMIT.fullmatch(head) else None


def _resolve(git: Path, ref: str) -> str:
    common = git / (_read(git / "commondir") or ".")
    loose = _read(git / ref) or _read(common / ref)
    if loose:
        return loose
    packed = re.search(rf"^(\S+) {re.escape(ref)}$", _read(common / "packed-refs"), re.MULTILINE)
    return packed[1] if packed else ""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
