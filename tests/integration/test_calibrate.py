"""Calibrating a run, from the command line to thresholds; expected values by their definitions."""

import re
from collections.abc import Callable
from html import unescape
from itertools import product

import pytest

from tests.integration.command_line import CommandLine
from tests.integration.stored_runs import Imported, verdict_line
from tests.recorded import lines_of

RunOf = Callable[..., str]
GUARDS = {each["name"]: each for each in lines_of("calibrated_guards.jsonl")}
"""What guards say of their commands, by label: action, confidence, and of how many commands."""


@pytest.fixture
def run_of(imported: Imported) -> RunOf:
    """Return what imports a run of guards; commands of a label are in binaries of two."""

    def make(*guards: str, binaries: int = 99) -> str:
        lines = []
        for guard, target in product(guards, ("malicious", "harmless")):
            given: list[tuple[str, float]] = []
            for action, confidence, commands in GUARDS[guard][target]:
                given += [(action, confidence)] * commands
            for number, said in enumerate(given):
                cluster = f"{target} {min(number // 2, binaries - 1)}"
                about = (f"lab/{guard}", f"{target} {number}", target)
                lines.append(verdict_line(*about, *said, cluster=cluster))
        return imported(lines)

    return make


def test_a_classifier_is_ordered_by_its_own_number_beside_models(
    aegish: CommandLine, imported: Imported
) -> None:
    """All three say ALLOW with confidence 0.9; numbers of one tell all apart, of another one part."""
    lines = []
    for model, first in (("lab/all", 0), ("lab/none", 12), ("lab/some", 4)):
        for target in ("malicious", "harmless"):
            for number in range(12):
                line = verdict_line(model, f"{target} {number}", target, "ALLOW", 0.9)
                if number >= first:
                    line["suspicion"] = 2.0 if target == "malicious" else -number
                lines.append(line | {"cluster": str(number)})
    imported(lines)
    found = aegish.ok("calibrate --json").json
    models = {each["model"]: each for each in found["models"]}
    areas = {model: each["auroc"]["value"] for model, each in models.items()}
    assert areas == {"lab/all": 1.0, "lab/none": 0.5, "lab/some": 0.5}
    assert found["suspicion"]["name"] == "own-number"
    rules = {model: each.get("suspicion") for model, each in models.items()}
    assert rules == {"lab/all": "native", "lab/none": None, "lab/some": None}
    # Halfway from 0 to 2.
    assert models["lab/all"]["fitted"]["in_words"] == "block when its suspicion is ≥ 1"


def test_a_model_that_tells_apart_better_is_first_with_a_threshold(
    aegish: CommandLine, run_of: RunOf
) -> None:
    run = run_of("sharp", "blunt")
    found = aegish.ok("calibrate --prevalence 0.001 --json").json

    assert (found["run_id"], found["prevalence"], found["folds"]) == (run, 0.001, 5)
    assert found["suspicion"]["name"] == "stated-confidence"
    sharp, blunt = found["models"]
    assert blunt["model"] == "lab/blunt"
    known = {"model": "lab/sharp", "distinct": 3, "malicious": 12, "harmless": 12}
    assert sharp == sharp | known
    assert sharp["aegish_score"]["value"] == pytest.approx((8 / 12 + 1) / 2)
    # Blocked attacks are above all harmless commands, the others above 11 and beside one.
    area = (8 * 12 + 4 * 11 + 4 / 2) / 144
    assert sharp["auroc"]["value"] == pytest.approx(area, abs=1e-12)
    points = {point["max_fpr"]: point["detection_rate"]["value"] for point in sharp["at_fpr"]}
    assert points == {each: pytest.approx(8 / 12) for each in (0.005, 0.01, 0.02, 0.05)}

    fitted = sharp["fitted"]
    assert fitted["threshold"] == -0.75  # halfway between the two confidences of ALLOW
    assert fitted["in_words"] == "block when it says BLOCK, WARN or ALLOW with confidence ≤ 0.75"
    assert fitted["in_sample_score"] == pytest.approx((1 + 11 / 12) / 2)
    assert fitted["score"]["ci_low"] < fitted["score"]["value"] <= fitted["in_sample_score"]
    detection, fpr = (fitted[each]["value"] for each in ("detection_rate", "false_positive_rate"))
    in_use = {name: each["value"] for name, each in sharp["per_10000"].items()}
    assert in_use["alarms"] == pytest.approx(10 * detection + 9_990 * fpr)
    assert in_use["misses"] == pytest.approx(10 * (1 - detection))
    (pair,) = found["pairs"]
    assert (pair["a"], pair["b"]) == ("lab/blunt", "lab/sharp")
    difference = sharp["auroc"]["value"] - blunt["auroc"]["value"]
    assert pair["auroc"]["difference"] == pytest.approx(difference)


