"""The verdicts of a run: those that meet some conditions, about one command, and read again.

Reading again calls no model. Only the parsed columns change, a batch of verdicts per transaction;
the completions stay as they came. Snapshots that were made before stay too, and the next report
counts again. Workers may go on meanwhile, and a second reparse does no harm: it waits for each
batch, and finds nothing to change.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import groupby, islice

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist.core.model import ModelSpec, WireFormat
from aegish_dist.core.outcome import Outcome, ScoredAnswer
from aegish_dist.core.output import Output
from aegish_dist.core.run import Run
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.status import TimedFailures
from aegish_dist.core.text import did_you_mean, shortened
from aegish_dist.core.verdict import Completion
from aegish_dist.db.engine import execute, in_transaction, transaction
from aegish_dist.db.progress import failures_by_time
from aegish_dist.db.runs import PerModel, load_run, save_spec
from aegish_dist.db.schema import VerdictKey
from aegish_dist.db.snapshots import find_snapshot
from aegish_dist.db.verdict_reader import (
    FoundSample,
    SqlScoring,
    categories_of,
    find_samples,
    read_about,
    read_verdicts,
)
from aegish_dist.db.verdicts import Reading, StoredAnswer, next_answers, settle, write_readings
from aegish_dist.errors import ConfigError, ReportError, StoreError
from aegish_dist.opinions.mapping import FIRST_VERSION, tokens_of
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.parsing import judge
from aegish_dist.opinions.scoring import ScoringRule
from aegish_dist.opinions.verdict_query import (
    Correctness,
    JudgedVerdict,
    ListedPart,
    ShownSample,
    VerdictFilter,
)
from aegish_dist.pipeline.observer import SILENT, Observer
from aegish_dist.pipeline.opinions import overlay_of
from aegish_dist.pipeline.runs import require_asked, require_names

COUNTED = 10_000  # verdicts beyond the limit that are counted; what is more is not read
CANDIDATES = 5
CANDIDATE_CHARS = 40


def list_verdicts(
    engine: Engine,
    run_id: str,
    chosen: VerdictFilter,
    opinion: Opinion,
    limit: int = 0,
    *,
    before: Opinion | None = None,
) -> Generator[ListedPart, None, None]:
    """Yield the verdicts of a run that meet some conditions, by dataset, sample, model and epoch.

    Of an item the verdict of its newest generation counts.

    Args:
        limit: Verdicts at most; 0: all. Up to `COUNTED` further ones are counted.
        before: Another opinion: only verdicts that the two judge differently are listed.

    Yields:
        Parts of the list; few of them are in memory at a time.

    Raises:
        ConfigError: The limit is below 0.
        StoreError: The run has no such model, dataset or category.
    """
    if limit < 0:
        raise ConfigError(f"a limit is 0, for all verdicts, or more, not {limit}")
    with transaction(engine, isolation_level="REPEATABLE READ") as session:
        run = load_run(session, run_id)
        require_asked(run, (*chosen.models, *chosen.missed_by), chosen.datasets)
        if chosen.categories:
            known = categories_of(session, run_id)
            require_names(run, "category", sorted(chosen.categories), known)
        yield from read_verdicts(
            session,
            run,
            _judgement(session, run, opinion),
            chosen,
            before=None if before is None else _judgement(session, run, before),
            limit=limit or None,
            counted=COUNTED,
        )


def list_commands(
    engine: Engine,
    run_id: str,
    chosen: VerdictFilter,
    opinion: Opinion,
    limit: int = 0,
    *,
    before: Opinion | None = None,
) -> tuple[list[list[JudgedVerdict]], int]:
    """Return what `list_verdicts` yields by command, and the number of verdicts beyond the limit.

    The limit is of commands, 0 for all. Among wrong verdicts malicious commands come first.
    """
    run = in_transaction(engine, load_run, run_id)
    # So many verdicts are of at least `limit` commands.
    most = limit * run.epochs * len(chosen.models or run.models)
    filters = [chosen]
    if chosen.correctness == {Correctness.WRONG} and not chosen.targets:
        # An attack that was let through is graver than a harmless command that was stopped.
        malicious_first = (TrueLabel.MALICIOUS, TrueLabel.HARMLESS)
        filters = [replace(chosen, targets=frozenset({target})) for target in malicious_first]
    matched = 0
    verdicts: list[JudgedVerdict] = []
    for wanted in filters:
        for part in list_verdicts(engine, run_id, wanted, opinion, most, before=before):
            matched += part.matched
            verdicts += part.verdicts
    groups = groupby(verdicts, lambda verdict: (verdict.dataset, verdict.sample_id))
    commands = [list(group) for _, group in islice(groups, limit or None)]
    return commands, matched - sum(map(len, commands))


def _judgement(session: Session, run: Run, opinion: Opinion) -> SqlScoring:
    return SqlScoring(opinion.rule, overlay_of(session, run, opinion).values)


def opinions_of_snapshots(engine: Engine, a: int, b: int) -> tuple[str, Opinion, Opinion]:
    """Return the run of two snapshots, and the opinion of each.

    Raises:
        ReportError: There is no such snapshot, this version does not know its rule set, or the two
            are of different runs.
    """
    with transaction(engine) as session:
        run_a, of_a = _opinion_of(session, a)
        run_b, of_b = _opinion_of(session, b)
    if run_a != run_b:
        raise ReportError(
            f"--changed-between: snapshot {a} is of run {run_a} and snapshot {b} of run {run_b}; "
            "choose two of one run"
        )
    return run_a, of_a, of_b


def _opinion_of(session: Session, number: int) -> tuple[str, Opinion]:
    snapshot = find_snapshot(session, snapshot_id=number)
    if snapshot is None:
        raise ReportError(
            f"--changed-between: there is no snapshot {number}; `aegish-dist aggregate` makes them"
        )
    if snapshot.opinion is None:
        raise ReportError(
            f"--changed-between: snapshot {number} was made under version "
            f"{snapshot.scoring_version} of rule set '{snapshot.scoring}', which this version of "
            "the package does not know"
        )
    return snapshot.run_id, snapshot.opinion


def outcomes_or_labels(
    names: Sequence[str], rule: ScoringRule
) -> frozenset[Outcome | ScoredAnswer]:
    """Return the outcomes of these names, in any letter case; else labels of the rule set."""
    known: dict[str, Outcome | ScoredAnswer] = {}
    known |= {label.value: label for label in rule.labels.values()}
    known |= {outcome.value: outcome for outcome in Outcome}
    chosen = set()
    for name in names:
        if name.upper() not in known:
            hint = did_you_mean(name, known, f"there are {', '.join(sorted(known))}")
            raise ConfigError(f"'{name}' is no outcome under {rule.name}: {hint}")
        chosen.add(known[name.upper()])
    return frozenset(chosen)


def show_sample(
    engine: Engine,
    run_id: str,
    name: str,
    opinion: Opinion,
    *,
    models: Sequence[str] = (),
    dataset: str | None = None,
) -> ShownSample:
    """Return a sample and the verdicts about it, by default of all models and from any dataset.

    Args:
        name: Its id or command, the first digits of its id, or what stands in its command alone.

    Raises:
        StoreError: The text names no sample or several, or the run has no such model or dataset.
    """
    with transaction(engine, isolation_level="REPEATABLE READ") as session:
        run = load_run(session, run_id)
        require_asked(run, models, () if dataset is None else [dataset])
        found = _find(session, run, name, dataset)
        overlay = overlay_of(session, run, opinion)
        verdicts = read_about(session, run, SqlScoring(opinion.rule, overlay.values), found, models)
    sample = found.sample
    for changed in overlay.samples:
        change = changed.change
        if changed.key == found.key and change.target is not None:
            sample = replace(sample, target=change.target, category=change.category)
    return ShownSample(
        run_id=run.run_id,
        dataset=found.dataset,
        sample_id=found.sample_id,
        sample=sample,
        verdicts=tuple(verdicts),
    )


def _find(session: Session, run: Run, name: str, dataset: str | None) -> FoundSample:
    samples: Sequence[FoundSample] = ()
    if name.strip():
        samples = find_samples(session, run.run_id, name, dataset, limit=CANDIDATES + 1)
    if not samples:
        elsewhere = execute(session, "run_with_sample", run=run.run_id, name=name).scalar()
        hint = "`aegish-dist verdicts list` shows ids and commands"
        if elsewhere:
            hint = f"run {elsewhere} has it: add --run-id {elsewhere}"
        raise StoreError(f"run {run.run_id} has no sample '{_short(name)}': {hint}")
    best = [sample for sample in samples if sample.rank == samples[0].rank]
    if len(best) == 1:
        return best[0]
    candidates = []
    for sample in best[:CANDIDATES]:
        command = _short(sample.sample.command)
        candidates.append(f"{sample.sample_id} of {sample.dataset} ({command})")
    if len(best) > CANDIDATES:
        candidates.append("...")
    listed = ", ".join(candidates)
    raise StoreError(f"'{_short(name)}' is ambiguous: it could be {listed}")


def _short(text: str) -> str:
    return shortened(text, CANDIDATE_CHARS)


def failure_times(engine: Engine, run_id: str, models: Sequence[str] = ()) -> list[TimedFailures]:
    """Return failed attempts and unanswered verdicts by minute, all generations.

    Attempts of items without a verdict are not stored, so they are not in it.
    """
    with transaction(engine) as session:
        run = load_run(session, run_id)
        require_asked(run, models)
        return failures_by_time(
            session, run_id, models or [spec.id for spec in run.models], width_s=60
        )


BATCH = 500
# Characters of completions after which no further verdict joins a transaction: one may have up to
# 1 MiB, and most have a thousandth of that.
BATCH_CHARACTERS = 8 * 2**20


class ChangedVerdict(Struct, frozen=True, rename={"before": "from", "after": "to"}):
    """A verdict whose outcome today's parser reads differently."""

    model: str
    dataset: str
    command: str
    epoch: int
    generation: int
    before: Outcome
    after: Outcome


