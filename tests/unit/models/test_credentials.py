"""Which key may go where: the pairs of the operator's own catalog and no others."""

import os
from pathlib import Path

import pytest

from aegish_dist.core.model import Destination, WireFormat
from aegish_dist.errors import CatalogError, ConfigError
from aegish_dist.models import Catalog, CatalogCredentials, Credentials

KEY = "sk-0123456789abcdef"
ENVIRON = {
    "OPENAI_API_KEY": KEY,
    "ANTHROPIC_API_KEY": "sk-ant",
    "LAB_KEY": "lab",
    "AEGISH_DIST_DATABASE_URL": "postgresql://u:hush@db/x",
    "HOME": "/root",
}
LAB = """
[providers.lab]
base_url = "https://lab.example/v1"
key_variable = "LAB_KEY"
[providers.near]
base_url = "http://10.0.0.7:8000/v1"
key_variable = "LAB_KEY"
[providers.nearby]
base_url = "http://10.0.0.8:8000/v1"
key_variable = "LAB_KEY"
plain_http = true
[[models]]
id = "openai/elsewhere"
base_url = "https://gateway.example/openai"
[[models]]
id = "openai/replayed"
base_url = "http://127.0.0.1:9/v1"
simulated = true
"""


def to(base_url: str, variable: str | None = None) -> Destination:
    return Destination(WireFormat.OPENAI, base_url, variable)


def credentials(text: str = "", **environ: str) -> Credentials:
    return Credentials.of(catalog(text), ENVIRON | environ)


def catalog(text: str) -> Catalog:
    path = Path("catalog.toml")
    path.write_text(text)
    return Catalog.load(path)


@pytest.fixture(autouse=True)
def _in_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("destination", "key"),
    [
        (to("https://api.openai.com/v1", "OPENAI_API_KEY"), KEY),
        (to("https://API.openai.com:443/v1/other", "OPENAI_API_KEY"), KEY),
        (to("https://gateway.example/openai", "OPENAI_API_KEY"), KEY),
        (to("https://lab.example/v1", "LAB_KEY"), "lab"),
        (to("http://10.0.0.8:8000/v1", "LAB_KEY"), "lab"),
        (to("http://10.0.0.7:8000/v1"), None),
        (to("http://127.0.0.1:11434/v1"), None),
        (to("http://127.0.0.1:9/v1"), None),
        (Destination(WireFormat.BASELINE, "", None), None),
    ],
)
def test_pairs_of_the_catalog_are_allowed(destination: Destination, key: str | None) -> None:
    """Packaged ones, the operator's providers, and models with an address of their own."""
    assert credentials(LAB).key(destination) == key


@pytest.mark.parametrize(
    ("destination", "reason"),
    [
        (to("http://127.0.0.1:1/v1", "OPENAI_API_KEY"), "not in the catalog"),
        (to("https://evil.example/v1", "OPENAI_API_KEY"), "not in the catalog"),
        (to("https://evil.example/v1"), "not in the catalog"),
        (to("http://10.0.0.1/admin"), "not in the catalog"),
        (to("http://127.0.0.1:5432/"), "not in the catalog"),
        (to("http://api.openai.com/v1", "OPENAI_API_KEY"), "not in the catalog"),
        (to("https://api.openai.com:8443/v1", "OPENAI_API_KEY"), "not in the catalog"),
        (to("https://api.openai.com/v1", "ANTHROPIC_API_KEY"), "may not be sent to"),
        (to("https://lab.example/v1", "OPENAI_API_KEY"), "may not be sent to"),
        (to("https://lab.example/v1", "HOME"), "may not be sent to"),
        (to("http://127.0.0.1:9/v1", "OPENAI_API_KEY"), "may not be sent to"),
        (to("https://lab.example/v1", "AEGISH_DIST_DATABASE_URL"), "not the name of a key"),
        (to("https://lab.example/v1", "x\x1b[2J"), "not the name of a key"),
        (to("http://169.254.169.254/latest"), "metadata"),
        (to("http://metadata.google.internal/v1"), "metadata"),
        (to("https://api.openai.com@evil.example/v1", "OPENAI_API_KEY"), "no plain http"),
        (to("", "OPENAI_API_KEY"), "no plain http"),
        (to("http://10.0.0.7:8000/v1", "LAB_KEY"), "in clear"),
        (to("https://api.groq.com/openai/v1", "GROQ_API_KEY"), "GROQ_API_KEY is not set"),
    ],
)
def test_every_other_pair_is_refused(destination: Destination, reason: str) -> None:
    """The reason is one line that repeats no value of the environment."""
    allowed = credentials(LAB)
    refusal = allowed.refusal(destination)
    assert refusal is not None
    assert reason in refusal
    assert refusal.isprintable()
    assert not any(secret in refusal for secret in (KEY, "hush", "/root"))
    with pytest.raises(ConfigError, match=r"."):
        allowed.key(destination)


