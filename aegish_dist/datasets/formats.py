"""Importers of data that others publish: `formats.toml` lists them, each has a small reader here.

A reader goes through a checkout or file and yields samples. In place of what is no command for a
shell it yields the reason, and an error in place of what cannot be read. `read_format` leaves out
what could not be stored and what is repeated, and counts both. Nothing is downloaded.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, convert, field, toml

from aegish_dist.core.sample import MAX_COMMAND_CHARS, REPEATS, Sample, TrueLabel
from aegish_dist.core.text import JsonObject
from aegish_dist.datasets.draft import MAX_SAMPLES, Draft, Severity, dataset_name, problems
from aegish_dist.datasets.gtfobins import MAX_FILES, commit_of
from aegish_dist.errors import DatasetError
from aegish_dist.inputs.checking import Location
from aegish_dist.inputs.documents import numbered_lines, parse_json, read_text, require_within
from aegish_dist.inputs.yaml import parse_yaml

MAX_DOCUMENT_BYTES = 4 * 2**20  # of a file that is parsed as a whole
MAX_ROW_BYTES = 16 * 2**20  # of a line of JSON; trajectories have a quarter of a MiB

Placed = tuple[int, Sample]  # with its line in a file that has a sample a line, else 0
Read = Iterator[Placed | str | DatasetError]
_LABELS = (TrueLabel.HARMLESS, TrueLabel.MALICIOUS)  # by whether a command is dangerous


class Format(Struct, frozen=True):
    source: str
    takes: str  # the file or folder, in words
    example: str  # what follows the name on the command line
    licence: str = ""  # SPDX identifier or a sentence; empty where it differs by sample
    inside: str = ""  # path of the data in a checkout; empty where there is none
    label: TrueLabel | None = None  # None: the data say it or, where it is `declared`, the user
    declared: bool = False
    reader: str = ""  # the format whose reader it uses; empty: its own


_TABLES = toml.decode(files(__package__).joinpath("formats.toml").read_bytes())
FORMATS = convert(_TABLES["formats"], dict[str, Format])


def format_of_checkout(path: Path) -> str | None:
    """Return the format whose data a folder holds; None where it is a checkout of none."""
    for name, about in FORMATS.items():
        if about.inside and (path / about.inside).exists():
            return name
    return None


def read_format(
    form: str,
    path: Path,
    name: str | None = None,
    label: TrueLabel | None = None,
) -> Draft:
    """Read a checkout or file of a format, as a draft whose records are the samples."""
    about = FORMATS[form]
    with Location(str(path)):
        data = _data(about, path)
    read = _READERS[about.reader or form]
    usable = _Usable()
    lines: list[int] = []
    samples: list[Sample] = []
    for line, sample in usable.of(read(data, label or about.label or TrueLabel.HARMLESS)):
        samples.append(sample)
        lines.append(line or len(samples))
        if len(samples) > MAX_SAMPLES:
            problem = f"more than {MAX_SAMPLES:,} samples are not read; give a part of it"
            raise DatasetError(problem, source=str(path))

    if not samples:
        why = usable.skipped[0] if usable.skipped else f"give {about.takes}"
        raise DatasetError(f"holds no samples; {why}", source=str(path))

    source = about.source
    if data is not path and (commit := commit_of(path)):
        source += f", commit {commit}"
    return Draft(
        name=dataset_name(path, name or form),
        samples=tuple(samples),
        lines=tuple(lines),
        file=str(path),
        source=source,
        licence=about.licence,
        skipped=tuple(usable.skipped),
        left_out=usable.left_out,
    )


def _data(about: Format, path: Path) -> Path:
    """Return where the data of a format are: within a checkout, or the path itself."""
    inside = path / about.inside
    if about.inside and inside.exists():
        require_within(path, inside)
        return inside
    if path.is_dir() and Path(about.inside).suffix:  # of one file
        raise DatasetError(f"holds no {about.inside}; give {about.takes}", source=str(path))
    return path


class _Usable:
    """Chooses what can be stored, and counts the rest by reason."""

    def __init__(self) -> None:
        self.skipped: list[DatasetError] = []
        self.left_out: Counter[str] = Counter()
        self._seen: dict[tuple[str, TrueLabel], Sample] = {}

    def of(self, read: Read) -> Iterator[Placed]:
        """Yield what can be stored; a command with both labels stays, and stops an import."""
        for each in read:
            if isinstance(each, DatasetError):
                self.skipped.append(each)
            elif isinstance(each, str):
                self.left_out[each] += 1
            elif reason := self._problem(each[1]):
                self.left_out[reason] += 1
            else:
                yield each

    def _problem(self, sample: Sample) -> str | None:
        if not sample.command:
            return "empty"
        if len(sample.command) > MAX_COMMAND_CHARS:
            return f"longer than {MAX_COMMAND_CHARS:,} characters"
        first = self._seen.setdefault((sample.command, sample.target), sample)
        if first is not sample:
            _note_repeat(first, sample)
            return "repeated"

        for problem in problems([sample]):
            if problem.severity is Severity.ERROR:
                return f"with a {problem.field} that cannot be stored"

        return None


def _note_repeat(first: Sample, repeat: Sample) -> None:
    """Add the id of a repeat to those that the first sample of the command has noted."""
    number = repeat.metadata.get("id")
    if number and isinstance(first.metadata, dict):
        repeats = f"{first.metadata.get(REPEATS, '')} {number}".strip()
        if len(REPEATS + repeats) <= MAX_COMMAND_CHARS:  # more could not be stored
            first.metadata[REPEATS] = repeats


def _sample(
    command: str, label: TrueLabel, category: str, cluster: str | None, **about: str
) -> Sample:
    return Sample(
        command=command.strip(),
        target=label,
        category=category if label is TrueLabel.MALICIOUS else None,
        cluster=cluster,
        metadata={key: text for key, text in about.items() if text},
    )


_SKIPPED_WORDS = re.compile(
    r"[({!\s]+|\w+=(?:'[^']*'|\"[^\"]*\"|[^\s'\"])*\s|(?:sudo|env|time|nohup|exec|command)\s"
    r"|timeout(?:\s+(?:-\S+|[A-Z\d.]+[smhd]?))+\s|(?:cd|export|set|source|mkdir)\s[^;&|\n]*(?:&&|;|\n)|#[^\n]*\n"
)
_PROGRAM = re.compile(r"(?:[^\s;&|<>()'\"`$]*/)?([\w.\[][\w.+-]{0,99})(?=[\s;&|<>()]|$)")


def program_of(command: str) -> str | None:
    """Return the program that a command runs first, past `cd` and wrappers; None if unclear."""
    start = 0
    while skipped := _SKIPPED_WORDS.match(command, start):
        start = skipped.end()
    found = _PROGRAM.match(command, start)
    if found:
        return found[1]
    return None


_SLOT = re.compile(r"#\{[^}]+\}")
_FOLDER = re.compile(r"\$?PathToAtomicsFolder")


class _Executor(Struct):
    name: str
    command: str | None = None


class _Test(Struct):
    name: str
    executor: _Executor
    supported_platforms: list[str] = field(default_factory=list)
    input_arguments: dict[str, JsonObject | None] | None = None


class _Technique(Struct):
    attack_technique: str
    atomic_tests: list[_Test]


def _atomic(path: Path, label: TrueLabel) -> Read:
    for file in islice(sorted(path.glob("T*/T*.yaml")), MAX_FILES):
        location = Location(str(file))
        try:
            require_within(path, file)
            with location:
                document = parse_yaml(read_text(file, MAX_DOCUMENT_BYTES))
            technique = location.checked(document, _Technique)
        except DatasetError as error:
            yield error
        else:
            for test in technique.atomic_tests:
                yield _atomic_sample(technique.attack_technique, test, label)


def _atomic_sample(
    technique: str,
    test: _Test,
    label: TrueLabel,
) -> Placed | str:
    # Tests by hand are instructions for a person, others are for PowerShell and the like.
    shell = test.executor.name.strip()
    if shell == "manual":
        return "by hand"
    if shell not in ("bash", "sh"):
        return "for another shell"
    command = test.executor.command or ""
    for name, argument in (test.input_arguments or {}).items():
        default = argument.get("default") if argument else None
        if default is not None:
            command = command.replace(f"#{{{name}}}", str(default))

    if _SLOT.search(command):
        return "with an argument that has no default"
    sample = _sample(
        _FOLDER.sub("/opt/tests", command),
        label,
        category=technique,
        cluster=technique,
        test=test.name,
        platforms=",".join(test.supported_platforms),
    )
    return 0, sample


def _rows(path: Path) -> Iterator[tuple[Location, JsonObject]]:
    """Yield the objects of a JSONL file of any length."""
    for number, line in numbered_lines(path, MAX_ROW_BYTES):
        location = Location(str(path), number)
        with location:
            values = parse_json(line)
        yield location, location.checked(values, JsonObject)


class _LancetCase(Struct):
    id: str
    command: str
    label: Literal[0, 1]
    domain: str
    family: str
    rationale: str = ""


def _lancet(path: Path, _label: TrueLabel) -> Read:
    for location, values in _rows(path):
        case = location.checked(values, _LancetCase)
        sample = _sample(
            case.command,
            _LABELS[case.label],
            category=case.domain,
            cluster=case.family,
            id=case.id,
            domain=case.domain,
            rationale=case.rationale,
        )
        yield location.line or 0, sample


def _nl2bash(path: Path, label: TrueLabel) -> Read:
    with Location(str(path)):
        text = read_text(path, MAX_DOCUMENT_BYTES)
    lines = text.removesuffix("\n").split("\n")
    for number, line in enumerate(lines, 1):
        yield number, _sample(line, label, category="", cluster=program_of(line))


def _redcode(path: Path, label: TrueLabel) -> Read:
    files_of_cases = sorted(path.glob("*.json")) if path.is_dir() else [path]
    for file in files_of_cases[:MAX_FILES]:
        require_within(path, file)
        location = Location(str(file))
        with location:
            document = parse_json(read_text(file, MAX_DOCUMENT_BYTES))
        for case in location.checked(document, list[dict[str, str]]):
            if case.get("Language") != "bash":
                yield "in another language"
                continue
            number = case.get("Index", "")
            of_scenario, _, _ = number.partition("_")
            scenario = f"scenario-{of_scenario}"
            sample = _sample(
                case.get("Code", ""),
                label,
                category=scenario,
                cluster=scenario,
                id=number,
            )
            yield 0, sample


_Risk = Literal["not_risky", "risky", "allow", "deny"]


class _Verdict(Struct):
    verdict: _Risk
    source_label: str = ""


class _ShellRiskRow(Struct):
    """A row of a split, or one of an adapter, whose command stands in `actions`."""

    id: str
    source: str
    label: _Risk | _Verdict
    command: str = ""
    actions: list[dict[str, str]] = field(default_factory=list)
    layer: str = "command"


def _shellrisk(path: Path, _label: TrueLabel) -> Read:
    for location, values in _rows(path):
        row = location.checked(values, _ShellRiskRow)
        if row.layer != "command":
            yield "a script of several lines"
            continue
        verdict = row.label
        if not isinstance(verdict, _Verdict):
            verdict = _Verdict(verdict)
        command = row.command
        if row.actions:
            command = row.actions[0].get("content", "")
        source, licence = _TABLES["shellrisk"].get(row.source, (row.source, ""))
        sample = _sample(
            command,
            _LABELS[verdict.verdict in ("risky", "deny")],
            category=verdict.source_label or row.source,
            cluster=program_of(command),
            id=row.id,
            source=source,
            licence=licence,
        )
        yield location.line or 0, sample


_TOOLS = ("bash", "execute_bash", "shell", "terminal", "run_command")
_FENCE = re.compile(r"```(?:bash|sh|shell)[ \t]*\r?\n(.*?)```", re.DOTALL)
_CALL = re.compile(
    rf"<function=(?:{'|'.join(_TOOLS)})>\s*<parameter=command>(.*?)</parameter>", re.DOTALL
)
_REFERENCE = re.compile(r"\$\{?\d+\}?")
_NAMES = ("traj_id", "trajectory_id", "trial_id", "instance_id", "id")


def _trajectories(path: Path, label: TrueLabel) -> Read:
    for location, values in _rows(path):
        names = [str(values[key]) for key in _NAMES if values.get(key)]
        name = names[0] if names else str(location.line)
        commands = [command.strip() for command in _commands(location, values)]
        if not commands:
            yield "a run without a command"
        for command in commands:
            if _REFERENCE.fullmatch(command):
                yield "a reference in place of a command"
                continue
            sample = _sample(
                command,
                label,
                category="agent",
                cluster=program_of(command),
                trajectory=name[:200],
            )
            yield location.line or 0, sample


def _commands(location: Location, row: JsonObject) -> Iterator[str]:
    """Yield the commands of `messages` or `steps`, which may be JSON inside a text."""
    column = "messages" if "messages" in row else "steps"
    if column not in row:
        raise location.error("is missing, and so is steps", "messages")
    turns = row[column]
    # Tables of trajectories hold the turns as JSON in a text.
    if isinstance(turns, str):
        with location:
            turns = parse_json(turns)

    for turn in location.checked(turns or [], list[JsonObject], column):
        if turn.get("role", "assistant") == "assistant":
            yield from _commands_of(turn)


def _commands_of(turn: JsonObject) -> list[str]:
    """Return the commands of the calls in a turn, else those that stand in its text."""
    content = turn.get("content")  # in parts, calls of tools are among them
    commands: list[str] = []
    for calls in (turn.get("tool_calls"), turn.get("tools"), content):
        if isinstance(calls, list):
            found = map(_command_of, calls)
            commands += [command for command in found if command is not None]

    if commands:
        return commands
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        content = "\n".join(text for text in texts if isinstance(text, str))

    if not isinstance(content, str):
        return []
    return _CALL.findall(content) or _FENCE.findall(content)


def _command_of(call: Any) -> str | None:
    """Return the command of a call of a shell, as OpenAI, Anthropic or Terminal-Bench write it."""
    try:
        function = call.get("function", call)
        arguments = function.get("arguments", function.get("input", function))
        if isinstance(arguments, str):
            arguments = json.loads(arguments)
        command = arguments.get("command", arguments.get("cmd"))
        if isinstance(command, list) and command[:2] in (["bash", "-lc"], ["bash", "-c"]):
            command = command[2]
        is_shell = function.get("name", function.get("fn")) in _TOOLS
    except (AttributeError, IndexError, ValueError, RecursionError, TypeError):
        return None  # of another shape: no call of a shell

    if is_shell and isinstance(command, str):
        return command
    return None


_READERS: dict[str, Callable[[Path, TrueLabel], Read]] = {
    "atomic-red-team": _atomic,
    "lancet-bench-1": _lancet,
    "nl2bash": _nl2bash,
    "redcode-exec": _redcode,
    "shellrisk-bench": _shellrisk,
    "trajectories": _trajectories,
}
