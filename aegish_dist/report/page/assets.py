"""The style sheet and the script of the page, each of several files, and the policy for them."""

import base64
import hashlib
from importlib.resources import files

_STYLES = ("style.css", "tables.css", "grid.css")
_SCRIPTS = (
    *("dom.js", "tables.js", "differences.js", "sections.js"),
    *("grid_data.js", "grid_query.js", "grid_filters.js", "grid.js"),
    *("detail_verdict.js", "detail.js", "grid_route.js"),
)
"""In this order: a file uses what those before it define."""


def style_sheet() -> str:
    """Return the content of the `<style>` element."""
    return _joined(_STYLES)


def script() -> str:
    """Return the content of the `<script>` element that runs."""
    return _joined(_SCRIPTS)


def content_security_policy() -> str:
    """Return the policy of a page with this style sheet and this script, and nothing else."""
    return (
        f"default-src 'none'; style-src {_source(style_sheet())}; script-src {_source(script())}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _joined(names: tuple[str, ...]) -> str:
    folder = files(__package__) / "assets"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


def _source(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
