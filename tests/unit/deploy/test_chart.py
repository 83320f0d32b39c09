"""The Helm chart: accepted by Helm and by Kubernetes' schemas, hardened, without secrets."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml

from aegish_dist import __version__
from aegish_dist.cli import cli
from aegish_dist.core.model import CallParameters
from aegish_dist.models.catalog import Catalog
from aegish_dist.pipeline.simulate import catalog_for
from aegish_dist.settings import PREFIX, Settings
from tests.unit.deploy.charts import (
    CHART,
    NAMESPACE,
    RELEASE,
    ROOT,
    VALUES,
    Rendered,
    environment,
    helm,
    options,
    selects,
)

OLDEST = re.search(r">=([\d.]+)", yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"])
CUSTOM = {"ScaledObject", "PodMonitor", "PrometheusRule"}
CALLERS = {"worker", "cli"}


@pytest.fixture(scope="module", params=VALUES, ids=lambda path: path.stem)
def values(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


@pytest.fixture(scope="module")
def rendered(values: Path) -> Rendered:
    return Rendered.of([values])


@pytest.fixture(scope="module")
def simulated() -> Rendered:
    """The chart with everything of its own switched on."""
    return Rendered.of([CHART.parent / "values" / "simulator.yaml"])


def test_helm_finds_no_fault(values: Path) -> None:
    done = helm("lint", "--strict", "--quiet", str(CHART), *options([values]))
    assert done.returncode == 0, done.stdout


def test_kubernetes_accepts_every_object(rendered: Rendered) -> None:
    """The schemas of the oldest Kubernetes that the chart allows and of the newest known agree."""
    assert OLDEST is not None
    for version in (OLDEST[1].removesuffix(".0"), kubernetes_validate.latest_version()):
        for each in rendered.objects:
            if each["kind"] not in CUSTOM:
                kubernetes_validate.validate(dict(each), version, strict=True)


def test_selectors_pick_pods_of_the_chart(rendered: Rendered) -> None:
    labels = {name: pod["metadata"]["labels"] for name, pod in rendered.pods().items()}
    for name, deployment in rendered.kind("Deployment").items():
        selector = deployment["spec"]["selector"]
        assert {each for each in labels if selects(selector, labels[each])} == {name}
    for each in [*rendered.kind("NetworkPolicy").values(), *rendered.kind("PodMonitor").values()]:
        selector = each["spec"].get("podSelector", each["spec"].get("selector"))
        assert any(selects(selector, have) for have in labels.values())
    budget = rendered.kind("PodDisruptionBudget")["worker"]["spec"]
    assert {n for n, have in labels.items() if selects(budget["selector"], have)} == {"worker"}


def test_containers_are_hardened(rendered: Rendered) -> None:
    for pod in rendered.pods().values():
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False
        # Kubernetes would make variables AEGISH_DIST_..., of which the product refuses unknown ones.
        assert spec["enableServiceLinks"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        assert not [volume for volume in spec["volumes"] if "hostPath" in volume]
    for _, container in rendered.containers():
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "memory" in container["resources"]["limits"]
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}


def test_secrets_are_references(rendered: Rendered) -> None:
    """No object is a secret; URLs with passwords and keys come from secrets, optional for keys."""
    assert not rendered.kind("Secret")
    keys = {each.key_variable for each in Catalog.load().providers.values()} - {"", None}
    for name, container in rendered.containers():
        variables = environment(container)
        secret = {each for each in variables if each in keys or each.endswith("R_URL")}
        secret |= {f"{PREFIX}DATABASE_URL"} & variables.keys()
        for each in secret:
            assert variables[each]["secretKeyRef"].get("optional", False) is (each in keys)
        assert keys.issubset(variables) is (name in CALLERS)
        assert not keys & variables.keys() or name in CALLERS


def test_only_the_migration_owns_the_database(rendered: Rendered) -> None:
    """It has the owner's URL and runs before anything else; the others have that of their role."""
    secrets = {
        name: tuple(environment(container)[f"{PREFIX}DATABASE_URL"]["secretKeyRef"].values())[:2]
        for name, container in rendered.containers()
        if f"{PREFIX}DATABASE_URL" in environment(container)
    }
    hook = rendered.kind("Job")["migrate"]["metadata"]["annotations"]["helm.sh/hook"]
    spec = rendered.pods()["migrate"]["spec"]
    of_worker = ("aegish-dist-stores", "worker-database-url")
    of_command = ("aegish-dist-stores", "database-url")
    assert secrets == {
        "migrate": ("aegish-dist-owner", "database-url"),
        "worker": of_worker,
        "aggregator": of_command,
        "exporter": of_command,
        "cli": of_command,
    }
    assert hook == "pre-install,pre-upgrade"
    # Before the first installation there is neither the release's service account nor its catalog.
    assert spec["serviceAccountName"] == "default"
    assert not [volume for volume in spec["volumes"] if "configMap" in volume]


