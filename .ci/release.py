"""Check that this commit can be released, and print the commands that tag it.

Run by `make release`, after all checks and with the wheel in `dist/`. Exit code 1 when something
is in the way. Nothing is tagged, pushed or uploaded here.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def problems(version: str, changelog: str, changes: str, tags: str) -> list[str]:
    """Return what is in the way of a release, a sentence each.

    Args:
        version: `__version__` of the package.
        changelog: Text of CHANGELOG.md.
        changes: Output of `git status --porcelain`.
        tags: Output of `git tag`.
    """
    newest = re.search(r"^## \[(.+?)\] - (.+)$", changelog, re.MULTILINE)
    found = []
    if newest is None or newest[1] != version:
        found.append(f"CHANGELOG.md does not begin with version {version}.")
    elif not re.fullmatch(r"\d{4}-\d\d-\d\d", newest[2]):
        found.append(f"CHANGELOG.md gives version {version} no date, but '{newest[2]}'.")
    if f"v{version}" in tags.split():
        found.append(f"v{version} is tagged already: raise __version__ in aegish_dist/__init__.py.")
    if changes:
        found.append(f"There are uncommitted changes:\n{changes.rstrip()}")
    return found


def main() -> int:
    """Print the problems, or how to tag."""
    source = (ROOT / "aegish_dist/__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', source, re.MULTILINE)
    assert found is not None
    version, changelog = found[1], (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    in_the_way = problems(version, changelog, _git("status", "--porcelain"), _git("tag"))
    if in_the_way:
        print("\n".join(in_the_way), file=sys.stderr)
        return 1
    print(f"git tag -a v{version} -m 'Version {version}'\ngit push --follow-tags")
    return 0


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
