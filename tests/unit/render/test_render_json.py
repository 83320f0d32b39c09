"""Reports as JSON."""

import json
from dataclasses import replace

from aegish_dist.render.json import render_json


def test_the_document_has_four_parts(report):
    """Run, snapshot, models and ranking: all that a script needs."""
    data = report()
    document = json.loads(render_json(data))
    assert set(document) == {"run", "snapshot", "models", "ranking"}
    assert document["models"] == data.document["models"]
    assert document["ranking"] == [
        {"rank": 1, "tie_group": 1, "model": "acme/guard-1", "aegish_score": 0.957}
    ]
    assert document["snapshot"] == {
        "id": 12,
        "scoring": "aegish-5.3",
        "scoring_version": 1,
        "verdicts": 300,
        "created_at": "2026-11-20T14:30:00+00:00",
    }


def test_the_run_can_be_repeated_from_its_block(report):
    """Datasets, prompt, parameters, epochs and models are named."""
    data = report()
    run = json.loads(render_json(data))["run"]
    assert (run["id"], run["name"], run["epochs"]) == ("0a1b2c3d4", "nightly", 1)
    assert run["created_at"] == "2026-11-20T14:03:00+00:00"
    assert run["package_version"] == "0.1.0"
    assert run["datasets"] == [
        {"name": "mixed", "fingerprint": "ab" * 32, "samples": 300, "malicious": 200}
    ]
    assert run["prompt"] == {"name": "guard", "fingerprint": data.run.prompt.fingerprint}
    assert run["parameters"] == {
        "seed": 42,
        "temperature": None,
        "max_output_tokens": 4096,
        "time_limit_s": 180.0,
    }
    assert [model["id"] for model in run["models"]] == ["acme/guard-1"]


def test_an_imported_run_has_nulls(report):
    """What an import cannot know is null."""
    data = report()
    data = replace(data, run=replace(data.run, prompt=None, parameters=None))
    run = json.loads(render_json(data))["run"]
    assert run["prompt"] is None
    assert run["parameters"] is None


def test_undefined_is_null(report, silent_model):
    """A model without verdicts has nulls, not zeros."""
    document = json.loads(render_json(report(silent_model())))
    assert document["models"][0]["metrics"]["aegish_score"]["value"] is None
    assert document["ranking"][0]["rank"] is None


def test_hostile_text_is_exact_and_inert(hostile, hostile_report):
    """A parser gets every character back, a terminal gets none that it would obey."""
    text = render_json(hostile_report)
    assert json.loads(text)["run"]["name"] == hostile
    assert text.replace("\n", "").isprintable()
    assert text.isascii()


def test_keys_are_sorted(report):
    """The same report gives the same bytes, with keys in order."""
    text = render_json(report())
    assert text == json.dumps(json.loads(text), sort_keys=True, indent=2) + "\n"
