"""A prompt in a user's file."""

from pathlib import Path

from msgspec import Struct

from aegish_dist.core.prompt import COMMAND_SLOT
from aegish_dist.errors import InputError
from aegish_dist.inputs.checking import Location, checked
from aegish_dist.inputs.documents import parse_toml
from aegish_dist.inputs.files import read_text

MAX_FILE_BYTES = 1_000_000
"""Far above any prompt; keeps a mistaken path from being read as one."""


class PromptFile(Struct, forbid_unknown_fields=True):
    """The keys of a TOML file."""

    system: str
    template: str | None = None
    """The user message, with one slot for the command; None for the default one."""

    def __post_init__(self) -> None:
        """Refuse a prompt that says nothing or has no place for the command."""
        if not self.system.strip():
            raise InputError("is empty; write the system text", field="system")
        slots = 1 if self.template is None else self.template.count(COMMAND_SLOT)
        if slots != 1:
            problem = f"contains {COMMAND_SLOT} {slots} times; it must be there exactly once"
            raise InputError(problem, field="template")


def read_prompt_file(path: Path) -> PromptFile:
    """Read a `.toml` file, or any other as the system text alone.

    Raises:
        DatasetError: It cannot be used; names file and field.
    """
    with Location(str(path)):
        text = read_text(path, MAX_FILE_BYTES).replace("\r\n", "\n")
        values = parse_toml(text) if path.suffix.lower() == ".toml" else {"system": text}
        return checked(values, PromptFile)
