"""`aegish-dist prompts`: the texts around the commands."""

import click

from aegish_dist.cli.printing import say, say_lines
from aegish_dist.prompts.loading import bundled_prompts, load_prompt


@click.group()
def prompts() -> None:
    """List and show the prompts."""


@prompts.command("list")
def list_prompts() -> None:
    """List the bundled prompts with their fingerprints."""
    for name in bundled_prompts():
        prompt = load_prompt(name)
        say(f"{name:16} {prompt.fingerprint[:12]}  {prompt.template!r}")


@prompts.command("show")
@click.argument("name", metavar="NAME|FILE")
@click.option("--cot", is_flag=True, help="With the step-by-step instruction.")
def show_prompt(name: str, cot: bool) -> None:
    """Print a prompt as models get it."""
    prompt = load_prompt(name, cot=cot)
    say_lines(prompt.system.rstrip())
    say("")
    say(f"--- {prompt.name} {prompt.fingerprint[:12]}, user message ---")
    say_lines(prompt.template)
