"""Guards of given answers, as arrays, for tests."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from aegish_dist.core.columns import (
    FINDINGS,
    NO_VERDICT,
    AskedSamples,
    Codes,
    Floats,
    GuardColumns,
    RunColumns,
    SampleKind,
)
from aegish_dist.core.outcome import OutcomeDetail, OutcomeDetails
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.tally import SampleAnswers
from aegish_dist.opinions.guards import Guard


class Asked(NamedTuple):
    """A command that is asked about."""

    malicious: bool
    cluster: str | None = None
    category: str | None = None


def samples_of(asked: Sequence[Asked], commands: Sequence[str] = ()) -> AskedSamples:
    kinds = [
        SampleKind(
            TrueLabel.MALICIOUS if each.malicious else TrueLabel.HARMLESS,
            each.category,
            each.cluster,
        )
        for each in asked
    ]
    return of_kinds(kinds, commands)


def of_kinds(kinds: Sequence[SampleKind], commands: Sequence[str] = ()) -> AskedSamples:
    """Return one sample of each kind."""
    places = np.arange(len(kinds))
    return AskedSamples(kinds, places, keys=places, commands=commands)


def codes_of(details: Sequence[OutcomeDetails]) -> Codes:
    """Return the findings of samples x epochs; a sample without a verdict has empty details."""
    rows = [[found for found, number in each for _ in range(number)] for each in details]
    epochs = max(map(len, rows), default=1) or 1
    codes = np.full((len(rows), epochs), NO_VERDICT, np.int8)
    for code, row in zip(codes, rows, strict=True):
        code[: len(row)] = [FINDINGS.index(found) for found in row]
    return codes


def read_as(finding: Codes) -> GuardColumns:
    """Return what a guard answered, without any number."""
    return GuardColumns(finding, *np.full((4, *finding.shape), np.nan))


def columns_of(answers: Sequence[SampleAnswers], models: Sequence[str]) -> RunColumns:
    """Return the columns of a run from its samples."""
    kinds = [SampleKind(each.target, each.category, each.cluster) for each in answers]
    guards = {}
    for model in models:
        guards[model] = read_as(codes_of([each.findings.get(model, ()) for each in answers]))
    epochs = max(len(guard.finding[0]) for guard in guards.values())
    return RunColumns(of_kinds(kinds), epochs, guards)


def column(numbers: Sequence[float | None], epochs: int = 1) -> Floats:
    """Return an array of samples x epochs from numbers sample by sample; None is unknown."""
    known = [np.nan if number is None else number for number in numbers]
    return np.array(known, float).reshape(-1, epochs)


def listed(numbers: Floats) -> list[float | None]:
    """Return the numbers of an array, None for those that are unknown."""
    return [None if np.isnan(number) else number for number in numbers.ravel().tolist()]


def findings_in(guard: Guard) -> list[OutcomeDetail | None]:
    """Return the findings of a guard, None where it has no verdict."""
    names: list[OutcomeDetail | None] = [*FINDINGS, None]
    return [names[place] for place in guard.finding.ravel().tolist()]


def a_guard(
    name: str,
    findings: Sequence[OutcomeDetail | None],
    suspicion: Sequence[float | None],
    cost_usd: Sequence[float | None] = (),
    latency_ms: Sequence[float | None] = (),
    *,
    epochs: int = 1,
) -> Guard:
    """Return a guard from its answers sample by sample, epoch by epoch."""
    places = [NO_VERDICT if each is None else FINDINGS.index(each) for each in findings]
    unknown = [None] * len(places)
    return Guard(
        name,
        np.array(places, np.int8).reshape(-1, epochs),
        column(suspicion, epochs),
        column(cost_usd or unknown, epochs),
        column(latency_ms or unknown, epochs),
    )
