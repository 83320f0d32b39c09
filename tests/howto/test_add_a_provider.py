"""`docs/how-to/add-a-provider.md`: a host that speaks a known format is catalog TOML alone."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from aegish_dist.models import Catalog
from tests.howto.walkthrough import ROOT, Walkthrough

KEY = "a-key-of-forty-characters-for-the-test-1"
KNOWN = {"model", "messages", "max_tokens", "temperature", "random_seed"}
ANSWER = {
    "id": "cmpl-1",
    "object": "chat.completion",
    "model": "mistral-large-latest",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": '{"action": "ALLOW", "reason": "harmless"}',
            },
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 300, "completion_tokens": 12, "total_tokens": 312},
}


class Host(BaseHTTPRequestHandler):
    """Answers as the provider does: 422 to a field that it does not know, 401 without the key."""

    asked: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(body)
        unknown = sorted(set(body) - KNOWN)
        if self.headers["Authorization"] != f"Bearer {KEY}":
            self._answer(401, {"message": "Unauthorized"})
        elif unknown:
            detail = [{"type": "extra_forbidden", "loc": ["body", field]} for field in unknown]
            self._answer(422, {"object": "error", "message": {"detail": detail}})
        else:
            self._answer(200, ANSWER)

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@contextmanager
def host() -> Iterator[str]:
    """Serve the provider on this machine; gives its base URL."""
    server = HTTPServer(("127.0.0.1", 0), Host)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def walkthrough(tmp_path_factory: pytest.TempPathFactory) -> Walkthrough:
    """Give a copy of the tree in which the page was followed."""
    return Walkthrough("add-a-provider.md", tmp_path_factory.mktemp("tree"))


def test_no_code_is_touched(walkthrough: Walkthrough) -> None:
    """The catalog, and the keys that Compose passes; the tests that know both pass."""
    assert walkthrough.created == set()
    assert walkthrough.edited == {"aegish_dist/models/catalog.toml", "docker-compose.yml"}
    tests = ("tests/unit/test_compose.py", "tests/unit/models/test_catalog.py")
    walkthrough.run("-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)


def test_a_catalog_of_ones_own_is_enough(tmp_path: Path) -> None:
    """The same lines, laid over the packaged catalog, and not one file of the project."""
    page = (ROOT / "docs/how-to/add-a-provider.md").read_text(encoding="utf-8")
    (lines,) = re.findall(
        r"```diff edit=aegish_dist/models/catalog.toml\n(.*?)```", page, re.DOTALL
    )
    own = tmp_path / "own.toml"
    own.write_text("\n".join(re.findall(r"^\+(.*)$", lines, re.MULTILINE)))
    (spec,) = Catalog.load(own).resolve("mistral/mistral-large-latest", {})
    assert (spec.base_url, spec.key_variable) == ("https://api.mistral.ai/v1", "MISTRAL_API_KEY")


def test_the_catalog_lists_it(walkthrough: Walkthrough) -> None:
    """With its key, its address, and a list price."""
    listed = json.loads(walkthrough.run("-m", "aegish_dist", "models", "list", "--json"))
    (model,) = [each for each in listed if each["provider"] == "mistral"]
    assert (model["wire"], model["key_variable"]) == ("openai", "MISTRAL_API_KEY")
    assert model["base_url"] == "https://api.mistral.ai/v1"
    assert model["input_usd_per_million"] > 0


def test_it_is_called_with_fields_that_it_knows(walkthrough: Walkthrough, tmp_path: Path) -> None:
    """The host refuses every other field, so its answer shows that none is sent."""
    check = ("-m", "aegish_dist", "models", "check", "mistral/mistral-large-latest", "--json")
    with host() as base_url:
        overlay = tmp_path / "here.toml"
        overlay.write_text(f'[providers.mistral]\nbase_url = "{base_url}"\n')
        said = walkthrough.run(*check, AEGISH_DIST_CATALOG=str(overlay), MISTRAL_API_KEY=KEY)
        (checked,) = json.loads(said)
    assert (checked["ok"], checked["answer"]) == (True, "ALLOW")
    (asked,) = Host.asked
    assert (asked["random_seed"], asked["model"]) == (42, "mistral-large-latest")
    assert asked["max_tokens"] > 0
