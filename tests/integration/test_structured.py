"""Answers that the provider holds to a form, by our codecs and by the vendors' own clients."""

import asyncio
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from aegish_dist.core.model import CallParameters, ModelSpec, Structured, WireFormat
from aegish_dist.core.outcome import Outcome, StopKind
from aegish_dist.core.output import Logprobs
from aegish_dist.core.run import Prompt
from aegish_dist.core.secrets import SecretStr
from aegish_dist.core.verdict import Completion
from aegish_dist.errors import ProviderError
from aegish_dist.opinions.parsing import judge
from aegish_dist.providers import contract
from aegish_dist.providers.session import provider_session
from aegish_dist.simulator.config import SimulatorConfig
from aegish_dist.simulator.personas import NO_LATENCY
from aegish_dist.simulator.server import Simulator, simulator_thread
from tests.defined import defined
from tests.oracles import anthropic, anthropic_parse, genai, openai, openai_schema

TOOL, ANSWER_SCHEMA = contract.TOOL["name"], contract.ANSWER_SCHEMA
PROMPT = Prompt("guard", "Judge shell commands.", "<command>{command}</command>")
COMMAND = "cat /etc/shadow"
USER: Any = {"role": "user", "content": f"<command>{COMMAND}</command>"}
BOUNDED = {"properties": {"confidence": {"maximum": 1}}}
CHAT = [wire for wire in WireFormat if wire.reads_prompt]


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    action: Literal["ALLOW", "WARN", "BLOCK"]
    reason: str
    confidence: float = Field(description="From 0 to 1.")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with simulator_thread(Simulator(SimulatorConfig(latency=NO_LATENCY))) as server:
        yield server.url


def asked(
    url: str,
    wire: WireFormat,
    structured: Structured | None = None,
    command: str = COMMAND,
    **of_spec: Any,
) -> Completion:
    async def call() -> Completion:
        root = url + defined(wire.http).simulated_root
        spec = ModelSpec("lab/m", wire, "thorough", root, structured=structured, **of_spec)
        async with provider_session(()) as session:
            client = session.client(spec, PROMPT, CallParameters(seed=None), SecretStr("k"))
            return await client.complete(command)

    return asyncio.run(call())


@pytest.mark.parametrize("wire", CHAT)
@pytest.mark.parametrize("structured", ["schema", "tool"])
def test_every_wire_format_holds_a_model_to_the_answer(
    url: str, wire: WireFormat, structured: Structured
) -> None:
    free = asked(url, wire)
    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(free.text or "")
    held = asked(url, wire, structured)
    answer = Answer.model_validate_json(held.text or "", strict=True)
    assert judge(held).outcome == judge(free).outcome == Outcome[answer.action]
    assert held.stop_kind is StopKind.STOP


def _by_openai(url: str) -> list[str | None]:
    function: Any = openai.pydantic_function_tool(Answer, name=TOOL)
    choice: Any = {"type": "function", "function": {"name": TOOL}}
    with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        ask = partial(client.chat.completions.parse, model="thorough", messages=[USER])
        by_schema = ask(response_format=Answer)
        by_tool = ask(tools=[function], tool_choice=choice)
    (called,) = by_tool.choices[0].message.tool_calls or []
    return [by_schema.choices[0].message.content, called.function.arguments]


def _by_anthropic(url: str) -> list[str | None]:
    common: Any = {"model": "thorough", "max_tokens": 99, "messages": [USER]}
    tool: Any = {"name": TOOL, "input_schema": ANSWER_SCHEMA}
    with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as client:
        by_schema = client.messages.parse(**common, output_format=Answer)
        choice: Any = {"type": "tool", "name": TOOL}
        by_tool = client.messages.create(**common, tools=[tool], tool_choice=choice)
    (called,) = by_tool.content
    assert called.type == "tool_use"
    return [defined(by_schema.parsed_output).model_dump_json(), json.dumps(called.input)]


def _by_google(url: str) -> list[str | None]:
    function = genai.types.FunctionDeclaration(name=TOOL, parameters_json_schema=ANSWER_SCHEMA)
    mode = {"function_calling_config": {"mode": "ANY", "allowed_function_names": [TOOL]}}
    forms: list[Any] = [
        {"response_mime_type": "application/json", "response_json_schema": ANSWER_SCHEMA},
        {"tools": [{"function_declarations": [function]}], "tool_config": mode},
    ]
    options: Any = {"base_url": url, "api_version": "v1beta"}
    with genai.Client(api_key="k", http_options=options) as client:
        ask = partial(client.models.generate_content, model="thorough", contents=USER["content"])
        by_schema, by_tool = (ask(config=form) for form in forms)
    (called,) = by_tool.function_calls or []
    return [by_schema.text, json.dumps(called.args)]


@pytest.mark.parametrize(
    ("wire", "by_vendor"),
    [
        (WireFormat.OPENAI, _by_openai),
        (WireFormat.ANTHROPIC, _by_anthropic),
        (WireFormat.GOOGLE, _by_google),
    ],
)
def test_the_vendors_clients_are_answered_as_ours_is(
    url: str, wire: WireFormat, by_vendor: Callable[[str], list[str | None]]
) -> None:
    expected = Answer.model_validate_json(asked(url, wire, "schema").text or "")
    assert [Answer.model_validate_json(text or "") for text in by_vendor(url)] == [expected] * 2


def test_the_schema_is_one_that_the_vendors_clients_would_send() -> None:
    """Anthropic's client moves what its API refuses, such as bounds, into descriptions."""
    transformed = anthropic_parse.transform_schema(dict(ANSWER_SCHEMA))
    transformed["properties"]["action"]["type"] = "string"  # of an enum it is said twice
    assert transformed == ANSWER_SCHEMA
    strict = openai_schema.to_strict_json_schema(Answer)
    for each in (strict, *strict["properties"].values()):
        del each["title"]
    assert strict == ANSWER_SCHEMA


@pytest.mark.parametrize(
    ("wire", "parameters"),
    [
        (WireFormat.OPENAI, {"response_format": {"json_schema": {"schema": {"required": []}}}}),
        (WireFormat.OPENAI, {"top_logprobs": 21, "logprobs": True}),
        (WireFormat.ANTHROPIC, {"output_config": {"format": {"schema": BOUNDED}}}),
        (WireFormat.GOOGLE, {"generationConfig": {"responseMimeType": None}}),
        (WireFormat.GOOGLE, {"generationConfig": {"responseJsonSchema": {"type": "string"}}}),
    ],
)
def test_the_simulator_refuses_what_the_vendor_does(
    url: str, wire: WireFormat, parameters: dict[str, object]
) -> None:
    with pytest.raises(ProviderError) as caught:
        asked(url, wire, "schema", parameters=parameters)
    assert caught.value.status == 400


SURE = Logprobs(unsafe=("BLOCK",), safe=("ALLOW",), block_from=0.5)


def test_log_probabilities_become_a_suspicion(url: str) -> None:
    """The simulator is as sure of its action as it says: c against (1 - c) / 2 for each other."""
    for command, outcome in ((COMMAND, Outcome.BLOCK), ("ls", Outcome.ALLOW)):
        found = asked(url, WireFormat.OPENAI, "schema", command, output=SURE)
        sure = json.loads(found.text or "")["confidence"]
        share = sure / (sure + (1 - sure) / 2)
        verdict = judge(found, command, SURE)
        assert verdict.outcome is outcome
        expected = share if outcome is Outcome.BLOCK else 1 - share
        assert defined(verdict.completion).suspicion == pytest.approx(expected)
    assert asked(url, WireFormat.OPENAI).logprobs == ()
