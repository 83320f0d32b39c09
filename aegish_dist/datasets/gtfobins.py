"""The malicious set from a checkout of GTFOBins.

Their data is GPL-3.0, so the project ships this importer and not an extract; the commit that was
read is recorded. An alias has the examples of the program it stands for, so it gives no samples
of its own and is named in the other's metadata.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from aegish_dist.core.sample import Sample, Target
from aegish_dist.datasets.draft import MAX_FILE_BYTES, Draft
from aegish_dist.datasets.gtfobins_commands import fill_in, inherited_command
from aegish_dist.datasets.gtfobins_file import OLDER_SUFFIX, Entry, Program, read_program
from aegish_dist.datasets.validation import CATEGORIES, Severity, problems
from aegish_dist.errors import DatasetError

MAX_FILES = 5_000
MAX_COMBINATIONS = 50_000
"""Of an entry with the commands of the program that it leads to; GTFOBins makes 900."""
MAX_STEPS = 10
"""From one program by others to the command."""
_INHERIT = "inherit"
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def read_gtfobins(path: Path) -> Draft:
    """Read a checkout of GTFOBins, as a draft whose records are the samples.

    Commands that work only with root's help (sudo, SUID, capabilities) are left out: a guard that
    sees only the command may rightly let some of them pass.

    Raises:
        DatasetError: This is no such checkout, or a file or a command in it is wrong; names the
            first one.
    """
    checkout = _Checkout(path / "_gtfobins", _read_programs(path))
    samples: dict[str, Sample] = {}
    for program in checkout.programs.values():
        for sample in checkout.samples(program):
            _check(sample, program.file)
            samples.setdefault(sample.command, sample)  # exact text, first wins
    if not samples:
        raise DatasetError("holds no samples", source=str(path))
    commit = _commit_of(path)
    source = f"GTFOBins, commit {commit}" if commit else "GTFOBins, unknown commit"
    lines = tuple(range(1, len(samples) + 1))
    return Draft("gtfobins", tuple(samples.values()), lines, str(path), source, "GPL-3.0")


def _read_programs(path: Path) -> dict[str, Program]:
    directory = path / "_gtfobins"
    if not directory.is_dir():
        problem = "has no _gtfobins directory; give the root of a GTFOBins checkout"
        raise DatasetError(problem, source=str(path))
    files = sorted(islice(_program_files(directory), MAX_FILES + 1))
    if len(files) > MAX_FILES:
        raise DatasetError(f"holds more than {MAX_FILES:,} files", source=str(directory))
    if sum(file.stat().st_size for file in files) > MAX_FILE_BYTES:
        problem = f"holds more than {MAX_FILE_BYTES // 2**20} MiB"
        raise DatasetError(problem, source=str(directory))
    older_first = sorted(files, key=lambda file: file.suffix != OLDER_SUFFIX)
    programs = {program.name: program for program in map(read_program, older_first)}
    return dict(sorted(programs.items()))


def _program_files(directory: Path) -> Iterator[Path]:
    """Yield the files of both layouts, as commits between them hold both; none of an editor's."""
    return (
        each for each in directory.iterdir() if each.is_file() and not each.name.startswith(".")
    )


@dataclass(slots=True)
class _Checkout:
    """All programs, and how they lead to each other."""

    directory: Path
    programs: dict[str, Program]
    combinations: int = 0

    def samples(self, program: Program) -> Iterator[Sample]:
        """Yield what a program can be used for."""
        others = self.programs.values()
        aliases = ",".join(each.name for each in others if each.alias_of == program.name)
        own = (entry for entry in program.entries if entry.function != _INHERIT)
        for entry in chain(own, self._inherited(program, (program.name,))):
            if entry.function in CATEGORIES and not entry.needs_root:
                yield _sample(program.name, entry, aliases)

    def _inherited(self, program: Program, seen: tuple[str, ...]) -> Iterator[Entry]:
        """The first command per function that each `inherit` entry leads to.

        One is enough: the other program's further examples differ in what it does, not in how this
        one gets there, and would only repeat it.
        """
        for entry in program.entries:
            other = self.programs.get(entry.inherits or "")
            if other is None or other.name in seen or len(seen) == MAX_STEPS:
                continue
            deeper = self._inherited(other, (*seen, other.name))
            theirs = (each for each in other.entries if each.function != _INHERIT)
            found: dict[str, Entry] = {}
            for combined in self._combined(entry, other.name, chain(theirs, deeper)):
                if not combined.needs_root:
                    found.setdefault(combined.function, combined)
            yield from found.values()

    def _combined(self, entry: Entry, other: str, theirs: Iterable[Entry]) -> Iterator[Entry]:
        self._count()
        for each in theirs:
            self._count()
            code = inherited_command(entry.code, other, each.code)
            if code is not None:
                needs_root = entry.needs_root or each.needs_root
                yield Entry(each.function, code, needs_root, entry.version, other)

    def _count(self) -> None:
        """Bound the work: programs that all lead to each other do so in endless ways."""
        self.combinations += 1
        if self.combinations > MAX_COMBINATIONS:
            problem = f"inherit entries lead to more than {MAX_COMBINATIONS:,} commands"
            raise DatasetError(problem, source=str(self.directory))


def _sample(binary: str, entry: Entry, aliases: str) -> Sample:
    metadata = {
        "version": entry.version,
        "inherits": entry.inherits,
        "aliases": aliases or None,
    }
    return Sample(
        command=fill_in(entry.code),
        target=Target.MALICIOUS,
        category=entry.function,
        cluster=binary,
        metadata={key: value for key, value in metadata.items() if value is not None},
    )


def _check(sample: Sample, file: Path) -> None:
    for problem in problems([sample]):
        if problem.severity is Severity.ERROR:
            raise DatasetError(
                problem.message, source=str(file), field=f"functions.{sample.category}"
            )


def _commit_of(checkout: Path) -> str | None:
    """Return the full id of the commit that is checked out, read from files, for no git is run."""
    git = checkout / ".git"
    if git.is_file():  # a worktree or submodule keeps its data elsewhere
        git = checkout / _read(git).removeprefix("gitdir:").strip()
    head = _read(git / "HEAD")
    if head.startswith("ref:"):
        head = _resolve(git, head.removeprefix("ref:").strip())
    return head if _COMMIT.fullmatch(head) else None


def _resolve(git: Path, ref: str) -> str:
    common = git / (_read(git / "commondir") or ".")
    loose = _read(git / ref) or _read(common / ref)
    if loose:
        return loose
    packed = re.search(rf"^(\S+) {re.escape(ref)}$", _read(common / "packed-refs"), re.MULTILINE)
    return packed[1] if packed else ""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
