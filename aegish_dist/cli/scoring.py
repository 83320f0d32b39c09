"""`aegish-dist scoring`: the rule sets."""

import click

from aegish_dist.cli.options import Utf8, as_json
from aegish_dist.cli.printing import say, say_json, say_lines
from aegish_dist.core.scoring import RULES
from aegish_dist.opinions.files import render_rule
from aegish_dist.pipeline.opinions import load_rule


@click.group()
def scoring() -> None:
    """List the rule sets, and print one as a file to edit."""


@scoring.command("list")
@as_json
def list_rules(as_json: bool) -> None:
    """List the rule sets of the package."""
    if as_json:
        say_json(
            [
                {"name": rule.name, "version": rule.version, "fingerprint": rule.fingerprint}
                | {"description": rule.description}
                for rule in RULES.values()
            ]
        )
        return
    for rule in RULES.values():
        say(f"{rule.name:16} v{rule.version}  {rule.fingerprint}  {rule.description}")


@scoring.command("show")
@click.argument("name", metavar="NAME|FILE", type=Utf8())
def show_rule(name: str) -> None:
    """Print a rule set as a file to edit.

    Give the copy a name of its own, and pass it on with `--scoring FILE`. Of a file, what it
    amounts to is printed: all findings, and the keys that it takes from another rule set.
    """
    rule = load_rule(name)
    say_lines(f"# Fingerprint {rule.fingerprint}.\n{render_rule(rule).rstrip()}")
