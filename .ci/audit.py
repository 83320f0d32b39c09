"""Ask pip-audit about the pinned packages.

Exit code 1 when a package that users install has a known vulnerability, or could not be looked up.
With `--offline-too` it is 0, with the reason, where the advisories cannot be reached.
"""

import json
import subprocess
import sys
from pathlib import Path

PINNED = "requirements/run.txt"
OFFLINE_TOO = "--offline-too"
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
        return skipped(f"its service did not answer within {TIMEOUT_S} s")
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
        return skipped(f"its service knows none of the {len(packages)} packages here")
    print(f"pip-audit: {len(packages) - len(unknown)} packages audited{besides(unknown)}")
    return 1 if vulnerable else 0


def besides(unknown: list[str]) -> str:
    """Name what was left out."""
    return f", unknown to its service: {', '.join(unknown)}" if unknown else ""


def failed(problem: str) -> int:
    """Tell an unreachable service from a failure."""
    lines = problem.strip().splitlines() or ["it said nothing"]
    if any(sign in problem for sign in UNREACHABLE):
        return skipped(f"its service cannot be reached ({lines[-1][:200]})")
    print(problem, file=sys.stderr)
    return 1


def skipped(reason: str) -> int:
    """Say why nothing was audited, which is a failure unless that was allowed."""
    if OFFLINE_TOO in sys.argv[1:]:
        print(f"pip-audit skipped: {reason}")
        return 0
    print(f"nothing was audited: {reason}; {OFFLINE_TOO} lets that pass", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
