"""Alerts, runbooks and dashboard: they name what exists, and belong together."""

import json
import re
import runpy
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from aegish_dist.telemetry.metrics import EXPORTER, WORKER, FleetMeasure
from tests.services import require_binary

ROOT = Path(__file__).parents[2]
PROMETHEUS, GRAFANA = ROOT / "deploy" / "prometheus", ROOT / "deploy" / "grafana"
RUNBOOKS = ROOT / "docs" / "runbooks"
RULES = sorted((PROMETHEUS / "rules").glob("*.yml"))
UNIT_TESTS = sorted((PROMETHEUS / "tests").glob("*.yml"))
SEVERITIES = {"page": "*Page: wake a person.*", "ticket": "*Ticket: within a working day.*"}
OF_SCRAPES = {"job", "instance", "le"}
"""Labels that no measure has: of every scrape, and of a histogram's buckets."""

_MEASURE = re.compile(r"\b((?:\w+:)?aegish[\w:]*)(?:\{([^}]*)\})?")
_DIVISION = re.compile(r"\b(?:by|on|group_left|ignoring|without) \(([^)]*)\)")
_HISTOGRAM_PARTS = ("_bucket", "_sum", "_count")


def _rules(kind: str) -> dict[str, dict[str, Any]]:
    groups = [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]
    return {rule[kind]: rule for group in groups for rule in group["rules"] if kind in rule}


ALERTS, RECORDS = _rules("alert"), _rules("record")
DASHBOARD = json.loads((GRAFANA / "dashboards" / "aegish-dist.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
EXPRESSIONS = [
    *(rule["expr"] for rule in (*ALERTS.values(), *RECORDS.values())),
    *QUERIES,
    *(variable["query"]["query"] for variable in DASHBOARD["templating"]["list"][1:]),
]


def exposed() -> dict[str, FleetMeasure]:
    """Return the measures by every name that Prometheus knows them by."""
    found = {}
    for measure in (*WORKER, *EXPORTER):
        histogram = measure.kind == "histogram"
        for part in _HISTOGRAM_PARTS if histogram else ("",):
            found[measure.name + part] = measure
    return found


def names(expression: str) -> set[str]:
    return {found[1] for found in _MEASURE.finditer(expression)} - {"aegish"}


def labels(expression: str) -> set[str]:
    selected = {
        re.split("[=!]", part)[0].strip()
        for found in _MEASURE.finditer(expression)
        for part in re.sub(r'"[^"]*"', "", found[2] or "").split(",")
    }
    divided = {
        part.strip() for found in _DIVISION.finditer(expression) for part in found[1].split(",")
    }
    return (selected | divided) - {""}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions_name_measures_of_the_catalogue(expression: str) -> None:
    measures = exposed()
    found = names(expression)
    assert found
    assert found <= measures.keys() | RECORDS.keys()
    known = {label for name in found & measures.keys() for label in measures[name].labels}
    known |= {name.split(":")[0] for name in found & RECORDS.keys()}
    assert labels(expression) <= known | OF_SCRAPES


def test_every_measure_record_and_runbook_is_used() -> None:
    """An alert or the dashboard has each measure and each record; no page outlives its alert."""
    seen = {name for expression in EXPRESSIONS for name in names(expression)}
    measures = exposed()
    assert {measures[name].name for name in seen & measures.keys()} == {
        measure.name for measure in measures.values()
    }
    assert seen >= RECORDS.keys()
    assert {path.stem for path in RUNBOOKS.glob("*.md")} - {"README"} == ALERTS.keys()


@pytest.mark.parametrize("name", ALERTS)
def test_alert_has_a_runbook(name: str) -> None:
    """The page is where the alert says, in the list, names its severity and answers four questions."""
    rule = ALERTS[name]
    page = (ROOT / rule["annotations"]["runbook_url"]).read_text()
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert page.startswith(f"# {name}\n\n{SEVERITIES[rule['labels']['severity']]}\n")
    assert re.findall(r"^## (.+)", page, re.MULTILINE) == ["Look", "Do", "False alarms"]
    after = rule.get("for", "at once")
    row = f"| [{name}]({name}.md) | {rule['labels']['severity']} | {after} |"
    assert row in (RUNBOOKS / "README.md").read_text()


@pytest.mark.parametrize("name", ALERTS)
def test_alert_has_a_unit_test(name: str) -> None:
    looks = [
        bool(look["exp_alerts"])
        for path in UNIT_TESTS
        for case in yaml.safe_load(path.read_text())["tests"]
        for look in case["alert_rule_test"]
        if look["alertname"] == name
    ]
    assert {True, False} <= set(looks)


def test_prometheus_accepts_rules_and_unit_tests(tmp_path: Path) -> None:
    promtool = require_binary("promtool")
    panels = tmp_path / "panels.yml"
    plain = [re.sub(r"\$__rate_interval", "1m", query) for query in QUERIES]
    rules = [{"record": f"panel:{number}", "expr": each} for number, each in enumerate(plain)]
    panels.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    commands = (
        ("check", "rules", *map(str, RULES), str(panels)),
        ("check", "config", str(PROMETHEUS / "prometheus.yml")),
        ("test", "rules", *map(str, UNIT_TESTS)),
    )
    for command in commands:
        done = subprocess.run([promtool, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_dashboard_is_current() -> None:
    made = runpy.run_path(str(GRAFANA / "make_dashboard.py"))["written"]()
    assert made == (GRAFANA / "dashboards" / "aegish-dist.json").read_text()
    assert DASHBOARD["templating"]["list"][0]["query"] == "prometheus"


def test_panels_lie_beside_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)
    assert all((x - 1, y) in taken for x, y in taken if x)
