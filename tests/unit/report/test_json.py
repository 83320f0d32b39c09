"""Reports as JSON."""

import json
from dataclasses import replace
from decimal import Decimal

from aegish_dist.core.model import Price, Rate
from aegish_dist.core.opinion import Opinion, record_of
from aegish_dist.report.data import ReportData
from aegish_dist.report.documents import render_json
from tests.defined import defined
from tests.unit.report.reports import HOSTILE, a_report, a_silent_model


def test_the_document_has_its_parts() -> None:
    """Run, snapshot, models and ranking, and what went wrong: all that a script needs."""
    data = a_report()
    document = json.loads(render_json(data))
    assert set(document) == {
        *("run", "snapshot", "models", "ranking", "failures", "halted", "overlay_effect"),
        *("failure_times", "reasons", "comparison", "commands"),
    }
    assert document["models"] == data.snapshot.document["models"]
    assert document["ranking"] == [
        {"rank": 1, "tie_group": 1, "model": "acme/guard-1", "aegish_score": 0.957}
    ]
    assert document["snapshot"] == {
        "id": 12,
        "scoring": "aegish-5.3",
        "scoring_version": 1,
        "opinion": record_of(Opinion()),
        "metrics_version": 2,
        "parser_versions": "2",
        "code_version": "0.1.0",
        "verdicts": 300,
        "verdicts_hash": "0" * 16,
        "created_at": "2026-11-20T14:30:00+00:00",
        "is_current": True,
    }


def test_the_run_can_be_repeated_from_its_block() -> None:
    """Datasets, prompt, parameters, epochs and models are named."""
    data = a_report()
    run = json.loads(render_json(data))["run"]
    assert (run["id"], run["name"], run["epochs"]) == ("0a1b2c3d4", "nightly", 1)
    assert run["created_at"] == "2026-11-20T14:03:00+00:00"
    assert run["package_version"] == "0.1.0"
    assert run["datasets"] == [
        {
            "name": "mixed",
            "fingerprint": "ab" * 32,
            "samples": 300,
            "malicious": 200,
            "source": "GTFOBins, commit 0123",
            "licence": "GPL-3.0",
        }
    ]
    assert run["prompt"] == {
        "name": "guard",
        "fingerprint": defined(data.run.prompt).fingerprint,
        "system": "system",
        "template": "{command}",
    }
    assert run["parameters"] == {
        "seed": 42,
        "temperature": None,
        "max_output_tokens": 4096,
        "time_limit_s": 180.0,
    }
    assert [model["id"] for model in run["models"]] == ["acme/guard-1"]


def test_prices_are_those_of_submit() -> None:
    """Rates in USD per million tokens with their tiers, a flat price, or null when unknown."""
    data = a_report()
    tiered = Price(Rate(Decimal("1.25"), ((200_000, Decimal("2.5")),)), Rate(Decimal(10)))
    flat = Price(per_call=Decimal("0.001"))
    (spec,) = data.run.models
    for price, expected in (
        (None, None),
        (
            flat,
            {"per_call_usd": 0.001, "input": {"usd_per_million": 0.0, "above_input_tokens": {}}},
        ),
        (
            tiered,
            {
                "per_call_usd": None,
                "input": {"usd_per_million": 1.25, "above_input_tokens": {"200000": 2.5}},
                "output": {"usd_per_million": 10.0, "above_input_tokens": {}},
                "cache_read": None,
            },
        ),
    ):
        priced = replace(data, run=replace(data.run, models=(replace(spec, price=price),)))
        (model,) = json.loads(render_json(priced))["run"]["models"]
        if expected is None:
            assert model["price"] is None
        else:
            assert model["price"] | expected == model["price"]


def test_failures_have_their_numbers_and_the_whole_message(failed_report: ReportData) -> None:
    """The reason, counts, statuses, words and time of each kind, and why a model is not called."""
    document = json.loads(render_json(failed_report))
    assert document["failures"][0] == {
        "model": "acme/guard-1",
        "error_class": "auth",
        "verdicts": 6,
        "attempts": 6,
        "statuses": [401, 403],
        "message": "no such key",
        "last_at": "2026-11-20T14:20:00+00:00",
    }
    assert document["halted"] == [
        {"model": "acme/guard-1", "state": "parked", "reason": "no such key"}
    ]


def test_an_imported_run_has_nulls() -> None:
    """A value that an import cannot know is null."""
    data = a_report()
    data = replace(data, run=replace(data.run, prompt=None, parameters=None))
    run = json.loads(render_json(data))["run"]
    assert run["prompt"] is None
    assert run["parameters"] is None


def test_undefined_is_null() -> None:
    """A model without verdicts has nulls, not zeros."""
    document = json.loads(render_json(a_report(a_silent_model())))
    assert document["models"][0]["metrics"]["aegish_score"]["value"] is None
    assert document["ranking"][0]["rank"] is None


def test_hostile_text_is_exact_and_inert(hostile_report: ReportData) -> None:
    """A parser gets every character back, a terminal gets none that it would obey."""
    text = render_json(hostile_report)
    assert json.loads(text)["run"]["name"] == HOSTILE
    assert text.replace("\n", "").isprintable()
    assert text.isascii()


def test_keys_are_sorted() -> None:
    """The same report gives the same bytes, with keys in order."""
    text = render_json(a_report())
    assert text == json.dumps(json.loads(text), sort_keys=True, indent=2) + "\n"