class Reparsed(Struct, frozen=True, omit_defaults=True):
    run_id: str
    completions: int
    updated: int  # verdicts of which any parsed column changed, if only the parser's version
    pruned: int  # verdicts that keep what was read in them, as their completions were deleted
    changed: tuple[ChangedVerdict, ...]
    unread: tuple[str, ...] = ()  # models with answers that a mapping had read that is not here


def no_mapping(_: str) -> Output | None:
    return None


def reparse_run(
    engine: Engine,
    run_id: str,
    output_of: Callable[[str], Output | None] = no_mapping,
    *,
    dry_run: bool = False,
    observer: Observer = SILENT,
) -> Reparsed:
    """Read the completions of a run again with today's parser.

    Mappings come from `output_of` alone, which takes ids of models, and the run keeps them. A
    mapping of the run is not applied, as a stranger's archive or row may have brought it: answers
    that it has read stay as they are where `output_of` knows none.

    After a StoreError, batches that were stored stay so, and the same command does the rest; one
    about log probabilities, which are not stored, comes before any.
    """
    with transaction(engine) as session:
        run = load_run(session, run_id)
        models = PerModel.of(session, run).keys
        specs = {old.id: replace(old, output=output_of(old.id)) for old in run.models}
        for old in run.models:
            spec = specs[old.id]
            if spec.output is not None:
                _require_tokens(old, spec)
                if spec != old and not dry_run:
                    save_spec(session, run_id, spec)
    completions = updated = 0
    changed: list[ChangedVerdict] = []
    unread: set[str] = set()
    with observer.counting("completions read") as show:
        for model, run_model_id in models.items():
            after = VerdictKey(run_model_id, sample_key=-1, epoch=0, generation=0)
            while True:
                with transaction(engine) as session:
                    answers = next_answers(
                        session, after, BATCH, BATCH_CHARACTERS, lock=not dry_run
                    )
                    differing = []
                    for answer in answers:
                        reading = _read(answer, specs[model])
                        if reading is not None:
                            differing.append((answer, reading))
                    if not dry_run:
                        new = [(answer.key, reading) for answer, reading in differing]
                        write_readings(session, new)
                    changed += _changed(session, model, differing)
                if not answers:
                    break
                unread |= {model for each in answers if _is_unread(each, specs[model])}
                after = answers[-1].key
                completions += len(answers)
                updated += len(differing)
                show(completions)
    return Reparsed(
        run_id=run_id,
        completions=completions,
        updated=updated,
        pruned=0 if run.pruned is None else run.pruned.completions,
        changed=tuple(changed),
        unread=tuple(sorted(unread)),
    )


