"""Refusals of the command line: one clear line, the right exit code, and no trace in the store."""

import io
import json
import zipfile
from pathlib import Path

import pytest
from sqlalchemy import Engine

from tests.integration.command_line import CommandLine, write_lines
from tests.integration.samples import BLOCKED, TAR
from tests.integration.stored_runs import row_counts, stored_run

CLOSED_PORT = 1
"""Only root may listen on it, and no test does."""
SUBMIT = ("submit", "--models", "baseline/keyword")
MALICIOUS = {"command": "7z x", "binary": "7z", "category": "shell"}
VERDICT = {"model": "test/x", "command": "ls", "target": "harmless", "completion": None}


Refusal = tuple[tuple[str, ...], tuple[str, ...], *tuple[dict[str, str], ...]]
"""A command that cannot be done, what its line says, and settings."""


def broker(url: str) -> dict[str, str]:
    return {"AEGISH_DIST_BROKER_URL": url}


def database(url: str) -> dict[str, str]:
    return {"AEGISH_DIST_DATABASE_URL": url}


REFUSALS: dict[str, list[Refusal]] = {
    "models, prompts, prices": [
        (("submit", "--models", "nobody/x"), ("nobody/x", "models list")),
        (("submit", "--models", "gpt"), ("'gpt'", "provider/model")),
        (("submit", "--models", "baseline/keywords"), ("baseline/keyword",)),
        (("submit", "--models", "openai/gpt-5.1"),
         ("openai/gpt-5.1: OPENAI_API_KEY is not set", "--keys-on-workers")),
        (SUBMIT, ("bad.toml", "line 1"), {"AEGISH_DIST_CATALOG": "bad.toml"}),
        (("models", "list"), ("none.toml",), {"AEGISH_DIST_CATALOG": "none.toml"}),
        ((*SUBMIT, "--prompt", "gard"), ("'gard'", "did you mean 'guard'?")),
        ((*SUBMIT, "--prompt", "slotless.toml"), ("slotless.toml", "'template'", "{command}")),
    ],
    "batches": [
        (("submit", "--models", "openai/x,groq/y,ollama/z", "--batch"),
         ("groq/y, ollama/z cannot be asked in batches", "batch_share in your catalog")),
        ((*SUBMIT, "--batch-after", "2h"), ("none of these models", "leave out --batch")),
    ],
    "datasets": [
        ((*SUBMIT, "--dataset", "nope"), ("nope", "datasets list")),
        (("datasets", "show", "nope"), ("nope", "datasets list")),
        ((*SUBMIT, "--categories", "shell,shel"), ("shel:", "file-read")),
        (("datasets", "import", "aegish", "empty.json"), ("no samples",)),
        (("datasets", "import", "aegish", "broken.json"), ("broken.json, line 2", "JSON")),
        (("datasets", "import", "aegish", "twice.json"),
         ("twice.json, line 2, field 'command'", "as in line 1")),
        (("datasets", "import", "table", "none.csv"), ("none.csv",)),
        (("datasets", "validate", "none"), ("none: no such file",)),
        (("datasets", "import", "gtfobins", "none"), ("none",)),
        (("datasets", "export", "harmless", "x.xml"), ("x.xml", ".jsonl")),
        (("datasets", "export", "harmless", "none/x.csv"), ("none/x.csv",)),
    ],
    "verdicts": [
        (("verdicts", "import", "seventh.jsonl"), ("seventh.jsonl, line 7, field 'target'",)),
        (("verdicts", "import", "good.jsonl", "good.jsonl"), ("good.jsonl", "second verdict")),
        (("verdicts", "import", "half.eval"), ("half.eval", "zip")),
        (("verdicts", "import", "none.eval"), ("none.eval", "No such file")),
        (("verdicts", "import", "nothing.jsonl"), ("nothing.jsonl",)),
        (("verdicts", "export", "--run-id", "0aaaaaaaa", "-o", "none/x.jsonl"), ("none/x.jsonl",)),
    ],
    "runs and results": [
        (("status", "--run-id", "zzz"), ("'zzz'", "aegish-dist runs")),
        (("report", "--run-id", ""), ("aegish-dist runs",)),
        (("report", "--run-id", "%"), ("'%'",)),
        (("aggregate", "--run-id", "0aa"), ("'0aa' is ambiguous", "0aaaaaaaa", "0aabbbbbb")),
        (("aggregate", "--run-id", "0aab"), ("no verdict yet", "status")),
        (("audit", "--run-id", "0aab"), ("run 0aabbbbbb has no verdict yet",)),
        (("resume", "--run-id", "0accccccc"), ("0accccccc was imported",)),
        (("retry", "--run-id", "0accccccc", "--outcome", "API_ERROR"), ("0accccccc was imported",)),
        (("retry", "--run-id", "0accccccc", "--outcome", "api_error,gone"),
         ("'gone' is no outcome", "ALLOW, WARN, BLOCK, TIMEOUT_ERROR, FORMAT_ERROR, API_ERROR")),
        (("aggregate", "--scoring", "mine"), ("'mine'", "aegish-5.3")),
        (("report", "--scoring", "mine"), ("'mine'", "aegish-5.3")),
        (("report", "--snapshot", "77"), ("no snapshot 77",)),
        (("report", "--run-id", "0aaaaaaaa", "-o", "none/report.html"),
         ("none/report.html cannot be written",)),
    ],
    "servers": [
        (("runs",),
         ("check AEGISH_DIST_DATABASE_URL", "doctor"), database(f"postgresql://127.0.0.1:{CLOSED_PORT}/x")),
        (("runs",), ("is not a database URL",), database("nonsense")),
        (("runs",), ("is not a database URL",), database("postgresql://h:port/x")),
        (("runs",), ("'mysql'", "PostgreSQL"), database("mysql://h/x")),
        (SUBMIT, ("check AEGISH_DIST_BROKER_URL", "doctor"), broker(f"redis://127.0.0.1:{CLOSED_PORT}/0")),
        (SUBMIT, ("AEGISH_DIST_BROKER_URL",), broker("nonsense")),
        (SUBMIT, ("AEGISH_DIST_BROKER_URL",), broker("redis://h:port/0")),
        (SUBMIT, ("AEGISH_DIST_BROKER_URL",), broker("kafka://h/0")),
        (SUBMIT, ("AEGISH_DIST_DATABASE_URL is not",), broker("redis://127.0.0.1/0") | database("")),
        (("runs",), ("AEGISH_DIST_CONCURRENCY",), {"AEGISH_DIST_CONCURRENCY": "many"}),
    ],
}  # fmt: skip

