"""The prompt and the commands of the page."""

import re
from dataclasses import replace

from aegish_dist.core.prompt import Prompt
from aegish_dist.report.page import render_page
from aegish_dist.report.provenance import reproduction
from tests.unit.report.reports import a_report


def test_each_command_stands_once_in_a_box() -> None:
    """A command can be copied whole, and no list repeats it."""
    data = a_report()
    html = "".join(render_page(data))
    boxes = re.findall(r'<pre class="copied" tabindex="0">(.*?)</pre>', html)
    assert boxes == [command for _, command in reproduction(data)]
    assert boxes[0] == "aegish-dist report --run-id 0a1b2c3d4 --snapshot 12"
    assert html.count(boxes[0]) == 1


def test_the_prompt_is_folded_and_whole() -> None:
    """Its lines stay lines, its markup is text, and what has the shape of a key is masked."""
    key = "sk-" + "a1B2" * 10
    data = a_report()
    prompt = Prompt("own", f"Line <b>one</b>\nline two {key}", "Judge {command}")
    html = "".join(render_page(replace(data, run=replace(data.run, prompt=prompt))))
    assert "<pre>Line &lt;b&gt;one&lt;/b&gt;\nline two " in html
    assert "<pre>Judge {command}</pre>" in html
    assert f"Prompt own, fingerprint {prompt.fingerprint}</summary>" in html
    assert key not in html
