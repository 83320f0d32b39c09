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
from tests.integration.stored_runs import stored_run

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs/guides/notebook.ipynb"
CODE = [
    cell for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"
]


@pytest.mark.long
@pytest.mark.usefixtures("aegish")
def test_its_cells_run(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they stand, but for the picture, which a notebook shows and a test counts."""
    shell = [Sample(f"sh -i {n}", TrueLabel.MALICIOUS, "shell", f"sh{n}") for n in range(3)]
    read, ls = Sample("cat x", TrueLabel.MALICIOUS, "file-read"), Sample("ls", TrueLabel.HARMLESS)
    samples = (*shell, read, ls)
    right = dict.fromkeys(samples, BLOCKED) | {ls: ALLOWED}
    said = {"test/a": right | {shell[0]: ALLOWED}, "test/b": right}
    stored_run(engine, said, models=tuple(said), datasets=(Dataset("d", samples),))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(Image=len))
    scope: dict[str, object] = {}
    shown = []
    for cell in CODE:
        *statements, last = ast.parse("".join(cell["source"])).body
        assert isinstance(last, ast.Expr)
        exec(compile(ast.Module(statements, []), str(NOTEBOOK), "exec"), scope)
        shown.append(eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), scope))
    head, score, by_category, picture, wrong, times = shown
    assert list(score.index) == ["test/b", "test/a"]
    assert by_category.loc["test/a"].round(2).to_dict() == {"shell": 0.67, "file-read": 1}
    assert picture > 10_000
    assert (scope["best"], len(head), len(wrong), len(times)) == ("test/b", 5, 0, 2)


def test_its_outputs_are_stored_and_say_nothing_of_a_machine() -> None:
    kinds = [output["output_type"] for cell in CODE for output in cell["outputs"]]
    assert kinds == ["execute_result"] * len(CODE)
    text = NOTEBOOK.read_text("utf-8")
    assert len(text) < 300_000
    assert not [place for place in (str(ROOT), str(Path.home()), "site-packages") if place in text]