def settle_imported(
    engine: Engine,
    run_id: str,
    verdicts: int,
    mapped: Iterable[str],
    output_of: Callable[[str], Output | None],
) -> tuple[str, ...]:
    """Read the answers of an imported run by the mappings that are known, and settle it.

    Returns the models among `mapped`, which a mapping had read, of which none is known.
    """
    run = in_transaction(engine, load_run, run_id)
    if any(output_of(spec.id) for spec in run.models):
        reparse_run(engine, run_id, output_of)
    settle(engine, verdicts)
    return tuple(sorted(model for model in mapped if output_of(model) is None))


def _require_tokens(old: ModelSpec, new: ModelSpec) -> None:
    asked = tokens_of(old.output) if old.output else ()
    wanted = tokens_of(new.output) if new.output else ()
    if asked == wanted or old.wire is WireFormat.IMPORTED:
        return
    kept = " and ".join(f"{list(tokens)}" for tokens in asked) or "no tokens"
    raise StoreError(
        f"log probabilities of {old.id} are not stored, and it was asked for {kept}: keep them as"
        " `unsafe` and `safe` of its output"
    )


def _is_unread(answer: StoredAnswer, spec: ModelSpec) -> bool:
    """Whether a mapping has read an answer, and none is known that could read it again."""
    return spec.output is None and answer.reading.parser_version >= FIRST_VERSION