MISUSES: list[tuple[tuple[str, ...], str]] = [
    *((each, "") for each in [(), ("sumbit",), ("submit",), ("datasets",), ("resume",)]),
    *((each, "") for each in [("verdicts", "export"), ("verdicts", "import")]),
    (("submit", "--models", ","), ""),
    ((*SUBMIT, "--limit", "0"), ""),
    ((*SUBMIT, "--epochs", "many"), ""),
    ((*SUBMIT, "--temperature", "nan"), ""),
    ((*SUBMIT, "--time-limit", "inf"), ""),
    ((*SUBMIT, "--time-limit", "0"), ""),
    ((*SUBMIT, "--name", "\udcff"), ""),
    ((*SUBMIT, "--dataset", "\udcff"), ""),
    ((*SUBMIT, "--batch", "--batch-after", "2h"), "leave out --batch-after"),
    ((*SUBMIT, "--batch-after", "2"), "write 90s, 30m, 2h or 1d"),
    ((*SUBMIT, "--batch-after", "366d"), "more than a year"),
    (("status", "--run-id", "\udcff"), ""),
    (("report", "--format", "pdf"), ""),
    (("report", "--sections", "leaderboard,nope"), "'nope' is no section: choose from leaderboard"),
    (("report", "--format", "json", "--sections", "cost"), "--sections chooses for table"),
    (("report", "--snapshot", "99999999999999999999"), ""),
    (("runs", "--limit", "99999999999999999999"), ""),
    (("models", "check", "--time-limit", "-1"), ""),
]


