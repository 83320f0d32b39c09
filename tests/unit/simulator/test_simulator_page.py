"""The page about the simulated provider."""

import re
from pathlib import Path

import pytest

from aegish_dist.simulator.bill import Bill
from aegish_dist.simulator.config import CallFault, EndFault, Endpoint, RequestFault, read_scenario

PAGE = (Path(__file__).parents[3] / "docs" / "simulator.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize(
    ("title", "faults"),
    [
        ("Faults of a batch's requests", RequestFault),
        ("Faults of a whole batch", EndFault),
        ("Faults of HTTP requests about batches", CallFault),
    ],
)
def test_each_fault_has_its_row(title: str, faults: type[RequestFault]) -> None:
    assert re.findall(r"^\| `(\w+)` \|", section(title), re.MULTILINE) == list(faults)


def test_the_kinds_of_requests_are_named() -> None:
    text = section("Faults of HTTP requests about batches").partition("\n|")[0]
    assert all(f"`{endpoint}`" in text for endpoint in Endpoint)


def test_the_example_is_a_scenario(tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(section("A scenario").partition("```toml\n")[2].partition("```")[0])
    assert read_scenario(path).batches.list_lag_s == 0.5


def test_the_keys_of_the_bill_are_those_of_the_page() -> None:
    """All but the models', which stand in one row for each."""
    rows = "".join(re.findall(r"^\| (`.*?) \|", section("The bill"), re.MULTILINE))
    assert all(f"`{key}`" in rows for key in Bill().as_dict() if key != "models")