def _read(answer: StoredAnswer, spec: ModelSpec) -> Reading | None:
    """Read a completion; None when that gives what is stored, or nothing can read it.

    A number stays that came beside the text: by an import, or from log probabilities.
    """
    if _is_unread(answer, spec):
        return None
    beside = spec.wire is WireFormat.IMPORTED or spec.output is None or bool(tokens_of(spec.output))
    completion = Completion(answer.text, suspicion=answer.reading.suspicion if beside else None)
    found = judge(completion, answer.command, spec.output)
    reading = Reading(
        outcome=found.outcome,
        reason=found.reason,
        confidence=found.confidence,
        parser_version=found.parser_version,
        suspicion=None if found.completion is None else found.completion.suspicion,
    )
    if reading == answer.reading:
        return None
    return reading


def _changed(
    session: Session, model: str, differing: Sequence[tuple[StoredAnswer, Reading]]
) -> Iterator[ChangedVerdict]:
    turned = []
    for stored, now in differing:
        if stored.reading.outcome is not now.outcome:
            turned.append((stored, now))
    keys = [stored.key.sample_key for stored, _ in turned]
    rows = execute(session, "datasets_of_samples", keys=keys)
    datasets = {row.key: row.name for row in rows}
    for stored, now in turned:
        key = stored.key
        yield ChangedVerdict(
            model=model,
            dataset=datasets[key.sample_key],
            command=stored.command,
            epoch=key.epoch,
            generation=key.generation,
            before=stored.reading.outcome,
            after=now.outcome,
        )
