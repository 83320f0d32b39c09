"""`docs/explanation/rate-limiter.md`: the circuit breaker opens after three failures, followed step by step."""

import re
from pathlib import Path

import pytest

from tests.howto.walkthrough import ROOT, Walkthrough

pytestmark = pytest.mark.long

PAGE = "../explanation/rate-limiter.md"


def test_the_breaker_follows_a_change_of_one_file(tmp_path: Path) -> None:
    """Three failures open the circuit in the copy, ten in the tree as it is."""
    page = (ROOT / "docs/guides" / PAGE).read_text(encoding="utf-8")
    (see,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    walkthrough = Walkthrough(PAGE, tmp_path)
    assert walkthrough.created == set()
    assert walkthrough.edited == {"aegish_dist/ratelimit/policy.toml"}
    assert walkthrough.run("-c", see).strip() == "open after 3: HTTP 500: down"
    walkthrough.tree = ROOT
    assert walkthrough.run("-c", see).strip() == "open after 10: HTTP 500: down"
