"""`audit` and `plan` on stored runs, through the command line."""

import random
import re
import tomllib
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from aegish_dist.core.columns import sample_answers
from aegish_dist.core.outcome import OutcomeDetail
from aegish_dist.db.columns import read_columns
from aegish_dist.db.overlays import OverlayInRun
from aegish_dist.db.runs import load_run
from tests.integration.command_line import CommandLine
from tests.integration.samples import ALLOWED, BLOCKED, COMMANDS, CURL, LS, TAR
from tests.integration.stored_runs import Imported, answer, stored_run, verdict_line

MISSED, STOPPED = ("malicious", "ALLOW"), ("harmless", "BLOCK")
RIGHT = [("malicious", "BLOCK"), ("harmless", "ALLOW")]
HOSTILE = "\x1b[31m=1+1|`x` <b>\u202eevil"


def record(imported: Imported, **odd: tuple[str, str]) -> None:
    """Import what three models said about 60 easy commands, and two epochs about odd ones.

    Args:
        odd: By command its label, and an action that all models state in the first epoch; in the
            second one the first model allows.
    """
    lines = []
    for model in ("lab/a", "lab/b", "lab/c"):
        for epoch in (1, 2):
            lines += [
                verdict_line(model, f"easy {n}", *RIGHT[n % 2], epoch=epoch) for n in range(60)
            ]
            for command, (target, action) in odd.items():
                said = "ALLOW" if (model, epoch) == ("lab/a", 2) else action
                lines.append(verdict_line(model, command, target, said, epoch=epoch))
    imported(lines)


def pilot(imported: Imported, epochs: int) -> None:
    """Import what two models said about 60 commands; the second one errs by chance."""
    chance = random.Random(7)
    lines = []
    for n in range(60):
        target, right = RIGHT[n % 2]
        luck = chance.random()
        for epoch in range(1, epochs + 1):
            errs = chance.random() < luck * 0.6
            wrong = "ALLOW" if right == "BLOCK" else "BLOCK"
            for model, action in (("lab/a", right), ("lab/b", wrong if errs else right)):
                line = verdict_line(model, f"do {n}", target, action, epoch=epoch)
                lines.append(line | {"input_tokens": 100, "output_tokens": 10, "cost_usd": 0.001})
    imported(lines)


def test_an_audit_lists_commands_with_reasons(aegish: CommandLine, imported: Imported) -> None:
    """A label that all models contradict, and answers that change between epochs."""
    record(imported, odd=MISSED, flip=("malicious", "BLOCK"))
    found = aegish.ok("audit --json").json
    assert found["samples"] == 62
    assert [each["command"] for each in found["doubtful_labels"]] == ["odd"]
    (missed,) = found["missed_by_all"]
    assert (missed["place"], missed["contradicting"], missed["p_other_label"] > 0.5) == (1, 3, True)
    assert missed["answers"]["lab/a"] == {"epochs": {"ALLOW": 2}, "correct": 0.0}
    (flip,) = found["flipping"]
    assert (flip["command"], flip["score"]) == ("flip", pytest.approx(1 / 3))
    assert flip["answers"]["lab/a"]["correct"] == 0.5
    totals = {"doubtful_labels": 1, "disputed": 1, "missed_by_all": 1, "flipping": 1}
    assert found["totals"] == totals
    shown = aegish.ok("audit").out
    assert "let pass by 3 of 3 models" in shown
    assert "answered in different ways by lab/a, of 3" in shown


def test_long_commands_are_cut_in_tables_alone(aegish: CommandLine, imported: Imported) -> None:
    """One command of 9,000 characters would make every row of the table as wide."""
    command = "x" * 9000
    record(imported, **{command: MISSED})
    for form in ("table", "markdown"):
        assert len(aegish.ok("audit --format", form).out) < 9000
    assert command in aegish.ok("audit --format csv").out


