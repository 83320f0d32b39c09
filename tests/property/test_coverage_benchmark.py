"""`benchmarks/coverage.py` computes what the product computes."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.scoring import Composite
from aegish_dist.statistics.means import Observation, SampledMean, macro_rate, rate, score

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def coverage(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location("coverage_benchmark", BENCHMARKS / "coverage.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("metric", ["micro", "macro", "score", "product"])
@pytest.mark.parametrize("epochs", ["1", "3"])
def test_the_benchmark_has_the_formulas_of_the_product(
    coverage: ModuleType, metric: str, epochs: str
) -> None:
    """Both ends agree to 1e-11, whatever the number of samples."""
    table = coverage.chances(0.9, 0.2)
    for n in (7, 30, 120):
        cell, rng = coverage.Cell(metric, n, "0.9", 0.2, epochs, "same"), np.random.default_rng(n)
        places = coverage.lay_out(rng, coverage.binaries(), cell)
        values = coverage.answer(rng, places, cell, table, 5)
        low, high = coverage.intervals(metric, places, values)
        for run, answered in enumerate(values.tolist()):
            sides: dict[TrueLabel, list[Observation]] = {target: [] for target in TrueLabel}
            for place, value in zip(places, answered, strict=True):
                sides[place.target].append(Observation(place.category, str(place.binary), value, 1))
            malicious, harmless = sides[TrueLabel.MALICIOUS], sides[TrueLabel.HARMLESS]
            match metric:
                case "micro":
                    seen = rate(malicious)
                case "macro":
                    seen = macro_rate(malicious)
                case _:
                    composite = Composite.BALANCED if metric == "score" else Composite.PRODUCT
                    seen = score(composite, SampledMean([malicious]), SampledMean([harmless]))
            assert (seen.ci_low, seen.ci_high) == pytest.approx((low[run], high[run]), abs=1e-11)
