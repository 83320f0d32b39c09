"""Hooks of `mkdocs build`: what the site needs and the pages, read as files, do not.

README, CHANGELOG and CONTRIBUTING join the pages of docs/. Links to any other file outside docs/
become text, for the site does not hold it. The menu follows the index, docs/README.md.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
BESIDE = {
    f"{name}.md": f"project/{name.lower()}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")
}
COMMANDS = "reference/commands/"
SECTIONS = ("tutorial", "guides", "reference", "explanation", "runbooks")

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s#:]+)(#[^)\s]*)?\)")
_IMAGE = re.compile(r"(!\[[^\]]*\]\()([^)\s:]+)\)")
_FILE = re.compile(r"^(`{3,}\w+) (?:new|edit|file)=(\S+)$", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Order the menu: within a section the pages as the index names them, then the others."""
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    place = {link: number for number, (_, link, _) in enumerate(_LINK.findall(index))}
    menu: list[object] = [{"Questions": "README.md"}]
    for section in SECTIONS:
        paths = (ROOT / "docs" / section).rglob("*.md")
        pages = [path.relative_to(ROOT / "docs").as_posix() for path in paths]
        pages.sort(key=lambda page: (place.get(page, len(place)), page))
        entries: list[object] = [page for page in pages if not page.startswith(COMMANDS)]
        if below := sorted(page for page in pages if page.startswith(COMMANDS)):
            entries.insert(0, {"Commands": below})
        menu.append({section.capitalize(): entries})
    config.nav = [*menu, {"Project": list(BESIDE.values())}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages beside docs/."""
    for name, uri in BESIDE.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Turn links from where a page lies in the tree to where it lies in the site."""
    uri = page.file.src_uri
    beside = {uri: name for name, uri in BESIDE.items()}
    folder = posixpath.dirname(beside.get(uri, f"docs/{uri}"))

    def in_site(target: str) -> str | None:
        path = posixpath.normpath(posixpath.join(folder, target))
        inside = BESIDE.get(path) or (
            path.removeprefix("docs/") if path.startswith("docs/") else None
        )
        return inside and posixpath.relpath(inside, posixpath.dirname(uri) or ".")

    def link(found: re.Match[str]) -> str:
        text, target, anchor = found.groups()
        to = in_site(target)
        return f"[{text}]({to}{anchor or ''})" if to else text

    markdown = _LINK.sub(link, markdown)
    markdown = _IMAGE.sub(lambda found: f"{found[1]}{in_site(found[2])})", markdown)
    return _FILE.sub(r'\1 title="\2"', markdown)
