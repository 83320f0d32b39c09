"""Asking each model one harmless question before a run is stored and money is spent."""

import threading
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from aegish_dist.models.entries import ModelEntry
from aegish_dist.pipeline.preflight import retirement
from tests.http_server import Reply, answering
from tests.integration.command_line import CommandLine
from tests.integration.stored_runs import row_counts
from tests.services import free_port

ANSWER = {
    "choices": [{"message": {"content": '{"action": "ALLOW"}'}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 9},
}
FEW = "submit --dataset harmless --limit 1"


def refusing(field: str, message: str = "") -> Reply:
    def reply(body: dict[str, Any]) -> tuple[int, object]:
        if field in body:
            words = message or f"Unsupported parameter: '{field}' is not supported here."
            return 400, {"error": {"message": words}}
        return 200, ANSWER

    return reply


@pytest.fixture
def aegish(aegish: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CommandLine:
    """The command line on a database of its own, in a directory of its own."""
    monkeypatch.setenv("AEGISH_DIST_CATALOG", "lab.toml")
    monkeypatch.chdir(tmp_path)
    return aegish


def catalog(base_url: str, more: str = "") -> None:
    Path("lab.toml").write_text(f'[providers.lab]\nbase_url = "{base_url}/v1"\n{more}')


def test_a_refused_parameter_stops_the_run_before_it_is_stored(
    aegish: CommandLine, engine: Engine
) -> None:
    with answering(refusing("temperature")) as (base_url, seen):
        catalog(base_url)
        before = row_counts(engine)
        done = aegish(f"{FEW} --models lab/a,baseline/keyword --temperature 0")
    assert (done.code, done.out) == (1, "")
    assert "lab/a refuses this run: HTTP 400: Unsupported parameter: 'temperature'" in done.err
    assert "drop --temperature" in done.err
    assert "--skip-preflight" in done.err
    assert row_counts(engine) == before
    [body] = seen
    assert body["temperature"] == 0
    assert (body["max_tokens"], body["seed"]) == (4096, 42)
    assert "echo ok" in body["messages"][-1]["content"]


def test_several_refusals_are_a_table(aegish: CommandLine) -> None:
    with answering(refusing("reasoning_effort")) as (base_url, _):
        model = '[[models]]\nid = "lab/{}"\nparameters = {{ reasoning_effort = "low" }}\n'
        catalog(base_url, model.format("a") + model.format("b") + '[[models]]\nid = "lab/c"\n')
        done = aegish(f"{FEW} --models lab/a,lab/b,lab/c")
    assert done.code == 1
    lines = done.err.splitlines()
    rows = [line for line in lines if line.strip().startswith("lab/")]
    assert [row.split()[0] for row in rows] == ["lab/a", "lab/b"]
    assert "2 of 3 models refuse this run" in lines[-1]
    assert all(len(line) < 200 for line in lines)


def test_what_answers_is_asked_the_rest(aegish: CommandLine) -> None:
    """The harmless question is one call more than the run; a simulated model gets none."""
    with answering(refusing("temperature")) as (base_url, seen):
        catalog(base_url, '[[models]]\nid = "lab/sim"\nsimulated = true\n')
        aegish.ok(f"{FEW} --models lab/a,lab/sim")
    assert sorted(body["model"] for body in seen) == ["a", "a", "sim"]


def test_a_name_that_the_catalog_lacks_is_asked_with_a_warning(
    aegish: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A provider of which it lists none, such as a server of one's own, gets no warning."""
    asked = "openai/gpt-5.1mini is not in the catalog: asked as it stands; did you mean"
    with answering(lambda _: (200, ANSWER)) as (base_url, _):
        catalog(base_url)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{base_url}/v1")
        models = "openai/gpt-5.1mini,openai/gpt-5.1,openai/wholly-other,lab/a"
        checked = aegish.ok("models check", models)
        planned = aegish.ok(f"{FEW} --dry-run --models {models}")
    for done in (checked, planned):
        warnings = [line for line in done.err.splitlines() if "not in the catalog" in line]
        assert warnings == [
            f"{asked} 'openai/gpt-5-mini' or 'openai/gpt-5.1'?",
            "openai/wholly-other is not in the catalog: asked as it stands",
        ]


def test_an_address_that_is_not_the_vendors_is_named(
    aegish: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what gives it and the key sent there; where nothing is served, /v1 may be missing."""
    with answering(lambda _: (404, {"error": {"message": "nothing here"}})) as (base_url, _):
        catalog(base_url, f'[providers.lab2]\nwire = "anthropic"\nbase_url = "{base_url}"\n')
        monkeypatch.setenv("OPENAI_BASE_URL", base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "hush-hush-hush")
        versioned = aegish("models check lab/a,lab2/a")
        done = aegish(f"{FEW} --models openai/gpt-5.1,baseline/keyword")
        checked = aegish("models check openai/gpt-5.1")
    there = f"openai is asked at {base_url}, by OPENAI_BASE_URL; OPENAI_API_KEY is sent there"
    assert there in done.err.splitlines()
    assert there in checked.err.splitlines()
    assert "nothing here; does OPENAI_BASE_URL lack /v1? Nothing was stored" in done.err
    assert "does OPENAI_BASE_URL lack /v1?" in checked.out
    assert "nothing here" in versioned.out
    assert "lack /v1?" not in versioned.out
    monkeypatch.delenv("OPENAI_BASE_URL")
    own = aegish(f"{FEW} --models openai/gpt-5.1,baseline/keyword --dry-run")
    assert " is asked at " not in own.err


@pytest.mark.parametrize("status", [401, 402, 404])
def test_a_key_or_a_name_that_is_refused_stops_the_run(aegish: CommandLine, status: int) -> None:
    with answering(lambda _: (status, {"error": {"message": "no"}})) as (base_url, seen):
        catalog(base_url)
        done = aegish(f"{FEW} --models lab/a")
    assert (done.code, len(seen)) == (1, 1)
    assert f"lab/a refuses this run: HTTP {status}: no" in done.err


def test_trouble_that_passes_stops_nothing(aegish: CommandLine) -> None:
    replies: list[tuple[int, object]] = [(200, ANSWER), (503, {})]
    with answering(lambda _: replies.pop()) as (base_url, _):
        catalog(base_url)
        done = aegish.ok(f"{FEW} --models lab/a")
    said = "preflight: lab/a: HTTP 503: Service Unavailable; the run asks it all the same"
    assert (said in done.err, replies) == (True, [])


@pytest.mark.parametrize(
    ("models", "entry", "says"),
    [
        ("lab/a", "", "lab/a cannot be reached: connection failed: nothing answers at http://127."),
        ("lab/a", "", "start its server or mend its address, base_url in the catalog, or say"),
        ("openai/gpt-5.1", "", "start its server or mend its address, OPENAI_BASE_URL, or say"),
        ("lab/a,lab/b,baseline/keyword", "", ", nor can 1 other. Nothing was stored: start"),
        (
            "lab/a,lab/b",
            "".join(f'[[models]]\nid = "lab/{id_}"\nsimulated = true\n' for id_ in "ab"),
            "refused. Nothing was stored: start `aegish-dist simulate-provider`",  # tried once
        ),
        (
            "nohost/a",
            '[providers.nohost]\nbase_url = "http://nohost.invalid/v1"\n',
            "nohost/a cann",
        ),
    ],
)
def test_a_run_of_which_no_model_can_be_reached_is_not_stored(
    aegish: CommandLine, engine: Engine, monkeypatch: pytest.MonkeyPatch,
    *, models: str, entry: str, says: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("OPENAI_API_KEY", "hush-hush-hush")
    catalog(f"http://127.0.0.1:{free_port()}", entry)
    before = row_counts(engine)
    done = aegish(f"{FEW} --models {models}")
    assert (done.code, done.out) == (1, "")
    assert says in done.err.splitlines()[-1]
    assert row_counts(engine) == before
    first, *_ = aegish("models check", models, "--json").json
    assert first["remedy"].startswith("start its server or mend its address")


def test_a_model_that_is_not_reached_is_named_beside_others(aegish: CommandLine) -> None:
    """Only the refusal stops this run."""
    entry = f'[[models]]\nid = "lab/sim"\nsimulated = true\nbase_url = "http://[::1]:{free_port()}"'
    with answering(lambda _: (401, {})) as (base_url, _):
        catalog(base_url, entry)
        done = aegish(f"{FEW} --models lab/a,lab/sim")
    assert "preflight: lab/sim: connection to [::1]:" in done.err
    assert "lab/a refuses this run" in done.err


def test_what_the_catalog_foretells_is_not_asked(aegish: CommandLine) -> None:
    """Neither is a call made, nor is a model refused whose entry drops the field."""
    with answering(refusing("temperature")) as (base_url, seen):
        model = '[[models]]\nid = "lab/{}"\ntakes_temperature = false\n'
        drops = 'drop_parameters = ["temperature"]'
        catalog(base_url, model.format("a") + model.format("b") + drops)
        a, b = aegish("models check lab/a,lab/b --temperature 0.5 --json").json
    assert (a["ok"], a["answer"]) == (False, "takes no temperature, by the catalog")
    planned = aegish.ok(f"{FEW} --models lab/a,lab/b --temperature 0.5 --dry-run")
    assert (a["remedy"], b["ok"]) == ("drop --temperature", True)
    assert len(seen) == 1
    assert "lab/a takes no temperature" in planned.err
    assert "lab/b" not in planned.err.replace("lab/a, lab/b at unknown price", "")


@pytest.mark.parametrize(
    ("field", "words", "remedy"),
    [
        ("temperature", "`temperature` is deprecated for this model.", "drop --temperature"),
        ("max_tokens", "", 'set max_tokens_field = "max_completion_tokens"'),
        ("seed", "", 'drop_parameters = ["seed"]'),
        ("top_p", "", "drop parameters.top_p"),
        ("response_format", "no json_schema here", "drop 'structured' of this model"),
        ("model", "the model is not to your taste", ""),
        ("model", "a lower temperatures sum", ""),
    ],
)
def test_the_field_that_is_named_is_the_one_to_change(
    aegish: CommandLine, field: str, words: str, remedy: str
) -> None:
    """Only fields that were sent are looked for in the provider's words, as whole names."""
    with answering(refusing(field, words)) as (base_url, _):
        own = 'structured = "schema"\nparameters = { top_p = 0.5 }\n'
        catalog(base_url, f'[[models]]\nid = "lab/a"\n{own}')
        [checked] = aegish("models check lab/a --temperature 1 --json").json
    assert checked["ok"] is False
    assert remedy in (checked["remedy"] or "")
    assert bool(remedy) == bool(checked["remedy"])


def test_the_deadline_is_that_of_the_run(aegish: CommandLine) -> None:
    release = threading.Event()

    def slow(_: dict[str, Any]) -> tuple[int, object]:
        release.wait(5)
        return 200, ANSWER

    with answering(slow) as (base_url, _):
        catalog(base_url)
        [late] = aegish("models check lab/a --time-limit 0.1 --json").json
        release.set()
        [in_time] = aegish.ok("models check lab/a --json").json
    assert late["answer"] == "no answer within 0.1 s"
    assert in_time["ok"] is True
    assert "[default: 180.0" in aegish.ok("models check --help").out


def test_a_resumed_run_ends_when_its_key_is_gone(
    aegish: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a broker nothing else would bring the key, so the command says it and ends."""
    with answering(refusing("no such field")) as (base_url, seen):
        catalog(base_url, 'key_variable = "LAB_KEY"\n')
        monkeypatch.setenv("LAB_KEY", "hush-hush-hush")
        aegish.ok(f"{FEW} --models lab/a")
        monkeypatch.setenv("LAB_KEY", "")
        # In the run's row the key is needed; here the catalog pairs it with another address.
        catalog("https://lab.example", 'key_variable = "LAB_KEY"\n')
        done = aegish("retry --run-id latest --outcome ALLOW")
    assert done.code == 1
    assert "no worker may call lab/a" in done.err
    assert "not in the catalog here" in done.err
    assert len(seen) == 2


def test_models_without_keys_are_a_table_and_can_be_left_out(aegish: CommandLine) -> None:
    Path("lab.toml").write_text("")
    done = aegish(f"{FEW} --models all")
    assert (done.code, done.out) == (1, "")
    lines = done.err.splitlines()
    assert max(map(len, lines)) < 300
    assert sum("OPENAI_API_KEY is not set" in line for line in lines) >= 3
    assert "models cannot be called from here" in lines[-1]
    assert "--models available" in lines[-1]
    plan = aegish.ok(f"{FEW} --models available --dry-run --json").json
    assert plan["models"] == ["baseline/always-block", "baseline/always-allow", "baseline/keyword"]


def test_a_key_does_not_go_in_clear_to_another_machine(
    aegish: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_KEY", "hush-hush-hush")
    catalog("http://198.51.100.7", 'key_variable = "LAB_KEY"\n')
    done = aegish(f"{FEW} --models lab/a")
    assert done.code == 1
    assert "LAB_KEY would go in clear to http://198.51.100.7:80" in done.err
    assert "plain_http = true" in done.err


@pytest.mark.parametrize(
    ("today", "warning"),
    [
        (date(2026, 10, 11), ""),
        (date(2026, 10, 12), "x/y ends on 2026-12-11, in 60 days"),
        (date(2026, 12, 10), "x/y ends on 2026-12-11, tomorrow"),
        (date(2026, 12, 11), "x/y was retired on 2026-12-11: its calls will fail"),
    ],
)
def test_a_model_that_ends_is_warned_about(today: date, warning: str) -> None:
    assert retirement(ModelEntry(id="x/y", retires=date(2026, 12, 11)), today) == warning
    assert retirement(ModelEntry(id="x/y"), today) == ""
