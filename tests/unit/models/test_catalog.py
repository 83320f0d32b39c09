"""The catalog: what is packaged, how a user's file changes it, which key may go where."""

import json
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from unittest.mock import Mock

import pytest

from aegish_dist.core.model import Destination, Limits, Price, Rate, WireFormat
from aegish_dist.core.secrets import SecretStr
from aegish_dist.errors import CatalogError, ConfigError
from aegish_dist.models.catalog import Catalog, missing_key
from aegish_dist.models.credentials import CatalogCredentials, Credentials
from aegish_dist.models.entries import ModelEntry, inheriting
from tests.defined import defined
from tests.recorded import DATA, lines_of

KEY = "sk-0123456789abcdef"
ENVIRON = {
    "OPENAI_API_KEY": KEY,
    "ANTHROPIC_API_KEY": "sk-ant",
    "LAB_KEY": "lab",
    "AEGISH_DIST_DATABASE_URL": "postgresql://u:hush@db/x",
    "HOME": "/root",
}
MINE = DATA / "catalog.toml"


def to(base_url: str, variable: str | None = None) -> Destination:
    return Destination(WireFormat.OPENAI, base_url, variable)


def credentials(path: Path | None = None, **environ: str) -> Credentials:
    return Credentials(Catalog.load(path), ENVIRON | environ)


@pytest.fixture(scope="module")
def packaged() -> Catalog:
    return Catalog.load()


@pytest.fixture(scope="module")
def mine() -> Catalog:
    return Catalog.load(MINE)


@pytest.mark.parametrize(
    ("wire", "base_url", "variable", "key"), lines_of("allowed_destinations.jsonl")
)
def test_pairs_of_the_catalog_are_allowed(
    wire: str, base_url: str, variable: str | None, key: str | None
) -> None:
    destination = Destination(WireFormat[wire], base_url, variable)
    assert credentials(MINE).key(destination) == (key and SecretStr(key))


@pytest.mark.parametrize(
    ("wire", "base_url", "variable", "reason"), lines_of("refused_destinations.jsonl")
)
def test_every_other_pair_is_refused(
    wire: str, base_url: str, variable: str | None, reason: str
) -> None:
    allowed = credentials(MINE)
    destination = Destination(WireFormat[wire], base_url, variable)
    refusal = allowed.refusal(destination)
    assert refusal is not None
    assert reason in refusal
    assert refusal.isprintable()
    assert not any(secret in refusal for secret in (KEY, "hush", "/root"))
    with pytest.raises(ConfigError, match=r"."):
        allowed.key(destination)


def test_a_base_url_of_the_environment_is_the_operators() -> None:
    moved = credentials(OPENAI_BASE_URL="https://proxy.example/v1")
    assert moved.key(to("https://proxy.example/v1", "OPENAI_API_KEY")) == SecretStr(KEY)
    assert moved.refusal(to("https://proxy.example/v1", "ANTHROPIC_API_KEY")) is not None
    assert credentials().refusal(to("https://proxy.example/v1", "OPENAI_API_KEY")) is not None


@pytest.mark.parametrize("base_url", ["proxy.example", "http://u:hush@h", "http://169.254.169.254"])
def test_a_base_url_of_the_environment_that_is_none_allows_nothing(base_url: str) -> None:
    odd = credentials(OPENAI_BASE_URL=base_url)
    assert odd.refusal(to(base_url, "OPENAI_API_KEY")) is not None
    assert odd.key(to("https://api.openai.com/v1", "OPENAI_API_KEY")) == SecretStr(KEY)
    assert odd.refusal(Destination(WireFormat.BASELINE, "", None)) is None


def test_a_changed_catalog_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "catalog.toml"
    path.write_text("")
    found = CatalogCredentials(path, ENVIRON)
    lab = to("https://lab.example/v1", "LAB_KEY")
    assert found.now().refusal(lab) is not None
    assert found.now() is found.now()

    path.write_text(MINE.read_text())
    assert found.now().key(lab) == SecretStr("lab")

    path.write_text("[providers")
    assert "catalog.toml" in (found.now().refusal(lab) or "")
    path.unlink()
    assert "cannot be read" in (found.now().refusal(lab) or "")
    path.write_text(MINE.read_text())
    assert found.now().key(lab) == SecretStr("lab")


def test_a_changed_catalog_that_is_not_read_yet_allows_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "catalog.toml"
    path.write_text(MINE.read_text())
    found = CatalogCredentials(path, ENVIRON)
    found.now()
    path.write_text("")
    broken = Mock(side_effect=MemoryError)
    monkeypatch.setattr(Catalog, "load", broken)
    for _ in range(2):
        with pytest.raises(MemoryError):
            found.now()


