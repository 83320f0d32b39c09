"""Ask pip-audit about the pinned packages; say so where its advisories cannot be reached.

Exit code 1 when a package that users install has a known vulnerability, and where pip-audit fails
for another reason than its service.
"""

import json
import subprocess
import sys
from pathlib import Path

PINNED = "requirements/run.txt"
UNREACHABLE = (
    "ProxyError",
    "ConnectionError",
    "Connection refused",
    "ServiceError",
    "SSLError",
    "timed out",
)
TIMEOUT_S = 120


def main() -> int:
    """Print the findings, or why there are none."""
    command = [str(Path(sys.executable).with_name("pip-audit")), "--requirement", PINNED]
    try:
        done = subprocess.run(
            [*command, "--disable-pip", "--format", "json", "--progress-spinner=off"],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        print(f"pip-audit skipped: its service did not answer within {TIMEOUT_S} s")
        return 0
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except ValueError:
        return failed(done.stderr)
    unknown = [each["name"] for each in packages if "skip_reason" in each]
    vulnerable = [each for each in packages if each.get("vulns")]
    for each in vulnerable:
        for found in each["vulns"]:
            fixed = ", ".join(found["fix_versions"]) or "no version"
            print(f"{each['name']} {each['version']}: {found['id']}, fixed in {fixed}")
    if len(unknown) == len(packages):
        print(f"pip-audit skipped: its service knows none of the {len(packages)} packages here")
    else:
        print(f"pip-audit: {len(packages) - len(unknown)} packages audited{besides(unknown)}")
    return 1 if vulnerable else 0


def besides(unknown: list[str]) -> str:
    """Name what was left out."""
    return f", unknown to its service: {', '.join(unknown)}" if unknown else ""


def failed(problem: str) -> int:
    """Tell an unreachable service from a failure."""
    lines = problem.strip().splitlines() or ["it said nothing"]
    if any(sign in problem for sign in UNREACHABLE):
        print(f"pip-audit skipped: its service cannot be reached ({lines[-1][:200]})")
        return 0
    print(problem, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
