"""A transparent guard: the judgement of a simulated model that never errs.

A list of patterns, the first that is found decides. It reads commands as text and runs nothing.
"""

import re
from dataclasses import dataclass

from aegish_dist.core.verdict import Outcome

JUDGED_CHARS = 4_000
"""Only the head of a command is judged, so that a huge one cannot stall the server."""

_SHELL = r"(?:ba|da|a|k|c|tc|z|po|fi)?sh\b"
_REST = r"[^;\n]*"


@dataclass(frozen=True, slots=True)
class Judgement:
    """Judgement of the guard about a command."""

    action: Outcome
    reason: str


def _rules(action: Outcome, reasons: dict[str, str]) -> list[tuple[re.Pattern[str], Judgement]]:
    return [(re.compile(text), Judgement(action, reason)) for reason, text in reasons.items()]


_RULES = [
    *_rules(
        Outcome.BLOCK,
        {
            "it opens a network connection to a shell": (
                rf"/(?:dev|inet)/(?:tcp|udp)/|\b(?:nc|ncat|netcat)\b{_REST}\s-\w*[ecl]"
                rf"|\bsocat\b{_REST}\b(?i:exec|system|tcp-listen)\b|\bs_(?:client|server) -quiet"
                r"|\bsocket\b[^\n]*\b(?:connect|bind)\b|\bTCP(?:Socket|Server)\b|\bzsh/net/tcp\b"
            ),
            "it downloads code and executes it": (
                rf"\b(?:curl|wget|fetch)\b[^\n]*\|\s*(?:sudo\s+)?(?:{_SHELL}|python|perl)"
                rf"|\b(?:{_SHELL}|source|eval|\.)\s[^\n]*[<$]\((?:curl|wget)\b"
            ),
            "it executes decoded text": rf"\bbase64\s+(?:-d|--decode)\b{_REST}\|\s*{_SHELL}",
            "it touches password hashes, keys or credentials": (
                r"/etc/(?:g?shadow|passwd|security)\b|\bid_(?:rsa|dsa|ecdsa|ed25519)\b"
                r"|\.aws/credentials|\.kube/config|/proc/\w+/environ|\.gnupg/"
            ),
            "it changes who may log in, what root may do or what runs on schedule": (
                r"sudoers|authorized_keys|/etc/(?:cron|pam\.|profile|rc\.|init|ld\.so)"
                r"|/cron\.d/|/etc/systemd/|\bcrontab\b(?!\s+-l)|\bvisudo\b"
            ),
            "it raises privileges": (
                rf"\bchmod\b{_REST}(?:\+s|\s[2467][0-7]{{3}})\b|\bsetcap\b|\bset[ug]id\("
                r"|\b(?:nsenter|unshare|chroot|pkexec|capsh)\b|\bdocker\b[^\n]*-v\s*/:|--privileged"
            ),
            "it starts a shell from another program": (
                rf"(?<!#!)(?<!\w)/(?:usr/)?bin/{_SHELL}|-exec(?:dir)?\s+{_SHELL}"
                rf"|\b(?:system|execl?p?|popen|spawn)\W+{_SHELL}"
                rf"|^\s*(?:{_SHELL}|screen|tmux|byobu|xterm)(?:\s+-\w+)?\s*$|[:!]\s*{_SHELL}"
            ),
            "it runs a command from inside another program": (
                r"\b(?:exec|shell_exec|system|popen|proc_open|passthru|esyscmd)\("
                r"|[A-Z]\w*='?/usr/local/bin/"
            ),
            "it injects a library": r"\bLD_(?:PRELOAD|LIBRARY_PATH|AUDIT)=|/lib[\w/-]*\.so\b",
            "it sends data to another host": (
                rf"\b(?:curl|wget)\b{_REST}(?:-d|-F|-T|--data|--upload|--post|--body)"
                rf"|\b(?:scp|sftp|rsync|sshfs|lftp|t?ftp)\b{_REST}(?:@|\d\.\d)|\bhttp\.server\b"
                r"|(?:@|://)\d+\.\d+\.\d+\.\d+|-e httpd\b"
            ),
            "it destroys data or exhausts the machine": (
                r"\brm\s+-\w*[rR]\w*\s+(?:-\w+\s+)*[/~*]|\bmkfs\b|\bof=/dev/|>\s*/dev/(?:sd|nvme)"
                r"|:\(\)\s*\{|\bshred\b"
            ),
        },
    ),
    *_rules(
        Outcome.WARN,
        {
            "it explores the system for weaknesses": (
                r"\b(?:nmap|masscan|getcap|linpeas|tcpdump)\b|-perm\s+-?[ug/]?[24u]|\bsudo\s+-l\b"
            ),
            "it downloads a file": r"\b(?:curl|wget)\b[^\n]*(?:https?://|\s-[oO]\b|\s--output\b)",
            "it writes outside the user's own files": (
                rf"(?:>|\b(?:tee|cp|mv|install|ln|dd)\b){_REST}\s/?(?:etc|usr|boot|lib|opt)/"
            ),
        },
    ),
]
_NORMAL = Judgement(Outcome.ALLOW, "it is a normal operation without lasting effect on security")


def judge(command: str) -> Judgement:
    """Return the judgement about a command."""
    head = command[:JUDGED_CHARS]
    return next((judgement for pattern, judgement in _RULES if pattern.search(head)), _NORMAL)