def test_without_a_catalog_the_packaged_one_is_the_operators() -> None:
    allowed = CatalogCredentials(None, ENVIRON).now()
    assert allowed.key(to("https://api.openai.com/v1", "OPENAI_API_KEY")) == SecretStr(KEY)
    assert allowed.refusal(to("https://lab.example/v1", "LAB_KEY")) is not None


LOCAL = "http://127.0.0.1:11434/v1"


def test_a_worker_calls_its_own_machine_only_where_its_catalog_says_so(tmp_path: Path) -> None:
    path = tmp_path / "catalog.toml"
    allowed = credentials()
    assert allowed.refusal(to(LOCAL)) is None  # whose command line it is
    for text in ("", "[providers.vllm]\n", "[providers.openai]\n"):
        path.write_text(text)
        refusal = CatalogCredentials(path, ENVIRON).now().refusal(to(LOCAL))
        assert "127.0.0.1:11434 is not in the catalog" in (refusal or "")
    assert CatalogCredentials(None, ENVIRON).now().refusal(to(LOCAL)) is not None
    assert CatalogCredentials(None, ENVIRON, embedded=True).now().refusal(to(LOCAL)) is None
    for text in ("[providers.ollama]\n", '[[models]]\nid = "ollama/llama3"\n'):
        path.write_text(text)
        assert CatalogCredentials(path, ENVIRON).now().refusal(to(LOCAL)) is None


REFERENCE = (
    "openai/gpt-5.1",
    "openai/gpt-5-mini",
    "openai/gpt-5-nano",
    "anthropic/claude-opus-4-6",
    "anthropic/claude-sonnet-4-5-20250929",
    "anthropic/claude-haiku-4-5-20251001",
    "google/gemini-3-pro-preview",
    "google/gemini-3-flash-preview",
    "openrouter/microsoft/phi-4",
    "hf-inference-providers/fdtn-ai/Foundation-Sec-8B-Instruct:featherless-ai",
    "hf-inference-providers/trendmicro-ailab/Llama-Primus-Reasoning:featherless-ai",
)
BASELINES = ("baseline/always-block", "baseline/always-allow", "baseline/keyword")


EARLY = datetime(2026, 1, 1, tzinfo=UTC)


def test_the_reference_models_are_packaged_and_among_all(packaged: Catalog) -> None:
    """Each packaged model has a price."""
    listed = packaged.entries({})
    assert tuple(e.spec.id for e in listed if e.entry.reference) == REFERENCE
    assert [e.spec.id for e in listed if e.spec.price is None] == []
    ids = [spec.id for spec in packaged.resolve("all", {}, EARLY)]
    assert set(REFERENCE) | set(BASELINES) < set(ids)
    assert ids == [e.spec.id for e in listed if e.entry.default]


def test_all_leaves_out_what_has_ended(packaged: Catalog) -> None:
    eve, day = datetime(2026, 12, 10, tzinfo=UTC), datetime(2026, 12, 11, tzinfo=UTC)
    before, after = ({spec.id for spec in packaged.resolve("all", {}, at)} for at in (eve, day))
    assert before - after == {"openai/gpt-5-mini", "openai/gpt-5-nano"}
    assert "google/gemini-3-pro-preview" not in before
    assert [s.id for s in packaged.resolve("openai/gpt-5-mini", {}, day)] == ["openai/gpt-5-mini"]
    assert packaged.entry("openai/gpt-5-mini").retires == date(2026, 12, 11)
    unlisted = ModelEntry(id="openai/unlisted")
    assert packaged.entry(unlisted.id) == inheriting(unlisted, packaged.providers["openai"])


def test_available_selects_what_has_its_key_here(packaged: Catalog) -> None:
    environ = {"ANTHROPIC_API_KEY": "k", "GOOGLE_API_KEY": " "}
    ids = {spec.id for spec in packaged.resolve("available,openai/gpt-5.1", environ, EARLY)}
    claude = {
        e.spec.id
        for e in packaged.entries({})
        if e.entry.default and e.spec.provider == "anthropic"
    }
    assert ids == claude | set(BASELINES) | {"openai/gpt-5.1"}


def test_the_entry_of_a_model_can_be_changed(mine: Catalog) -> None:
    old, new = mine.resolve("caching/old,caching/new", {})
    entry = mine.entry("caching/old")
    assert (entry.retires, entry.takes_temperature) == (date(2027, 1, 31), False)
    assert (old.max_tokens_field, new.max_tokens_field) == ("max_tokens", "max_completion_tokens")
    assert tuple(defined(spec.price).cache_from_tokens for spec in (old, new)) == (0, 7)
    assert defined(old.price).cache_write_1h == Rate(Decimal(4))


