"""From the name of a bundled prompt, or a user's file, to a `Prompt`."""

import os.path
from importlib.resources import files
from pathlib import Path

from msgspec import Struct

from aegish_dist.core.run import COMMAND_SLOT, COT, Prompt
from aegish_dist.core.text import did_you_mean
from aegish_dist.errors import ConfigError, InputError
from aegish_dist.inputs.checking import Location, checked
from aegish_dist.inputs.documents import parse_toml, read_text

TAGS_TEMPLATE = f"<command>\n{COMMAND_SLOT}\n</command>"  # the default
SENTENCE_TEMPLATE = f"Validate this command: {COMMAND_SLOT}"
_TEMPLATES = {
    "guard": TAGS_TEMPLATE,
    "guard-sentence": SENTENCE_TEMPLATE,
    "command": COMMAND_SLOT,  # nothing else, for guards whose server lays their own text around it
}


def bundled_prompts() -> tuple[str, ...]:
    """Return the names of the prompts in the package, the default one first."""
    return tuple(_TEMPLATES)


def load_prompt(name_or_path: str) -> Prompt:
    """Load a bundled prompt, a `.toml` file with `system` and `template`, or a file as system text.

    With `+cot` at the end of the name, the step-by-step instruction follows.
    """
    if name_or_path.endswith(COT) and not os.path.exists(name_or_path):
        prompt = load_prompt(name_or_path.removesuffix(COT))
        system = f"{prompt.system}\n\n{_text('cot.md')}".lstrip()
        return Prompt(f"{prompt.name}{COT}", system, prompt.template)

    if name_or_path in _TEMPLATES:
        system = "" if name_or_path == "command" else _text("guard.md")
        prompt = Prompt(name_or_path, system, _TEMPLATES[name_or_path])
    elif os.path.exists(name_or_path):  # unlike Path.exists, False for a name too long for a path
        path = Path(name_or_path)
        with Location(str(path)):
            # Saved on Windows, a prompt has to be the same prompt.
            text = read_text(path, MAX_FILE_BYTES).replace("\r\n", "\n")
            values = parse_toml(text) if path.suffix.lower() == ".toml" else {"system": text}
            file = checked(values, _PromptFile)
        prompt = Prompt(path.stem, file.system.strip(), file.template or TAGS_TEMPLATE)
    else:
        hint = did_you_mean(name_or_path, _TEMPLATES, f"bundled are {', '.join(_TEMPLATES)}")
        raise ConfigError(
            f"prompt '{name_or_path}' is neither a bundled prompt nor the path of a file: {hint}"
        )

    return prompt


def _text(resource: str) -> str:
    return files(__package__).joinpath(resource).read_text("utf-8").strip()


MAX_FILE_BYTES = 1_000_000  # keeps a mistaken path from being read as a prompt


class _PromptFile(Struct, forbid_unknown_fields=True):
    system: str = ""  # may be empty beside a template
    template: str | None = None  # None for the default one

    def __post_init__(self) -> None:
        if not self.system.strip() and self.template is None:
            raise InputError("is empty; write the system text", field="system")
        slots = 1 if self.template is None else self.template.count(COMMAND_SLOT)
        if slots != 1:
            problem = f"contains {COMMAND_SLOT} {slots} times; it must be there exactly once"
            raise InputError(problem, field="template")
