"""Scenario files, scripts, and the page that explains them."""

import re
from pathlib import Path

import pytest

from aegish_dist.errors import ConfigError
from aegish_dist.simulator.bill import Bill, Tariff
from aegish_dist.simulator.config import (
    Capacity,
    Fault,
    FaultPlan,
    ModelConfig,
    RateLimit,
    SimulatorConfig,
    parse_script,
    pick,
    read_scenario,
)
from tests.recorded import lines_of

TESTS = Path(__file__).parents[2]


def read(tmp_path: Path, text: str) -> SimulatorConfig:
    path = tmp_path / "scenario.toml"
    path.write_text(text)
    return read_scenario(path)


def test_every_key_is_read() -> None:
    assert read_scenario(TESTS / "data" / "scenario.toml") == SimulatorConfig(
        seed=7,
        port=8080,
        latency="lognormal:0.8,0.4",
        faults=FaultPlan(rate_limit=0.02, retry_after_s=0.5, hang_s=30),
        rate_limit=RateLimit(600, 20),
        price=Tariff(2.5, 10),
        models={
            "simulated/hasty": ModelConfig(latency="constant:0", script=["ok", 429, "hang"]),
            "a/b:c": ModelConfig(
                faults=FaultPlan(reset=1, retry_after_s="absent"),
                rate_limit=RateLimit(1.5),
                capacity=Capacity(10, longest_queue_s=20),
                price=Tariff(5, cached_input=0.5),
            ),
        },
    )


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, "") == SimulatorConfig()


@pytest.mark.parametrize(("text", "problem"), lines_of("refused_scenarios.jsonl"))
def test_mistakes_are_named(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert f"scenario.toml: {problem}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml: cannot be read"):
        read_scenario(tmp_path / "absent.toml")


def test_pick_divides_the_unit_interval() -> None:
    chances = {Fault.RATE_LIMIT: 0.25, Fault.HANG: 0.5}
    picks = [pick(chances, luck) for luck in (0.1, 0.24, 0.26, 0.74, 0.76, 0.99)]
    limit, hang = Fault.RATE_LIMIT, Fault.HANG
    assert picks == [limit, limit, hang, hang, None, None]
    assert pick(FaultPlan().chances, 1e-12) is None


def test_script_words() -> None:
    script = parse_script(["ok", 429, "529", "hang", "content_filter"])
    assert script == [None, Fault.RATE_LIMIT, Fault.OVERLOADED, Fault.HANG, Fault.CONTENT_FILTER]


PAGE = (TESTS.parent / "docs" / "guides" / "simulator.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_example_is_a_scenario(tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(section("A scenario").partition("```toml\n")[2].partition("```")[0])
    assert read_scenario(path).models["busy"].capacity == Capacity(10, longest_queue_s=30)


def test_the_keys_of_the_bill_are_those_of_the_page() -> None:
    rows = "".join(re.findall(r"^\| (`.*?) \|", section("The bill"), re.MULTILINE))
    assert all(f"`{key}`" in rows for key in Bill(Tariff(), {}).as_dict() if key != "models")
