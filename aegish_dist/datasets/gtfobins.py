"""The malicious set from a checkout of GTFOBins.

Their data is GPL-3.0, so the project ships this importer and not an extract; the commit that was
read is recorded. An alias has the examples of the program it stands for, so it gives no samples
of its own and is named in the other's metadata.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from aegish_dist.core.sample import Dataset, Sample, Target
from aegish_dist.datasets.checkout import commit_of
from aegish_dist.datasets.gtfobins_file import Entry, Program, read_program
from aegish_dist.datasets.inherit import inherited_command
from aegish_dist.datasets.placeholders import fill_in
from aegish_dist.datasets.validation import CATEGORIES, Severity, problems
from aegish_dist.errors import DatasetError

_INHERIT = "inherit"


def import_gtfobins(path: Path, include_root: bool = False) -> Dataset:
    """Read and check a checkout of GTFOBins.

    Args:
        path: The root of the checkout, which holds `_gtfobins`.
        include_root: Whether to keep commands that work only with root's help (sudo, SUID,
            capabilities). They are labelled `needs_root`; a guard that sees only the command may
            rightly let some of them pass.

    Raises:
        DatasetError: When this is no such checkout, or for the first file that is wrong.
    """
    programs = _read_programs(path)
    samples: dict[str, Sample] = {}
    for program in programs.values():
        for sample in _samples(program, programs, include_root):
            _check(sample, path / "_gtfobins" / program.name)
            samples.setdefault(sample.command, sample)  # exact text, first wins
    if not samples:
        raise DatasetError("holds no samples", source=str(path))
    commit = commit_of(path)
    source = f"GTFOBins, commit {commit}" if commit else "GTFOBins, unknown commit"
    return Dataset("gtfobins", tuple(samples.values()), source, "GPL-3.0")


def _read_programs(path: Path) -> dict[str, Program]:
    directory = path / "_gtfobins"
    if not directory.is_dir():
        problem = "has no _gtfobins directory; give the root of a GTFOBins checkout"
        raise DatasetError(problem, source=str(path))
    files = sorted(file for file in directory.iterdir() if file.is_file())
    for file in files:
        if file.suffix in (".md", ".yml", ".yaml"):
            problem = "is of an older layout; check out a GTFOBins of 2026 or later"
            raise DatasetError(problem, source=str(file))
    return {file.name: read_program(file) for file in files}


def _samples(
    program: Program, programs: dict[str, Program], include_root: bool
) -> Iterator[Sample]:
    aliases = ",".join(each.name for each in programs.values() if each.alias_of == program.name)
    own = (entry for entry in program.entries if entry.function != _INHERIT)
    for entry in chain(own, _inherited(program, programs, include_root, (program.name,))):
        if entry.function in CATEGORIES and (include_root or not entry.needs_root):
            yield _sample(program.name, entry, aliases)


def _inherited(
    program: Program, programs: dict[str, Program], include_root: bool, seen: tuple[str, ...]
) -> Iterator[Entry]:
    """The first command per function that each `inherit` entry leads to.

    One is enough: the other program's further examples differ in what it does, not in how this
    one gets there, and would only repeat it.
    """
    for entry in program.entries:
        if entry.inherits is None or entry.inherits in seen or entry.inherits not in programs:
            continue
        other = programs[entry.inherits]
        deeper = _inherited(other, programs, include_root, (*seen, other.name))
        theirs = (each for each in other.entries if each.function != _INHERIT)
        found: dict[str, Entry] = {}
        for combined in _combined(entry, other.name, chain(theirs, deeper)):
            if include_root or not combined.needs_root:
                found.setdefault(combined.function, combined)
        yield from found.values()


def _combined(entry: Entry, other: str, theirs: Iterable[Entry]) -> Iterator[Entry]:
    for each in theirs:
        code = inherited_command(entry.code, other, each.code)
        if code is not None:
            needs_root = entry.needs_root or each.needs_root
            yield Entry(each.function, code, needs_root, entry.version, other)


def _sample(binary: str, entry: Entry, aliases: str) -> Sample:
    metadata = {
        "needs_root": "true" if entry.needs_root else None,
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
