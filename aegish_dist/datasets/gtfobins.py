"""The malicious set from a checkout of GTFOBins.

Their data is GPL-3.0, so the project ships this importer and not an extract; the commit that was
read is recorded. An alias is named in the metadata of the program it stands for. Since January 2026
a file is YAML without extension; before, it was Markdown with YAML at its head, where sudo and SUID
were functions beside the others.

`gtfobins.toml` has the values of placeholders. The data set that the reference benchmark published
was filled in otherwise in 129 of its 676 commands (commit 27f4632, root included). Two rules
explain 106 of them: there `DATA` became `c2VydmljZS1jb25maWc=`, and names such as
`/path/to/temp-file` lost their dash. In the other 23 placeholders stayed as they were (`xxx`,
`$PID`, `path/to/input-file`) or were repaired by hand.

An `inherit` entry says that one program lets its user into another. A command follows from it in
three cases; otherwise the entry yields none:

- the entry has a slot `...` for code, and the other program runs code given as `-c '...'`;
- the entry ends in the name of the other program, as in `busybox ash`;
- the entry leaves its user at the other program's prompt, where the same keys can be typed.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.resources import files
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct, toml

from aegish_dist.core.sample import MAX_COMMAND_CHARS, Sample, TrueLabel
from aegish_dist.core.text import known
from aegish_dist.datasets.draft import (
    CATEGORIES,
    MAX_FILE_BYTES,
    Draft,
    Severity,
    problems,
    variables_set,
)
from aegish_dist.errors import DatasetError
from aegish_dist.inputs.checking import Location
from aegish_dist.inputs.documents import read_text, require_within
from aegish_dist.inputs.yaml import parse_yaml

_SLOT = "..."
_TABLES: dict[str, dict[str, str]] = toml.decode(
    files(__package__).joinpath("gtfobins.toml").read_bytes()
)
_PATTERNS = [(re.compile(each), value) for each, value in _TABLES["patterns"].items()]


def fill_in(code: str) -> str:
    """Return a GTFOBins example as a command that could be typed."""
    for placeholder, value in _TABLES["texts"].items():
        code = code.replace(placeholder, value)
    given = variables_set(code)
    for pattern, value in _PATTERNS:
        code = pattern.sub(partial(_value, given, value), code)
    return code


def _value(given: frozenset[str], value: str, found: re.Match[str]) -> str:
    if found.groupdict().get("variable") in given:
        return found.group()
    return value


def inherited_command(entry: str, binary: str, command: str) -> str | None:
    """Combine an entry with a command of the program it leads to; None when no way is honest."""
    if _SLOT in entry:
        return _fill_slot(entry, binary, command)
    if entry.endswith(f" {binary}"):
        own = command == binary or command.startswith(f"{binary} ")
        return entry + command.removeprefix(binary) if own else None

    keys = _keys(binary, command)
    if keys is None:
        return None
    if "\n!" in entry:  # the entry already types its own way out
        if entry.endswith(f"\n{keys}"):
            return entry
        return None

    return f"{entry}\n{keys}"


def _fill_slot(entry: str, binary: str, command: str) -> str | None:
    match = re.fullmatch(rf"{re.escape(binary)} -[cer] '([^']*)'", command)
    if match is None or '"' in entry:
        return None
    code = match[1]
    if len(entry) + entry.count(_SLOT) * len(code) > MAX_COMMAND_CHARS:
        return None
    fits = "\n" not in code or f"'{_SLOT}'" in entry  # elsewhere a newline would end the slot
    if fits:
        return entry.replace(_SLOT, code)
    return None


def _keys(binary: str, command: str) -> str | None:
    """Return the keys that `command` types at the prompt of `binary`; None when it types none."""
    ex_command = re.fullmatch(rf"{re.escape(binary)} -c '(:[^']*)'(?: /dev/null)?", command)
    if ex_command:
        return ex_command[1]
    start, _, keys = command.partition("\n")
    # A file or a quote opened on the first line is part of what the rest does.
    alone = re.fullmatch(rf"{re.escape(binary)}(?: [^'\"<|]*)?", start)
    if keys and alone and "/path/to/" not in start:
        return keys
    return None


MAX_PROGRAM_BYTES = 2**18  # those of GTFOBins have up to 4 KiB
OLDER_SUFFIX = ".md"
_CONTEXTS = ("unprivileged", "sudo", "suid", "capabilities")
_INHERIT = "inherit"


class Entry(Struct, frozen=True):
    function: str
    code: str
    needs_root: bool  # only under sudo, with SUID or with capabilities
    version: str | None = None  # in words; None for all
    inherits: str | None = None  # program an `inherit` entry leads to


class Binary(Struct, frozen=True):
    name: str
    file: Path
    alias_of: str | None  # another program with the same examples
    entries: list[Entry] = []
    skipped: list[DatasetError] = []  # one for each entry that cannot be read

    @contextmanager
    def skipping(self) -> Iterator[None]:
        """Keep the error of an entry that cannot be read."""
        try:
            yield
        except DatasetError as error:
            self.skipped.append(error)


class _Context(Struct):
    code: str | None = None


class _Example(Struct, rename={"program": "from"}):
    code: str | None = None
    program: str | None = None
    version: Any = None
    contexts: Any = None


class _File(Struct):
    alias: str | None = None
    functions: Any = None


Node = TypeVar("Node", _File, _Example, _Context)


def read_program(path: Path) -> Binary:
    location = Location(str(path))
    with location:
        document = parse_yaml(read_text(path, MAX_PROGRAM_BYTES))
    file = _node(location, document, _File)
    binary = Binary(path.name.removesuffix(OLDER_SUFFIX), path, file.alias or None)
    if binary.alias_of:
        return binary
    # One function that cannot be read spoils no other.
    for function, examples in _mapping(location, file.functions, "functions").items():
        field = f"functions.{function}"
        with binary.skipping():
            for index, example in enumerate(location.checked(examples, list[Any], field)):
                with binary.skipping():
                    entry = _entry(location, f"{field}[{index}]", function, example)
                    binary.entries.append(entry)

    return binary


def _entry(
    location: Location,
    field: str,
    function: str,
    value: object,
) -> Entry:
    example = _node(location, value, _Example, field)
    contexts = _mapping(location, example.contexts, f"{field}.contexts")
    usable = [name for name in _CONTEXTS if name in contexts] or ["unprivileged"]
    # A command that also works without root's help needs none.
    easiest = usable[0]
    context = _node(location, contexts.get(easiest), _Context, f"{field}.contexts.{easiest}")
    code = context.code or example.code or ""
    if not code:
        raise location.error("is missing", f"{field}.code")
    if function == _INHERIT and not example.program:
        raise location.error("is missing", f"{field}.from")
    if len(code) > MAX_COMMAND_CHARS:
        raise location.error(f"has more than {MAX_COMMAND_CHARS:,} characters", f"{field}.code")
    return Entry(
        function=_TABLES["functions"].get(function, function),
        code=code.strip(),
        needs_root="unprivileged" not in usable,
        version=None if example.version is None else str(example.version),
        inherits=example.program or None,
    )


def _node(
    location: Location,
    value: object,
    kind: type[Node],
    field: str | None = None,
) -> Node:
    """Check the keys of a mapping that are read; others may be and hold anything."""
    mapping = _mapping(location, value, field)
    read = {key: mapping[key] for key in kind.__struct_encode_fields__ if key in mapping}
    return location.checked(read, kind, field)


def _mapping(
    location: Location,
    value: object,
    field: str | None,
) -> dict[Any, Any]:
    if value is None:
        return {}
    return location.checked(value, dict[Any, Any], field)


MAX_FILES = 5_000
MAX_COMBINATIONS = 50_000  # of an entry with the commands it leads to; GTFOBins makes 900
MAX_STEPS = 10  # from one program by others to the command
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def read_gtfobins(path: Path) -> Draft:
    """Read a checkout, as a draft whose records are the samples.

    Commands that work only with root's help (sudo, SUID, capabilities) are left out: a guard that
    sees only the command may rightly let some of them pass. A file or an entry that cannot be read
    is skipped, as one commit in thirty has one.

    Raises:
        DatasetError: There is no sample, or too much to read.
    """
    with Location(str(path)):
        programs, skipped = _read_programs(path / "_gtfobins")
    checkout = _Checkout(path / "_gtfobins", programs)
    samples: dict[str, Sample] = {}
    for program in checkout.programs.values():
        skipped += program.skipped
        for sample in checkout.samples(program):
            found = problems([sample])
            errors = [problem for problem in found if problem.severity is Severity.ERROR]
            if errors:
                field = f"functions.{sample.category}"
                skipped.append(Location(str(program.file)).error(errors[0].message, field))
            else:
                samples.setdefault(sample.command, sample)  # exact text, first wins

    if not samples:
        problem = "holds no samples"
        if skipped:
            problem += f"; {skipped[0]}"
        raise DatasetError(problem, source=str(path))

    commit = commit_of(path)
    return Draft(
        name="gtfobins",
        samples=tuple(samples.values()),
        lines=tuple(range(1, len(samples) + 1)),
        file=str(path),
        source=f"GTFOBins, commit {commit}" if commit else "GTFOBins, unknown commit",
        licence="GPL-3.0",
        skipped=tuple(skipped),
    )


def _read_programs(directory: Path) -> tuple[dict[str, Binary], list[DatasetError]]:
    """Return the programs by name, and why files were skipped."""
    if not directory.is_dir():
        missing = "has no _gtfobins directory; give the root of a GTFOBins checkout"
        raise DatasetError(missing, source=str(directory.parent))

    # The files of both layouts, as commits between them hold both; none of an editor's. One more
    # than is read tells that there are too many.
    files = sorted(islice(_visible(directory), MAX_FILES + 1))
    for file in files:
        require_within(directory, file)
    if len(files) > MAX_FILES:
        raise DatasetError(f"holds more than {MAX_FILES:,} files", source=str(directory))
    if sum(file.stat().st_size for file in files) > MAX_FILE_BYTES:
        problem = f"holds more than {MAX_FILE_BYTES // 2**20} MiB"
        raise DatasetError(problem, source=str(directory))

    files.sort(key=lambda file: file.suffix != OLDER_SUFFIX)  # the older layout first
    programs: dict[str, Binary] = {}
    skipped: list[DatasetError] = []
    for file in files:
        try:
            program = read_program(file)
        except DatasetError as error:
            skipped.append(error)
        else:
            programs[program.name] = program

    return dict(sorted(programs.items())), skipped


def _visible(directory: Path) -> Iterator[Path]:
    for file in directory.iterdir():
        if not file.name.startswith(".") and file.is_file():
            yield file


class _Checkout(Struct):
    directory: Path
    programs: dict[str, Binary]
    combinations: int = 0

    def samples(self, program: Binary) -> Iterator[Sample]:
        others = self.programs.values()
        aliases = ",".join(other.name for other in others if other.alias_of == program.name)
        own = (entry for entry in program.entries if entry.function != _INHERIT)
        for entry in chain(own, self._inherited(program, (program.name,))):
            if entry.function not in CATEGORIES or entry.needs_root:
                continue
            labels = {
                "version": entry.version,
                "inherits": entry.inherits,
                "aliases": aliases or None,
            }
            yield Sample(
                command=fill_in(entry.code),
                target=TrueLabel.MALICIOUS,
                category=entry.function,
                cluster=program.name,
                metadata=known(labels),
            )

    def _inherited(self, program: Binary, seen: tuple[str, ...]) -> Iterator[Entry]:
        """The first command per function of each `inherit` entry; others would repeat it."""
        for entry in program.entries:
            other = self.programs.get(entry.inherits or "")
            if other is None or other.name in seen or len(seen) == MAX_STEPS:
                continue
            deeper = self._inherited(other, (*seen, other.name))
            theirs = (own for own in other.entries if own.function != _INHERIT)
            first: dict[str, Entry] = {}  # by function
            for combined in self._combined(entry, other.name, chain(theirs, deeper)):
                if not combined.needs_root:
                    first.setdefault(combined.function, combined)
            yield from first.values()

    def _combined(
        self,
        entry: Entry,
        other: str,
        theirs: Iterable[Entry],
    ) -> Iterator[Entry]:
        self._count()
        for theirs_entry in theirs:
            self._count()
            code = inherited_command(entry.code, other, theirs_entry.code)
            if code is not None:
                yield Entry(
                    function=theirs_entry.function,
                    code=code,
                    needs_root=entry.needs_root or theirs_entry.needs_root,
                    version=entry.version,
                    inherits=other,
                )

    def _count(self) -> None:
        """Bound the work: programs that all lead to each other do so in endless ways."""
        self.combinations += 1
        if self.combinations > MAX_COMBINATIONS:
            problem = f"inherit entries lead to more than {MAX_COMBINATIONS:,} commands"
            raise DatasetError(problem, source=str(self.directory))


def commit_of(checkout: Path) -> str | None:
    """Return the full id of the commit that is checked out, without git."""
    git = checkout / ".git"
    if git.is_file():  # a worktree or submodule keeps its data elsewhere
        git = checkout / _read(git).removeprefix("gitdir:").strip()
    head = _read(git / "HEAD")
    if head.startswith("ref:"):
        ref = head.removeprefix("ref:").strip()
        # Where a worktree shares what belongs to no worktree alone.
        shared = git / (_read(git / "commondir") or ".")
        head = _read(git / ref) or _read(shared / ref) or _packed(shared, ref)

    if _COMMIT.fullmatch(head):
        return head
    return None


def _packed(git: Path, ref: str) -> str:
    packed = _read(git / "packed-refs")
    found = re.search(rf"^(\S+) {re.escape(ref)}$", packed, re.MULTILINE)
    if found:
        return found[1]
    return ""


def _read(path: Path) -> str:
    """Return a text without the space around it; empty where there is none."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
