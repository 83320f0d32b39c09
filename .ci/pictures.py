"""Makes the pictures of README and tutorial from one demo: `python .ci/pictures.py`.

They hold the bundled commands and the simulated models, nothing else. Needs Chromium and `script`;
rich draws the terminal.
"""

import os
import re
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path

from playwright.sync_api import sync_playwright
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
COLUMNS = 100


def aegish(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "aegish_dist", *arguments], check=True)


def on_terminal(command: str) -> str:
    """Return what a command prints to a terminal, colours included."""
    line = f"stty cols {COLUMNS} rows 60; {sys.executable} -m aegish_dist {command}"
    done = subprocess.run(["script", "-qec", line, "/dev/null"], check=True, stdout=subprocess.PIPE)
    return done.stdout.decode().replace("\r\n", "\n")


def drawn(text: str, title: str) -> str:
    """Return a terminal with a text as SVG, without the font that rich takes from the network."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(text), end="")
    form = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    form = form.replace("Fira Code", "DejaVu Sans Mono")
    return console.export_svg(title=title, theme=DIMMED_MONOKAI, code_format=form, unique_id="demo")


def screenshot(page: Path, picture: Path) -> None:
    """Draw the first screen of a page."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=["--no-sandbox"]
        )
        tab = browser.new_page(viewport={"width": 1180, "height": 800}, device_scale_factor=1.5)
        tab.goto(page.as_uri())
        tab.screenshot(path=picture)
        browser.close()


def main(folder: Path) -> None:
    folder.chmod(0o711)  # where this runs as root, PostgreSQL runs as another user
    os.environ.update(AEGISH_DIST_HOME=str(folder / "home"), TERM="xterm-256color")
    os.environ.pop("NO_COLOR", None)
    os.chdir(folder)  # the demo writes its page there
    aegish("demo")
    (IMAGES / "demo.svg").write_text(drawn(on_terminal("report"), "aegish-dist report"))
    aegish("report", "--format", "html", "-o", str(folder / "report.html"))
    screenshot(folder / "report.html", IMAGES / "report.png")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(scratch))