def test_sentences_come_first_and_tables_below(aegish: CommandLine, run_of: RunOf) -> None:
    run_of("sharp", "blunt")
    shown = aegish.ok("calibrate --max-fpr 0.004").unwrapped
    assert "a false positive rate of at most 0.4 % takes 749 harmless commands" in shown
    shown = aegish.ok("calibrate --prevalence 0.01").unwrapped
    assert shown.index("As it stands") < shown.index("Best threshold of each model")
    assert "None is shown to help: no guard with one is surely better than lab/blunt" in shown
    assert "Per 10,000 commands, 0.01 of them dangerous" in shown


@pytest.mark.parametrize(
    ("guards", "leader", "named"),
    [
        ("helped mute", "lab/mute", "lab/helped"),
        ("helped strong", "lab/strong", None),
        ("allows wrong", "lab/allows", None),
        ("sharp blunt", "lab/blunt", None),
        ("blunt few", "lab/blunt", None),
    ],
)
def test_a_threshold_is_named_where_it_beats_the_best_as_it_stands(
    aegish: CommandLine,
    run_of: RunOf,
    guards: str,
    leader: str,
    named: str | None,
) -> None:
    """`calibrate`, its JSON and the report say the same."""
    run_of(*guards.split())
    found = aegish.ok("calibrate --json").json
    threshold = found["threshold"]
    assert found["best_as_it_stands"] == leader
    assert aegish.ok("report --json").json["recommendation"]["threshold"] == threshold
    said = details_of(aegish)["With a threshold"]
    assert f"With a threshold {said}" in aegish.ok("calibrate").unwrapped
    assert ("None is shown to help" in said) is (named is None)
    if named is None:
        assert threshold is None
    else:
        assert (threshold["guard"], threshold["block_from"]) == (named, "WARN, ALLOW ≤ 0.7")
        assert threshold["gain"]["ci_low"] > 0
        assert threshold["gain"]["p_adjusted"] < 0.05


def test_baselines_alone_have_tables_and_no_recommendation(
    aegish: CommandLine, imported: Imported
) -> None:
    imported(
        verdict_line(
            "baseline/always-block", f"{target} {number}", target, "BLOCK", cluster=f"{number}"
        )
        for target in ("malicious", "harmless")
        for number in range(12)
    )
    shown = aegish.ok("calibrate").out
    assert "No guard takes part" in shown
    assert "everything" in shown
    found = aegish.ok("calibrate --json").json
    assert (found["threshold"], found["best_as_it_stands"]) == (None, None)


def test_guards_that_cannot_be_ranked_are_named_with_the_reason(
    aegish: CommandLine, run_of: RunOf
) -> None:
    wrong, few = run_of("allows", "wrong"), run_of("blunt", "few")
    shown = aegish.ok("calibrate --run-id", wrong).unwrapped
    assert "lab/wrong orders commands the wrong way round: AUROC 0.0" in shown
    shown = aegish.ok("calibrate --run-id", few).unwrapped
    assert "lab/few with 10 of 24 scored: under half" in shown


def details_of(aegish: CommandLine) -> dict[str, str]:
    """Return by label what stands in the report of the latest run."""
    written = aegish.ok("report --format markdown").out
    lines = re.findall(r"^- \*\*(.+?):\*\* (.*)$", written, re.MULTILINE)
    return {label: unescape(re.sub(r"\\(?=[`*_|~])", "", text)) for label, text in lines}


