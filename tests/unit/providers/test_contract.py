"""Bodies encoded once, with the command put in per call."""

import json

import pytest

from aegish_dist.core.run import Prompt
from aegish_dist.providers.contract import merged, template

PROMPT = Prompt("p", 'Say "{command}" \u20ac', 'Judge:\n<c>{command}</c> "{}"')


@pytest.mark.parametrize(
    "command",
    [
        "ls",
        "",
        'echo "a\\b"\t\n\0',
        ":(){ :|:& };:",
        "{command}",
        "echo \u2603 \U0001f4a3",
        "\ud83d alone \udca3",
        "x" * 100_000,
    ],
)
def test_body_holds_the_rendered_prompt_whatever_the_command(command: str) -> None:
    body = {
        "system": PROMPT.system,
        "max_tokens": 5,
        "messages": [{"role": "user", "content": PROMPT.template}],
    }
    sent = json.loads(b"".join(template("http://127.0.0.1/", body).parts(command)))
    rendered = PROMPT.render(command)
    assert sent["messages"][0]["content"] == rendered.user
    assert sent["system"] == rendered.system
    assert sent["max_tokens"] == 5


def test_merge_follows_the_json_merge_patch_rules() -> None:
    assert merged(
        {"a": 1, "b": {"c": 2, "d": 3}, "e": None, "f": 4},
        {"b": {"c": None, "x": 5}, "f": None, "g": {"h": None, "i": 0}, "a": [1]},
    ) == {"a": [1], "b": {"d": 3, "x": 5}, "g": {"i": 0}}
