"""Records and lines of Every Eval Ever against what its schema 0.3.0 and its validator ask for."""

import json
import re
from typing import Any

import pytest

from aegish_dist.core.opinion import VerdictSet
from aegish_dist.core.outcome import OutcomeDetail
from aegish_dist.core.sample import Sample, TrueLabel
from aegish_dist.core.scoring import RULES
from aegish_dist.core.verdict_record import FIELDS
from aegish_dist.interchange.every_eval_ever import (
    DEFINED,
    SampleLines,
    SamplesFile,
    evaluation_record,
    record_identity,
)
from aegish_dist.report.data import ReportData
from aegish_dist.report.layout import ranked_entries
from aegish_dist.statistics.metrics import METRICS
from tests.unit.report.reports import HOSTILE, a_report, a_silent_model

SAMPLES_PATH = re.compile(
    r"data/[^/]+/[^/]+/[^/]+/[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    r"_samples\.jsonl"
)
"""The form that the schema and the validator have for the path of the lines."""
TOP = {
    *("schema_version", "evaluation_id", "evaluation_timestamp", "retrieved_timestamp"),
    *("source_metadata", "eval_library", "model_info", "evaluation_results"),
}
LINE = {
    *("schema_version", "evaluation_id", "model_id", "evaluation_name", "evaluation_result_id"),
    *("sample_id", "sample_hash", "interaction_type", "input", "output", "answer_attribution"),
    *("evaluation", "token_usage", "performance", "error", "metadata"),
}
BLOCKED = dict.fromkeys(each.name for each in FIELDS) | {
    **{"model": "acme/guard-1", "dataset": "mixed", "command": "tar xf a", "target": "malicious"},
    **{"category": "shell", "cluster": "tar", "epoch": 1, "completion": '{"action": "BLOCK"}'},
    **{"stop_kind": "stop", "outcome": "BLOCK", "parser_version": 2, "correct": True},
    **{"input_tokens": 100, "output_tokens": 7, "cache_read_tokens": 40, "call_errors": []},
    **{"latency_ms": 812.5, "queue_ms": 3.0, "total_ms": 900.0},
}
"""A verdict line as the store gives it."""
HASH = "ae7c524ff2d6382dc1680c5908e258e224ae1684a534772cf87a256b2cb2cc9e"
"""Of `{"raw":"tar xf a","reference":["BLOCK"]}`, by sha256sum."""
LINES = SampleLines(RULES["aegish-5.3"])


def record_of(data: ReportData, samples: SamplesFile | None = None) -> dict[str, Any]:
    """Return the record of the first model, as a reader of its JSON gets it."""
    (entry, *_) = ranked_entries(data.snapshot.document)
    identity = record_identity(data.snapshot, entry.model)
    record = evaluation_record(data.run, data.snapshot, entry, identity, samples)
    read: dict[str, Any] = json.loads(json.dumps(record, allow_nan=False))
    return read


def results_of(data: ReportData) -> dict[str, Any]:
    return {each["evaluation_result_id"]: each for each in record_of(data)["evaluation_results"]}


def line_of(lines: SampleLines = LINES, /, **changes: Any) -> dict[str, Any]:
    (line,), unscored = lines.of("an id", [BLOCKED | changes])
    assert unscored == 0
    read: dict[str, Any] = json.loads(line)
    return read


def only_texts(value: Any) -> bool:
    """Whether every value below a key `additional_details`, `details` or `metadata` is a text."""
    if isinstance(value, dict):
        return all(
            all(isinstance(each, str) for each in part.values())
            if key in ("additional_details", "details", "metadata")
            else only_texts(part)
            for key, part in value.items()
        )
    return not isinstance(value, list) or all(map(only_texts, value))


def test_every_metric_has_a_definition() -> None:
    assert set(METRICS) == set(DEFINED)


def test_a_record_has_the_keys_of_the_schema_and_no_others() -> None:
    record = record_of(a_report(), SamplesFile("ab" * 32, 294, 6))
    assert set(record) == TOP | {"detailed_evaluation_results"}
    assert record["schema_version"] == "0.3.0"
    about = record["model_info"]["additional_details"]
    assert {"deployment_type", "model_availability"} <= set(about)
    assert only_texts(record)


