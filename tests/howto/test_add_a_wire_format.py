"""`docs/guides/add-a-wire-format.md`: a fifth wire format, followed step by step."""

import json

import pytest

from tests.howto.walkthrough import Walkthrough

pytestmark = pytest.mark.long
PAGE = "add-a-wire-format.md"

OWN_MODULES = {"aegish_dist/providers/cohere.py", "aegish_dist/simulator/cohere.py"}
TABLES = {
    "aegish_dist/core/model.py",
    "aegish_dist/providers/failures.toml",
    "aegish_dist/providers/parameters.toml",
    "aegish_dist/simulator/dialects.toml",
    "deploy/simulated.toml",
    "tests/integration/test_init.py",
}
UNIT_TESTS = (
    "tests/unit/core/test_model.py",
    "tests/unit/test_compose.py",
    "tests/unit/pipeline/test_simulate.py",
    "tests/unit/test_plainness.py",
)
STRUCTURED = "tests/integration/test_structured.py"
FROM_NOTHING = "tests/integration/test_init.py::test_without_anything_the_run_asks_the_simulator"
CALLS = """if True:
    import asyncio, json
    from msgspec import to_builtins
    from pathlib import Path

    from aegish_dist.core.model import CallParameters
    from aegish_dist.core.secrets import SecretStr
    from aegish_dist.errors import ProviderError
    from aegish_dist.models.catalog import Catalog
    from aegish_dist.pipeline.simulate import catalog_for
    from aegish_dist.prompts.loading import load_prompt
    from aegish_dist.providers.session import provider_session
    from aegish_dist.simulator.config import ModelConfig, SimulatorConfig
    from aegish_dist.simulator.config import FaultPlan
    from aegish_dist.simulator.server import Simulator, simulator_thread

    MODEL = "simulated-cohere/careful"
    FAULTS = ["ok", "429", "quota", "404", "500", "503", "malformed", "token_limit"]

    async def calls(spec):
        prompt, parameters = load_prompt("guard"), CallParameters(time_limit_s=20)
        async with provider_session(()) as providers:
            for key in [*["right"] * len(FAULTS), "invalid"]:
                client = providers.client(spec, prompt, parameters, SecretStr(key))
                try:
                    answer = await client.complete("ls -l")
                    print(json.dumps({**to_builtins(answer), "key": key}))
                except ProviderError as error:
                    print(json.dumps({**vars(error), "words": str(error), "key": key}))

    script = ModelConfig(script=FAULTS, faults=FaultPlan(retry_after_s=7))
    with simulator_thread(Simulator(SimulatorConfig(models={"careful": script}))) as simulator:
        catalog = Path("simulated.toml")
        catalog.write_text(catalog_for(simulator.url))
        asyncio.run(calls(*Catalog.load(catalog).resolve(MODEL, {})))
        print(json.dumps(simulator.stats.as_dict()["bill"]["models"]["careful"]["live"]))
"""


def test_only_tables_are_touched_outside_its_modules(walkthrough: Walkthrough) -> None:
    """No code that calls, stores or reports knows the format; its catalog names the vendor."""
    assert walkthrough.created - OWN_MODULES == {"cohere.toml"}
    assert walkthrough.edited == TABLES


def test_the_tests_that_the_page_names_pass(walkthrough: Walkthrough) -> None:
    """All that know the table take the new format up, and hold it to the form of an answer."""
    run = ("-m", "pytest", "-v", "-p", "no:cacheprovider")
    tested = walkthrough.run(*run, *UNIT_TESTS, STRUCTURED, FROM_NOTHING, timeout_s=300)
    for name in (
        "test_the_modules_of_each_format_fit_their_protocols[codec-Codec-cohere]",
        "test_the_modules_of_each_format_fit_their_protocols[dialect_of-Dialect-cohere]",
        "test_each_dialect_knows_a_form_of_every_error[cohere]",
        "test_every_wire_format_holds_a_model_to_the_answer[schema-cohere]",
        "test_every_wire_format_holds_a_model_to_the_answer[tool-cohere]",
    ):
        assert f"{name} PASSED" in tested


def test_its_modules_pass_the_lint(walkthrough: Walkthrough) -> None:
    modules = sorted(OWN_MODULES)
    walkthrough.run("-m", "ruff", "format", "--check", *modules)
    walkthrough.run("-m", "ruff", "check", *modules)
    assert "Success" in walkthrough.run("-m", "mypy", *modules, timeout_s=300)


def test_the_reference_lists_it(walkthrough: Walkthrough) -> None:
    walkthrough.run(".ci/reference.py")
    page = walkthrough.tree / "docs/reference/commands/simulate-provider.md"
    assert "Cohere chat (/v2)" in page.read_text(encoding="utf-8")


def test_the_catalog_lists_it(walkthrough: Walkthrough) -> None:
    words = ("-m", "aegish_dist", "models", "list", "--json")
    listed = json.loads(walkthrough.run(*words, AEGISH_DIST_CATALOG="cohere.toml"))
    (model,) = [each for each in listed if each["model"] == "cohere/command-a"]
    assert (model["wire"], model["base_url"]) == ("cohere", "https://api.cohere.com/v2")


def test_it_is_called_over_http(walkthrough: Walkthrough) -> None:
    """An answer is decoded; 429 with its wait, 401 and all the others are classified."""
    lines = walkthrough.run("-c", CALLS).splitlines()
    answer, *failed, cut, refused, bill = [json.loads(line) for line in lines]
    assert json.loads(answer["text"])["action"] == "ALLOW"
    assert (answer["stop_reason"], answer["stop_kind"]) == ("COMPLETE", "stop")
    assert answer["usage"]["input_tokens"] > 100
    assert answer["usage"]["output_tokens"] > 10
    assert bill["requests"] == len([answer, "malformed", cut])
    assert bill["input_tokens"] == 3 * answer["usage"]["input_tokens"]
    assert answer["request_id"]
    classes = ["rate_limit", "quota", "not_found", "server", "overloaded", "malformed"]
    assert [each["error_class"] for each in failed] == classes
    assert (failed[0]["status"], failed[0]["retry_after_s"]) == (429, 7)
    assert (cut["text"], cut["stop_kind"]) == ("", "max_tokens")
    assert failed[0]["words"] == "HTTP 429: limited to 10 API calls / minute"
    assert failed[1]["status"] == 429
    assert (refused["error_class"], refused["status"]) == ("auth", 401)


def test_demo_asks_it(walkthrough: Walkthrough) -> None:
    models = walkthrough.run("-c", "from aegish_dist.cli.simulation import MODELS; print(*MODELS)")
    assert "simulated-cohere/careful" in models.split()
