"""Overlays in files: corrections of labels, each with a reason and an author."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from aegish_dist.core.opinion import LabelChange, Overlay
from aegish_dist.core.sample import MAX_COMMAND_CHARS, Target
from aegish_dist.errors import InputError
from aegish_dist.inputs.checking import checked
from aegish_dist.opinions.document import LabelText, Named, naming, read_document
from aegish_dist.opinions.toml import toml_text

_SAMPLE_ID = re.compile("[0-9a-f]{16}")


class _OverlayFile(Named, forbid_unknown_fields=True, kw_only=True):
    author: LabelText | None = None
    change: list[Any] | None = None


class _Change(Struct, forbid_unknown_fields=True, kw_only=True):
    dataset: LabelText
    sample: str | None = None
    command: Annotated[str, Meta(min_length=1, max_length=MAX_COMMAND_CHARS)] | None = None
    action: Literal["exclude", "relabel"]
    target: Target | None = None
    category: LabelText | None = None
    reason: Annotated[str, Meta(min_length=1, max_length=2000)]
    author: LabelText | None = None

    def __post_init__(self) -> None:
        """Refuse keys that contradict each other."""
        if self.sample is None and self.command is None:
            raise InputError("is missing; give the sample's id, or its `command`", field="sample")
        if self.sample is not None and not _SAMPLE_ID.fullmatch(self.sample):
            raise InputError("must be an id, 16 hexadecimal digits", field="sample")
        if self.action == "relabel" and self.target is None:
            raise InputError("is missing; give the right label", field="target")
        if self.action == "exclude" and self.target is not None:
            raise InputError("must not be given of a sample that is excluded", field="target")
        if self.category is not None and self.target is not Target.MALICIOUS:
            raise InputError("may be given of malicious samples alone", field="category")
        if not self.reason.strip():
            raise InputError("must not be empty", field="reason")


def read_overlay(path: Path) -> Overlay:
    """Read an overlay.

    Raises:
        OpinionError: It cannot be used; names file, change and key.
    """
    with naming(path):
        file = checked(read_document(path), _OverlayFile)
        changes = tuple(_changes(file))
        _require_distinct(changes)
        return Overlay(file.name, file.version, changes)


def render_overlay(overlay: Overlay) -> str:
    """Return an overlay as a file that reads back as the same one.

    The texts of a change are escaped, so that hostile commands neither leave their string nor
    deceive a reader.
    """
    head = f"name = {toml_text(overlay.name)}\nversion = {overlay.version}\n"
    return head + "".join(map(_rendered, overlay.changes))


def _changes(file: _OverlayFile) -> Iterator[LabelChange]:
    for number, keys in enumerate(file.change or (), start=1):
        try:
            change = checked(keys, _Change)
            author = change.author or file.author
            if author is None or not author.strip():
                problem = "is missing; give it here, or once at the top of the file"
                raise InputError(problem, field="author")
        except InputError as error:
            raise _of_change(number, error) from None
        yield LabelChange(
            dataset=change.dataset,
            sample_id=change.sample,
            command=change.command,
            target=change.target,
            category=change.category,
            reason=change.reason,
            author=author,
        )


def _of_change(number: int, error: InputError) -> InputError:
    what = f"{error}, not {error.found}" if error.found else str(error)
    return InputError(f"[[change]] entry {number}: {what}")


def _require_distinct(changes: Iterable[LabelChange]) -> None:
    """Refuse two changes of a sample; where one gives no id, the datasets of a run tell."""
    first: dict[tuple[str, str], int] = {}
    for number, change in enumerate(changes, start=1):
        sample = change.sample_id or f"command {change.command}"
        other = first.setdefault((change.dataset, sample), number)
        if other != number:
            raise InputError(
                f"[[change]] entries {other} and {number} are of one sample, {change} of dataset "
                f"'{change.dataset}'; keep one of them"
            )


def _rendered(change: LabelChange) -> str:
    keys = {
        "dataset": change.dataset,
        "sample": change.sample_id,
        "command": change.command,
        "action": "exclude" if change.excludes else "relabel",
        "target": change.target,
        "category": change.category,
        "reason": change.reason,
        "author": change.author,
    }
    lines = [f"{key} = {toml_text(text)}\n" for key, text in keys.items() if text is not None]
    return "\n[[change]]\n" + "".join(lines)
