"""`docs/guides/add-a-wire-format.md`: a fifth wire format, followed step by step."""

import json

import pytest

from tests.howto.walkthrough import Walkthrough

pytestmark = pytest.mark.long
PAGE = "add-a-wire-format.md"

OWN_MODULES = {"aegish_dist/providers/cohere.py", "aegish_dist/simulator/cohere.py"}
TESTS = ("core/test_model.py", "test_compose.py", "pipeline/test_simulate.py")
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
"""


def test_no_more_than_three_files_outside_its_modules_are_touched(walkthrough: Walkthrough) -> None:
    """The table of formats, the catalog for Compose, and a catalog with the vendor."""
    assert walkthrough.created - OWN_MODULES == {"cohere.toml"}
    assert walkthrough.edited == {"aegish_dist/core/model.py", "deploy/simulated.toml"}


def test_the_entry_is_complete(walkthrough: Walkthrough) -> None:
    """All tests that know the table pass with the new format, and so does the type check."""
    paths = [f"tests/unit/{path}" for path in TESTS]
    tested = walkthrough.run("-m", "pytest", "-v", "-p", "no:cacheprovider", *paths)
    assert "test_each_dialect_knows_a_form_of_every_error[cohere] PASSED" in tested
    checked = walkthrough.run("-m", "mypy", *sorted(OWN_MODULES), timeout_s=300)
    assert "Success" in checked


def test_the_catalog_lists_it(walkthrough: Walkthrough) -> None:
    words = ("-m", "aegish_dist", "models", "list", "--json")
    listed = json.loads(walkthrough.run(*words, AEGISH_DIST_CATALOG="cohere.toml"))
    (model,) = [each for each in listed if each["model"] == "cohere/command-a"]
    assert (model["wire"], model["base_url"]) == ("cohere", "https://api.cohere.com/v2")


def test_it_is_called_over_http(walkthrough: Walkthrough) -> None:
    """An answer is decoded; 429 with its wait, 401 and all the others are classified."""
    lines = walkthrough.run("-c", CALLS).splitlines()
    answer, *failed, cut, refused = [json.loads(line) for line in lines]
    assert json.loads(answer["text"])["action"] == "ALLOW"
    assert (answer["stop_reason"], answer["stop_kind"]) == ("COMPLETE", "stop")
    assert answer["usage"]["input_tokens"] > 100
    assert answer["usage"]["output_tokens"] > 10
    assert answer["request_id"]
    classes = ["rate_limit", "quota", "not_found", "server", "overloaded", "malformed"]
    assert [each["error_class"] for each in failed] == classes
    assert (failed[0]["status"], failed[0]["retry_after_s"]) == (429, 7)
    assert (cut["text"], cut["stop_kind"]) == ("", "max_tokens")
    assert failed[0]["words"] == "HTTP 429: you are past the per minute request limit"
    assert (refused["error_class"], refused["status"]) == ("auth", 401)


def test_demo_asks_it(walkthrough: Walkthrough) -> None:
    models = walkthrough.run("-c", "from aegish_dist.cli.simulation import MODELS; print(*MODELS)")
    assert "simulated-cohere/careful" in models.split()