@pytest.mark.long
@pytest.mark.parametrize("width", [80, 100])
def test_a_table_has_the_first_of_each_list_in_its_width(
    aegish: CommandLine, imported: Imported, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    record(imported, **{f"odd {'x' * 30 * n}": MISSED for n in range(9)})
    done = aegish.ok("audit")
    assert max(map(len, done.out.splitlines())) <= width
    assert done.out.count(": let pass by 3 of 3") == 3
    assert done.err.startswith("12 more on these lists: ")
    assert len(aegish.ok("audit --json").json["missed_by_all"]) == 9
    assert aegish.ok("audit --limit 0").out.count(": let pass by 3 of 3") == 9
    record(imported)
    done = aegish.ok("audit")
    assert (done.out, done.err[:36]) == ("", "no command deserves a second look: t")


def test_findings_of_a_sample_are_those_that_count(session: Session) -> None:
    """Epochs together, of a retried item the newest; models without a verdict are absent."""
    said = {"test/a": {TAR: BLOCKED}, "test/b": {CURL: ALLOWED}}
    stored = stored_run(session, said, models=("test/a", "test/b"), epochs=2)
    second = {stored.item(TAR, epoch=2): ALLOWED, stored.item(TAR, epoch=2, generation=1): BLOCKED}
    answer(session, stored, second)
    run = load_run(session, stored.run_id)
    models = [spec.id for spec in run.models]
    read = read_columns(session, run, models, OverlayInRun(), texts=True)
    found = {each.sample_id: each for each in sample_answers(read)}
    assert {sample_id: each.findings for sample_id, each in found.items()} == {
        TAR.sample_id: {"test/a": ((OutcomeDetail.BLOCK, 2),)},
        CURL.sample_id: {"test/b": ((OutcomeDetail.ALLOW, 1),)},
        LS.sample_id: {},
    }
    tar = found[TAR.sample_id]
    about = (tar.dataset, tar.command, tar.category, tar.cluster)
    assert about == (COMMANDS.name, TAR.command, "shell", "tar")


def test_doubtful_labels_are_written_as_an_overlay_for_a_person(
    aegish: CommandLine, imported: Imported, tmp_path: Path
) -> None:
    """The draft can be read back and changes the numbers; a file that is there is left alone."""
    record(imported, other=STOPPED, **{HOSTILE: MISSED})
    file = tmp_path / "overlay.toml"
    done = aegish.ok("audit --author Ada --json --write-overlay", file)
    score = done.json["overlay_effect"][0]["metrics"]["aegish_score"]
    assert score["without"] == pytest.approx((30 / 31 + 30 / 31) / 2)
    assert (score["with"], score["difference"]) == (1, pytest.approx(1 / 31))
    assert aegish.ok("report --format json").json["snapshot"]["id"] == 1  # none was stored
    assert "2 changes of labels written to" in done.err
    written = tomllib.loads(file.read_text("utf-8"))["change"]
    labels = {each["command"]: each["target"] for each in written}
    assert labels == {HOSTILE: "harmless", "other": "malicious"}
    assert {each["author"] for each in written} == {"Ada"}
    assert all("of 3 models" in each["reason"] for each in written)
    before = file.read_bytes()
    assert "is there already" in aegish.refused("audit --write-overlay", file)
    assert file.read_bytes() == before
    corrected = aegish.ok("audit --json --overlay", file).json
    assert corrected["opinion"]["overlay"]["changes"] == 2
    assert {each["command"] for each in corrected["doubtful_labels"]} <= {HOSTILE}
    assert corrected["totals"]["missed_by_all"] == 0


def test_a_draft_continues_the_overlay_under_which_it_was_found(
    aegish: CommandLine, imported: Imported, tmp_path: Path
) -> None:
    """Earlier decisions stay in the next version."""
    record(imported, odd=MISSED, other=STOPPED)
    first, second = tmp_path / "1.toml", tmp_path / "2.toml"
    assert "Effect of the overlay" in aegish.ok("audit --write-overlay", first).out
    start, change, _ = first.read_text("utf-8").split("\n[[change]]\n")
    first.write_text(f"{start}\n[[change]]\n{change}")
    aegish.ok("audit --overlay", first, "--write-overlay", second)
    document = tomllib.loads(second.read_text("utf-8"))
    assert document["version"] == 2
    assert [each["command"] for each in document["change"]] == ["odd", "other"]


def test_a_plan_says_what_would_decide(aegish: CommandLine, imported: Imported) -> None:
    """From two epochs of a pilot; the last model errs by chance."""
    pilot(imported, epochs=2)
    found = aegish.ok("plan --margin 0.05 --models lab/a,lab/b --json").json
    assert found == found | {
        "models": ["lab/a", "lab/b"],
        "metric": "aegish_score",
        "margin": 0.05,
        "power": 0.8,
        "commands_available": 60,
    }
    assert found["pilot"]["commands"] == 60
    assert found["pilot"]["variance"]["within"] > 0
    designs = found["designs"]
    assert [each["epochs"] for each in designs] == list(range(1, 11))
    assert all(each["stderr"] <= 0.05 / 2.8 * 1.01 for each in designs)
    one = designs[0]
    assert one["calls"] == 2 * one["commands"]
    assert one["cost_usd"] == pytest.approx(one["calls"] * 0.001)
    assert one["models"][0]["input_tokens"] == 100 * one["commands"]
    shown = aegish.ok("plan --margin 0.05 --models lab/a,lab/b")
    assert "Designs that find a difference of 0.05" in shown.out
    assert "the data sets have 60 commands" in shown.err


def test_a_plan_for_one_model_is_about_its_own_score(
    aegish: CommandLine, imported: Imported
) -> None:
    """A wide margin is reached with few of the commands."""
    pilot(imported, epochs=1)
    shown = aegish.ok("plan --margin 0.2 --models lab/b")
    assert "the score of lab/b to within 0.2" in shown.out
    for said in ("cheapest: 1 epoch of", "--limit", "asked every command once"):
        assert said in shown.err


def test_what_never_varied_has_no_plan(aegish: CommandLine, imported: Imported) -> None:
    """The interval and the number of commands are those that `compare` and the report print."""
    record(imported)
    pair = "--models lab/b,lab/c --margin 0.02"
    found = aegish.ok(f"plan {pair} --json").json
    (compared,) = aegish.ok(f"compare {pair} --json").json["pairs"]
    score = compared["metrics"]["aegish_score"]
    assert (found["designs"], found["pilot"]["stderr"]) == ([], None)
    assert found["pilot"]["ci_low"] == score["ci_low"] < 0 < score["ci_high"]
    assert found["pilot"]["ci_high"] == score["ci_high"]
    assert found["commands_needed_at_least"] == score["commands_needed"] > 60
    said = aegish.ok(f"plan {pair}").err
    assert "cannot tell: lab/b and lab/c never differed on the 60 commands of the pilot" in said
    assert f"about {score['commands_needed']:,} commands would settle a difference of 0.02" in said
    assert "cheapest" not in said

    one = "--models lab/b --margin 0.02"
    found = aegish.ok(f"plan {one} --json").json
    score = aegish.ok("report --json").json["models"][1]["metrics"]["aegish_score"]
    assert (found["designs"], found["commands_needed_at_least"]) == ([], None)
    assert (found["pilot"]["ci_low"], found["pilot"]["ci_high"]) == (score["ci_low"], 1)
    assert "cannot tell: the score of lab/b, 100.0 [" in aegish.ok(f"plan {one}").err


def test_a_plan_that_cannot_be_made_is_refused_in_one_line(
    aegish: CommandLine, imported: Imported
) -> None:
    imported(verdict_line("lab/a", f"rm {n}", "malicious", "BLOCK") for n in range(3))
    plan = "plan --margin 0.1"
    assert "too small for a pilot" in aegish.refused(plan)
    near = aegish.refused(f"{plan} --models lab/z")
    assert "has no model 'lab/z': did you mean 'lab/a'?" in near
    assert "has no model 'no/one': it has lab/a" in aegish.refused(f"{plan} --models no/one")
    record(imported)
    refusal = aegish.refused(plan)
    assert "a plan is for one model or for two" in refusal
    named = refusal.strip().rpartition("--models: ")[2].split(", ")
    assert aegish.refused(f"{plan} --models", ",".join(named[:-4:-1])) == refusal


def test_a_report_says_what_repeats_bring(aegish: CommandLine, imported: Imported) -> None:
    """Only where a command has two epochs."""
    pilot(imported, epochs=2)
    assert "Repeats" in aegish.ok("report --sections all").out
    entry = aegish.ok("aggregate --json").json["models"][1]["repeats"]
    assert entry["stderr"] > entry["stderr_one_more"] > entry["stderr_least"] > 0
    assert entry["rates"]["malicious"].keys() == {"between", "within"}
    pilot(imported, epochs=1)
    assert "Repeats" not in aegish.ok("report --sections all").out
    assert aegish.ok("aggregate --json").json["models"][1]["repeats"] is None


def test_few_models_are_warned_of_and_no_estimate_is_a_certainty(
    aegish: CommandLine, imported: Imported, tmp_path: Path
) -> None:
    record(imported, odd=STOPPED, other=STOPPED)
    shown = aegish.ok("audit").out
    assert shown.startswith("Warning: too few unlike models (3) for a probability: read these")
    assert "1.00" not in shown
    assert "0.99" not in shown
    draft = tmp_path / "draft.toml"
    aegish.ok("audit --write-overlay", draft)
    report = aegish.ok("report --overlay", draft).out
    assert re.search(r"Draft: 2 changed labels in overlay .* author\s+'audit', which no", report)
