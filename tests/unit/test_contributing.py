"""Files for contributors: what they promise is there."""

import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
HOOKS: list[dict[str, Any]] = [
    hook
    for repository in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    for hook in repository["hooks"]
]

problems: Callable[..., list[str]] = runpy.run_path(str(ROOT / ".ci/release.py"))["problems"]


def recipe(target: str) -> list[str]:
    """Return the commands of a target in the Makefile, without what makes them silent."""
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert found is not None
    lines = [line.strip().replace("$(BIN)", ".venv/bin") for line in found[1].splitlines()]
    return [line.partition(" 2>")[0] for line in lines if not line.startswith("@")]


def test_hooks_run_what_make_lint_runs() -> None:
    assert [hook["entry"] for hook in HOOKS] == recipe("lint")


def test_hooks_download_nothing() -> None:
    repositories = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [repository["repo"] for repository in repositories] == ["local"]
    assert {hook["language"] for hook in HOOKS} == {"system"}
    assert not any(hook["pass_filenames"] for hook in HOOKS)


def test_every_target_has_a_line_of_help() -> None:
    declared = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert declared is not None
    assert set(re.findall(r"^([a-z]+):.*## ", MAKEFILE, re.MULTILINE)) == set(declared[1].split())


READY = ("1.2.0", "## [1.2.0] - 2027-01-31\n", "", "v1.1.0\nv1.0.0\n")


def test_a_commit_that_is_ready_can_be_released() -> None:
    assert problems(*READY) == []


@pytest.mark.parametrize(
    ("place", "other", "says"),
    [
        (0, "1.3.0", "does not begin with version 1.3.0"),
        (1, "## [1.2.0] - Unreleased\n", "no date, but 'Unreleased'"),
        (1, "", "does not begin with version 1.2.0"),
        (2, " M Makefile\n", "uncommitted changes:\n M Makefile"),
        (3, "v1.2.0\n", "v1.2.0 is tagged already"),
    ],
)
def test_anything_else_is_in_the_way_of_a_release(place: int, other: str, says: str) -> None:
    given = list(READY)
    given[place] = other
    (problem,) = problems(*given)
    assert says in problem


PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    text = re.sub(
        r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    links = re.findall(r"\]\(([^)\s#]+)[^)]*\)", text)
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []


def test_every_page_is_in_the_index() -> None:
    """`docs/README.md` leads to each page below `docs/`, CONTRIBUTING to each guide that adds something.

    Runbooks and commands have an index of their own, compared with the alerts and with the program.
    """
    docs = ROOT / "docs"
    index = (docs / "README.md").read_text(encoding="utf-8")
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    pages = {str(path.relative_to(docs)) for path in docs.rglob("*.md")} - {"README.md"}
    own = {
        page
        for page in pages
        if page.startswith(("runbooks/", "reference/commands/")) and not page.endswith("README.md")
    }
    assert {page for page in pages - own if f"]({page})" not in index} == set()
    how_to = {page for page in pages if page.startswith("guides/add-")}
    assert {page for page in how_to if f"](docs/{page})" not in guide} == set()
