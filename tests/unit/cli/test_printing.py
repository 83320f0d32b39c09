"""Printing: one place, everything printable, and failures of the standard streams in one line."""

import io
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import click
import pytest

from aegish_dist.cli import printing, run
from aegish_dist.cli.printing import in_columns, terminal_width
from aegish_dist.errors import ClosedOutputError, OutputError

HOSTILE = "\x1b]52;c;ZXZpbA==\x07\x9b2J\u202etxt\u200b\udc9b[/red][link=x]:smile:\r\nsecond"
SHOWN = r"\x1b]52;c;ZXZpbA==\x07\x9b2J\u202etxt\u200b\udc9b[/red][link=x]:smile:\r\nsecond"


def test_lines_texts_and_documents_are_printable(capsys: pytest.CaptureFixture[str]) -> None:
    """Escapes, C1 controls, overrides, zero-width characters, line breaks, DEL become visible."""
    printing.say(HOSTILE)
    printing.note(HOSTILE)
    assert capsys.readouterr() == (f"{SHOWN}\n", f"{SHOWN}\n")
    printing.say_lines("a\tb\nc\x1b[2J\r")  # line breaks and tabs of a prompt stay
    assert capsys.readouterr().out == "a\tb\nc\\x1b[2J\\r\n"
    printing.say_json({"name": "\x7f\x9b\x1b"})
    assert capsys.readouterr().out == '{\n  "name": "\\u007f\\u009b\\u001b"\n}\n'


def test_tables_take_text_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    """Markup, emoji codes and escapes in cells, title and caption are shown, not obeyed."""
    table = in_columns(("Name",), [(HOSTILE,)], title=HOSTILE, caption=HOSTILE, width=None)
    printing.say_columns(table)
    assert capsys.readouterr().out.count(SHOWN) == 3


def test_what_is_no_terminal_gets_columns_of_whole_cells(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Texts on the left, numbers on the right, wide characters in two columns, nothing folded."""
    rows = [("\u691c\u67fb", "x" * 200, "7"), ("b", "y", "1,000")]
    columns, numbers = ("Name", "Text"), ("Number",)
    for stderr in (False, True):
        width = terminal_width(stderr=stderr)
        table = in_columns(columns, rows, numbers, title="Title", caption="Caption", width=width)
        printing.note_lines(table) if stderr else printing.say_columns(table)
        assert capsys.readouterr()[stderr].splitlines() == [
            "Title",
            "",
            f"Name   Text{' ' * 199}Number",
            "-" * 216,
            f"\u691c\u67fb   {'x' * 200}        7",
            f"b      y{' ' * 199}    1,000",
            "",
            "Caption",
        ]


def test_on_a_terminal_texts_are_folded_and_numbers_stay_whole() -> None:
    """The narrow text keeps its room, the wide one is broken between words or within one."""
    rows = [("ab", "\u691c\u67fb of many words", "1,000"), ("c", "x" * 15, "7")]
    assert in_columns(("Id", "Text"), rows, ("Number",), width=26).splitlines() == [
        "Id   Text           Number",
        "-" * 26,
        "ab   \u691c\u67fb of many    1,000",
        "     words",
        "c    xxxxxxxxxxxx        7",
        "     xxx",
    ]
    narrow = in_columns(("Id", "Text"), rows, ("Number",), width=1)
    assert "\u691c" in narrow


@pytest.mark.parametrize(
    "arguments",
    [
        (HOSTILE,),
        ("runs", f"--{HOSTILE}"),
        ("runs", "--limit", HOSTILE),
        ("status", "--run-id", HOSTILE),
        ("report", "--format", HOSTILE),
        ("report", "--scoring", HOSTILE),
        ("submit", "--models", HOSTILE),
        ("datasets", HOSTILE),
        ("datasets", "validate", HOSTILE),
        ("datasets", "import", "table", HOSTILE),
        ("prompts", "show", HOSTILE),
        ("simulate-provider", "--latency", HOSTILE),
        ("simulate-provider", "--fault", HOSTILE),
        ("simulate-provider", "--scenario", HOSTILE),
    ],
    ids=lambda arguments: " ".join(a for a in arguments if HOSTILE not in a),
)
def test_what_was_typed_is_quoted_printably(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AEGISH_DIST_DATABASE_URL", "postgresql://nowhere.invalid/x")
    assert run([*arguments]) in (1, 2)
    out, err = capsys.readouterr()
    assert out == ""
    assert all(line.isprintable() for line in err.splitlines())
    assert err.splitlines()[-1].lower().startswith("error: ")


def test_a_bug_is_traced_printably(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError(HOSTILE)

    monkeypatch.setattr(click.Group, "main", fail)
    assert run([]) == 3
    err = capsys.readouterr().err
    assert "Traceback (most recent call last):\n" in err
    assert all(line.isprintable() for line in err.splitlines())
    assert err.splitlines()[-1].startswith("bug: RuntimeError")


@pytest.fixture(params=["", "1"], ids=["buffered", "unbuffered"])
def _buffering(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Python write at once, or when a buffer is full."""
    monkeypatch.setenv("PYTHONUNBUFFERED", request.param)


def command(shell: str) -> subprocess.CompletedProcess[str]:
    """Run the command line, `$A`, as a shell does."""
    environ = {**os.environ, "A": f"{sys.executable} -m aegish_dist", "PYTHONWARNINGS": "error"}
    return subprocess.run(
        ["bash", "-c", shell], capture_output=True, text=True, env=environ, timeout=30, check=False
    )


@pytest.mark.usefixtures("_buffering")
@pytest.mark.parametrize("arguments", ["prompts list", "--help", "prompts show --help"])
@pytest.mark.parametrize(
    ("redirection", "reason"),
    [("> /dev/full", "No space left on device"), ("1< /dev/null", "Bad file descriptor")],
)
def test_an_output_that_takes_nothing_is_one_line(
    arguments: str, redirection: str, reason: str
) -> None:
    done = command(f"$A {arguments} {redirection}")
    expected = f"error: standard output cannot be written: {reason}\n"
    assert (done.returncode, done.stderr) == (1, expected)


@pytest.mark.parametrize("arguments", ["prompts list", "models list", "models list --json"])
def test_a_closed_output_is_one_line(arguments: str) -> None:
    done = command(f"$A {arguments} >&-")
    assert done.returncode == 1
    assert done.stderr.startswith("error: standard output is closed")
    assert done.stderr.count("\n") == 1


@pytest.mark.usefixtures("_buffering")
def test_a_disk_that_becomes_full_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "prompt.txt"
    done = command(f"ulimit -f 1; $A prompts show guard > {path}")
    assert path.stat().st_size == 1024
    assert done.returncode == 1
    assert done.stderr == "error: standard output cannot be written: File too large\n"


def test_a_reader_that_leaves_is_no_error() -> None:
    """As with `head`: silence, and the exit code that says that not all was printed."""
    done = command("(sleep 0.2; $A prompts list; echo $? >&2) | true")
    assert (done.stdout, done.stderr) == ("", "1\n")


@pytest.mark.usefixtures("_buffering")
@pytest.mark.parametrize("redirection", ["2> /dev/full", "2>&-", "2>&1 >&- | true"])
def test_errors_that_cannot_be_shown_keep_their_exit_code(redirection: str) -> None:
    done = command(f"set -o pipefail; $A prompts nothing {redirection}")
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_encoding_that_lacks_a_character_shows_its_escape(encoding: str) -> None:
    script = (
        "import sys; from aegish_dist.cli import printing;"
        "printing.prepare_output();"
        "printing.say_columns(printing.in_columns(('\u2013',), [('\u691c\u67fb',)], width=None))"
    )
    environ = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, env=environ, timeout=30, check=False)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"\u691c\u67fb" in done.stdout


