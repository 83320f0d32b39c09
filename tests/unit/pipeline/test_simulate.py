"""Catalogs of simulated and replayed models, and the options of the provider that serves them."""

import tomllib
from pathlib import Path

import pytest

from aegish_dist.cli.simulation import given_values, simulate_provider
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.verdict import VerdictRecord
from aegish_dist.errors import CatalogError, ConfigError
from aegish_dist.models.catalog import Catalog
from aegish_dist.pipeline.simulate import catalog_for, simulator_config, write_catalog

URL = "http://127.0.0.1:8099"
ODD = ['x/"y"', "x/a\nb", "x/a\\", "\u00e9/a", "plain"]


def recorded(*models: str) -> list[VerdictRecord]:
    target = TrueLabel.HARMLESS
    return [
        VerdictRecord(model=model, command="ls", target=target, completion=None) for model in models
    ]


def test_models_that_no_catalog_can_name_are_left_out(tmp_path: Path) -> None:
    """Nothing that would have to be escaped in TOML comes into the file."""
    path = tmp_path / "catalog.toml"
    assert write_catalog(path, URL, recorded("x/a", *ODD)) == sorted(ODD)
    assert [each["id"] for each in tomllib.loads(path.read_text())["models"]] == ["x/a"]
    with pytest.raises(ConfigError, match="no catalog can name"):
        write_catalog(path, URL, recorded(*ODD))


@pytest.mark.parametrize(
    "models", [(), ("openai/gpt-5.1", "google/gemini-3-pro", "x/y:z", "baseline/keyword")]
)
def test_what_is_written_is_a_catalog(tmp_path: Path, models: tuple[str, ...]) -> None:
    path = tmp_path / "sim.toml"
    path.write_text(catalog_for(URL, models))
    chosen = models or ("simulated/careful",)
    specs = Catalog.load(path).resolve(chosen, {})
    assert all(spec.base_url.startswith(URL) for spec in specs)
    assert all(spec.batch_share is None for spec in specs)


def test_each_recorded_arm_is_asked_by_a_name_of_its_own(tmp_path: Path) -> None:
    path, arms = tmp_path / "sim.toml", ["x/o/m#a", "x/o/m#low+a"]
    assert write_catalog(path, URL, recorded(*arms, "x/m#a b")) == ["x/m#a b"]
    names = [spec.name for spec in Catalog.load(path).resolve(arms, {})]
    assert names == ["o/m#a", "o/m#low+a"]


def test_a_model_that_the_simulator_does_not_have_is_refused(tmp_path: Path) -> None:
    """All that may be asked are marked as simulated, those of a scenario and of the user too."""
    path = tmp_path / "sim.toml"
    write_catalog(path, URL, (), ["hasty", "busy", "no id"])
    path.write_text(path.read_text() + '[[models]]\nid = "simulated/mine"\n')
    named = "simulated/careful", "simulated/busy", "simulated/mine", "simulated-exec/careful"
    catalog, asked = Catalog.load(path), named
    assert all(spec.simulated for spec in catalog.resolve(asked, {}))
    with pytest.raises(CatalogError, match=r"not one of the simulated.*mean 'simulated/careful'"):
        catalog.resolve("simulated/carefull", {})


def test_faults_of_the_command_line_are_those_of_the_provider() -> None:
    words = ["--fault", "reset=0.25", "--fault", "hang=0.5", "--latency", "constant:0"]
    options = simulate_provider.make_context("simulate-provider", words).params
    others = {"replays", "catalog", "scenario"}
    given = given_values(**{name: options[name] for name in options.keys() - others})
    faults = simulator_config(None, given).faults
    assert (faults.reset, faults.hang, faults.auth) == (0.25, 0.5, 0)