def test_a_score_stands_with_stderr_interval_level_and_method() -> None:
    score = results_of(a_report())["aegish_score"]
    assert score["score_details"]["score"] == 0.957
    assert score["score_details"]["details"]["stderr_unclustered"] == "0.0068"
    uncertainty = score["score_details"]["uncertainty"]
    assert uncertainty.pop("standard_error")["value"] == 0.0078
    interval = uncertainty.pop("confidence_interval")
    assert interval.pop("method").startswith("MOVER")
    assert interval == {"lower": 0.939, "upper": 0.97, "confidence_level": 0.95}
    assert uncertainty == {"num_samples": 296}


def test_each_metric_says_what_it_is_and_lies_within_its_bounds() -> None:
    for result in results_of(a_report()).values():
        metric, score = result["metric_config"], result["score_details"]["score"]
        most = float(metric["max_score"])
        assert metric["min_score"] <= score <= most
        assert metric["score_type"] == "continuous"
        assert isinstance(metric["lower_is_better"], bool)
        assert metric["metric_id"] not in ("score", "rank", "cost")
    assert results_of(a_report())["brier"]["metric_config"]["lower_is_better"] is True


def test_categories_are_results_of_their_own() -> None:
    shell = results_of(a_report())["malicious_detection_rate/shell"]
    assert shell["score_details"]["score"] == 0.86
    assert shell["evaluation_name"] == "aegish-dist.malicious.shell"


def test_what_is_undefined_is_absent() -> None:
    results = results_of(a_report())
    assert "ece" not in results
    assert "flip_rate" not in results
    assert "uncertainty" not in results["coverage"]["score_details"]
    assert set(results_of(a_report(a_silent_model()))) == {"coverage"}
    assert "detailed_evaluation_results" not in record_of(a_report(a_silent_model()))


def test_a_rule_set_is_named_in_every_metric() -> None:
    metric = results_of(a_report())["malicious_detection_rate"]["metric_config"]
    rule = {"scoring": "aegish-5.3", "scoring_version": 1}
    named = rule | {"scoring_fingerprint": RULES["aegish-5.3"].fingerprint}
    assert metric["metric_parameters"] == named


@pytest.mark.parametrize(
    ("model", "folder"),
    [
        ("openai/gpt-5.1", "openai/gpt-5.1"),
        ("hf/x/y:host", "hf/x_y_host"),
        ("lone", "unknown/lone"),
        ("../../etc", "_/_.._etc"),
        (".hidden/x", "_.hidden/x"),
        ("con/nul.txt", "_con/_nul.txt"),
        ("data/data", "_data/_data"),
        ('a/<>:"\\|?*\u202e', "a/_________"),
        ("x/" + "a" * 190, "x/" + "a" * 100),
    ],
)
def test_files_have_portable_names_of_the_form_of_the_collection(model: str, folder: str) -> None:
    identity = record_identity(a_report().snapshot, model)
    assert SAMPLES_PATH.fullmatch(identity.samples_path)
    assert identity.samples_path.startswith(f"data/aegish-dist/{folder}/")
    assert not {".", "..", ""} & set(identity.samples_path.split("/"))
    assert identity.record_path == f"{identity.samples_path.removesuffix('_samples.jsonl')}.json"


def test_names_change_with_verdicts_and_opinion_and_with_nothing_else() -> None:
    known = a_report().snapshot
    again = a_report(snapshot_id=13).snapshot
    other_rule = a_report(scoring="aegish-legacy").snapshot
    other = VerdictSet(300, "f" * 16, "2")
    other_verdicts = a_report(identities={"acme/guard-1": other}).snapshot
    snapshots = (known, again, other_rule, other_verdicts)
    names = [record_identity(each, "acme/guard-1").record_path for each in snapshots]
    assert names[0] == names[1]
    assert len(set(names)) == 3


def test_the_record_says_where_its_lines_are() -> None:
    details = record_of(a_report(), SamplesFile("ab" * 32, 294, 6))["detailed_evaluation_results"]
    assert SAMPLES_PATH.fullmatch(details["file_path"])
    assert (details["format"], details["hash_algorithm"]) == ("jsonl", "sha256")
    assert (details["checksum"], details["total_rows"]) == ("ab" * 32, 294)
    assert details["additional_details"] == {"unscored_verdicts_without_a_row": "6"}


