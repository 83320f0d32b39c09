"""Tables of the package, and files that are no tables."""

from datetime import date
from pathlib import Path

import pytest
from msgspec.structs import replace

from aegish_dist.errors import ReportError
from aegish_dist.pipeline.reproduce import PUBLISHED, load_table, reproduce
from aegish_dist.report.drawing import rendered
from aegish_dist.report.published import build_reproduction
from aegish_dist.statistics.published import PublishedGuard, PublishedTable
from tests.defined import defined
from tests.unit.report.reports import a_model, a_report

HEAD = 'name = "t"\nsource = "s"\npublished = 2026-01-02\nlicence = "l"\nmalicious = 10\nharmless = 10\n'
ROW = '[[row]]\nname = "a"\nfigures = { %s }\n'


def test_counts_behind_the_tables_of_the_package_are_those_published_elsewhere() -> None:
    """Model cards print counts of four versions; Jev misses 13; Kestrel's predictions flag 188."""
    lancet, shellrisk = ({row.name: row.counts for row in load_table(n).rows} for n in PUBLISHED)
    stated = {"v0.4.2": (378, 38), "v0.4.1": (375, 36), "v0.4.0": (364, 24), "v0.3.0": (351, 21)}
    for version, (caught, stopped) in stated.items():
        assert lancet[f"LANCET Nano {version}"] == [(caught, 384 - stopped)]
    assert lancet["Jev (hosted)"] == [(409 - 13, 354)]
    assert shellrisk["Kestrel"] == [(178, 4001 - (188 - 178))]
    several = [name for name, counts in (lancet | shellrisk).items() if len(defined(counts)) != 1]
    assert (several, len(lancet), len(shellrisk)) == (["Llama Guard 4 (12B)"], 14, 10)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = " + "[" * 5000, "nested too deeply"),
        ("x = 1" * 2**20, "larger than 1 MiB"),
        (HEAD + ROW % "f1 = nan", "key 'row[0].figures.f1': must be from 0 to 1"),
        (HEAD + ROW % "f1 = 1e-999999", "with at most 9 decimals"),
        (HEAD + ROW % "true_positives = -1", "must be from 0 to 100,000"),
        (HEAD.replace("harmless = 10", "") + ROW % "f1 = 0.5", "lacks `malicious` or `harmless`"),
        (HEAD + 2 * (ROW % "f1 = 0.5"), "key 'row[0].name': stands in two rows"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "table.toml"
    path.write_text(text)
    with pytest.raises(ReportError) as caught:
        load_table(str(path))
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)


def test_a_table_of_one_row_names_no_pairs(tmp_path: Path) -> None:
    for rows, said in (([1], False), ([1, 2], True)):
        text = "".join((ROW % "true_positives = 5").replace('"a"', f'"{row}"') for row in rows)
        (path := tmp_path / "table.toml").write_text(HEAD + text)
        document = reproduce(load_table(str(path)), "malicious_detection_rate")
        assert (" Pairs " in rendered(build_reproduction(document))) is said


@pytest.mark.parametrize(
    ("name", "guard", "found"),
    [
        ("b", "x/a", "x/a"),
        ("a", "x/none", None),
        ("A", None, "a"),
        ("Y/A", None, "y/a"),
        ("b", None, "y/b"),
        ("c", None, None),  # of two models
    ],
)
def test_a_row_stands_beside_the_model_that_it_names_alone(
    name: str, guard: str | None, found: str | None
) -> None:
    run = a_report(*map(a_model, ("x/a", "y/a", "a", "y/b", "x/c", "y/c"))).snapshot
    row = PublishedGuard(name=name, guard=guard, malicious=9, harmless=9, figures={})
    other = replace(row, name="other", guard="y/b")
    table = PublishedTable(
        name="t", source="s", published=date(2026, 1, 2), licence="l", rows=[row, other]
    )
    [beside, _] = [each["beside"] for each in reproduce(table, "f1", run)["models"]]
    assert (beside and beside["model"]) == found
