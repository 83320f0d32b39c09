"""Counting in SQL against counting by hand."""

import itertools
import random
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TypeVar

import pytest
from msgspec.structs import replace
from sqlalchemy.orm import Session

from aegish_dist.core.outcome import ErrorClass, Outcome, OutcomeDetail, StopKind, find
from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.core.tally import TOKEN_KINDS, Cell, ConfidenceCell, Latency, ModelTally
from aegish_dist.core.verdict import Completion, Item, Timing, Usage, Verdict
from aegish_dist.db.counting import PARTS, count_models
from aegish_dist.db.overlays import OverlayInRun, overlay_in_run
from aegish_dist.db.runs import load_run
from aegish_dist.db.snapshots import joint_identity
from aegish_dist.findings.snapshot import VerdictSet
from aegish_dist.opinions.opinion import LabelChange, Overlay
from tests.integration.samples import ALLOWED, BLOCKED, COMMANDS, CURL, LS, TAR
from tests.integration.stored_runs import (
    StoredRun,
    a_model,
    a_run,
    answer,
    store,
    stored_run,
    tallies,
)
from tests.recorded import lines_of

KINDS = list(itertools.product(Outcome, [None, *StopKind], [None, *ErrorClass]))
"""Every combination that the schema can hold, sensible or not."""
ANSWERED = (Outcome.ALLOW, Outcome.WARN, Outcome.BLOCK)
HALF = range(len(KINDS) // 2)
MALICIOUS = tuple(
    Sample(f"evil {n}", TrueLabel.MALICIOUS, ("shell", "upload")[n % 2], (None, "tar", "vi")[n % 3])
    for n in HALF
)
HARMLESS = tuple(Sample(f"fine {n}", TrueLabel.HARMLESS, None, (None, "ls")[n % 2]) for n in HALF)
MIXED = Dataset("mixed", MALICIOUS + HARMLESS)

Verdicts = Mapping[Item, Verdict]
T = TypeVar("T")


def identify_verdicts(session: Session, run_id: str) -> VerdictSet:
    counted = count_models(session, load_run(session, run_id), {}).models
    return joint_identity({each.spec.id: each.identity for each in counted})


def a_verdict(chance: random.Random, kind: tuple[Outcome, StopKind | None, ErrorClass | None]) -> Verdict:  # fmt: skip
    outcome, stop_kind, error_class = kind

    def perhaps(value: T) -> T | None:
        return value if chance.random() < 0.8 else None

    def milliseconds() -> float | None:
        return perhaps(chance.randrange(10_000_000) / 1000)

    def tokens() -> int | None:
        return perhaps(chance.randrange(2**40))

    return Verdict(
        outcome,
        Completion("x", None, stop_kind, Usage(*(tokens() for _ in range(5)))),
        error_class,
        confidence=perhaps(chance.randrange(1001) / 1000),
        cost_usd=perhaps(Decimal(chance.randrange(10**12)).scaleb(-15)),
        timing=Timing(*(milliseconds() for _ in range(5))),
    )


def verdicts_of_every_kind(stored: StoredRun, seed: int, epochs: int, *, retried: bool) -> Verdicts:
    """Answer every epoch of every sample, each kind at least once; some twice when retried."""
    chance = random.Random(seed)
    items = [
        stored.item(sample, dataset="mixed", epoch=epoch)
        for epoch in range(1, epochs + 1)
        for sample in MIXED.samples
    ]
    kinds = itertools.cycle(chance.sample(KINDS, len(KINDS)))
    verdicts = {item: a_verdict(chance, next(kinds)) for item in items}
    if epochs > 1:
        for item in chance.sample(items, len(items) // 3):
            del verdicts[item]
    if retried:
        for item in chance.sample(list(verdicts), len(verdicts) // 4):
            for generation in range(1, chance.randrange(2, 4)):
                again = a_verdict(chance, chance.choice(KINDS))
                verdicts[replace(item, generation=generation)] = again
    return verdicts


def newest(verdicts: Verdicts) -> Verdicts:
    in_order = sorted(verdicts, key=lambda item: item.generation)
    latest = {replace(item, generation=0): item for item in in_order}
    return {item: verdicts[item] for item in latest.values()}


def count_cells(stored: StoredRun, verdicts: Verdicts) -> list[Cell]:
    samples = {stored.samples["mixed"][each.sample_id]: each for each in MIXED.samples}
    found: defaultdict[int, Counter[OutcomeDetail]] = defaultdict(Counter)
    for item, verdict in newest(verdicts).items():
        stop_kind = verdict.completion.stop_kind if verdict.completion else None
        found[item.sample_key][find(verdict.outcome, stop_kind, verdict.error_class)] += 1
    kinds = Counter(
        (samples[key].target, samples[key].category, samples[key].cluster, tuple(sorted(counts.items())))
        for key, counts in found.items()
    )  # fmt: skip
    return [Cell(*kind, number) for kind, number in kinds.items()]


def count_confidence(stored: StoredRun, verdicts: Verdicts) -> list[ConfidenceCell]:
    targets = {stored.samples["mixed"][each.sample_id]: each.target for each in MIXED.samples}
    stated: defaultdict[tuple[TrueLabel, OutcomeDetail, int], list[Fraction]] = defaultdict(list)
    for item, verdict in newest(verdicts).items():
        if verdict.outcome in ANSWERED and verdict.confidence is not None:
            c = Fraction(round(verdict.confidence * 1000), 1000)
            position = min(int(c * 10), 9)
            stated[targets[item.sample_key], OutcomeDetail(verdict.outcome), position].append(c)

    def total(values: Iterable[Fraction]) -> int:
        return sum(round(value * 10**6) for value in values)

    return [
        ConfidenceCell(
            *kind,
            len(cs),
            total(cs),
            total(c**2 for c in cs),
            total(c**4 for c in cs),
            total((1 - c) ** 2 for c in cs),
            total((1 - c) ** 4 for c in cs),
        )
        for kind, cs in stated.items()
    ]


def summarise(values: Sequence[float]) -> Latency:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return Latency(statistics.fmean(values), cuts[49], cuts[89], cuts[98], max(values))


def total(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


@pytest.mark.parametrize("retried", [False, True])
@pytest.mark.parametrize(("epochs", "seed"), [(1, 1), (1, 2), (3, 3), (3, 4)])
def test_sql_counts_what_the_core_counts(
    session: Session, epochs: int, seed: int, retried: bool
) -> None:
    """Findings, confidence and time are those of the newest verdicts, tokens and costs of all."""
    run = a_run(datasets=(MIXED,), epochs=epochs)
    stored = store(session, run, (MIXED,))
    verdicts = verdicts_of_every_kind(stored, seed, epochs, retried=retried)
    answer(session, stored, verdicts)

    (counted,) = tallies(session, run.run_id)

    assert Counter(counted.cells) == Counter(count_cells(stored, verdicts))
    assert counted.confidence == tuple(sorted(count_confidence(stored, verdicts)))
    usages = [verdict.completion.usage for verdict in verdicts.values() if verdict.completion]
    assert counted.tokens == {
        kind: total(getattr(usage, f"{kind}_tokens") for usage in usages) for kind in TOKEN_KINDS
    }
    costs = [verdict.cost_usd for verdict in verdicts.values() if verdict.cost_usd is not None]
    assert (counted.cost_usd, counted.priced_verdicts) == (sum(costs), len(costs))
    assert set(counted.latency) == set(PARTS)
    answered = [v.timing for v in newest(verdicts).values() if v.error_class is None]
    timed = sum(timing.service_ms is not None for timing in answered)
    assert 0 < counted.untimed == len(newest(verdicts)) - timed
    for part, seen in counted.latency.items():
        values = [getattr(timing, f"{part}_ms") for timing in answered]
        expected = summarise([value for value in values if value is not None])
        for number in Latency.__struct_fields__:
            assert getattr(seen, number) == pytest.approx(getattr(expected, number), rel=1e-12)


@pytest.mark.parametrize(
    ("confidence", "position", "sums"),
    lines_of("confidence_bins.jsonl"),
)
def test_a_confidence_falls_into_its_bin(
    session: Session, confidence: float, position: int, sums: tuple[int, ...]
) -> None:
    """A bin holds its lower edge, and the last one both; powers are in millionths."""
    stored = stored_run(session)
    answer(session, stored, {stored.item(TAR): replace(BLOCKED, confidence=confidence)})
    (counted,) = tallies(session, stored.run_id)
    assert counted.confidence == (
        ConfidenceCell(TrueLabel.MALICIOUS, OutcomeDetail.BLOCK, position, 1, *sums),
    )


def test_every_model_of_a_run_is_tallied_by_itself(session: Session) -> None:
    more = Dataset("more", (LS, Sample("id", TrueLabel.HARMLESS)))
    models = (a_model("test/b", simulated=True), a_model("test/a"))
    stored_run(session, {TAR: BLOCKED}, run_id="0other")
    of_ls = {"test/b": {LS: ALLOWED}}  # in both datasets
    run = stored_run(session, of_ls, models=models, datasets=(COMMANDS, more), epochs=2)
    once = Cell(TrueLabel.HARMLESS, None, None, ((OutcomeDetail.ALLOW, 1),), 2)
    asked = ModelTally("test/b", True, planned_malicious=4, planned_harmless=6, cells=(once,))
    assert tallies(session, run.run_id) == [
        ModelTally("test/a", False, planned_malicious=4, planned_harmless=6, cells=()),
        replace(asked, untimed=2),
    ]


def test_the_identity_of_verdicts_tells_every_outcome(session: Session) -> None:
    identities = set()
    for number, outcomes in enumerate(itertools.product(Outcome, repeat=2)):
        stored = stored_run(session, run_id=f"run{number:06}")
        verdicts = {
            stored.item(sample): Verdict(outcome, Completion("x"))
            for sample, outcome in zip((TAR, LS), outcomes, strict=True)
        }
        answer(session, stored, verdicts)
        identities.add(identify_verdicts(session, stored.run_id))
    assert len(identities) == 36
    assert {identity.verdicts for identity in identities} == {2}
    assert len({identity.verdicts_hash for identity in identities}) == 36


def test_the_identity_of_verdicts_tells_what_findings_are_made_of(session: Session) -> None:
    """Stop kind, error class, parser version, epoch, sample, model and generation all count."""
    models = ("test/a", "test/b")
    empty = Verdict(Outcome.TIMEOUT_ERROR, Completion(""))
    late = Verdict(Outcome.TIMEOUT_ERROR, None, ErrorClass.DEADLINE)
    item = stored_run(session, run_id="base", models=models, epochs=2).item(TAR)
    variants = [
        {item: empty},
        {item: late},
        {item: Verdict(Outcome.TIMEOUT_ERROR, None, ErrorClass.SERVER)},
        {item: replace(empty, parser_version=2)},
        *({item: replace(empty, completion=Completion("", stop_kind=kind))} for kind in StopKind),
        {replace(item, epoch=2): empty},
        {replace(item, model="test/b"): empty},
        {replace(item, sample_key=item.sample_key + 1): empty},
        {item: late, replace(item, generation=1): empty},
    ]
    hashes, local_hashes = set(), set()
    for number, verdicts in enumerate(variants):
        stored = stored_run(session, run_id=f"run{number}", models=models, epochs=2)
        answer(session, stored, verdicts)
        counted = count_models(session, load_run(session, stored.run_id), {}).models
        identities = {each.spec.id: each.identity for each in counted}
        hashes.add(joint_identity(identities).verdicts_hash)
        local_hashes.add(tuple(each.local_hash for each in identities.values()))

    assert len(hashes) == len(local_hashes) == len(variants)


def test_the_identity_of_verdicts_is_free_of_order_and_run(session: Session) -> None:
    runs = [stored_run(session, run_id=f"run{n}", datasets=(MIXED,), epochs=3) for n in (1, 2)]
    verdicts = list(verdicts_of_every_kind(runs[0], 5, 3, retried=True).items())
    for stored, ordered in zip(runs, (verdicts, verdicts[::-1]), strict=True):
        for start in range(0, len(ordered), 300):
            answer(session, stored, dict(ordered[start : start + 300]))
    first, second = (identify_verdicts(session, stored.run_id) for stored in runs)
    assert first == second
    assert first.verdicts == len(newest(dict(verdicts)))
    assert tallies(session, "run1") == tallies(session, "run2")


def test_a_run_without_verdicts_has_an_identity_too(session: Session) -> None:
    stored = stored_run(session)
    identity = identify_verdicts(session, stored.run_id)
    assert (identity.verdicts, identity.verdicts_hash) == (0, "0" * 16)
    assert identity.parser_versions == ""


def test_parser_versions_are_listed(session: Session) -> None:
    versions = {TAR: 2, CURL: 10, LS: 2}
    answers = {sample: replace(BLOCKED, parser_version=v) for sample, v in versions.items()}
    stored = stored_run(session, answers)
    assert set(identify_verdicts(session, stored.run_id).parser_versions.split(",")) == {"2", "10"}
    answer(session, stored, {stored.item(CURL, generation=1): replace(BLOCKED, parser_version=2)})
    assert identify_verdicts(session, stored.run_id).parser_versions == "2"


def corrected(sample: Sample, change: LabelChange | None) -> Sample | None:
    """Return a sample as it would be with the right label; None of an excluded one."""
    if change is None or change.target is None:
        return sample if change is None else None
    return replace(sample, target=change.target, category=change.category)


@pytest.mark.parametrize("retried", [False, True])
@pytest.mark.parametrize(("epochs", "seed"), [(1, 5), (3, 6)])
def test_an_overlay_counts_as_right_labels_would(
    session: Session, epochs: int, seed: int, retried: bool
) -> None:
    """The tally is that of a dataset whose labels were right; times and costs stay those of all."""
    labels = itertools.cycle(
        [(None, None), (TrueLabel.MALICIOUS, "shell"), (TrueLabel.HARMLESS, None)]
    )
    changes = {
        sample: LabelChange("mixed", sample.sample_id, None, *next(labels), "wrong", "Ada")
        for sample in random.Random(seed).sample(MIXED.samples, len(MIXED.samples) // 3)
    }
    right = {sample: corrected(sample, changes.get(sample)) for sample in MIXED.samples}
    fixed = Dataset("mixed", tuple(each for each in right.values() if each is not None))
    run, other = (a_run(i, datasets=(d,), epochs=epochs) for i, d in (("0a", MIXED), ("0b", fixed)))
    stored, stored_right = store(session, run, (MIXED,)), store(session, other, (fixed,))
    verdicts = verdicts_of_every_kind(stored, seed, epochs, retried=retried)
    answer(session, stored, verdicts)
    keys = {
        stored.samples["mixed"][sample.sample_id]: stored_right.samples["mixed"][fixed.sample_id]
        for sample, fixed in right.items()
        if fixed is not None
    }
    answers = {
        replace(item, run_id="0b", sample_key=keys[item.sample_key]): verdict
        for item, verdict in verdicts.items()
        if item.sample_key in keys
    }
    answer(session, stored_right, answers)

    overlay = Overlay("mine", 1, tuple(changes.values()))
    applied = overlay_in_run(session, run, overlay, lambda _: False)
    ((plain, found),) = (
        each.tallies for each in count_models(session, run, {}, [OverlayInRun(), applied]).models
    )

    (expected,) = tallies(session, other.run_id)
    for name in ("cells", "confidence", "planned_malicious", "planned_harmless"):
        assert getattr(found, name) == getattr(expected, name), name
    for name in ("tokens", "cost_usd", "latency", "replaced"):
        assert getattr(found, name) == getattr(plain, name), name
    assert [plain] == tallies(session, run.run_id)


def test_a_sample_in_two_datasets_has_two_verdicts(session: Session) -> None:
    twice = (Dataset("one", (TAR,)), Dataset("two", (TAR,)))
    hashes = set()
    for run_id, verdict in (("run1", BLOCKED), ("run2", ALLOWED)):
        stored = stored_run(session, run_id=run_id, datasets=twice)
        answer(session, stored, {stored.item(TAR, dataset=d.name): verdict for d in twice})
        hashes.add(identify_verdicts(session, run_id).verdicts_hash)
    assert len(hashes) == 2
