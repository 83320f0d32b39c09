"""`make fleet`: a `.env` with passwords, the services, and what to type next."""

import json
import re
import runpy
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.recorded import lines_of

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / ".ci" / "fleet.py"
UP = ["compose", "--profile", "simulator", "up", "--detach", "--build", "--scale", "worker=4"]
PASSWORDS = re.findall(
    r"\$\{(\w+_PASSWORD):\?", (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
)
NAMES = {*PASSWORDS, "AEGISH_DIST_USER"}
DOCKER = f"""#!{sys.executable} -S
import json, os, sys
with open(os.environ["CALLS"], "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
sys.exit(int(os.environ.get("FAILS", "") in sys.argv))
"""

has_value: Callable[[str, str], bool] = runpy.run_path(str(SCRIPT))["has_value"]


class Machine:
    """A folder to start a fleet in, and a `docker` that records what it is called with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "clone"
        self.folder.mkdir()
        self.env = self.folder / ".env"
        self._calls = folder / "calls"
        self._path = folder / "bin"
        self._path.mkdir()
        self.docker = self._path / "docker"
        self.docker.write_text(DOCKER)
        self.docker.chmod(0o755)

    def start(self, folder: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, SCRIPT],
            cwd=folder or self.folder,
            env={"PATH": str(self._path), "CALLS": str(self._calls), **environ},
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def calls(self) -> list[list[str]]:
        if not self._calls.exists():
            return []
        return [json.loads(line) for line in self._calls.read_text().splitlines()]

    @property
    def values(self) -> dict[str, str]:
        """What Compose reads: of several lines of a name the last one counts."""
        lines = self.env.read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if line and line[0] != "#")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def assert_says_in_one_line(done: subprocess.CompletedProcess[str], text: str) -> None:
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert text in line


def test_make_runs_it() -> None:
    shown = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", "fleet", "PYTHON=python3.12"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.splitlines() == ["python3.12 .ci/fleet.py"]


def test_a_clone_becomes_a_fleet(machine: Machine) -> None:
    """Passwords fit into an address and differ; only the owner reads them; the rest is Compose's."""
    done = machine.start()
    assert done.returncode == 0, done.stderr
    assert machine.calls == [["compose", "version"], UP]
    values = machine.values
    assert values.keys() == NAMES
    passwords = [values[name] for name in set(PASSWORDS)]
    assert all(re.fullmatch(r"[0-9a-f]{48}", password) for password in passwords)
    assert len(set(passwords)) == 4
    assert stat.S_IMODE(machine.env.stat().st_mode) == 0o600
    assert not any(password in done.stdout + done.stderr for password in passwords)
    owner = machine.folder.stat()
    assert values["AEGISH_DIST_USER"] == f"{owner.st_uid}:{owner.st_gid}"


def test_the_next_commands_name_what_compose_has(machine: Machine) -> None:
    """Three commands of the service that is there for them, about a model of the catalog."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    shown = re.findall(r"^  docker compose run --rm (\w+) (\w+)(.*)$", machine.start().stdout, re.M)
    assert [(service, command) for service, command, _ in shown] == [
        ("cli", "submit"),
        ("cli", "status"),
        ("cli", "report"),
    ]
    assert "cli" in services
    model = shown[0][2].removeprefix(" --models ")
    assert f'id = "{model}"' in (ROOT / "deploy" / "simulated.toml").read_text()


def test_a_second_start_changes_nothing(machine: Machine) -> None:
    machine.start()
    before, changed_at = machine.env.read_bytes(), machine.env.stat().st_mtime_ns
    done = machine.start()
    assert done.returncode == 0
    assert (machine.env.read_bytes(), machine.env.stat().st_mtime_ns) == (before, changed_at)
    assert machine.calls == [["compose", "version"], UP] * 2
    assert "added" not in done.stdout


@pytest.mark.parametrize(
    "given",
    [
        "OPENAI_API_KEY=sk-1\n",
        "OPENAI_API_KEY=sk-1",  # without a final newline
        "# mine\r\nOPENAI_API_KEY=sk-1\r\n",
        "OPENAI_API_KEY=sk-1\n\n\n",
        "",
    ],
)
def test_what_a_file_holds_is_kept(machine: Machine, given: str) -> None:
    machine.env.write_bytes(given.encode())
    machine.env.chmod(0o644)
    assert machine.start().returncode == 0
    assert machine.env.read_bytes().startswith(given.encode())
    assert machine.values.keys() >= NAMES
    assert not given or machine.values["OPENAI_API_KEY"] == "sk-1"
    assert stat.S_IMODE(machine.env.stat().st_mode) == 0o600


def test_bytes_that_are_no_text_are_kept(machine: Machine) -> None:
    machine.env.write_bytes(b"NOTE=\xff\xfe")
    assert machine.start().returncode == 0
    assert machine.env.read_bytes().startswith(b"NOTE=\xff\xfe\n#")


@pytest.mark.parametrize(
    ("text", "there"),
    lines_of("dotenv_lines.jsonl"),
)
def test_a_name_has_a_value_or_lacks_it(text: str, there: bool) -> None:
    """In each form that Compose reads, which refuses an empty password and takes the last line."""
    assert has_value(text, "A") is there


def test_the_shell_is_asked_first(machine: Machine) -> None:
    """Compose prefers its variables, so that a line in the file would only wait to differ."""
    machine.start(AEGISH_DIST_APP_PASSWORD="mine", AEGISH_DIST_USER="0:0")
    assert machine.values.keys() == NAMES - {"AEGISH_DIST_APP_PASSWORD", "AEGISH_DIST_USER"}


def test_a_link_to_a_file_elsewhere_stays_a_link(machine: Machine, tmp_path: Path) -> None:
    elsewhere = tmp_path / "secrets"
    elsewhere.write_text("OPENAI_API_KEY=sk-1")
    machine.env.symlink_to(elsewhere)
    machine.start()
    assert machine.env.is_symlink()
    assert machine.values.keys() == NAMES | {"OPENAI_API_KEY"}


def test_without_docker_one_line_says_so(machine: Machine) -> None:
    machine.docker.unlink()
    assert_says_in_one_line(machine.start(), "docker is not installed; docs/guides/fleet.md")
    assert not machine.env.exists()


def test_without_compose_one_line_says_so(machine: Machine) -> None:
    assert_says_in_one_line(machine.start(FAILS="version"), "install its plugin")
    assert machine.calls == [["compose", "version"]]
    assert not machine.env.exists()


def test_a_file_that_cannot_be_written_is_named(machine: Machine) -> None:
    """Nothing is started then."""
    machine.env.mkdir()
    assert_says_in_one_line(machine.start(), f"cannot write {machine.env}: ")
    assert ["compose", "version"] in machine.calls
    assert UP not in machine.calls


def test_services_that_do_not_start_are_an_error(machine: Machine) -> None:
    """Nothing says that the fleet runs; the passwords stay, as a volume may have taken them."""
    done = machine.start(FAILS="up")
    assert done.returncode == 1
    assert "failed, see above" in done.stderr
    assert "Next" not in done.stdout
    before = machine.values
    assert machine.start().returncode == 0
    assert machine.values == before