def test_a_base_url_of_the_environment_is_the_operators() -> None:
    """OPENAI_BASE_URL allows the key of `openai` at its origin, and of no other provider."""
    moved = credentials(OPENAI_BASE_URL="https://proxy.example/v1")
    assert moved.key(to("https://proxy.example/v1", "OPENAI_API_KEY")) == KEY
    assert moved.refusal(to("https://proxy.example/v1", "ANTHROPIC_API_KEY")) is not None
    assert credentials().refusal(to("https://proxy.example/v1", "OPENAI_API_KEY")) is not None


@pytest.mark.parametrize("base_url", ["proxy.example", "http://u:hush@h", "http://169.254.169.254"])
def test_a_base_url_of_the_environment_that_is_none_allows_nothing(base_url: str) -> None:
    """Other models are not held up by it, and the packaged address stays."""
    odd = credentials(OPENAI_BASE_URL=base_url)
    assert odd.refusal(to(base_url, "OPENAI_API_KEY")) is not None
    assert odd.key(to("https://api.openai.com/v1", "OPENAI_API_KEY")) == KEY
    assert odd.refusal(Destination(WireFormat.BASELINE, "", None)) is None


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ('key_variable = "AEGISH_DIST_DATABASE_URL"', "must not begin with AEGISH_DIST_"),
        ('base_url = "http://169.254.169.254/v1"', "link-local or metadata"),
        ('base_url = "http://[fd00:ec2::254]/v1"', "link-local or metadata"),
        ('base_url = "http://metadata.google.internal/"', "link-local or metadata"),
        ('base_url = "https://api.openai.com\\\\@evil.example"', "must be an http or https URL"),
    ],
)
def test_a_catalog_cannot_allow_them_either(table: str, says: str) -> None:
    """Settings of this program and metadata services are refused where they are written."""
    with pytest.raises(CatalogError, match=says):
        catalog(f"[providers.lab]\n{table}\n")


def test_a_changed_catalog_is_read_again() -> None:
    """A worker need not be started again; while the file is broken or gone, nothing is allowed."""
    path = Path("catalog.toml")
    path.write_text("")
    found = CatalogCredentials(path, ENVIRON)
    lab = to("https://lab.example/v1", "LAB_KEY")
    assert found.now().refusal(lab) is not None
    assert found.now() is found.now()

    path.write_text(LAB)
    assert found.now().key(lab) == "lab"

    path.write_text("[providers")
    assert "catalog.toml" in (found.now().refusal(lab) or "")

    path.unlink()
    assert "cannot be read" in (found.now().refusal(lab) or "")

    path.write_text(LAB)
    assert found.now().key(lab) == "lab"
    os.utime(path)
    assert found.now().key(lab) == "lab"


def test_without_a_catalog_the_packaged_one_is_the_operators() -> None:
    """Packaged pairs are allowed as they stand."""
    allowed = CatalogCredentials(None, ENVIRON).now()
    assert allowed.key(to("https://api.openai.com/v1", "OPENAI_API_KEY")) == KEY
    assert allowed.refusal(to("https://lab.example/v1", "LAB_KEY")) is not None
