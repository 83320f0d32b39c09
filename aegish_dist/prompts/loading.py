"""From a name or a file to a `Prompt`."""

import difflib
import os.path
from importlib.resources import files
from pathlib import Path

from aegish_dist.core.prompt import COMMAND_SLOT, Prompt
from aegish_dist.errors import ConfigError

TAGS_TEMPLATE = f"<command>\n{COMMAND_SLOT}\n</command>"
"""Tags tell the command from the words around it; the default."""
SENTENCE_TEMPLATE = f"Validate this command: {COMMAND_SLOT}"
_TEMPLATES = {"guard": TAGS_TEMPLATE, "guard-sentence": SENTENCE_TEMPLATE}


def bundled_prompts() -> tuple[str, ...]:
    """Return the names of the prompts that come with the package, the default one first."""
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
    from aegish_dist.prompts.prompt_file import read_prompt_file  # noqa: PLC0415  with msgspec

    path = Path(name)
    file = read_prompt_file(path)
    return Prompt(path.stem, file.system.strip(), file.template or TAGS_TEMPLATE)


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name, _TEMPLATES, n=1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return (
        f"prompt '{name}' is neither a bundled prompt nor a file: {hint}"
        f"bundled are {', '.join(_TEMPLATES)}; a file is given by its path"
    )
