"""Refusals of the command line: one clear line, the right exit code, and no trace in the store."""

import io
import shlex
import zipfile
from pathlib import Path
from shutil import copytree

import pytest
from sqlalchemy import Engine

from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from tests.integration.command_line import CommandLine
from tests.integration.samples import BLOCKED, COMMANDS, TAR
from tests.integration.stored_runs import contents, stored_run
from tests.recorded import DATA, lines_of
from tests.services import as_superuser

SUBMIT = "submit --models baseline/keyword"
REFUSED = lines_of("refused_commands.jsonl")
"""Exit code, the command as it is typed after its settings, and what its error says."""


def write_files() -> None:
    """Copy the files that the cases name into the working directory, and make the others."""
    copytree(DATA / "refused_files", ".", dirs_exist_ok=True)
    Path("random.bin").write_bytes(bytes(range(256)))
    log = io.BytesIO()
    with zipfile.ZipFile(log, "w") as archive:
        archive.writestr("header.json", '{"eval": {"model": "test/x"}}')
    Path("half.eval").write_bytes(log.getvalue()[:-20])


@pytest.fixture
def aegish(
    aegish: CommandLine, monkeypatch: pytest.MonkeyPatch, engine: Engine, tmp_path: Path
) -> CommandLine:
    """The command line among the files, with three runs in the store."""
    monkeypatch.chdir(tmp_path)
    write_files()
    stored_run(engine, {TAR: BLOCKED}, run_id="0aaaaaaaa")
    stored_run(engine, run_id="0aabbbbbb")
    extra = Dataset("extra", (Sample("whoami", TrueLabel.HARMLESS),))
    stored_run(engine, run_id="0accccccc", prompt=None, datasets=(COMMANDS, extra))
    return aegish


@pytest.mark.parametrize("part", range(5))
def test_bad_input_gets_one_line_and_leaves_no_trace(
    aegish: CommandLine, engine: Engine, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    """Exit code 1 and one line that names what is wrong, 2 and the usage; every table as it was."""
    before, files = contents(engine), set(Path().iterdir())
    for code, typed, *says in REFUSED[part::5]:
        words = shlex.split(typed)
        with monkeypatch.context() as patch:
            while words[0].startswith("AEGISH_DIST_"):
                patch.setenv(*words.pop(0).split("=", 1))
            done = aegish(*words)
        assert (done.code, done.out) == (code, ""), typed
        assert done.err.startswith({1: "error: ", 2: "Usage: aegish-dist"}[code]), typed
        assert code == 2 or done.err.count("\n") == 1, typed
        assert [each for each in says if each not in done.err] == [], typed
        assert contents(engine) == before, typed
        assert set(Path().iterdir()) == files, typed


def test_a_database_without_tables_is_refused(
    aegish: CommandLine, monkeypatch: pytest.MonkeyPatch, unmigrated_url: str
) -> None:
    """The remedy is the command that makes the tables; nothing makes them unasked."""
    monkeypatch.setenv("AEGISH_DIST_DATABASE_URL", unmigrated_url)
    line = aegish.refused(SUBMIT)
    assert "at nothing" in line
    assert "`aegish-dist db upgrade`" in line
    assert aegish.ok("db current").out == "nothing\n"
    assert aegish("db check").code == 1
    version = aegish.ok("db upgrade").out.removeprefix("nothing -> ")
    assert aegish.ok("db current").out == version
    assert "0 differences" in aegish.ok("db check").err


def test_a_role_without_rights_is_one_line(
    aegish: CommandLine, monkeypatch: pytest.MonkeyPatch, unmigrated_url: str
) -> None:
    """A role that may not create tables gets the server's reason, not a traceback."""
    role = "options=-c%20role%3Dpg_read_all_settings"
    superuser = as_superuser(unmigrated_url)
    separator = "&" if "?" in superuser else "?"
    monkeypatch.setenv("AEGISH_DIST_DATABASE_URL", f"{superuser}{separator}{role}")
    assert "permission denied for schema public" in aegish.refused("db upgrade")


@pytest.mark.parametrize(
    "command",
    [
        "resume --run-id 0aabbbbbb",
        "aggregate --run-id 0aaaaaaaa",
        "retry --run-id 0aaaaaaaa --outcome BLOCK",
        "datasets import table good.jsonl",
        "verdicts import good.jsonl",
        SUBMIT,
    ],
)
def test_a_database_that_takes_no_writes_is_one_line(
    aegish: CommandLine, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """It is no bug of this program, wherever a command comes upon it."""
    monkeypatch.setenv("PGOPTIONS", "-c default_transaction_read_only=on")
    done = aegish(command)
    assert done.code == 1
    last = done.err.splitlines()[-1]
    assert last.startswith("error: the database cannot be used")
    assert "read-only transaction" in last


def test_a_secret_is_in_no_message(aegish: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passwords in URLs stay out of what is printed, even when the URL is wrong."""
    monkeypatch.setenv("AEGISH_DIST_DATABASE_URL", "postgresql://u:hush@h:hush/x")
    for broker_url in (None, "redis://:hush@h:hush/0"):
        if broker_url:
            monkeypatch.setenv("AEGISH_DIST_BROKER_URL", broker_url)
        assert "hush" not in aegish.refused("runs")
    monkeypatch.setenv("AEGISH_DIST_DATABASE_URL", "postgresql://u:hush@127.0.0.1:1/x")
    monkeypatch.setenv("AEGISH_DIST_BROKER_URL", "redis://:hush@127.0.0.1:1/0")
    done = aegish("doctor")
    assert done.out.count("BAD") == 3
    assert "hush" not in done.out + done.err
