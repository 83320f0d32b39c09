"""Catalogs of simulated and replayed models."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aegish_dist.models import Catalog
from aegish_dist.pipeline.simulate import catalog_for

URL = "http://127.0.0.1:8099"


@settings(deadline=None)  # the first example imports a parser
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_any_model_id_is_written_as_toml(models: list[str]) -> None:
    """Emoji, quotes and control characters are read back as they were, from plain ASCII."""
    text = catalog_for(URL, models)
    assert text.isascii()
    assert text.replace("\n", "").isprintable()
    assert [each["id"] for each in tomllib.loads(text)["models"]] == models


@pytest.mark.parametrize(
    "models", [(), ("openai/gpt-5.1", "google/gemini-3-pro", "x/y:z", "baseline/keyword")]
)
def test_what_is_written_is_a_catalog(tmp_path: Path, models: tuple[str, ...]) -> None:
    path = tmp_path / "sim.toml"
    path.write_text(catalog_for(URL, models))
    chosen = models or ("simulated/careful",)
    assert all(spec.base_url.startswith(URL) for spec in Catalog.load(path).resolve(chosen, {}))