def test_baselines_need_no_network_no_key_and_no_money(packaged: Catalog) -> None:
    for spec in packaged.resolve(BASELINES, {}):
        assert (spec.wire, spec.base_url, spec.key_variable) == (WireFormat.BASELINE, "", None)
        assert spec.price == Price(per_call=Decimal(0))


@pytest.mark.parametrize(
    ("model_id", "wire", "base_url", "key_variable"),
    lines_of("resolved_models.jsonl"),
)  # fmt: skip
def test_a_model_of_a_known_provider_resolves(
    model_id: str, wire: str, base_url: str, key_variable: str | None
) -> None:
    (spec,) = Catalog.load().resolve(model_id, {})
    assert (spec.id, spec.name) == (model_id, model_id.split("/", 1)[1])
    assert (spec.wire, spec.base_url, spec.key_variable) == (wire, base_url, key_variable)


def test_a_selection_collapses_duplicates_and_keeps_order(packaged: Catalog) -> None:
    specs = packaged.resolve(["openai/b, openai/a", "openai/b,,", "baseline/keyword"], {})
    assert [spec.id for spec in specs] == ["openai/b", "openai/a", "baseline/keyword"]
    ids = [spec.id for spec in packaged.resolve("ollama/x,openai/gpt-5.1,all", {}, EARLY)]
    assert ids[:3] == ["ollama/x", "openai/gpt-5.1", "openai/gpt-5-mini"]
    assert len(ids) == len(set(ids))


def test_a_run_asks_at_most_a_thousand_models(packaged: Catalog) -> None:
    ids = [f"openai/m{number}" for number in range(1001)]
    assert len(packaged.resolve(ids[:1000], {})) == 1000
    with pytest.raises(CatalogError, match="1,001 models selected: a run asks at most 1,000"):
        packaged.resolve(ids, {})


@pytest.mark.parametrize(("selection", "expected"), lines_of("refused_selections.jsonl"))
def test_a_wrong_selection_says_what_is_meant(
    packaged: Catalog, selection: list[str], expected: str
) -> None:
    with pytest.raises(CatalogError, match=expected) as raised:
        packaged.resolve(selection, {})
    assert "`aegish-dist models list`" in str(raised.value)
    assert len(str(raised.value)) < 400
    assert str(raised.value).isprintable()


def test_openai_base_url_overrides_provider_but_not_entry(mine: Catalog) -> None:
    environ = {"OPENAI_BASE_URL": "https://proxy.example/v1/"}
    specs = mine.resolve("openai/gpt-5.1,openai/elsewhere,groq/x", environ)
    assert [spec.base_url for spec in specs] == [
        "https://proxy.example/v1",
        "https://gateway.example/openai",
        "https://api.groq.com/openai/v1",
    ]


@pytest.mark.parametrize("url", ["proxy.example", "file:///etc", "http://", "http://u:pw@h/v1"])
def test_a_bad_base_url_in_the_environment_names_the_variable(packaged: Catalog, url: str) -> None:
    with pytest.raises(CatalogError, match=r"^OPENAI_BASE_URL: ") as raised:
        packaged.resolve("openai/gpt-5.1", {"OPENAI_BASE_URL": url})
    assert "pw" not in str(raised.value)


def test_a_users_file_is_laid_over_key_by_key(mine: Catalog) -> None:
    opus, gpt, guard = mine.resolve("anthropic/claude-opus-4-6,openai/gpt-5.1,lab/guard", {})
    assert (opus.base_url, opus.key_variable) == ("https://claude.example", "ANTHROPIC_API_KEY")
    assert (gpt.max_in_flight, gpt.price is not None) == (7, True)
    assert json.loads(json.dumps(gpt.parameters)) == {
        "reasoning_effort": "low",
        "nested": {"top_p": 0.5, "stop": ["a"]},
        "seed": None,
    }
    assert (guard.wire, guard.name, guard.max_in_flight) == (WireFormat.OPENAI, "guard-v2", 3)
    assert guard.price == Price(input=Rate(Decimal(1)), output=Rate(Decimal("2.5")))
    chosen = {spec.id for spec in mine.resolve("all", {})}
    assert chosen & {"lab/guard", "openai/gpt-5.1"} == {"lab/guard"}
    assert mine.entry("openai/gpt-5.1").reference


def test_limits_of_models_and_providers(mine: Catalog) -> None:
    guard, other, elsewhere = mine.resolve("limited/guard,limited/other,openai/x", {})
    assert guard.limits == Limits(30, 90_000.5, None)
    assert other.limits == Limits(60, 90_000.5, None)
    assert guard.shared == other.shared == Limits(100, None, 9)
    assert elsewhere.limits == Limits()
    assert elsewhere.shared == Limits()


def test_a_simulated_entry_needs_no_key(mine: Catalog) -> None:
    (spec,) = mine.resolve("openai/replayed", {"OPENAI_API_KEY": "k"})
    assert (spec.simulated, spec.key_variable) == (True, None)


