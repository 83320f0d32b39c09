"""Turn GTFOBins `inherit` entries into commands.

Such an entry says that one program lets its user into another: a pager, an editor, an
interpreter. A command follows from it in three cases; in all others (a script file that has to be
prepared, a window to click in) the entry yields none:

- the entry has a slot `...` for code, and the other program runs code given as `-c '...'`;
- the entry ends in the name of the other program, as in `busybox ash`;
- the entry leaves its user at the other program's prompt, where the same keys can be typed.
"""

import re

from aegish_dist.datasets.validation import MAX_COMMAND_CHARS

_SLOT = "..."


def inherited_command(entry: str, binary: str, command: str) -> str | None:
    """What `entry` followed by what `command` does in `binary` looks like.

    Args:
        entry: The code of the `inherit` entry.
        binary: The program it inherits from.
        command: A command of that program.

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
    """What is typed at the prompt of `binary` in `command`; None when nothing is."""
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
