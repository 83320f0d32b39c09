"""Files of others: no FIFO blocks, no size or number goes beyond its limit."""

import os
import socket
from decimal import Decimal
from pathlib import Path

import pytest

from aegish_dist.inputs.documents import open_input, parse_toml, read_input


def test_a_regular_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    """A link to one is followed."""
    path = tmp_path / "a"
    path.write_bytes(bytes(2**20))
    (tmp_path / "b").symlink_to(path)
    assert read_input(tmp_path / "b", 2**20) == bytes(2**20)
    path.write_bytes(bytes(2**20 + 1))
    with pytest.raises(OSError, match="larger than 1 MiB"):
        read_input(path, 2**20)


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    """None of them stays open."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for path in (fifo, Path("/dev/zero"), tmp_path / "socket"):
            with pytest.raises(OSError, match=r"regular file|No such device"):
                open_input(path)
    with pytest.raises(IsADirectoryError):
        open_input(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_input(tmp_path / "absent")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_toml_is_parsed(tmp_path: Path) -> None:
    text = f"a = {2**63 - 1}\nb = -{2**63}\nc = 0.1\nd = [1, {{e = true}}]"
    expected = {"a": 2**63 - 1, "b": -(2**63), "c": Decimal("0.1"), "d": [1, {"e": True}]}
    assert parse_toml(text, Decimal) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = " + "1" * 5000, "holds a number with thousands of digits"),
        (f"a = {2**63}", "holds an integer of more than 64 bits"),
        ("a = [{b = [0x" + "f" * 5000 + "]}]", "holds an integer of more than 64 bits"),
        ("a = " + "[" * 100_000, "is nested too deeply"),
        ("a = " + "{b = " * 100_000, "is nested too deeply"),
        ("a = ", "Invalid value"),
    ],
)
def test_hostile_toml_is_refused_in_a_few_words(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_toml(text)