@pytest.mark.parametrize(
    ("error", "raised"),
    [(OSError(28, "No space"), OutputError), (BrokenPipeError(), ClosedOutputError)],
)
def test_an_export_to_a_failing_output_is_no_bug(
    error: OSError, raised: type[OutputError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes larger than any buffer fail while they are written, not when they are flushed."""
    full = Mock(io.RawIOBase, closed=False)
    full.writable.return_value, full.seekable.return_value = True, False
    full.write.side_effect = error
    stream = io.TextIOWrapper(io.BufferedWriter(full))
    monkeypatch.setattr("sys.stdout", stream)
    with pytest.raises(raised) as caught, printing.binary_output() as output:
        output.write(b"x" * 1_000_000)
    assert type(caught.value) is raised
    stream.detach()  # else it is flushed when it is collected


def test_other_system_errors_stay_bugs() -> None:
    with pytest.raises(ConnectionResetError), printing.checked_output():
        raise ConnectionResetError


@pytest.mark.parametrize(
    ("settings", "redraws"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True),
        ({"TERM": "dumb"}, False),
        ({}, False),
        ({"TERM": "xterm", "CI": "true"}, False),
        ({"TERM": "xterm", "CI": "false"}, True),
    ],
)
def test_only_a_terminal_that_a_person_looks_at_is_drawn_over(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], redraws: bool
) -> None:
    for name in ("TERM", "CI"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert not printing.can_redraw(stderr=True)
    monkeypatch.setattr(printing, "on_terminal", lambda **_: True)
    assert printing.can_redraw(stderr=True) == redraws


def test_no_line_needs_no_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    printing.say()
    with pytest.raises(OutputError):
        printing.say("a line")


@pytest.mark.parametrize(("no_color", "colored"), [("", True), ("1", False)])
def test_a_report_on_a_terminal_obeys_no_color(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    no_color: str,
    colored: bool,
) -> None:
    monkeypatch.setattr(printing, "on_terminal", lambda **_: True)
    monkeypatch.setenv("NO_COLOR", no_color)
    with printing.shown(None) as show:
        show(lambda *, color, **_: f"{color}\n")
    assert capsys.readouterr().out == f"{colored}\n"


@pytest.mark.parametrize(
    ("called", "program"),
    [
        ("/my clone/bin/aegish-dist", "'/my clone/bin/aegish-dist'"),
        ("x.py", "python -m aegish_dist"),
    ],
)
def test_next_commands_can_be_typed_where_the_program_is_not_on_the_path(
    called: str,
    program: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "argv", [called])
    printing.note_next("A=/x/aegish-dist/y aegish-dist report")
    assert capsys.readouterr().err == f"next:\n  A=/x/aegish-dist/y {program} report\n"


def test_ids_are_not_folded() -> None:
    columns = ("Run", "Name")
    folded = in_columns(columns, [("0123456789", "a longer name")], ids=1, width=20)
    assert folded.splitlines()[2].startswith("0123456789 ")
    rows = [("x" * 30, "a name"), ("y", "other")]
    *_, first, name, second = in_columns(columns, rows, ids=1, width=40).splitlines()
    assert [first, name, second] == ["x" * 30, f"{'a name':>25}", f"y{'other':>23}"]
