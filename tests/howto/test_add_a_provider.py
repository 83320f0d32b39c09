"""`docs/guides/add-a-provider.md`: a host that speaks a known format is catalog TOML alone."""

import json
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest

from aegish_dist.models.catalog import Catalog
from tests.howto.walkthrough import ROOT, Walkthrough
from tests.http_server import JsonHandler, serving

pytestmark = pytest.mark.long
PAGE = "add-a-provider.md"

KEY = "a-key-of-forty-characters-for-the-test-1"
KNOWN = {"model", "messages", "max_tokens", "temperature", "random_seed"}
ANSWER = {
    "id": "cmpl-1",
    "object": "chat.completion",
    "model": "mistral-large-latest",
    "choices": [
        {"message": {"content": '{"action": "ALLOW"}'}, "finish_reason": "stop", "index": 0}
    ],
    "usage": {"prompt_tokens": 300, "completion_tokens": 12, "total_tokens": 312},
}


class Host(JsonHandler):
    """Answers as the provider does: 422 to a field that it does not know, 401 without the key."""

    asked: ClassVar[list[dict[str, Any]]] = []

    def respond(self, body: dict[str, Any]) -> None:
        self.asked.append(body)
        unknown = sorted(set(body) - KNOWN)
        if self.headers["Authorization"] != f"Bearer {KEY}":
            self.answer(401, {"message": "Unauthorized"})
        elif unknown:
            detail = [{"type": "extra_forbidden", "loc": ["body", field]} for field in unknown]
            self.answer(422, {"object": "error", "message": {"detail": detail}})
        else:
            self.answer(200, ANSWER)


def test_no_code_is_touched(walkthrough: Walkthrough) -> None:
    """The catalog, and the keys that Compose passes; the tests that know both pass."""
    assert walkthrough.created == set()
    assert walkthrough.edited == {"aegish_dist/models/catalog.toml", "docker-compose.yml"}
    walkthrough.test("tests/unit/test_compose.py", "tests/unit/models/test_catalog.py")


def test_a_catalog_of_ones_own_is_enough(tmp_path: Path) -> None:
    """The same lines, laid over the packaged catalog, and not one file of the project."""
    page = (ROOT / "docs/guides/add-a-provider.md").read_text(encoding="utf-8")
    (lines,) = re.findall(
        r"```diff edit=aegish_dist/models/catalog.toml\n(.*?)```", page, re.DOTALL
    )
    own = tmp_path / "own.toml"
    own.write_text("\n".join(re.findall(r"^\+(.*)$", lines, re.MULTILINE)))
    (spec,) = Catalog.load(own).resolve("mistral/mistral-large-latest", {})
    assert (spec.base_url, spec.key_variable) == ("https://api.mistral.ai/v1", "MISTRAL_API_KEY")


def test_it_is_called_with_fields_that_it_knows(walkthrough: Walkthrough, tmp_path: Path) -> None:
    """The host refuses every other field, so its answer shows that none is sent."""
    check = ("-m", "aegish_dist", "models", "check", "mistral/mistral-large-latest", "--json")
    with serving(Host) as address:
        overlay = tmp_path / "here.toml"
        overlay.write_text(f'[providers.mistral]\nbase_url = "{address}/v1"\n')
        said = walkthrough.run(*check, AEGISH_DIST_CATALOG=str(overlay), MISTRAL_API_KEY=KEY)
        (checked,) = json.loads(said)
    assert (checked["ok"], checked["answer"]) == (True, "ALLOW")
    (asked,) = Host.asked
    assert (asked["random_seed"], asked["model"]) == (42, "mistral-large-latest")
    assert asked["max_tokens"] > 0