def write_files() -> None:
    """Write the files that the cases name into the working directory."""
    Path("bad.toml").write_text("[models\n")
    Path("slotless.toml").write_text('system = "Guard."\ntemplate = "Judge it."\n')
    Path("empty.json").write_text('{"commands": []}')
    Path("broken.json").write_text('{\n"commands": [}')
    Path("twice.json").write_text(json.dumps({"commands": [MALICIOUS, MALICIOUS]}))
    Path("nothing.jsonl").write_text("\n")
    good = [VERDICT | {"command": f"ls {number}"} for number in range(6)]
    write_lines(Path("good.jsonl"), *good)
    write_lines(Path("seventh.jsonl"), *good, VERDICT | {"target": "harmful"})
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
    stored_run(engine, run_id="0accccccc", prompt=None)
    return aegish


@pytest.mark.parametrize("about", REFUSALS)
def test_bad_input_gets_one_line_and_leaves_no_trace(
    aegish: CommandLine, engine: Engine, monkeypatch: pytest.MonkeyPatch, about: str
) -> None:
    """Exit code 1, one line that names what is wrong, and every table as it was."""
    before, files = row_counts(engine), set(Path().iterdir())
    for arguments, says, *settings in REFUSALS[about]:
        with monkeypatch.context() as patch:
            for name, value in (settings[0] if settings else {}).items():
                patch.setenv(name, value)
            line = aegish.refused(*arguments)
        assert [each for each in says if each not in line] == [], line
        assert row_counts(engine) == before, arguments
        assert set(Path().iterdir()) == files, arguments


def test_misuse_gets_the_usage(aegish: CommandLine, engine: Engine) -> None:
    """Exit code 2 and the usage on stderr, nothing on stdout, every table as it was."""
    before = row_counts(engine)
    for arguments, says in MISUSES:
        done = aegish(*arguments)
        assert (done.code, done.out) == (2, ""), arguments
        assert done.err.startswith("Usage: aegish-dist"), arguments
        assert says in done.err
    assert row_counts(engine) == before


def test_a_database_without_tables_is_refused(
    aegish: CommandLine, monkeypatch: pytest.MonkeyPatch, unmigrated_url: str
) -> None:
    """The remedy is the command that makes the tables; nothing makes them unasked."""
    monkeypatch.setenv("AEGISH_DIST_DATABASE_URL", unmigrated_url)
    line = aegish.refused(*SUBMIT)
    assert "at nothing" in line
    assert "`aegish-dist db upgrade`" in line
    assert aegish.ok("db", "current").out == "nothing\n"
    assert aegish("db", "check").code == 1
    version = aegish.ok("db", "upgrade").out.removeprefix("nothing -> ")
    assert aegish.ok("db", "current").out == version
    assert "0 differences" in aegish.ok("db", "check").err


def test_a_role_without_rights_is_one_line(
    aegish: CommandLine, monkeypatch: pytest.MonkeyPatch, unmigrated_url: str
) -> None:
    """A role that may not create tables gets the server's reason, not a traceback."""
    role = "options=-c%20role%3Dpg_read_all_settings"
    separator = "&" if "?" in unmigrated_url else "?"
    monkeypatch.setenv("AEGISH_DIST_DATABASE_URL", f"{unmigrated_url}{separator}{role}")
    assert "permission denied for schema public" in aegish.refused("db", "upgrade")


@pytest.mark.parametrize(
    "arguments",
    [
        ("resume", "--run-id", "0aabbbbbb"),
        ("aggregate", "--run-id", "0aaaaaaaa"),
        ("retry", "--run-id", "0aaaaaaaa", "--outcome", "BLOCK"),
        ("datasets", "import", "table", "good.jsonl"),
        ("verdicts", "import", "good.jsonl"),
        SUBMIT,
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_database_that_takes_no_writes_is_one_line(
    aegish: CommandLine, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    """It is no bug of this program, wherever a command comes upon it."""
    monkeypatch.setenv("PGOPTIONS", "-c default_transaction_read_only=on")
    done = aegish(*arguments)
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
