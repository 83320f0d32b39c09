"""Writes dashboards/aegish-dist.json from panels.toml; run it after a change.

A panel is a title, a unit, a width and queries; all that Grafana wants beside that is the same for
all panels of a kind.
"""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
PANELS = FOLDER / "panels.toml"
TARGET = FOLDER / "dashboards" / "aegish-dist.json"
COLUMNS = 24
WIDTH = 8
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
SHORT = {"MODELS": 'model=~"$model"', "RATE": "$__rate_interval"}
"""Words of panels.toml, and Grafana's."""
LAST = {"calcs": ["lastNotNull"], "fields": "", "values": False}
LINEAR = {"type": "linear"}
OPTIONS: dict[str, dict[str, Any]] = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "reduceOptions": LAST,
        "colorMode": "value",
        "graphMode": "area",
        "textMode": "value",
    },
    "bargauge": {
        "reduceOptions": LAST,
        "displayMode": "basic",
        "orientation": "horizontal",
        "text": {"titleSize": 14, "valueSize": 18},
    },
}
"""Options of the kinds of panels."""


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana reads it."""
    alerts = 'ALERTS{alertname=~"Aegish.*", alertstate="firing"}'
    models = "label_values(aegish_verdicts_total, model)"
    return {
        "uid": "aegish-dist",
        "title": "aegish-dist",
        "tags": ["aegish-dist"],
        "schemaVersion": 39,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "annotations": {
            "list": [
                {"name": "Alerts", "enable": True, "datasource": SOURCE, "iconColor": "red"}
                | {"expr": alerts, "titleFormat": "{{alertname}}"}
            ]
        },
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"}
                | {"label": "Data source"},
                {"name": "model", "type": "query", "datasource": SOURCE, "label": "Model"}
                | {"query": {"query": models, "refId": "model"}, "definition": models}
                | {"refresh": 2, "sort": 1, "multi": True, "includeAll": True, "allValue": ".*"}
                | {"current": {"text": "All", "value": "$__all"}},
            ]
        },
        "panels": [{"id": number} | each for number, each in enumerate(_laid_out(), 1)],
    }


def _laid_out() -> Iterator[dict[str, Any]]:
    """Yield rows and panels; those of a row fill its lines from the left."""
    y = 0
    for row in tomllib.loads(PANELS.read_text(encoding="utf-8"))["rows"]:
        place = {"h": 1, "w": COLUMNS, "x": 0, "y": y}
        yield {"type": "row", "title": row["title"], "gridPos": place, "panels": []}
        x, y = 0, y + 1
        for panel in row["panels"]:
            width = panel.get("width", WIDTH)
            if x + width > COLUMNS:
                x, y = 0, y + row["height"]
            yield _panel(panel, {"h": row["height"], "w": width, "x": x, "y": y})
            x += width
        y += row["height"]


def _panel(panel: dict[str, Any], place: dict[str, int]) -> dict[str, Any]:
    kind = panel.get("kind", "timeseries")
    return {
        "type": kind,
        "title": panel["title"],
        "description": panel.get("about", ""),
        "datasource": SOURCE,
        "gridPos": place,
        "targets": [
            {"refId": letter, "expr": _query(query), "legendFormat": legend or "__auto"}
            | {"datasource": SOURCE, "instant": kind == "bargauge", "range": kind != "bargauge"}
            for letter, (query, legend) in zip("ABC", panel["queries"], strict=False)
        ],
        "fieldConfig": {"defaults": _defaults(panel, kind), "overrides": []},
        "options": OPTIONS[kind],
    }


def _query(query: str) -> str:
    for word, meaning in SHORT.items():
        query = query.replace(word, meaning)
    return query


def _defaults(panel: dict[str, Any], kind: str) -> dict[str, Any]:
    # The first step has no lower end.
    steps = panel.get("steps", [])
    steps = steps if steps and steps[0][0] == 0 else [[0, "green"], *steps]
    found: dict[str, Any] = {"unit": panel.get("unit", "short")}
    found |= {} if "log" in panel else {"min": 0}
    found |= {"max": panel["top"]} if "top" in panel else {}
    found |= {"decimals": panel["decimals"]} if "decimals" in panel else {}
    found["thresholds"] = {
        "mode": "absolute",
        "steps": [{"color": colour, "value": value or None} for value, colour in steps],
    }
    if kind != "timeseries":
        return found | {"color": {"mode": "thresholds"}}
    stacked = panel.get("stacked", False)
    return found | {
        "color": {"mode": "palette-classic"},
        "custom": {
            "lineWidth": 1,
            "fillOpacity": 30 if stacked else 5,
            "showPoints": "never",
            "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
            "scaleDistribution": {"type": "log", "log": 10} if "log" in panel else LINEAR,
        }
        # A line of zeros lies at the bottom of a scale from 0 to 1, and not from 0 to 100.
        | ({"axisSoftMax": 1} if panel.get("decimals") == 0 else {}),
    }


def written() -> str:
    """Return the file: a panel a line, so that a difference names the panel."""
    found = dashboard()
    panels = ",\n".join(f"  {json.dumps(panel)}" for panel in found.pop("panels"))
    head = json.dumps(found, indent=1).removesuffix("\n}")
    return f'{head},\n "panels": [\n{panels}\n ]\n}}\n'


if __name__ == "__main__":
    TARGET.write_text(written(), encoding="utf-8")