def test_variables_are_settings(rendered: Rendered) -> None:
    known = {PREFIX + name.upper() for name in Settings.__struct_fields__}
    for _, container in rendered.containers():
        names = [each["name"] for each in container.get("env", [])]
        assert len(set(names)) == len(names)
        assert {name for name in names if name.startswith(PREFIX)} <= known


def test_command_lines_are_understood(rendered: Rendered) -> None:
    for _, container in rendered.containers():
        name, *given = container.get("args", ["db", "upgrade"])
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        known = {option for each in command.params for option in each.opts} | {"--hostname"}
        assert {word.partition("=")[0] for word in given if word.startswith("--")} <= known


def test_calls_in_flight_may_end(rendered: Rendered) -> None:
    """A pod is killed after its worker gave up, which is after the longest call could end."""
    for chart in (rendered, Rendered.of()):
        spec = chart.pods()["worker"]["spec"]
        grace_s = float(environment(spec["containers"][0])[f"{PREFIX}SHUTDOWN_GRACE_S"])
        assert spec["terminationGracePeriodSeconds"] == grace_s + 30
        assert "preStop" not in spec["containers"][0].get("lifecycle", {})
    # By default the longest call is as long as `submit` allows.
    assert grace_s == CallParameters().time_limit_s + 10


def test_what_runs_on_is_watched(rendered: Rendered) -> None:
    for name, container in rendered.containers():
        if name not in ("worker", "aggregator", "exporter"):
            continue
        assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "metrics"}
        assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}
        assert {port["name"] for port in container["ports"]} == {"metrics"}


def test_the_simulated_catalog_is_current(simulated: Rendered) -> None:
    service = simulated.kind("Service")["simulator"]
    port = service["spec"]["ports"][0]["port"]
    written = simulated.kind("ConfigMap")["catalog"]["data"]["catalog.toml"]
    name = service["metadata"]["name"]
    assert tomllib.loads(written) == tomllib.loads(catalog_for(f"http://{name}:{port}"))
    assert f"--allow-host={name}" in simulated.pods()["simulator"]["spec"]["containers"][0]["args"]
    for caller in CALLERS:
        volumes = simulated.pods()[caller]["spec"]["volumes"]
        assert {"name": "catalog", "configMap": {"name": f"{RELEASE}-catalog"}} in volumes


def test_a_catalog_of_the_cluster_is_read(tmp_path: Path) -> None:
    rendered = Rendered.of([CHART.parent / "values" / "rabbitmq.yaml"])
    path = tmp_path / "catalog.toml"
    path.write_text(rendered.kind("ConfigMap")["catalog"]["data"]["catalog.toml"])
    served = rendered.pods()["worker"]["spec"]["containers"][0]["args"][1]
    assert served == "--models=openai/gpt-5.1,vllm/own-guard"
    assert {"openai/gpt-5.1", "vllm/own-guard"} <= Catalog.load(path).models.keys()


def test_only_callers_reach_providers(simulated: Rendered) -> None:
    """Everything is closed first; a provider is reached by what has keys, and no private address."""
    policies = simulated.kind("NetworkPolicy")
    closed, providers = policies["closed"]["spec"], policies["providers"]["spec"]
    (outside, inside) = providers["egress"]
    blocks = [peer["ipBlock"] for peer in outside["to"]]
    assert closed["policyTypes"] == ["Ingress", "Egress"]
    assert not {"ingress", "egress"} & closed.keys()
    assert set(providers["podSelector"]["matchExpressions"][0]["values"]) == CALLERS
    assert {"169.254.0.0/16", "10.0.0.0/8"} <= set(blocks[0]["except"])
    assert {"fc00::/7", "fe80::/10"} <= set(blocks[1]["except"])
    assert inside["ports"] == [{"port": 8400, "protocol": "TCP"}]


def test_measures_are_for_the_own_namespace_unless_scrapers_are_named(simulated: Rendered) -> None:
    """Probes share the port, and a pod of any namespace could crowd them out."""
    values = [CHART.parent / "values" / "autoscaled.yaml"]
    named = Rendered.of(values).kind("NetworkPolicy")["metrics"]["spec"]["ingress"]
    (rule,) = simulated.kind("NetworkPolicy")["metrics"]["spec"]["ingress"]
    assert rule["from"] == [{"podSelector": {}}]
    assert "namespaceSelector" in named[0]["from"][0]


