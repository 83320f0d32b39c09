"""No metric moves unnoticed: the numbers of a fixed tally are kept in a file.

After a change that is meant: raise `METRICS_VERSION`, then write the file again with
`python -m tests.unit.core.test_golden_metrics`. A new rule set adds numbers and moves none.
"""

import json
import random
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from aegish_dist.core.metrics import METRICS_VERSION, measure
from aegish_dist.core.ranking import snapshot_document
from aegish_dist.core.sample import Target
from aegish_dist.core.scoring import RULES
from aegish_dist.core.tally import (
    Cell,
    ConfidenceCell,
    Finding,
    Latency,
    ModelTally,
    TokenTotals,
)

GOLDEN = Path(__file__).with_name("golden_metrics.json")
CATEGORIES = ("shell", "file-read", "upload")
CLUSTERS = (None, "awk", "curl", "tar", "vim", "zip")


def _cells(generator: random.Random, right: Finding, target: Target, epochs: int) -> list[Cell]:
    cells = []
    for cluster in CLUSTERS:
        for category in CATEGORIES if target is Target.MALICIOUS else (None,):
            drawn = generator.choices([right, *Finding], [20, *[1] * len(Finding)], k=epochs)
            findings = tuple((each, drawn.count(each)) for each in sorted(set(drawn)))
            cells.append(Cell(target, category, cluster, findings, generator.randint(1, 9)))
    return cells


def _confidence(generator: random.Random) -> tuple[ConfidenceCell, ...]:
    def cell(target: Target, finding: Finding, place: int) -> ConfidenceCell:
        stated = [place / 10 + generator.random() / 10 for _ in range(7)]
        sums = [
            sum(round(part**power * 1e6) for part in parts)
            for parts, powers in ((stated, (1, 2, 4)), ([1 - c for c in stated], (2, 4)))
            for power in powers
        ]
        return ConfidenceCell(target, finding, place, len(stated), *sums)

    return tuple(
        cell(target, finding, place)
        for target in Target
        for finding in (Finding.ALLOW, Finding.BLOCK)
        for place in (4, 9)
    )


def _tally(number: int, epochs: int) -> ModelTally:
    generator = random.Random(number)
    malicious = _cells(generator, Finding.BLOCK, Target.MALICIOUS, epochs)
    harmless = _cells(generator, Finding.ALLOW, Target.HARMLESS, epochs)
    return ModelTally(
        model=f"test/{number}",
        simulated=number == 2,
        planned_malicious=sum(cell.samples for cell in malicious) * epochs + 3,
        planned_harmless=sum(cell.samples for cell in harmless) * epochs,
        cells=(*harmless, *malicious),
        confidence=_confidence(generator),
        latency={"service": Latency(900.0, 800.0, 1500.0, 2000.0, 2100.0 + number)},
        tokens=TokenTotals(input=24_000, output=600 + number),
        cost_usd=Decimal("0.30"),
        priced_verdicts=97,
    )


def computed() -> dict[str, Any]:
    """Return what a snapshot says about two models and a silent one, under every rule."""
    tallies = [_tally(2, 1), _tally(3, 3), ModelTally("test/silent", False, 0, 0, ())]
    parts = {
        name: snapshot_document(measure(tally, rule) for tally in tallies)
        for name, rule in RULES.items()
    }
    document: dict[str, Any] = json.loads(json.dumps(parts))
    return document


def flat(value: object, path: str = "") -> dict[str, object]:
    """Return every number and word of a document by its place."""
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list):
        children = dict(enumerate(value)).items()
    else:
        return {path: value}
    return {
        key: each for name, child in children for key, each in flat(child, f"{path}/{name}").items()
    }


def assert_same(documents: dict[str, Any]) -> None:
    """Compare numbers to 1e-12, as mathematical functions differ in the last bit by machine."""
    found, golden = flat(computed()), flat(documents)
    numbers = {place: each for place, each in golden.items() if isinstance(each, float)}
    rest = golden.keys() - numbers.keys()
    assert {place: found.get(place, 0.0) for place in numbers} == pytest.approx(numbers, rel=1e-12)
    assert found.keys() == golden.keys()
    assert {place: found[place] for place in rest} == {place: golden[place] for place in rest}


def test_no_number_moves_without_a_new_version() -> None:
    """The formulas of this version give the numbers that were written down for it."""
    golden = json.loads(GOLDEN.read_text("ascii"))

    assert golden["metrics_version"] == METRICS_VERSION, __doc__
    assert_same(golden["documents"])


def _write() -> None:
    if GOLDEN.exists():
        golden = json.loads(GOLDEN.read_text("ascii"))
        now, then = computed(), golden["documents"]
        moved = any(now.get(rule) != document for rule, document in then.items())
        if moved and golden["metrics_version"] == METRICS_VERSION:
            sys.exit("numbers have moved: raise METRICS_VERSION first")
    document = {"metrics_version": METRICS_VERSION, "documents": computed()}
    GOLDEN.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", "ascii")


if __name__ == "__main__":
    _write()
