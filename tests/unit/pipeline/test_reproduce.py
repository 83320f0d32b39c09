"""Tables of the package, and files that are no tables."""

from pathlib import Path

import pytest

from aegish_dist.errors import ReportError
from aegish_dist.pipeline.reproduce import PUBLISHED, load_table, reproduce

HEAD = 'name = "t"\nsource = "s"\npublished = 2026-01-02\nlicence = "l"\nmalicious = 10\nharmless = 10\n'
ROW = '[[row]]\nname = "a"\nfigures = { %s }\n'


def test_counts_behind_the_tables_of_the_package_are_those_published_elsewhere() -> None:
    """Model cards of v0.3.0, v0.4.0 and v0.4.2 print counts; Jev misses 13; Kestrel flags 188."""
    assert PUBLISHED == ["lancet-bench-1", "shellrisk-bench"]
    lancet, shellrisk = ({row.name: row.counts for row in load_table(n).rows} for n in PUBLISHED)
    stated = {"2": (378, 38), "1": (375, 36), "0": (364, 24)}
    for minor, (caught, stopped) in stated.items():
        assert lancet[f"LANCET Nano v0.4.{minor}"] == [(caught, 384 - stopped)]
    assert lancet["LANCET Nano v0.3.0"] == [(351, 384 - 21)]
    assert {detected for detected, _ in lancet["Jev (hosted)"]} == {409 - 13}
    ((detected, accepted),) = shellrisk["Kestrel"]
    assert detected + 4001 - accepted == 188
    assert [name for name, counts in shellrisk.items() if len(counts) > 1] == [
        "Llama Guard 4 (12B)"
    ]
    assert (len(lancet), len(shellrisk)) == (14, 10)
    assert all(lancet.values())


def test_tie_groups_begin_with_who_surely_differs() -> None:
    found = reproduce(load_table("shellrisk-bench"), "malicious_detection_rate")
    groups = {place["model"]: place["tie_group"] for place in found["ranking"]}
    assert [*groups.values()] == [1, *[2] * 7, 3, 3]
    assert {found["run_id"], *(each["beside"] for each in found["models"])} == {None}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = [", "is not valid TOML"),
        ("x = " + "[" * 5000, "nested too deeply"),
        ("x = 1" * 2**20, "larger than 1 MiB"),
        (HEAD, "key 'row': is missing"),
        (HEAD + "row = []", "key 'row': must not be empty"),
        (HEAD + ROW % "f2 = 0.5", "key 'row[0].figures"),
        (HEAD + ROW % "f1 = nan", "key 'row[0].figures.f1': must be from 0 to 1"),
        (HEAD + ROW % "f1 = 1e-999999", "with at most 9 decimals"),
        (HEAD + ROW % "f1 = 92.4", "must be from 0 to 1"),
        (HEAD + ROW % 'f1 = "0.5"', "must be a number, not text"),
        (HEAD + ROW % "true_positives = -1", "must be from 0 to 100,000"),
        (HEAD.replace("malicious = 10", "malicious = -3") + ROW % "f1 = 0.5", "from 2 to 100,000"),
        (HEAD.replace("harmless = 10", "") + ROW % "f1 = 0.5", "lacks `malicious` or `harmless`"),
        (HEAD + 2 * (ROW % "f1 = 0.5"), "key 'row[0].name': stands in two rows"),
    ],
)
def test_a_file_that_is_no_table_is_refused_in_one_line(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "table.toml"
    path.write_text(text)
    with pytest.raises(ReportError) as caught:
        load_table(str(path))
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)


def test_a_table_that_does_not_exist_is_answered_with_those_that_do() -> None:
    with pytest.raises(ReportError, match=r"tables of the package are lancet-bench-1, shellrisk"):
        load_table("shellrisk")
