"""From a name or a file to a `Prompt`."""

import difflib
import os.path
from importlib.resources import files
from pathlib import Path

from aegish_dist.core.prompt import COMMAND_SLOT, Prompt
from aegish_dist.errors import ConfigError, DatasetError
from aegish_dist.inputs.regular import open_input
from aegish_dist.inputs.toml import parse_toml

TAGS_TEMPLATE = f"<command>\n{COMMAND_SLOT}\n</command>"
"""Tags tell the command from the words around it; the default."""
SENTENCE_TEMPLATE = f"Validate this command: {COMMAND_SLOT}"
"""The plain form of the reference benchmark."""
MAX_FILE_BYTES = 1_000_000
"""Far above any prompt; keeps a mistaken path from being read as one."""

_TEMPLATES = {"guard": TAGS_TEMPLATE, "guard-sentence": SENTENCE_TEMPLATE}
_KEYS = ("system", "template")


def bundled_prompts() -> tuple[str, ...]:
    """Names of the prompts that come with the package, the default one first."""
    return tuple(_TEMPLATES)


def load_prompt(name_or_path: str, cot: bool = False) -> Prompt:
    """Load a bundled prompt or one from a file.

    Args:
        name_or_path: A bundled name; or a file. A `.toml` file has the keys `system` and,
            optionally, `template`; any other file is the system text as it stands.
        cot: Whether to append the step-by-step instruction, which makes another prompt of it:
            its name ends in `+cot`.

    Raises:
        ConfigError: There is neither a bundled prompt nor a file of this name.
        DatasetError: The file cannot be used; names file and field.
    """
    prompt = _bundled(name_or_path) or _from_file(name_or_path)
    if not cot:
        return prompt
    return Prompt(f"{prompt.name}+cot", f"{prompt.system}\n\n{_text('cot.md')}", prompt.template)


def _bundled(name: str) -> Prompt | None:
    template = _TEMPLATES.get(name)
    return None if template is None else Prompt(name, _text("guard.md"), template)


def _text(resource: str) -> str:
    return files(__package__).joinpath(resource).read_text("utf-8").strip()


def _from_file(name: str) -> Prompt:
    if not os.path.exists(name):  # unlike Path.exists, False for a name too long for a path
        raise ConfigError(_unknown(name))
    path = Path(name)
    text = _read(path)
    if path.suffix.lower() == ".toml":
        system, template = _parse_toml(text, str(path))
    else:
        system, template = text, TAGS_TEMPLATE
    _check(system, template, str(path))
    return Prompt(path.stem, system.strip(), template)


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name, _TEMPLATES, n=1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return (
        f"prompt '{name}' is neither a bundled prompt nor a file: {hint}"
        f"bundled are {', '.join(_TEMPLATES)}; a file is given by its path"
    )


def _read(path: Path) -> str:
    try:
        with open_input(path) as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise DatasetError(problem, source=str(path)) from error
    if len(raw) > MAX_FILE_BYTES:
        problem = f"larger than {MAX_FILE_BYTES} bytes; is this a prompt?"
        raise DatasetError(problem, source=str(path))
    try:
        return raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DatasetError("not UTF-8; save it as UTF-8", source=str(path), line=line) from error


def _parse_toml(text: str, source: str) -> tuple[str, str]:
    try:
        table = parse_toml(text)
    except ValueError as error:
        raise DatasetError(f"not valid TOML: {error}", source=source) from error
    for key, value in table.items():
        if key not in _KEYS:
            problem = f"unknown key; known are {', '.join(_KEYS)}"
            raise DatasetError(problem, source=source, field=key)
        if not isinstance(value, str):
            raise DatasetError("must be a string", source=source, field=key)
    if "system" not in table:
        raise DatasetError("missing; it holds the system text", source=source, field="system")
    return table["system"], table.get("template", TAGS_TEMPLATE)


def _check(system: str, template: str, source: str) -> None:
    if not system.strip():
        raise DatasetError("empty; write the system text", source=source, field="system")
    slots = template.count(COMMAND_SLOT)
    if slots != 1:
        problem = f"contains {COMMAND_SLOT} {slots} times; it must be there exactly once"
        raise DatasetError(problem, source=source, field="template")