def test_stores_are_in_the_own_namespace_unless_they_are_named(simulated: Rendered) -> None:
    """Without a peer the rule would let a pod with keys reach any address at these ports."""
    values = [CHART.parent / "values" / "rabbitmq.yaml"]
    named = Rendered.of(values).kind("NetworkPolicy")["stores"]["spec"]["egress"]
    *_, rule = simulated.kind("NetworkPolicy")["stores"]["spec"]["egress"]
    assert rule["to"] == [{"podSelector": {}}]
    assert named[-1]["to"] == [{"ipBlock": {"cidr": "10.20.0.0/16"}}]


def test_images_can_be_pinned_by_digest() -> None:
    digest = "sha256:" + "0" * 64
    plain, pinned = Rendered.of(), Rendered.of(settings=[f"image.digest={digest}"])
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__
    assert {c["image"] for _, c in plain.containers()} == {f"aegish-dist:{__version__}"}
    assert {c["image"] for _, c in pinned.containers()} == {f"aegish-dist:{__version__}@{digest}"}


def test_names_stay_within_the_limit() -> None:
    """The longest name of a release that Helm allows yields names that Kubernetes allows."""
    rendered = Rendered.of(settings=["simulator.enabled=true"], release="r" * 53)
    assert max(len(each["metadata"]["name"]) for each in rendered.objects) <= 52
    assert all(each["metadata"]["namespace"] == NAMESPACE for each in rendered.objects)


def test_words_of_yaml_stay_text() -> None:
    rendered = Rendered.of(settings=["extraEnv.NO=a", "keys.variables={ON,N}"], release="2026")
    variables = environment(rendered.pods()["worker"]["spec"]["containers"][0])
    assert {"NO", "ON", "N"} <= variables.keys()
    for each in rendered.objects:
        kubernetes_validate.validate(dict(each), kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("worker.replica=3", "'replica' not allowed"),
        ("autoscaling.enabled=true", "/autoscaling/prometheus"),
        ("autoscaling.scaleDown=now", "/autoscaling/scaleDown"),
        (
            "autoscaling.enabled=true,autoscaling.prometheus=http://a,autoscaling.minReplicas=9",
            "autoscaling.minReplicas is more than autoscaling.maxReplicas",
        ),
        ("worker.longestCallSeconds=0", "/worker/longestCallSeconds"),
        ("extraEnv.OPENAI_API_KEY=sk-1", "invalid propertyName 'OPENAI_API_KEY'"),
        ("extraEnv.AEGISH_DIST_DATABASE_URL=a", "invalid propertyName"),
        ("image.tag=latest", "/image/tag"),
        ("image.digest=sha256:1", "/image/digest"),
        ("keys.variables[0]=lower", "/keys/variables/0"),
        ("networkPolicy.providerPorts[0]=0", "/networkPolicy/providerPorts/0"),
    ],
)
def test_wrong_values_are_refused(setting: str, says: str) -> None:
    done = helm("template", RELEASE, str(CHART), "--set", setting)
    assert done.returncode == 1
    assert says in done.stderr


def test_the_schema_knows_every_value() -> None:
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())

    def compare(described: Mapping[str, Any], given: Mapping[str, Any], at: str) -> None:
        properties = described.get("properties")
        if properties is None:
            return
        assert properties.keys() - {"global"} == given.keys(), at
        assert described["additionalProperties"] is False
        for name, each in properties.items():
            if isinstance(given.get(name), dict):
                compare(each, given[name], f"{at}/{name}")

    compare(schema, defaults, "")


def test_alerts_and_dashboard_come_along() -> None:
    """The operator gets the groups of the rule files as they are, Grafana the dashboard."""
    rendered = Rendered.of([CHART.parent / "values" / "autoscaled.yaml"])
    files = sorted((ROOT / "deploy" / "prometheus" / "rules").glob("*.yml"))
    groups = [group for path in files for group in yaml.safe_load(path.read_text())["groups"]]
    boards = {p.name: p.read_text() for p in (ROOT / "deploy/grafana/dashboards").glob("*.json")}
    for path in (CHART / "files").iterdir():  # what Compose uses too exists once
        assert path.is_symlink()
        assert path.resolve().is_relative_to(ROOT / "deploy")
        assert not path.resolve().is_relative_to(CHART)
    assert rendered.kind("PrometheusRule")["rules"]["spec"]["groups"] == groups
    assert rendered.kind("ConfigMap")["dashboard"]["data"] == boards
    assert boards