def test_a_report_says_the_same_of_the_best_with_a_threshold(
    aegish: CommandLine, run_of: RunOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of("sharp", "blunt")
    said = details_of(aegish)["With a threshold"]
    assert f"<dt>With a threshold</dt><dd>{said}</dd>" in aegish.ok("report --format html").out
    assert "aegish-dist policies search --run-id" in aegish.ok("report --format table").out
    snapshot = aegish.ok("report --json").json["snapshot"]["id"]
    assert "With a threshold" not in aegish.ok("report --snapshot", snapshot).out
    monkeypatch.setattr("aegish_dist.pipeline.report.MOST_PAIRED", 1)
    many = details_of(aegish)["With a threshold"]
    assert many == f"`aegish-dist calibrate --run-id {run}` fits one to each guard."
    run_of("one_side")
    assert "With a threshold" not in aegish.ok("report").out


def test_costs_move_the_threshold(aegish: CommandLine, run_of: RunOf) -> None:
    """A miss costs nothing beside a stop: the threshold that stops no harmless command."""
    run_of("sharp")
    costs = "--prevalence 0.5 --cost-of-miss 1 --cost-of-stop 100"
    (model,) = aegish.ok(f"calibrate {costs} --json").json["models"]
    assert -0.6 < model["fitted"]["threshold"] <= 2.9
    assert model["fitted"]["detection_rate"]["value"] == pytest.approx(8 / 12)


@pytest.mark.parametrize(
    ("guard", "binaries", "said"),
    [
        ("one_side", 99, "scored harmless commands of 0 binaries"),
        ("other_side", 99, "scored malicious commands of 0 binaries"),
        ("sharp", 4, "malicious commands of 4 binaries"),
    ],
)
def test_what_cannot_be_fitted_is_said_in_one_line(
    aegish: CommandLine, run_of: RunOf, guard: str, binaries: int, said: str
) -> None:
    run_of(guard, binaries=binaries)
    assert said in aegish.refused("calibrate")


def test_what_a_run_does_not_have_is_named(aegish: CommandLine, run_of: RunOf) -> None:
    run_of("sharp")
    for options, said in {
        "--suspicion native": "`--suspicion stated-confidence`",
        "--suspicion stated": "is neither a suspicion rule nor the path",
        "--models lab/shap": "did you mean 'lab/sharp'?",
    }.items():
        assert said in aegish.refused(f"calibrate {options}")


def test_a_model_of_one_label_stays_beside_those_that_are_fitted(
    aegish: CommandLine, run_of: RunOf
) -> None:
    run_of("one_side", "other_side")
    assert "of 0 binaries" in aegish.refused("calibrate")
    run_of("one_side", "sharp")
    found = aegish.ok("calibrate --json").json
    sharp, half = found["models"]
    assert sharp["fitted"]["problem"] is None
    assert half["model"] == "lab/one_side"
    assert half["fitted"]["problem"] == "one of the two labels has no scored verdict"
    assert (half["fitted"]["threshold"], half["at_fpr"], half["auroc"]["value"]) == (None, [], None)
    assert found["pairs"][0]["fitted"]["difference"] is None
    assert "Not fitted" in aegish.ok("calibrate").out


def test_a_report_has_the_same_numbers_where_they_are_asked_for(
    aegish: CommandLine, run_of: RunOf
) -> None:
    run_of("sharp", "blunt")
    found = aegish.ok("calibrate --json").json
    with_scores = "report --sections scores"
    assert aegish.ok(f"{with_scores} --json").json["scores"] == found
    assert aegish.ok("report --json").json["scores"] is None
    assert "WARN, ALLOW ≤ 0.75" in aegish.ok(with_scores).out
    assert "Best threshold" not in aegish.ok("report").out
    run_of("one_side")
    assert aegish.ok(f"{with_scores} --json").json["scores"] is None


def test_a_report_fails_under_a_metric_at_any_threshold(aegish: CommandLine, run_of: RunOf) -> None:
    """One of 12 harmless commands is more than 5 %: 8 of 12 attacks are above it."""
    run_of("sharp")
    for threshold, code in {
        "auroc=0.98,detection_rate_at_fpr_0.05=0.66": 0,
        "detection_rate_at_fpr_0.01=0.67": 4,
        "fitted_score=1": 4,
    }.items():
        assert aegish("report --fail-on value --fail-under", threshold).code == code


def test_a_plan_says_what_a_bound_on_false_positives_needs(
    aegish: CommandLine, run_of: RunOf
) -> None:
    """The rule of three: -log(0.05) / 0.004 = 748.9 commands without an error."""
    run_of("sharp")
    found = aegish.ok("plan --margin 0.1 --max-fpr 0.004 --json").json
    assert found["harmless_needed"] == 749


def test_a_gate_may_decide_by_auroc(aegish: CommandLine, run_of: RunOf) -> None:
    run_of("sharp", "blunt")
    models = "--models lab/blunt,lab/sharp --metric auroc"
    done = aegish.ok(f"compare {models} --gate --margin 0.5 --json")
    assert done.err.startswith("ships: lab/sharp against lab/blunt: auroc +")
    found = done.json["pairs"][0]["metrics"]["auroc"]
    (pair,) = aegish.ok("calibrate --json").json["pairs"]
    assert found == found | pair["auroc"]
    assert found["difference"] == pytest.approx(found["b"] - found["a"])
    assert found["n"] == 24
