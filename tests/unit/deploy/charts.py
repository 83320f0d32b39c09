"""The Helm chart rendered by Helm itself, as the tests read it."""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from tests.services import require_binary

ROOT = Path(__file__).parents[3]
CHART = ROOT / "deploy" / "helm" / "aegish-dist"
VALUES = tuple(sorted((ROOT / "deploy" / "helm" / "values").glob("*.yaml")))
RELEASE, NAMESPACE = "aegish-dist", "bench"


def helm(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run Helm; `make` puts it beside the interpreter."""
    program = require_binary(str(Path(sys.executable).parent / "helm"), "helm")
    return subprocess.run(
        [program, *arguments], capture_output=True, encoding="utf-8", timeout=60, check=False
    )


def options(values: Sequence[Path] = (), settings: Sequence[str] = ()) -> list[str]:
    files = [word for path in values for word in ("--values", str(path))]
    return files + [word for each in settings for word in ("--set", each)]


class Rendered(Struct, frozen=True):
    """Objects that the chart makes for one set of values."""

    objects: tuple[Mapping[str, Any], ...]  # parsed, in Helm's order

    @classmethod
    def of(
        cls, values: Sequence[Path] = (), settings: Sequence[str] = (), release: str = RELEASE
    ) -> "Rendered":
        """Render the chart; Helm has to accept the values."""
        done = helm(
            *("template", release, str(CHART), "--namespace", NAMESPACE), *options(values, settings)
        )
        assert done.returncode == 0, done.stderr
        return cls(tuple(each for each in yaml.safe_load_all(done.stdout) if each))

    def kind(self, name: str) -> dict[str, Mapping[str, Any]]:
        return {
            each["metadata"]["labels"]["app.kubernetes.io/component"]: each
            for each in self.objects
            if each["kind"] == name
        }

    def pods(self) -> dict[str, Mapping[str, Any]]:
        makers = self.kind("Deployment") | self.kind("Job")
        return {name: each["spec"]["template"] for name, each in makers.items()}

    def containers(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield all containers with the component of their pod."""
        for name, pod in self.pods().items():
            for container in pod["spec"]["containers"]:
                yield name, container


def environment(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables of a container: text, or where the value comes from."""
    given = container.get("env", [])
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in given}


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a label selector with equality and `In` picks something with these labels."""
    wanted = selector.get("matchLabels", {})
    return all(labels.get(name) == value for name, value in wanted.items()) and all(
        labels.get(each["key"]) in each["values"] for each in selector.get("matchExpressions", [])
    )
