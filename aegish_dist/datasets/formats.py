"""Importers of data that others publish: `formats.toml` lists them, each has a small reader here.

A reader goes through a checkout or file and yields samples. In place of what is no command for a
shell it yields the reason, and an error in place of what cannot be read. `read_format` leaves out
what could not be stored and what is repeated, and counts both. Nothing is downloaded.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, convert, field, toml

from aegish_dist.core.sample import MAX_COMMAND_CHARS, REPEATS, Sample, TrueLabel
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
    data = {name: path / each.inside for name, each in FORMATS.items() if each.inside}
    return next((name for name, inside in data.items() if inside.exists()), None)


def read_format(
    form: str, path: Path, name: str | None = None, label: TrueLabel | None = None
) -> Draft:
    """Read a checkout or file of a format, as a draft whose records are the samples."""
    about = FORMATS[form]
    in_checkout = bool(about.inside) and (path / about.inside).exists()
    data = path / about.inside if in_checkout else path
    if in_checkout:
        require_within(path, data)
    elif path.is_dir() and Path(about.inside).suffix:  # of one file
        raise DatasetError(f"holds no {about.inside}; give {about.takes}", source=str(path))
    skipped: list[DatasetError] = []
    left_out: Counter[str] = Counter()
    found = _READERS[about.reader or form](data, label or about.label or TrueLabel.HARMLESS)
    placed = tuple(islice(_usable(found, skipped, left_out), MAX_SAMPLES + 1))
    samples = tuple(sample for _, sample in placed)
    if not 0 < len(samples) <= MAX_SAMPLES:
        problem = f"more than {MAX_SAMPLES:,} samples are not read; give a part of it"
        missing = f"holds no samples; {skipped[0] if skipped else f'give {about.takes}'}"
        raise DatasetError(problem if samples else missing, source=str(path))
    commit = commit_of(path) if in_checkout else None
    return Draft(
        name=dataset_name(path, name or form),
        samples=samples,
        lines=tuple(line or number for number, (line, _) in enumerate(placed, 1)),
        file=str(path),
        source=f"{about.source}, commit {commit}" if commit else about.source,
        licence=about.licence,
        skipped=tuple(skipped),
        left_out=left_out,
    )


def _usable(found: Read, skipped: list[DatasetError], left_out: Counter[str]) -> Iterator[Placed]:
    """Yield what can be stored; a command with both labels stays, and stops an import."""
    seen: dict[tuple[str, TrueLabel], Sample] = {}
    for each in found:
        if isinstance(each, DatasetError):
            skipped.append(each)
        elif isinstance(each, str):
            left_out[each] += 1
        elif reason := _unusable(each[1], seen):
            left_out[reason] += 1
        else:
            yield each


def _unusable(sample: Sample, seen: dict[tuple[str, TrueLabel], Sample]) -> str | None:
    if not sample.command:
        return "empty"
    if len(sample.command) > MAX_COMMAND_CHARS:
        return f"longer than {MAX_COMMAND_CHARS:,} characters"
    first = seen.setdefault((sample.command, sample.target), sample)
    if first is not sample:
        if (number := sample.metadata.get("id")) and isinstance(first.metadata, dict):
            repeats = " ".join(filter(None, (first.metadata.get(REPEATS), number)))
            if len(REPEATS + repeats) <= MAX_COMMAND_CHARS:  # more could not be stored
                first.metadata[REPEATS] = repeats
        return "repeated"
    wrong = (each for each in problems([sample]) if each.severity is Severity.ERROR)
    return next((f"with a {each.field} that cannot be stored" for each in wrong), None)


def _sample(
    command: str, label: TrueLabel, category: str, cluster: str | None, **about: str
) -> Sample:
    kind = category if label is TrueLabel.MALICIOUS else None
    known = {key: text for key, text in about.items() if text}
    return Sample(command.strip(), label, kind, cluster, known)


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
    return found[1] if found else None


_SLOT = re.compile(r"#\{[^}]+\}")
_FOLDER = re.compile(r"\$?PathToAtomicsFolder")


class _Executor(Struct):
    name: str
    command: str | None = None


class _Test(Struct):
    name: str
    executor: _Executor
    supported_platforms: list[str] = field(default_factory=list)
    input_arguments: dict[str, dict[str, Any] | None] | None = None


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


def _atomic_sample(technique: str, test: _Test, label: TrueLabel) -> Placed | str:
    shell = test.executor.name.strip()
    if shell not in ("bash", "sh"):
        return "by hand" if shell == "manual" else "for another shell"
    command = test.executor.command or ""
    for name, argument in (test.input_arguments or {}).items():
        if argument and argument.get("default") is not None:
            command = command.replace(f"#{{{name}}}", str(argument["default"]))
    if _SLOT.search(command):
        return "with an argument that has no default"
    platforms = ",".join(test.supported_platforms)
    command = _FOLDER.sub("/opt/tests", command)
    return 0, _sample(command, label, technique, technique, test=test.name, platforms=platforms)


def _rows(path: Path) -> Iterator[tuple[Location, dict[str, Any]]]:
    """Yield the objects of a JSONL file of any length."""
    for number, line in numbered_lines(path, MAX_ROW_BYTES):
        location = Location(str(path), number)
        with location:
            values = parse_json(line)
        yield location, location.checked(values, dict[str, Any])


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
        about = {"id": case.id, "domain": case.domain, "rationale": case.rationale}
        sample = _sample(case.command, _LABELS[case.label], case.domain, case.family, **about)
        yield location.line or 0, sample


def _nl2bash(path: Path, label: TrueLabel) -> Read:
    with Location(str(path)):
        text = read_text(path, MAX_DOCUMENT_BYTES)
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        yield number, _sample(line, label, "", program_of(line))


def _redcode(path: Path, label: TrueLabel) -> Read:
    found = path.glob("*.json") if path.is_dir() else [path]
    for file in islice(sorted(found), MAX_FILES):
        require_within(path, file)
        location = Location(str(file))
        with location:
            document = parse_json(read_text(file, MAX_DOCUMENT_BYTES))
        for case in location.checked(document, list[dict[str, str]]):
            number = case.get("Index", "")
            scenario = f"scenario-{number.partition('_')[0]}"
            is_bash = case.get("Language") == "bash"
            sample = _sample(case.get("Code", ""), label, scenario, scenario, id=number)
            yield (0, sample) if is_bash else "in another language"


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
        verdict = row.label if isinstance(row.label, _Verdict) else _Verdict(row.label)
        label = _LABELS[verdict.verdict in ("risky", "deny")]
        source, licence = _TABLES["shellrisk"].get(row.source, (row.source, ""))
        command = row.actions[0].get("content", "") if row.actions else row.command
        about = {"id": row.id, "source": source, "licence": licence}
        category = verdict.source_label or row.source
        yield location.line or 0, _sample(command, label, category, program_of(command), **about)


_TOOLS = ("bash", "execute_bash", "shell", "terminal", "run_command")
_FENCE = re.compile(r"```(?:bash|sh|shell)[ \t]*\r?\n(.*?)```", re.DOTALL)
_CALL = re.compile(
    rf"<function=(?:{'|'.join(_TOOLS)})>\s*<parameter=command>(.*?)</parameter>", re.DOTALL
)
_REFERENCE = re.compile(r"\$\{?\d+\}?")
_NAMES = ("traj_id", "trajectory_id", "trial_id", "instance_id", "id")


def _trajectories(path: Path, label: TrueLabel) -> Read:
    for location, values in _rows(path):
        name = next((str(values[key]) for key in _NAMES if values.get(key)), str(location.line))
        commands = [command.strip() for command in _commands(location, values)]
        if not commands:
            yield "a run without a command"
        for command in commands:
            if _REFERENCE.fullmatch(command):
                yield "a reference in place of a command"
            else:
                program = program_of(command)
                sample = _sample(command, label, "agent", program, trajectory=name[:200])
                yield location.line or 0, sample


def _commands(location: Location, row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the commands of `messages` or `steps`, which may be JSON inside a text."""
    column = "messages" if "messages" in row else "steps"
    if column not in row:
        raise location.error("is missing, and so is steps", "messages")
    with location:
        turns = parse_json(row[column]) if isinstance(row[column], str) else row[column]
    for turn in location.checked(turns or [], list[dict[str, Any]], column):
        if turn.get("role", "assistant") != "assistant":
            continue
        content = turn.get("content")  # in parts, calls of tools are among them
        parts = [turn.get("tool_calls"), turn.get("tools"), content]
        calls = [call for each in parts if isinstance(each, list) for call in each]
        commands = [command for call in calls if (command := _command_of(call)) is not None]
        if isinstance(content, list):
            texts = (each.get("text") for each in content if isinstance(each, dict))
            content = "\n".join(text for text in texts if isinstance(text, str))
        if isinstance(content, str) and not commands:
            commands = _CALL.findall(content) or _FENCE.findall(content)
        yield from commands


def _command_of(call: Any) -> str | None:
    """Return the command of a call of a shell, as OpenAI, Anthropic or Terminal-Bench write it."""
    try:
        function = call.get("function", call)
        given = function.get("arguments", function.get("input", function))
        given = json.loads(given) if isinstance(given, str) else given
        command = given.get("command", given.get("cmd"))
        if isinstance(command, list) and command[:2] in (["bash", "-lc"], ["bash", "-c"]):
            command = command[2]
        is_shell = function.get("name", function.get("fn")) in _TOOLS
    except (AttributeError, IndexError, ValueError, RecursionError, TypeError):
        return None  # of another shape: no call of a shell
    return command if is_shell and isinstance(command, str) else None


_READERS: dict[str, Callable[[Path, TrueLabel], Read]] = {
    "atomic-red-team": _atomic,
    "lancet-bench-1": _lancet,
    "nl2bash": _nl2bash,
    "redcode-exec": _redcode,
    "shellrisk-bench": _shellrisk,
    "trajectories": _trajectories,
}
