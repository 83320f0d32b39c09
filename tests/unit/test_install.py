"""`make install`: uv takes what pip is configured with, and pip installs where uv does not."""

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFIGURED = """\
:env:.cert='/etc/own.pem'
global.cert='/etc/machine.pem'
global.extra-index-url='https://b.example/simple\\nhttps://c.example/simple'
global.index-url='https://machine.example/simple'
install.index-url='https://a.example/simple'
install.trusted-host='a.example'
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[str]]:
    """Return a function that installs where uv ends with a code, and returns what was called."""
    log = tmp_path / "log"
    configured = tmp_path / "configured"
    configured.write_text(CONFIGURED)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(sys, "argv", ["install.py", "title", "a.txt", "b.txt"])

    def install(code: int) -> list[str]:
        (tmp_path / "python").write_text(
            f'#!/bin/sh\ncase "$*" in *config*) cat {configured};; *) echo "pip $*" >> {log};; esac\n'
        )
        (tmp_path / "uv").write_text(
            f'#!/bin/sh\necho "uv $* into $VIRTUAL_ENV $SSL_CERT_FILE" >> {log}\nexit {code}\n'
        )
        for name in ("python", "uv"):
            (tmp_path / name).chmod(0o755)
        runpy.run_path(str(ROOT / ".ci/install.py"), run_name="__main__")
        return log.read_text().splitlines()

    return install


def test_uv_finds_what_pip_would_find(
    programs: Callable[[int], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    (called,) = programs(0)
    for part in (
        "--default-index https://a.example/simple ",
        "--index https://b.example/simple --index https://c.example/simple ",
        "--allow-insecure-host a.example ",
        "--require-hashes -r a.txt -r b.txt",
    ):
        assert part in called
    assert called.endswith(" /etc/own.pem")
    assert "machine" not in called
    assert "--system-certs" not in called


def test_uv_installs_for_this_python_whatever_the_shell_has_activated(
    programs: Callable[[int], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", "/elsewhere")
    (called,) = programs(0)
    assert f" into {sys.prefix} " in called


def test_pip_installs_where_uv_does_not(
    programs: Callable[[int], list[str]], capfd: pytest.CaptureFixture[str]
) -> None:
    _, called = programs(2)
    assert called.startswith("pip -m pip ")
    assert called.endswith("install --require-hashes -r a.txt -r b.txt")
    assert "pip does" in capfd.readouterr().out
