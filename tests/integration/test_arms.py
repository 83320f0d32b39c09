"""Prompts and variants as arms: each is a contender, and shares with its model what is the model's."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine

from aegish_dist.core.run import incompatibilities
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
FEW = ("--dataset", "harmless", "--limit", "2", "--skip-preflight")
TERSE = "Be terse."


def said(body: dict[str, Any]) -> tuple[int, object]:
    """Block by the short system text alone."""
    action = "BLOCK" if body["messages"][0]["content"] == TERSE else "ALLOW"
    message = {"content": f'{{"action": "{action}"}}'}
    usage = {"prompt_tokens": 9, "completion_tokens": 9}
    return 200, {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}


@pytest.fixture
def seen(aegish: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """The requests to two models, one with a variant and one with a prompt of its own."""
    monkeypatch.setenv("AEGISH_DIST_CATALOG", "lab.toml")
    monkeypatch.chdir(tmp_path)
    Path("terse.md").write_text(TERSE)
    Path("own.toml").write_text("template = 'Safe? {command}'\n")
    with answering(said) as (base_url, bodies):
        Path("lab.toml").write_text(CATALOG.format(base_url))
        yield bodies


TWO = ("--prompt", "guard,terse.md", "--name", "two")


def actions(aegish: CommandLine, run: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for each in aegish.ok("verdicts list --json --run-id", run).json["verdicts"]:
        found.setdefault(each["model"], set()).add(each["outcome"])
    return found


def test_each_arm_is_asked_with_its_prompt(aegish: CommandLine, seen: Any) -> None:
    models = "lab/m,lab/m#low+1,lab/guard,baseline/keyword"
    aegish.ok("submit --models", models, *TWO, *FEW)
    assert actions(aegish, "two") == {
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


def test_reports_take_arms_for_models(aegish: CommandLine, seen: Any) -> None:
    """Two arms of a run are compared as its models are, and its report names both prompts."""
    aegish.ok("submit --models lab/m,lab/guard", *TWO, *FEW)
    report = aegish.ok("report --run-id two --format json").json
    assert {place["model"] for place in report["ranking"]} == {
        *("lab/m#guard", "lab/m#terse", "lab/guard")
    }
    texts = {model: prompt["template"] for model, prompt in report["run"]["prompts"].items()}
    assert texts["lab/guard"] == "Safe? {command}"
    assert texts.keys() == {"lab/m#terse", "lab/guard"}
    page = aegish.ok("report --run-id two --sections all --format markdown").out
    assert "lab/guard is asked with the prompt own" in page
    assert "submit --models 'lab/guard,lab/m#guard,lab/m#terse'" in page
    assert "--prompt guard,terse" in page
    arms = ("--models", "lab/m#guard,lab/m#terse", "--json")
    [pair] = aegish.ok("compare --run-id two", *arms).json["pairs"]
    assert pair["metrics"]["harmless_acceptance_rate"]["difference"] == -1
    exported = [
        line["model"]
        for line in map(json.loads, aegish.ok("verdicts export --run-id two").out.split("\n")[:-1])
    ]
    assert Counter(exported) == dict.fromkeys(texts.keys() | {"lab/m#guard"}, 2)


def test_one_prompt_makes_no_arm(aegish: CommandLine, engine: Engine, seen: Any) -> None:
    """Unless the model is typed with it: so a run's models can be typed again."""
    same = ("--prompt", "terse.md", "--prompt", "./terse.md")
    aegish.ok("submit --models 'lab/m,lab/m#terse'", *same, *FEW)
    with transaction(engine) as session:
        run = load_run(session, find_run(engine, "latest"))
    assert [spec.id for spec in run.models] == ["lab/m", "lab/m#terse"]
    assert ([each.name for each in run.asked_with], run.prompts) == (["terse"], {})


def test_an_extension_asks_new_models_with_each_prompt(aegish: CommandLine, seen: Any) -> None:
    aegish.ok("submit --models lab/m", *TWO, *FEW)
    aegish.ok("extend --run-id two --models 'lab/m#low,lab/guard' --skip-preflight")
    found = actions(aegish, "two")
    assert (found["lab/m#low+guard"], found["lab/m#low+terse"]) == ({"ALLOW"}, {"BLOCK"})
    assert found["lab/guard"] == {"ALLOW"}


def test_arms_of_two_runs_are_alike_if_their_prompts_are(
    aegish: CommandLine, engine: Engine, seen: Any
) -> None:
    aegish.ok("submit --models lab/m,baseline/keyword", *TWO, *FEW)
    Path("terse.md").write_text("Be terser.")
    other = ("--prompt", "terse.md,guard", "--name", "other")
    aegish.ok("submit --models lab/m,baseline/keyword", *other, *FEW)
    with transaction(engine) as session:
        a, b = (load_run(session, find_run(engine, name)) for name in ("two", "other"))
    assert incompatibilities(a, b, ["lab/m#guard", "baseline/keyword"], {}) == []
    [unlike] = incompatibilities(a, b, ["lab/m#terse"], {})
    assert unlike.startswith("prompt: 'terse' (")


