"""The notebook of the docs, cell by cell, against a stored run."""

import ast
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import Engine

from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from tests.integration.samples import ALLOWED, BLOCKED
from tests.integration.stored_runs import answer, stored_run

NOTEBOOK = Path(__file__).parents[2] / "docs/guides/notebook.ipynb"
CELLS = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]


@pytest.mark.long
@pytest.mark.usefixtures("aegish")
def test_its_cells_run(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they stand, but for the picture, which a notebook shows and a test counts."""
    shell = [Sample(f"sh -i {n}", TrueLabel.MALICIOUS, "shell", f"sh{n}") for n in range(3)]
    samples = (
        *shell,
        Sample("cat /etc/shadow", TrueLabel.MALICIOUS, "file-read"),
        Sample("ls", TrueLabel.HARMLESS),
    )
    stored = stored_run(engine, models=("test/a", "test/b"), datasets=(Dataset("d", samples),))
    for model, first in {"test/a": ALLOWED, "test/b": BLOCKED}.items():
        said = dict.fromkeys(samples, BLOCKED) | {samples[0]: first, samples[-1]: ALLOWED}
        answer(
            engine, stored, {stored.item(s, model=model, dataset="d"): v for s, v in said.items()}
        )
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(Image=len))
    scope: dict[str, object] = {}
    shown = []
    for cell in CELLS:
        if cell["cell_type"] == "code":
            *statements, last = ast.parse("".join(cell["source"])).body
            assert isinstance(last, ast.Expr)
            exec(compile(ast.Module(statements, []), str(NOTEBOOK), "exec"), scope)
            shown.append(eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), scope))
    head, score, by_category, picture, wrong, times = shown
    assert len(head) == 5
    assert list(score.index) == ["test/b", "test/a"]
    assert by_category.loc["test/a"].round(2).to_dict() == {"shell": 0.67, "file-read": 1}
    assert picture > 10_000
    assert (scope["best"], len(wrong), len(times)) == ("test/b", 0, 2)


def test_its_outputs_are_stored_and_say_nothing_of_a_machine() -> None:
    code = [cell for cell in CELLS if cell["cell_type"] == "code"]
    assert [len(cell["outputs"]) > 0 for cell in code] == [True] * len(code)
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert not any(output["output_type"] == "error" for cell in code for output in cell["outputs"])
    assert NOTEBOOK.stat().st_size < 300_000
    text = NOTEBOOK.read_text("utf-8")
    assert not [place for place in ("/home/", "/root/", "/work/", "site-packages") if place in text]