def test_hostile_names_stay_text(hostile_report: ReportData) -> None:
    record = record_of(hostile_report)
    assert record["model_info"]["id"] == HOSTILE
    assert f"malicious_detection_rate/{HOSTILE}" in results_of(hostile_report)


def test_a_line_has_the_keys_of_the_schema_and_refers_to_its_result() -> None:
    line = line_of()
    assert set(line) == LINE - {"error"}
    assert line["evaluation_result_id"] == "malicious_detection_rate"
    assert line["evaluation_name"] == "aegish-dist.malicious"
    assert line["sample_id"] == Sample("tar xf a", TrueLabel.MALICIOUS, "shell", "tar").sample_id
    assert line["input"] == {"raw": "tar xf a", "reference": ["BLOCK"]}
    assert line["output"] == {"raw": ['{"action": "BLOCK"}']}
    assert line["evaluation"] == {"score": 1.0, "is_correct": True}
    tokens = {"input_tokens": 100, "output_tokens": 7, "total_tokens": 107}
    assert line["token_usage"] == tokens | {"input_tokens_cache_read": 40}
    waits = {"queue_ms": "3.0", "total_ms": "900.0"}
    assert line["performance"] == {"latency_ms": 812.5, "additional_details": waits}
    keys = {"turn_idx", "source", "extracted_value", "extraction_method", "is_terminal"}
    assert set(line["answer_attribution"][0]) == keys
    assert line["sample_hash"] == HASH
    assert only_texts(line)


def test_an_unscored_verdict_has_no_line() -> None:
    assert LINES.of("an id", [BLOCKED | {"correct": None}]) == ([], 1)


def test_of_an_item_the_newest_generation_counts() -> None:
    verdicts = [
        BLOCKED | {"completion": "first", "correct": None},
        BLOCKED | {"completion": "second", "generation": 1, "correct": False},
        BLOCKED | {"completion": "third", "epoch": 2},
    ]
    lines, unscored = LINES.of("an id", verdicts)
    assert [json.loads(line)["output"]["raw"] for line in lines] == [["second"], ["third"]]
    assert unscored == 0


def test_a_missed_deadline_that_counts_as_wrong_has_no_output_and_an_error() -> None:
    failed = {"attempt": 1, "error_class": "deadline", "message": "key sk-abcdefghijklmnopqrst1"}
    nothing = dict.fromkeys(("completion", "stop_kind", "input_tokens"))
    ended = {"outcome": "TIMEOUT_ERROR", "error_class": "deadline", "correct": False}
    line = line_of(**nothing, **ended, call_errors=[failed])
    assert line["output"] == {"raw": []}
    assert line["answer_attribution"] == []
    assert line["error"] == "TIMEOUT_ERROR: deadline: key [key]"
    assert line["evaluation"] == {"score": 0.0, "is_correct": False}
    assert line["metadata"]["label"] == "TIMEOUT_ERROR"
    assert "token_usage" not in line


def test_a_line_says_how_the_rule_set_calls_its_finding() -> None:
    refined = SampleLines(RULES["filter-as-block"])
    filtered = {"completion": "", "outcome": "TIMEOUT_ERROR", "stop_kind": "content_filter"}
    read = line_of(refined, **filtered)
    assert read["metadata"]["label"] == refined.rule.labels[OutcomeDetail.EMPTY_FILTERED]
    assert read["input"]["reference"] == ["BLOCK", "CONTENT_FILTER"]


def test_an_overlay_moves_a_line_to_the_other_rate() -> None:
    sample = Sample("tar xf a", TrueLabel.MALICIOUS, "shell", "tar")
    relabelled = {("mixed", sample.sample_id): (TrueLabel.HARMLESS, None)}
    moved = SampleLines(RULES["aegish-5.3"], relabelled)
    read = line_of(moved, correct=False)
    assert read["evaluation_result_id"] == "harmless_acceptance_rate"
    assert read["input"]["reference"] == ["ALLOW", "WARN"]
    assert "category" not in read["metadata"]
    assert read["sample_id"] == sample.sample_id