def test_prompts_of_models_go_with_the_last_run(
    aegish: CommandLine, engine: Engine, seen: Any
) -> None:
    for name in ("one", "other"):
        names = ("--prompt", "guard,terse.md", "--name", name)
        aegish.ok("submit --models lab/m,lab/guard", *names, *FEW)
    for name, left in (("one", 3), ("other", 0)):
        assert row_counts(engine)["prompts"] == 3
        aegish.ok("runs delete --yes", name)
        assert row_counts(engine).get("prompts", 0) == left


@pytest.mark.parametrize(
    "options",
    [
        (*TWO, "--models", "lab/m,lab/m#low,lab/guard,baseline/keyword", "--epochs", "2"),
        ("--models", "lab/m", "--prompt", "guard+cot", "--seed", "7", "--time-limit", "9.5"),
        ("--models", "lab/m#terse", "--prompt", "guard,terse.md", "--dataset", "mine,harmless"),
        ("--models", "lab/guard", "--max-cost", "0.5", "--max-cost-per-model", "0.25"),
    ],
)
def test_a_run_printed_as_a_file_asks_the_same(
    aegish: CommandLine, engine: Engine, seen: Any, options: tuple[str, ...]
) -> None:
    """Files of its prompts may be gone: the store has the texts."""
    lines = [{"command": f"ls {n}", "target": "harmless"} for n in range(3)]
    aegish.ok("datasets import table", write_lines(Path("mine.jsonl"), *lines))
    first = aegish.ok("submit", *FEW, *options).out.strip()
    Path("terse.md").unlink()
    Path("run.toml").write_text(file := aegish.ok("runs show --as-file", first).out)
    if stored := re.search("terse@[0-9a-f]*", file):
        assert aegish.ok("prompts show", stored[0]).out.startswith(f"{TERSE}\n")
    again = aegish.ok("submit --run-file run.toml --skip-preflight").out.strip()
    with transaction(engine) as session:
        a, b = (load_run(session, run_id) for run_id in (first, again))
    assert replace(b, run_id=first, created_at=a.created_at, name=a.name) == a
    assert "limit = 2\n" in Path("run.toml").read_text()
    assert f"@{first}" not in Path("run.toml").read_text()


def test_a_run_file_takes_from_the_run_what_the_store_has_no_more(
    aegish: CommandLine, seen: Any
) -> None:
    """Of categories as well; and of prompts it takes those of the fingerprint alone."""
    few = ("--limit", "3", "--categories", "bind-shell", "--skip-preflight")
    run = aegish.ok("submit --models baseline/keyword --prompt terse.md", *few).out.strip()
    file = aegish.ok("runs show --as-file", run).out
    assert f'dataset = ["harmless", "harmless-hard", "malicious@{run}"]\n' in file
    Path("run.toml").write_text(file.replace("terse@", "other.md@"))
    Path("other.md").write_text("Judge.")
    assert "prompt 'other.md' has the fingerprint" in aegish.refused("submit --run-file run.toml")
    shown = aegish.ok("runs show", run).out
    assert "Prompt      terse (fingerprint " in shown
    assert "Models      baseline/keyword\n" in shown


def test_a_run_file_says_which_prompts_of_models_are_not_checked(
    aegish: CommandLine, seen: Any
) -> None:
    aegish.ok("submit --models lab/guard --name own", *FEW)
    Path("run.toml").write_text(file := aegish.ok("runs show own --as-file").out)
    was = load_prompt("own.toml").pinned
    assert f'# Not checked: own prompt of lab/guard, which was "{was}".\n' in file
    Path("own.toml").write_text("template = 'Ok? {command}'\n")
    said = aegish.ok("submit --run-file run.toml --skip-preflight").err
    assert f"lab/guard is asked with its own prompt {load_prompt('own.toml').pinned}\n" in said


def test_a_prompt_that_reasons_first_is_named_with_its_file(aegish: CommandLine, seen: Any) -> None:
    aegish.ok("submit --models lab/m --prompt terse.md+cot --name r", *FEW)
    file = aegish.ok("runs show r --as-file").out
    aegish.ok("runs delete r --yes")
    Path("run.toml").write_text(file.replace('"terse+cot@', '"terse.md+cot@'))
    aegish.ok("submit --run-file run.toml --skip-preflight")
    assert "in place of NAME,\n# FILE+cot in place of NAME+cot" in file
