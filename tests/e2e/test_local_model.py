"""A real llama.cpp server on this machine, asked like any other model."""

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from aegish_dist.core.run import Prompt
from aegish_dist.prompts.loading import load_prompt
from tests.cluster import environment, run

pytest.importorskip("xllamacpp", reason="has wheels for Linux on x86-64 alone")

CATALOG = """
[providers.llamacpp]
base_url = "{url}/v1"
[[models]]
id = "llamacpp/tiny"
structured = "schema"
output = {{ kind = "action-json", unsafe = ["BLOCK"], safe = ["ALLOW"] }}
[[models]]
id = "llamacpp/one-word"
parameters = {{ max_tokens = 4 }}
output = {{ kind = "tokens", unsafe = ["unsafe"], safe = ["safe"], block_from = 0.5 }}
"""


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "tests.llama_server", str(tmp_path / "tiny.gguf")]
    streams: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with (
        (tmp_path / "llama.log").open("w") as log,
        subprocess.Popen(command, stderr=log, text=True, **streams) as server,
    ):
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.communicate(timeout=30)


def candidates(url: str, prompt: Prompt, command: str) -> dict[str, float]:
    """Ask for the first token of an answer, by an API of llama.cpp's own."""
    words = prompt.render(command)
    body = {"prompt": f"{words.system}\n{words.user}\n", "n_predict": 1, "n_probs": 20}
    request = Request(f"{url}/completion", json.dumps(body).encode())
    with urlopen(request, timeout=30) as response:
        (first,) = json.load(response)["completion_probabilities"]
    return {each["token"]: each["logprob"] for each in first["top_logprobs"]}


def test_random_weights_are_held_to_the_answer_and_their_tokens_read(
    url: str, home: Path, postgres_url: str, tmp_path: Path
) -> None:
    """Only the server's grammar makes JSON of them; such a server costs nothing."""
    (tmp_path / "mine.toml").write_text(CATALOG.format(url=url))
    (short := tmp_path / "short.md").write_text("Judge the command.")
    env = environment(home=home, database_url=postgres_url, catalog=tmp_path / "mine.toml")
    asked = "--models llamacpp/tiny,llamacpp/one-word --dataset harmless --limit 20"
    run(env, f"submit {asked} --prompt '{short}'")
    lines = run(env, "verdicts export --run-id latest").stdout.splitlines()
    found: dict[str, list[dict[str, Any]]] = {"llamacpp/tiny": [], "llamacpp/one-word": []}
    for line in map(json.loads, lines):
        found[line["model"]].append(line)
        assert line["cost_usd"] == 0
    held, words = found.values()
    assert len(held) == len(words) == 20
    for each in held:
        answer = json.loads(each["completion"])
        assert list(answer) == ["action", "reason", "confidence"]
        assert each["outcome"] == answer["action"]
        assert 0 <= each["suspicion"] <= 1
    for each in words:
        assert each["outcome"] == ("BLOCK" if each["suspicion"] >= 0.5 else "ALLOW")
    first = candidates(url, load_prompt(str(short)), words[0]["command"])
    unsafe, safe = math.exp(first["unsafe"]), math.exp(first["safe"])
    assert words[0]["suspicion"] == pytest.approx(unsafe / (unsafe + safe), rel=1e-3)
