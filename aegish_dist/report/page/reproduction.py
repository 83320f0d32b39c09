"""The texts behind the numbers: the prompt, and the commands that make the report once more."""

from collections.abc import Iterator
from dataclasses import replace

from aegish_dist.core.secrets import mask_key_shapes
from aegish_dist.report.data import ReportData
from aegish_dist.report.layout import Section
from aegish_dist.report.page.markup import lines, text
from aegish_dist.report.provenance import reproduction


def without_commands(section: Section, data: ReportData) -> Section:
    """Return the section on versions without the commands, which the page shows one by one."""
    shown = {f"{purpose}: {command}" for purpose, command in reproduction(data)}
    return replace(section, remarks=tuple(each for each in section.remarks if each not in shown))


def with_commands(data: ReportData) -> str:
    """Return the commands, each in a box that can be copied, and the prompt, folded."""
    return "".join((*_prompt(data), *_commands(data)))


def _commands(data: ReportData) -> Iterator[str]:
    yield '<h3 id="reproduce">Make it once more</h3>\n'
    for purpose, command in reproduction(data):
        yield f'<p class="about">{text(purpose)}:</p>\n'
        yield f'<pre class="copied" tabindex="0">{text(command)}</pre>\n'


def _prompt(data: ReportData) -> Iterator[str]:
    prompt = data.run.prompt
    if prompt is None:
        return
    name = f"Prompt {prompt.name}, fingerprint {prompt.fingerprint}"
    yield f"<details>\n<summary>{text(name)}</summary>\n"
    for title, content in (
        ("System text", prompt.system),
        ("Text for each command", prompt.template),
    ):
        yield f"<h3>{title}</h3>\n<pre>{lines(mask_key_shapes(content))}</pre>\n"
    yield "</details>\n"
