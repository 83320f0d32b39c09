"""The prompt: a system text, a template around the command, and its identity."""

import hashlib
import json
from dataclasses import dataclass

COMMAND_SLOT = "{command}"


@dataclass(frozen=True, slots=True)
class Messages:
    """The two texts sent to a model for one sample."""

    system: str
    """Identical for every sample of a run, so that providers can cache it."""
    user: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """A named prompt; `fingerprint` tells two versions of one name apart."""

    name: str
    """Short name that users type, or the stem of the file it came from."""
    system: str
    """The system text, with any step-by-step instruction already appended."""
    template: str
    """The user text; `{command}` marks where the command goes, exactly once."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 of system text and template."""
        return hashlib.sha256(json.dumps([self.system, self.template]).encode()).hexdigest()

    def render(self, command: str) -> Messages:
        """Fill in one command.

        The command is data: it is put in as it stands, braces and all.
        """
        return Messages(self.system, self.template.replace(COMMAND_SLOT, command, 1))
