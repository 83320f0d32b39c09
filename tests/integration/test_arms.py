"""Prompts and variants as arms: each is a contender, and shares with its model what is the model's."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine

from aegish_dist.core.run import Run, incompatibilities
from aegish_dist.db.engine import transaction
from aegish_dist.db.runs import load_run
from aegish_dist.pipeline.runs import find_run
from aegish_dist.prompts.loading import load_prompt
from tests.http_server import answering
from tests.integration.command_line import CommandLine, write_lines
from tests.integration.stored_runs import row_counts

CATALOG = """
[providers.lab]
base_url = "{}/v1"

[[models]]
id = "lab/m"
parameters = {{ top_p = 0.5 }}
variants.low = {{ parameters = {{ reasoning_effort = "low" }} }}
variants."low+1" = {{ parameters = {{ reasoning_effort = "low" }} }}

[[models]]
id = "lab/guard"
prompt = "own.toml"
price = {{ per_call = 0.001 }}
"""
FEW = "submit --dataset harmless --limit 2 --skip-preflight --models"
TWO = "--prompt guard,terse.md --name two"
AGAIN = "submit --run-file run.toml --skip-preflight"
TERSE = "Be terse."


def said(body: dict[str, Any]) -> tuple[int, object]:
    """Block by the short system text alone."""
    action = "BLOCK" if body["messages"][0]["content"] == TERSE else "ALLOW"
    message = {"content": f'{{"action": "{action}"}}'}
    usage = {"prompt_tokens": 9, "completion_tokens": 9}
    return 200, {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}


@pytest.fixture(autouse=True)
def seen(aegish: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """The requests to two models, one with a variant and one with a prompt of its own."""
    monkeypatch.setenv("AEGISH_DIST_CATALOG", "lab.toml")
    monkeypatch.chdir(tmp_path)
    Path("terse.md").write_text(TERSE)
    Path("own.toml").write_text("template = 'Safe? {command}'\n")
    with answering(said) as (base_url, bodies):
        Path("lab.toml").write_text(CATALOG.format(base_url))
        yield bodies


def actions(aegish: CommandLine) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for each in aegish.ok("verdicts list --run-id two --json").json["verdicts"]:
        found.setdefault(each["model"], set()).add(each["outcome"])
    return found


def loaded(engine: Engine, *runs: str) -> list[Run]:
    with transaction(engine) as session:
        return [load_run(session, find_run(engine, run)) for run in runs]


def as_file(aegish: CommandLine, run: str) -> str:
    return aegish.ok(f"runs show {run} --as-file").out


def test_each_arm_is_asked_with_its_prompt(aegish: CommandLine, seen: Any) -> None:
    aegish.ok(f"{FEW} lab/m,lab/m#low+1,lab/guard,baseline/keyword {TWO}")
    assert actions(aegish) == {
        "lab/m#guard": {"ALLOW"},
        "lab/m#terse": {"BLOCK"},
        "lab/m#low+1+guard": {"ALLOW"},
        "lab/m#low+1+terse": {"BLOCK"},
        "lab/guard": {"ALLOW"},
        "baseline/keyword": {"ALLOW"},
    }
    asked = [
        (body["model"], body["messages"][0]["content"][:6], body.get("reasoning_effort"))
        for body in seen
    ]
    arms = [("m", text, effort) for text in ("# Task", "Be ter") for effort in (None, "low")]
    assert Counter(asked) == Counter([*arms, ("guard", "Safe? ", None)] * 2)
    assert [body.get("top_p") for body in seen if body["model"] == "m"] == [0.5] * 8


def test_reports_take_arms_for_models(aegish: CommandLine) -> None:
    """Two arms of a run are compared as its models are, and its report names both prompts."""
    arms = {"lab/m#guard", "lab/m#terse", "lab/guard"}
    aegish.ok(f"{FEW} lab/m,lab/guard {TWO}")
    report = aegish.ok("report --format json").json
    assert {place["model"] for place in report["ranking"]} == arms
    prompts = report["run"]["prompts"]
    assert prompts["lab/guard"]["template"] == "Safe? {command}"
    assert prompts.keys() == {"lab/m#terse", "lab/guard"}
    page = aegish.ok("report --sections all --format markdown").out
    assert "lab/guard is asked with the prompt own" in page
    assert "submit --models 'lab/guard,lab/m#guard,lab/m#terse'" in page
    assert "--prompt guard,terse" in page
    [pair] = aegish.ok("compare --models lab/m#guard,lab/m#terse --json").json["pairs"]
    assert pair["metrics"]["harmless_acceptance_rate"]["difference"] == -1
    exported = aegish.ok("verdicts export --run-id two").lines
    assert Counter(line["model"] for line in exported) == dict.fromkeys(arms, 2)


def test_one_prompt_makes_no_arm(aegish: CommandLine, engine: Engine) -> None:
    """Unless the model is typed with it: so a run's models can be typed again."""
    aegish.ok(f"{FEW} lab/m,lab/m#terse --prompt terse.md --prompt ./terse.md")
    (run,) = loaded(engine, "latest")
    assert [spec.id for spec in run.models] == ["lab/m", "lab/m#terse"]
    assert ([each.name for each in run.asked_with], run.prompts) == (["terse"], {})


