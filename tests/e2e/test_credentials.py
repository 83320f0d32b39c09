"""A worker against runs that name addresses and keys which its operator has not allowed."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from aegish_dist.core.model import CallParameters, ModelSpec, WireFormat
from aegish_dist.core.sample import Dataset
from aegish_dist.datasets.bundled import load_bundled
from aegish_dist.models.catalog import Catalog
from aegish_dist.pipeline.plan import RunPlan
from aegish_dist.pipeline.submit import submit
from aegish_dist.prompts.loading import load_prompt
from tests.cluster import DEADLINE_S, Cluster, run
from tests.http_server import answering
from tests.services import wait_until

SECRET = "sk-proj-0123456789abcdef"


def few() -> Dataset:
    harmless = load_bundled("harmless")
    return replace(harmless, samples=harmless.samples[:3])


def hostile(name: str, base_url: str, variable: str | None) -> ModelSpec:
    return ModelSpec(f"openai/{name}", WireFormat.OPENAI, name, base_url, key_variable=variable)


def test_a_run_cannot_have_a_worker_send_what_its_operator_did_not_allow(cluster: Cluster) -> None:
    """Nothing is sent, `status` says why for each model, and the other models are asked."""
    with answering(lambda _: (500, {})) as (address, seen):
        cluster.env |= {"AEGISH_DIST_CATALOG": "", "OPENAI_API_KEY": SECRET}
        (keyword,) = Catalog.load().resolve("baseline/keyword", {})
        specs = (
            keyword,
            hostile("settings", f"{address}/v1", "AEGISH_DIST_DATABASE_URL"),
            hostile("key", f"{address}/v1", "OPENAI_API_KEY"),
            hostile("any", f"{address}/v1", None),
            hostile("metadata", "http://169.254.169.254/latest", None),
            ModelSpec("any/program", WireFormat.EXEC, "/bin/true"),
            ModelSpec("any/object", WireFormat.PYTHON, "os:abort"),
        )
        parameters = CallParameters(time_limit_s=5)
        submission = RunPlan(specs, (few(),), load_prompt("guard"), parameters, epochs=1)
        run_id = submit(cluster.engine, cluster.app, submission).run_id
        cluster.start_worker()

        wait_until(lambda: cluster.status(run_id).ended, "what can be done", DEADLINE_S)
        status = cluster.status(run_id)
        shown = run(cluster.env, "status --run-id", run_id)

        assert {model.model: model.done for model in status.models if model.done} == {keyword.id: 3}
        reasons = {model.model: model.reason or "" for model in status.models}
        assert reasons["baseline/keyword"] == ""
        for model in ("openai/settings", "openai/key", "openai/any"):
            assert "not in the catalog" in reasons[model]
        assert "metadata" in reasons["openai/metadata"]
        for model in ("any/program", "any/object"):
            assert "not a guard of the catalog" in reasons[model]
        assert "no worker may call openai/key (1 running)" in shown.stderr
        assert seen == []
        assert SECRET not in cluster.log() + shown.stdout + shown.stderr


@pytest.mark.long
def test_a_worker_without_a_key_says_so_until_one_has_it(cluster: Cluster, tmp_path: Path) -> None:
    """`status` names the variable; a worker that has the key takes the run up by itself."""
    cluster.simulator.start()
    text = cluster.simulator.catalog.read_text()
    text += "\n[providers.lab]\nkey_variable = 'LAB_KEY'\n"
    base_url = next(line for line in text.splitlines() if line.startswith("base_url"))
    mine = tmp_path / "mine.toml"
    mine.write_text(f"{text}{base_url}\n")
    cluster.env |= {"AEGISH_DIST_CATALOG": str(mine), "LAB_KEY": SECRET}
    with_key = dict(cluster.env)
    del cluster.env["LAB_KEY"]
    cluster.start_workers(1)
    asked = "--models lab/careful,baseline/keyword --dataset harmless --limit 3 --keys-on-workers"
    submitted = run(with_key, f"submit {asked}")
    run_id = submitted.stdout.strip()

    said = "no worker may call lab/careful (1 running): LAB_KEY is not set"
    assert said in submitted.stderr
    wait_until(lambda: cluster.status(run_id).ended, "a reason", DEADLINE_S)
    assert cluster.status(run_id).models[1].reason == "LAB_KEY is not set"
    assert cluster.simulator.calls() == 0
    doctor = run(cluster.env, "doctor", code=1).stdout
    assert f"no worker may call lab/careful of {run_id}: LAB_KEY is not set" in doctor

    cluster.env |= with_key
    cluster.start_worker()
    cluster.wait_until_complete(run_id)
    assert cluster.simulator.calls() == 3
