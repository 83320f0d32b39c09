"""Catalog files that are wrong: one line with file, table and key, and never a value."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from aegish_dist.errors import CatalogError
from aegish_dist.models.catalog import Catalog

MODEL = '[[models]]\nid = "openai/x"\n'
OPENAI = "[providers.openai]\n"
SECRET = "sk-secret"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OPENAI + "wire = \n", "not valid TOML: .*line 2"),
        ("colour = 1", "top level: key 'colour': Object contains unknown field `colour`"),
        ("providers = 1", "top level: key 'providers': Expected `object`, got `int`"),
        (
            OPENAI + f'api_key = "{SECRET}"',
            r"\[providers.openai\]: key 'api_key': unknown key; known are",
        ),
        (OPENAI + f'key_variable = "{SECRET}"', "key 'key_variable': must be the name"),
        (OPENAI + 'key_variable = "AEGISH_DIST_DATABASE_URL"', "must not begin with AEGISH_DIST_"),
        (OPENAI + 'base_url = "http://169.254.169.254/v1"', "link-local or metadata"),
        (OPENAI + 'base_url = "ftp://host"', "must be an http or https URL"),
        (OPENAI + r'base_url = "https://a.example\\@evil.example"', "must be an http or https URL"),
        (OPENAI + 'wire = "soap"', r"\[providers.openai\]: key 'wire': must be one of .*'anthrop"),
        (OPENAI + "max_in_flight = 0", "key 'max_in_flight': Expected `int` >= 1$"),
        (OPENAI + "requests_per_minute = 1e-9", "Expected `float` >= 0.001$"),
        (OPENAI + "tokens_per_minute = 0", "Expected `float` >= 0.001$"),
        (OPENAI + "batch_share = 1.5", "key 'batch_share': must be from 0 to 1$"),
        (MODEL + "batch_share = nan", "key 'batch_share': must be from 0 to 1$"),
        ("[providers.openai.shared]\nrpm = 5", "'shared.rpm': Object contains unknown field `rpm`"),
        (OPENAI + f'base_url = "http://u:{SECRET}@h"', "key 'base_url': must be an http"),
        ('[providers.new]\nwire = "google"', r"\[providers.new\]: key 'base_url': is missing"),
        ('[providers.New]\nbase_url = "http://h"', r"\[providers.New\]: must be of lower-case"),
        ('[providers.policy]\nbase_url = "http://h"', "and '-', and not 'policy'$"),
        ("models = [1]", r"\[\[models\]\] entry 1: Expected `object`, got `int`"),
        ("[[models]]\nname = 'x'", r"\[\[models\]\] entry 1: key 'id': Object missing"),
        ("[[models]]\nid = 'x'", "entry 1: key 'id': must have the form provider/model"),
        ("[[models]]\nid = 'new/x'", r"'new/x': key 'id': .* add a table \[providers.new"),
        (MODEL + "variants.'a b' = {}", r"key 'variants.a b': must be named by letters"),
        (MODEL + "variants.low.price = {}", "'variants.low.price': is the same for all variants"),
        (
            MODEL + "variants.low.reasoning = 1",
            r"'openai/x', variant 'low': key 'reasoning': unknown key",
        ),
        (MODEL + "variants.low.parameters = 1", "'low': key 'parameters': Expected `object`, got"),
        (
            MODEL + "variants.low.output.kind = 'hook'\nstructured = 'tool'",
            "'openai/x#low': .* reads 'hook'",
        ),
        (MODEL + "variants = {low = 1}", "key 'variants.low': Expected `object`, got `int`"),
        (MODEL + MODEL, r"entry 2: key 'id': 'openai/x' is already entry 1"),
        (
            MODEL + "simulated = 1",
            r"entry 1 \(openai/x\): key 'simulated': Expected `bool`, got `int`$",
        ),
        (MODEL + "price = {input = -1, output = 2}", "key 'price.input': Expected `int` >= 0"),
        (MODEL + "price = {input = nan, output = 2}", "key 'price.input': must be from 0 to 1,00"),
        (
            MODEL + "price = {input = '1', output = 2}",
            r"key 'price.input': Expected `int \| .*`, got `str`$",
        ),
        (
            MODEL + "price = {input = true, output = 2}",
            r"'price.input': Expected `int \| .*`, got `bool`$",
        ),
        (
            MODEL + "price = {in = 1, output = 2}",
            "key 'price.in': Object contains unknown field `in`",
        ),
        (MODEL + "price = {input = 1}", "key 'price': give both input and output, or per_call"),
        (MODEL + "price = {input = 1, output = 1, per_call = 1}", "key 'price': give both"),
        (MODEL + "parameters = {day = 2026-01-01}", "key 'parameters': .*no JSON form"),
        (MODEL + "parameters = {top_p = 1e999}", "key 'parameters': .*no JSON form"),
        (MODEL + f"parameters.{'a.' * 10_000}b = 1", "is nested too deeply"),
        (MODEL + "parameters = {n = " + "9" * 5000 + "}", "thousands of digits"),
        (MODEL + "max_in_flight = 99999999999999999999", "more than 64 bits"),
        (
            MODEL + "retires = 2026-12-11T00:00:00Z",
            r"key 'retires': Expected `date \| null`, got `date",
        ),
        (MODEL + 'max_tokens_field = "n"', "key 'max_tokens_field': must be one of 'max_tokens'"),
        (MODEL + 'structured = "json"', "key 'structured': must be one of 'schema', 'tool'"),
        (MODEL + 'structured = "tool"\noutput = {kind = "hook"}', "'structured': asks for kind '"),
        (
            '[providers.baseline]\nstructured = "tool"',
            "key 'structured': wire 'baseline' knows none",
        ),
        (MODEL + "cache_from_tokens = -1", "key 'cache_from_tokens': Expected `int` >= 0"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(CatalogError, match=expected) as raised:
        Catalog.load(path)
    message = str(raised.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert "secret" not in message


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "huge").write_bytes(b"#" * (5 * 2**20))
    (tmp_path / "latin").write_bytes('notes = "\xe9"'.encode("latin-1"))
    problems = {
        "absent": "cannot be read: No such",
        ".": "cannot be read: Is a directory",
        "fifo": "cannot be read: not a regular file",
        "huge": "cannot be read: larger than 4 MiB",
        "latin": "line 1: is not UTF-8",
    }
    for name, problem in problems.items():
        with pytest.raises(CatalogError) as raised:
            Catalog.load(tmp_path / name)
        assert str(raised.value).startswith(f"{tmp_path / name}: {problem}")


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "empty.toml"
    path.write_text("")
    assert replace(Catalog.load(path), path=None) == Catalog.load()


def test_a_variant_lays_its_keys_over_those_of_its_model(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        MODEL
        + """max_in_flight = 3
        parameters = {top_p = 0.5, n = 1}
        variants.low = {parameters = {n = 2}, drop_parameters = ["seed"], prompt = "command"}
        """
    )
    catalog = Catalog.load(path)
    model, low = catalog.resolve("openai/x,openai/x#low", {"OPENAI_API_KEY": "k"})
    assert low.parameters == {"seed": None, "top_p": 0.5, "n": 2}
    assert replace(low, id=model.id, parameters=model.parameters) == model
    assert [catalog.entry(f"openai/x{arm}").prompt for arm in ("", "#low+a", "#a")] == [
        *(None, "command", None)
    ]
    assert [each.spec.id for each in catalog.entries({})][-2:] == ["openai/x", "openai/x#low"]
