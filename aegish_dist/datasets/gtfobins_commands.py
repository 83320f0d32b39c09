"""From the code of a GTFOBins entry to commands: placeholders filled in, programs chained.

Placeholders take values that are realistic and sensitive but do not give the label away. Order
matters: the specific before the general, so that nothing is left over. A variable that the command
sets itself is none.

The data set that the reference benchmark published was filled in otherwise in 129 of its 676
commands (commit 27f4632, root included). Two rules explain 106 of them: there `DATA` became
`c2VydmljZS1jb25maWc=`, and names such as `/path/to/temp-file` lost their dash. In the other 23
placeholders stayed as they were (`xxx`, `$PID`, `path/to/input-file`) or were repaired by hand.

An `inherit` entry says that one program lets its user into another: a pager, an editor, an
interpreter. A command follows from it in three cases; in all others (a script file that has to be
prepared, a window to click in) the entry yields none:

- the entry has a slot `...` for code, and the other program runs code given as `-c '...'`;
- the entry ends in the name of the other program, as in `busybox ash`;
- the entry leaves its user at the other program's prompt, where the same keys can be typed.
"""

import re
from functools import partial

from aegish_dist.core.sample import MAX_COMMAND_CHARS
from aegish_dist.datasets.validation import variables_set

_SLOT = "..."
_FIXED = (
    ("attacker.com", "10.0.0.1"),
    ("victim.com", "10.0.0.2"),
    ("/path/to/input-file", "/etc/shadow"),
    ("/path/to/file-input", "/etc/shadow"),
    ("/path/to/input-dir", "/etc/ssh"),
    ("/path/to/output-file", "/etc/cron.d/update"),
    ("/path/to/ouput-file", "/etc/cron.d/update"),  # so spelled in one of their files
    ("/path/to/output-dir/output-file", "/etc/cron.d/update"),
    ("/path/to/output-dir", "/etc/cron.d"),
    ("/path/to/command", "/usr/local/bin/service-check"),
    ("/path/to/lib.so", "/usr/lib/libutils.so"),
    ("/path/to/ld.so", "/lib64/ld-linux-x86-64.so.2"),
    ("/path/to/", "/tmp/"),  # noqa: S108  # nosec B108 # text, never opened
    ("path/to/input-file", "etc/shadow"),  # where a tree was copied to the working directory
    (r"c:\path\to\input", r"c:\etc\shadow"),
    (r"c:\path\to\output", r"c:\etc\cron.d\update"),
    # Of the layout before 2026.
    ("file_to_read", "/etc/shadow"),
    ("file_to_send", "/etc/shadow"),
    ("file_to_write", "/etc/cron.d/update"),
    ("file_to_save", "/etc/cron.d/update"),
    ("file_to_delete", "/etc/cron.d/update"),
    ("where_to_write", "/etc/cron.d/update"),
    ("where_to_save", "/etc/cron.d/update"),
    ("file_to_get", "update"),
    ("file_to_download", "update"),
    ("dir_to_serve", "/etc/ssh"),
    ("dir_to_get", "ssh"),
    ("folder_to_list", "/etc/ssh"),
    ("data_to_write", "DATA"),
)

_PATTERNS = tuple(
    (re.compile(pattern), value)
    for pattern, value in (
        (r"\blib\.so\b", "/usr/lib/libutils.so"),
        (r"\binput-file\b", "shadow"),
        (r"\boutput-file\b", "update"),
        (r"(?<!\d)12345(?!\d)", "4444"),
        (r"\$\{?(?P<variable>TF)\b\}?", "/etc/sudoers.d/custom"),
        (r"\$\{?(?P<variable>URL)\b\}?", "http://10.0.0.1/update.tar.gz"),
        (r"\$\{?(?P<variable>CONTAINER(?:_ID)?)\b\}?", "web"),
        (r"\$\{?(?P<variable>PID)\b\}?", "1"),
        (
            r"(?<![A-Z])DATA(?![A-Z])",
            "Ki81ICogKiAqICogcm9vdCAvdXNyL2xvY2FsL2Jpbi9zZXJ2aWNlLWNoZWNrCg==",
        ),
        (r"(?<![A-Za-z])x{3,}(?![A-Za-z])", "backup"),
        (r"<(?P<tag>[a-z][a-z_ -]*)>(?!(?s:.*)</(?P=tag)>)", "backup"),  # not XML, which is closed
    )
)


def fill_in(code: str) -> str:
    """Return a GTFOBins example as a command that could be typed."""
    for placeholder, value in _FIXED:
        code = code.replace(placeholder, value)
    given = variables_set(code)
    for pattern, value in _PATTERNS:
        code = pattern.sub(partial(_value, given, value), code)
    return code


def _value(given: frozenset[str], value: str, found: re.Match[str]) -> str:
    return found.group() if found.groupdict().get("variable") in given else value


def inherited_command(entry: str, binary: str, command: str) -> str | None:
    """Combine an entry with a command of the program that it leads to.

    Returns:
        The combined command; None when there is no honest one.
    """
    if _SLOT in entry:
        return _fill_slot(entry, binary, command)
    if entry.endswith(f" {binary}"):
        own = command == binary or command.startswith(f"{binary} ")
        return entry + command.removeprefix(binary) if own else None
    return _type_on(entry, _keys(binary, command))


def _fill_slot(entry: str, binary: str, command: str) -> str | None:
    match = re.fullmatch(rf"{re.escape(binary)} -[cer] '([^']*)'", command)
    if match is None or '"' in entry:
        return None
    code = match[1]
    if len(entry) + entry.count(_SLOT) * len(code) > MAX_COMMAND_CHARS:
        return None
    fits = "\n" not in code or f"'{_SLOT}'" in entry  # elsewhere a newline would end the slot
    return entry.replace(_SLOT, code) if fits else None


def _keys(binary: str, command: str) -> str | None:
    """Return the keys that `command` types at the prompt of `binary`; None when it types none."""
    ex_command = re.fullmatch(rf"{re.escape(binary)} -c '(:[^']*)'(?: /dev/null)?", command)
    if ex_command:
        return ex_command[1]
    start, _, keys = command.partition("\n")
    # A file or a quote opened on the first line is part of what the rest does.
    alone = re.fullmatch(rf"{re.escape(binary)}(?: [^'\"<|]*)?", start)
    return keys if keys and alone and "/path/to/" not in start else None


def _type_on(entry: str, keys: str | None) -> str | None:
    if keys is None:
        return None
    if "\n!" in entry:  # the entry already types its own way out
        return entry if entry.endswith(f"\n{keys}") else None
    return f"{entry}\n{keys}"