@pytest.mark.parametrize("host", ["localhost", "[::1]"])
def test_a_server_on_this_machine_takes_a_key_but_does_not_need_one(
    packaged: Catalog, host: str
) -> None:
    environ = {"OPENAI_BASE_URL": f"http://{host}:9/v1"}
    (without,) = packaged.resolve("openai/gpt-5.1", environ)
    (with_key,) = packaged.resolve("openai/gpt-5.1", environ | {"OPENAI_API_KEY": "k"})
    assert (without.key_variable, with_key.key_variable) == (None, "OPENAI_API_KEY")


@pytest.mark.parametrize(
    ("model", "key", "missing"),
    [
        ("openai/gpt-5.1", "", "OPENAI_API_KEY"),
        ("openai/gpt-5.1", " ", "OPENAI_API_KEY"),
        ("openai/gpt-5.1", "k", None),
        ("baseline/keyword", "", None),
        ("ollama/x", "", None),
    ],
)
def test_missing_key_names_the_variable(
    packaged: Catalog, model: str, key: str, missing: str | None
) -> None:
    environ = {"OPENAI_API_KEY": key}
    (spec,) = packaged.resolve(model, environ)
    assert missing_key(spec, environ) == missing


def test_who_takes_batches_and_at_which_price(mine: Catalog) -> None:
    """OpenAI, Anthropic and Google bill a batched request at half a call, by their price pages."""
    ids = "openai/x,anthropic/x,google/x,groq/x,baseline/keyword"
    ids += ",batching/x,batching/whole,openai/unbatched"
    half = Decimal("0.5")
    shares = [spec.batch_share for spec in mine.resolve(ids, {})]
    assert shares == [half, half, half, None, None, Decimal("0.25"), Decimal(1), None]


GUARDS = {
    "exec": 'wire = "exec"\ncommand = ["true"]\ninput = "hook"\noutput = { kind = "hook" }\n',
    "python": 'wire = "python"\nobject = "guards:judge"\n',
    "http": 'wire = "http"\nbase_url = "http://127.0.0.1:9"\nrequest = { text = "{command}" }\n'
    'output = { kind = "score", path = "p", block_from = 0.5 }\n',
}


@pytest.mark.parametrize("wire", GUARDS)
def test_a_guard_without_an_entry_is_told_file_and_lines(wire: str, tmp_path: Path) -> None:
    """The two lines that the message names are all that lacks."""
    file = tmp_path / "guards.toml"
    file.write_text(f"[providers.mine]\n{GUARDS[wire]}")
    with pytest.raises(CatalogError) as caught:
        Catalog.load(file).resolve("mine/2.4.5", {})
    add = f'add to {file}: [[models]] and below it id = "mine/2.4.5"; '
    assert add in str(caught.value)
    assert "\n" not in str(caught.value)
    file.write_text(f'{file.read_text()}[[models]]\nid = "mine/2.4.5"\n')
    (spec,) = Catalog.load(file).resolve("mine/2.4.5", {})
    assert spec.wire == wire


def test_a_guard_whose_other_version_is_listed_is_asked_whether_that_was_meant(
    tmp_path: Path,
) -> None:
    file = tmp_path / "guards.toml"
    file.write_text(f'[providers.mine]\n{GUARDS["exec"]}[[models]]\nid = "mine/2.4.5"\n')
    with pytest.raises(CatalogError, match=r"add to .*guards.toml.*did you mean 'mine/2.4.5'"):
        Catalog.load(file).resolve("mine/2.4.6", {})


def test_the_tables_of_the_page_are_a_catalog(tmp_path: Path) -> None:
    """Together, as the page says; each guard that it describes can be asked."""
    page = Path(__file__).parents[3] / "docs" / "guides" / "guards.md"
    blocks = re.findall(r"^```toml\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    tables = [block for block in blocks if re.match(r"\[(providers\.|\[models)", block)]
    described = {name for block in tables for name in re.findall(r"\[providers\.(.*)\]", block)}
    file = tmp_path / "guards.toml"
    file.write_text("\n".join(tables))
    listed = re.findall(r'^id = "(.*)"$', file.read_text(), re.MULTILINE)
    specs = Catalog.load(file).resolve(listed, {})
    assert {spec.provider for spec in specs} == described | {"vllm"}
    wires = [spec.wire.value for spec in specs]
    assert wires == ["exec", "exec", "exec", "exec", "http", "python", "openai", "exec"]


def test_a_baseline_cannot_be_added() -> None:
    with pytest.raises(
        CatalogError, match="'baseline/mine' is not one of the baselines; "
    ) as caught:
        Catalog.load(MINE).resolve("baseline/mine", {})
    assert "add to" not in str(caught.value)