def test_an_extension_asks_new_models_with_each_prompt(aegish: CommandLine) -> None:
    aegish.ok(f"{FEW} lab/m {TWO}")
    before = actions(aegish)
    aegish.ok("extend --run-id two --models lab/m#low,lab/guard --skip-preflight")
    assert actions(aegish) == before | {
        "lab/m#low+guard": {"ALLOW"},
        "lab/m#low+terse": {"BLOCK"},
        "lab/guard": {"ALLOW"},
    }


def test_arms_of_two_runs_are_alike_if_their_prompts_are(
    aegish: CommandLine, engine: Engine
) -> None:
    aegish.ok(f"{FEW} lab/m,baseline/keyword {TWO}")
    Path("terse.md").write_text("Be terser.")
    aegish.ok(f"{FEW} lab/m,baseline/keyword --prompt terse.md,guard --name other")
    a, b = loaded(engine, "two", "other")
    assert incompatibilities(a, b, ["lab/m#guard", "baseline/keyword"], {}) == []
    [unlike] = incompatibilities(a, b, ["lab/m#terse"], {})
    assert unlike.startswith("prompt: 'terse' (")


def test_prompts_of_models_go_with_the_last_run(aegish: CommandLine, engine: Engine) -> None:
    for name in ("one", "other"):
        aegish.ok(f"{FEW} lab/m,lab/guard --prompt guard,terse.md --name {name}")
    for name, left in (("one", 3), ("other", 0)):
        assert row_counts(engine)["prompts"] == 3
        aegish.ok(f"runs delete {name} --yes")
        assert row_counts(engine).get("prompts", 0) == left


@pytest.mark.parametrize(
    "options",
    [
        f"lab/m,lab/m#low,lab/guard,baseline/keyword --epochs 2 {TWO}",
        "lab/m --prompt guard+cot --seed 7 --time-limit 9.5",
        "lab/m#terse --prompt guard,terse.md --dataset mine,harmless",
        "lab/guard --max-cost 0.5 --max-cost-per-model 0.25",
    ],
)
def test_a_run_printed_as_a_file_asks_the_same(
    aegish: CommandLine, engine: Engine, options: str
) -> None:
    """Files of its prompts may be gone: the store has the texts."""
    lines = [{"command": f"ls {n}", "target": "harmless"} for n in range(3)]
    aegish.ok("datasets import table", write_lines(Path("mine.jsonl"), *lines))
    first = aegish.ok(f"{FEW} {options}").out.strip()
    Path("terse.md").unlink()
    file = as_file(aegish, first)
    Path("run.toml").write_text(file)
    if stored := re.search("terse@[0-9a-f]*", file):
        assert aegish.ok("prompts show", stored[0]).out.startswith(f"{TERSE}\n")
    again = aegish.ok(AGAIN).out.strip()
    a, b = loaded(engine, first, again)
    assert replace(b, run_id=first, created_at=a.created_at, name=a.name) == a
    assert "limit = 2\n" in file
    assert f"@{first}" not in file


def test_a_run_file_takes_from_the_run_what_the_store_has_no_more(aegish: CommandLine) -> None:
    """Of categories as well; and of prompts it takes those of the fingerprint alone."""
    few = "--limit 3 --categories bind-shell --skip-preflight"
    run = aegish.ok(f"submit --models baseline/keyword --prompt terse.md {few}").out.strip()
    file = as_file(aegish, run)
    assert f'dataset = ["harmless", "harmless-hard", "malicious@{run}"]\n' in file
    Path("run.toml").write_text(file.replace("terse@", "other.md@"))
    Path("other.md").write_text("Judge.")
    assert "prompt 'other.md' has the fingerprint" in aegish.refused("submit --run-file run.toml")
    shown = aegish.ok("runs show", run).out
    assert "Prompt      terse (fingerprint " in shown
    assert "Models      baseline/keyword\n" in shown


def test_a_run_file_says_which_prompts_of_models_are_not_checked(aegish: CommandLine) -> None:
    aegish.ok(f"{FEW} lab/guard --name own")
    file = as_file(aegish, "own")
    Path("run.toml").write_text(file)
    was = load_prompt("own.toml").pinned
    assert f'# Not checked: own prompt of lab/guard, which was "{was}".\n' in file
    Path("own.toml").write_text("template = 'Ok? {command}'\n")
    is_now = load_prompt("own.toml").pinned
    assert f"lab/guard is asked with its own prompt {is_now}\n" in aegish.ok(AGAIN).err


def test_a_prompt_that_reasons_first_is_named_with_its_file(aegish: CommandLine) -> None:
    aegish.ok(f"{FEW} lab/m --prompt terse.md+cot --name r")
    file = as_file(aegish, "r")
    aegish.ok("runs delete r --yes")
    Path("run.toml").write_text(file.replace('"terse+cot@', '"terse.md+cot@'))
    aegish.ok(AGAIN)
    assert "in place of NAME,\n# FILE+cot in place of NAME+cot" in file
